/* SPDX-License-Identifier: Apache-2.0 */
#include "train/runlock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

struct holder {
    char host[CHEX_HOST_BYTES], job[32]; /* job: "-" outside of one */
    int pid;
};

static bool read_holder(int fd, struct holder *h) {
    char text[160] = "";
    *h = (struct holder){0};
    return pread(fd, text, sizeof text - 1, 0) > 0 &&
           sscanf(text, "host %63s pid %d job %31s", h->host, &h->pid, h->job) == 3;
}

static enum chex_status write_holder(int fd, const char *path, const struct chex_launch *l,
                                     struct chex_error *err) {
    char text[160];
    int n = snprintf(text, sizeof text, "host %s pid %d job %s\n", l->host, (int)getpid(),
                     l->job_id[0] ? l->job_id : "-");
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", path);
    return CHEX_OK;
}

/* Without locks. A process of this host is asked for by its number. */
static bool still_there(const struct holder *h, const struct chex_launch *l) {
    if (strcmp(h->host, l->host) == 0)
        return h->pid != (int)getpid() && (kill(h->pid, 0) == 0 || errno == EPERM);
    return strcmp(h->job, "-") == 0 || strcmp(h->job, l->job_id) != 0;
}

static enum chex_status refuse(const char *dir, const char *path, bool locks,
                               const struct holder *h, struct chex_error *err) {
    char who[CHEX_HOST_BYTES + 80] = "by a process that it does not name";
    if (h->pid)
        snprintf(who, sizeof who, "by process %d on %s%s%s", h->pid, h->host,
                 strcmp(h->job, "-") ? ", job " : "", strcmp(h->job, "-") ? h->job : "");
    return chex_error_set(err, CHEX_E_ENV,
                          "output folder %s is in use %s: wait for that run to end, or name a new "
                          "folder with --output%s%s%s",
                          dir, who, locks ? "" : " (if it has ended without clearing ",
                          locks ? "" : path, locks ? "" : ", remove that file)");
}

static enum chex_status lock(int fd, const char *dir, const char *path, const struct chex_launch *l,
                             struct chex_error *err) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct holder h;
    bool free_now = fcntl(fd, F_SETLK, &whole) == 0;
    bool locks = free_now || errno == EACCES || errno == EAGAIN;
    bool named = read_holder(fd, &h);
    if (!locks)
        free_now = !named || !still_there(&h, l);
    return free_now ? write_holder(fd, path, l, err) : refuse(dir, path, locks, &h, err);
}

enum chex_status chex_runlock_take(const char *dir, const struct chex_launch *launch, int *fd_out,
                                   struct chex_error *err) {
    char *path = chex_fs_join(dir, ".lock");
    if (!path)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    enum chex_status st = fd >= 0
                              ? lock(fd, dir, path, launch, err)
                              : chex_error_errno(err, CHEX_E_ENV, errno, "cannot open %s", path);
    free(path);
    if (st == CHEX_OK)
        *fd_out = fd;
    else if (fd >= 0)
        close(fd);
    return st;
}

void chex_runlock_release(int fd) {
    if (fd < 0)
        return;
    /* The file stays: removing it would let two runs lock two files of one name. */
    int ignored = ftruncate(fd, 0);
    (void)ignored;
    close(fd);
}
