/* SPDX-License-Identifier: Apache-2.0
 *
 * One run at a time in an output folder. The kernel's lock on partial/lock ends with the process
 * that holds it, however it ends, on one host as over NFS and Lustre; the text in the file is for
 * the message to whoever comes second. Where a file system has no such locks, the text decides.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "data/create_private.h"

enum { HOST_BYTES = 65, TRIES = 100 };

struct holder {
    char host[HOST_BYTES], job[32];
    long pid;
};

static char *lock_path(const struct chex_create *c) {
    return chex_fs_join(c->partial, CHEX_CREATE_LOCK);
}

static enum chex_status no_memory(struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_FAIL, ENOMEM, "the output folder");
}

static void this_host(char host[HOST_BYTES]) {
    if (gethostname(host, HOST_BYTES) != 0)
        snprintf(host, HOST_BYTES, "unknown");
    host[HOST_BYTES - 1] = '\0';
}

/* False where the file says nothing (yet). */
static bool read_holder(int fd, struct holder *h) {
    char text[160];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    *h = (struct holder){0};
    return sscanf(text, "host %64s pid %ld job %31s", h->host, &h->pid, h->job) >= 2;
}

static enum chex_status write_holder(int fd, const char *path, struct chex_error *err) {
    char text[160], host[HOST_BYTES];
    const char *job = getenv("SLURM_JOB_ID");
    this_host(host);
    int n = snprintf(text, sizeof text, "host %s\npid %ld\n%s%.31s%s", host, (long)getpid(),
                     job ? "job " : "", job ? job : "", job ? "\n" : "");
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n || fsync(fd) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", path);
    return CHEX_OK;
}

/* `advice` ends the text. */
static enum chex_status refuse(const struct chex_create *c, const struct holder *h,
                               const char *advice, struct chex_error *err) {
    if (!h->pid)
        return chex_error_set(err, CHEX_E_ENV, "output %s: another chex-shard works in it: %s",
                              c->o->output, advice);
    return chex_error_set(err, CHEX_E_ENV,
                          "output %s: chex-shard of process %ld on %s%s%s works in it: %s",
                          c->o->output, h->pid, h->host, h->job[0] ? ", job " : "", h->job, advice);
}

/* Without locks: a holder on this host can be asked after, one on another host is believed. */
static enum chex_status judge_text(const struct chex_create *c, int fd, const char *path,
                                   struct chex_error *err) {
    struct holder h;
    char host[HOST_BYTES], advice[CHEX_ERROR_TEXT_BYTES];
    this_host(host);
    if (!read_holder(fd, &h))
        return CHEX_OK;
    bool here = strcmp(h.host, host) == 0;
    if (here && (h.pid == (long)getpid() || (kill((pid_t)h.pid, 0) != 0 && errno == ESRCH)))
        return CHEX_OK;
    snprintf(advice, sizeof advice,
             "wait for its end, or remove %s where that run is over (this file system has no "
             "locks)",
             path);
    return refuse(c, &h, advice, err);
}

/* Whether the name still leads to the file: who held it before may have removed it meanwhile. */
static bool still_there(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* *fd_out: -1 where the file went while we took it. */
static enum chex_status try_lock(const struct chex_create *c, const char *path, int *fd_out,
                                 struct chex_error *err) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct holder h;
    *fd_out = -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 && errno == ENOENT)
        return CHEX_OK;
    if (fd < 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot create %s", path);
    enum chex_status st = CHEX_OK;
    if (fcntl(fd, F_SETLK, &whole) != 0) {
        if (errno == EACCES || errno == EAGAIN) {
            read_holder(fd, &h);
            st = refuse(c, &h, "wait for its end, or give another --output", err);
        } else {
            st = judge_text(c, fd, path, err);
        }
    }
    if (st == CHEX_OK && still_there(fd, path))
        st = write_holder(fd, path, err);
    else if (st == CHEX_OK) {
        close(fd);
        return CHEX_OK;
    }
    if (st != CHEX_OK)
        close(fd);
    else
        *fd_out = fd;
    return st;
}

enum chex_status chex_create_lock(struct chex_create *c, struct chex_error *err) {
    char *path = lock_path(c);
    int fd = -1;
    enum chex_status st = path ? CHEX_OK : no_memory(err);
    for (int i = 0; st == CHEX_OK && fd < 0 && i < TRIES; i++) {
        st = chex_fs_mkdirs(c->partial, err);
        if (st == CHEX_OK)
            st = try_lock(c, path, &fd, err);
    }
    if (st == CHEX_OK && fd < 0)
        st = chex_error_set(err, CHEX_E_ENV, "%s comes and goes: other runs use output %s", path,
                            c->o->output);
    free(path);
    c->lock_fd = fd;
    return st;
}

void chex_create_unlock(struct chex_create *c) {
    char *path = lock_path(c);
    if (c->lock_fd < 0 || !path) {
        free(path);
        return;
    }
    unlink(path);
    /* Before rmdir: over NFS an open file keeps its folder. */
    close(c->lock_fd);
    c->lock_fd = -1;
    rmdir(c->partial); /* only where it is empty */
    free(path);
}
