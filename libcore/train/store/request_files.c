/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests by file. unlink() is the look and the removal in one call.
 */
#include "train/store/request_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static const char *const names[CHEX_REQUEST_COUNT] = {"stop", "save"};
static const double look_again_s = 1;

static bool take(struct chex_request_files *f, enum chex_request which) {
    char path[4096];
    if (f->ignored[which])
        return false;
    snprintf(path, sizeof path, "%s/%s", f->dir, names[which]);
    if (unlink(path) == 0)
        return true;
    const int why = errno;
    f->ignored[which] = why != ENOENT && access(path, F_OK) == 0;
    if (f->ignored[which])
        chex_warn("%s is ignored: it cannot be removed (%s; expected a file)", path, strerror(why));
    return false;
}

void chex_request_files_start(struct chex_request_files *f, const char *dir) {
    *f = (struct chex_request_files){.dir = dir};
    for (int i = 0; i < CHEX_REQUEST_COUNT; i++)
        if (take(f, (enum chex_request)i))
            chex_warn("%s/%s is from before the start of the run: it is removed and not obeyed",
                      dir, names[i]);
}

void chex_request_files_take(struct chex_request_files *f, double now_s,
                             bool taken_out[CHEX_REQUEST_COUNT]) {
    memset(taken_out, 0, CHEX_REQUEST_COUNT * sizeof *taken_out);
    if (!f->dir || now_s - f->looked_s < look_again_s)
        return;
    f->looked_s = now_s;
    for (int i = 0; i < CHEX_REQUEST_COUNT; i++)
        taken_out[i] = take(f, (enum chex_request)i);
}
