/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the classes of chex-eval cam --class.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "evaluate/cam_run.h"
#include "label/classes.h"

static enum chex_status add(const char *typed, const struct chex_eval_network *n, int *drawn_out,
                            int *count_out, struct chex_error *err) {
    const char *const *names = (const char *const *)n->about.class_names;
    const int c = chex_class_in_list(typed, names, n->about.classes);
    if (c < 0)
        return chex_class_not_in_list("--class", "the network", typed, names, n->about.classes,
                                      err);
    for (int k = 0; k < *count_out; k++)
        if (drawn_out[k] == c)
            return CHEX_OK;
    drawn_out[(*count_out)++] = c;
    return CHEX_OK;
}

enum chex_status chex_eval_cam_classes(const char *list, const struct chex_eval_network *n,
                                       int *drawn_out, int *count_out, struct chex_error *err) {
    char name[256];
    *count_out = 0;
    if (strcasecmp(list, "all") == 0 &&
        chex_class_in_list(list, (const char *const *)n->about.class_names, n->about.classes) < 0) {
        for (int c = 0; c < n->about.classes; c++)
            drawn_out[c] = c;
        *count_out = n->about.classes;
        return CHEX_OK;
    }
    for (const char *at = list;; at++) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ",");
        const char *end = at + length;
        while (length && at[length - 1] == ' ')
            length--;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        CHEX_TRY(add(name, n, drawn_out, count_out, err));
        at = end;
        if (!*at)
            return CHEX_OK;
    }
}
