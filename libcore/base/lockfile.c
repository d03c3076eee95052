/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks a folder for one process (contract in lockfile.h).
 *
 * The lock is an fcntl write lock on a file. The file also holds the owner's host, process id and
 * job, for the error text and for file systems without locks. An owner may remove the file while
 * another process opens it. The opener therefore compares the inode of its descriptor with that of
 * the path after it has the lock, and tries again if they differ.
 */
#include "base/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

enum { TRIES = 100 };

struct holder {
    char host[65], job[32]; /* job: "-" outside a job */
    long pid;               /* 0: unknown */
};

static struct holder this_process(void) {
    struct holder me = {.pid = (long)getpid()};
    const char *job = getenv("SLURM_JOB_ID");
    if (gethostname(me.host, sizeof me.host) != 0)
        snprintf(me.host, sizeof me.host, "unknown");
    me.host[sizeof me.host - 1] = '\0';
    snprintf(me.job, sizeof me.job, "%s", job && *job ? job : "-");
    return me;
}

static struct holder read_holder(int fd) {
    char text[160] = "";
    struct holder h = {.pid = 0};
    if (pread(fd, text, sizeof text - 1, 0) <= 0 ||
        sscanf(text, "host %64s pid %ld job %31s", h.host, &h.pid, h.job) != 3)
        h.pid = 0;
    return h;
}

static enum chex_status write_holder(int fd, const char *path, struct chex_error *err) {
    char text[160];
    const struct holder me = this_process();
    int n = snprintf(text, sizeof text, "host %s pid %ld job %s\n", me.host, me.pid, me.job);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n || fsync(fd) != 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", path);
    return CHEX_OK;
}

/* Whether the owner counts if the file system has no locks. */
static bool still_counts(const struct holder *h) {
    const struct holder me = this_process();
    if (strcmp(h->host, me.host) == 0)
        return h->pid != me.pid && (kill((pid_t)h->pid, 0) == 0 || errno == EPERM);
    return strcmp(h->job, "-") == 0 || strcmp(h->job, me.job) != 0;
}

/* without: the path if the file system has no locks, else NULL. */
static enum chex_status refuse(const char *subject, const char *advice, const struct holder *h,
                               const char *without, struct chex_error *err) {
    const bool in_job = h->pid && strcmp(h->job, "-") != 0;
    char who[160] = "by an unknown process";
    if (h->pid)
        snprintf(who, sizeof who, "by process %ld on %s%s%s", h->pid, h->host,
                 in_job ? ", job " : "", in_job ? h->job : "");
    return chex_error_set(err, CHEX_E_ENV, "%s is in use %s: wait for that run to end, or %s%s%s%s",
                          subject, who, advice, without ? " (if it has ended, remove " : "",
                          without ? without : "", without ? ")" : "");
}

/* Whether the path still names this file: its owner may have removed it. */
static bool still_there(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* One attempt. *fd_out is -1 if the file was removed meanwhile. */
static enum chex_status try_once(const char *path, const char *subject, const char *advice,
                                 int *fd_out, struct chex_error *err) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    *fd_out = -1;
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 && errno == ENOENT)
        return CHEX_OK;
    if (fd < 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot open %s", path);
    bool ours = fcntl(fd, F_SETLK, &whole) == 0;
    const bool locks = ours || errno == EACCES || errno == EAGAIN;
    const struct holder h = read_holder(fd);
    if (!locks)
        ours = !h.pid || !still_counts(&h);
    enum chex_status st = CHEX_OK;
    bool gone = false;
    if (!ours)
        st = refuse(subject, advice, &h, locks ? NULL : path, err);
    else if (still_there(fd, path))
        st = write_holder(fd, path, err);
    else
        gone = true;
    if (ours && !gone && st != CHEX_OK)
        unlink(path); /* the lock is held, so the file is of no other process */
    if (st == CHEX_OK && !gone)
        *fd_out = fd;
    else
        close(fd);
    return st;
}

enum chex_status chex_lockfile_take(const char *dir, const char *name, const char *subject,
                                    const char *advice, int *fd_out, struct chex_error *err) {
    int fd = -1;
    char *path = chex_fs_join(dir, name);
    enum chex_status st = path ? CHEX_OK : chex_error_memory(err, "%s", subject);
    for (int i = 0; st == CHEX_OK && fd < 0 && i < TRIES; i++) {
        st = chex_fs_mkdirs(dir, err);
        if (st == CHEX_OK)
            st = try_once(path, subject, advice, &fd, err);
    }
    if (st == CHEX_OK && fd < 0)
        st = chex_error_set(err, CHEX_E_ENV,
                            "%s: cannot lock %s: other runs create and remove it repeatedly",
                            subject, path);
    free(path);
    *fd_out = fd;
    return st;
}

enum chex_status chex_lockfile_check(const char *dir, const char *name, const char *subject,
                                     const char *advice, struct chex_error *err) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char *path = chex_fs_join(dir, name);
    if (!path)
        return chex_error_memory(err, "%s", subject);
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    enum chex_status st = CHEX_OK;
    if (fd < 0 && errno != ENOENT)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot open %s", path);
    if (fd >= 0) {
        const bool locks = fcntl(fd, F_GETLK, &whole) == 0;
        const struct holder h = read_holder(fd);
        if (locks ? whole.l_type != F_UNLCK : h.pid && still_counts(&h))
            st = refuse(subject, advice, &h, locks ? NULL : path, err);
        close(fd);
    }
    free(path);
    return st;
}

enum chex_status chex_lockfile_confirm(const char *dir, const char *name, const char *subject,
                                       int fd, struct chex_error *err) {
    char *path = chex_fs_join(dir, name);
    if (!path)
        return chex_error_memory(err, "%s", subject);
    const bool other = chex_fs_exists(path) && !still_there(fd, path);
    free(path);
    return other ? chex_error_set(err, CHEX_E_ENV,
                                  "%s was removed while this run used it, and holds another run "
                                  "now: nothing more is written there",
                                  subject)
                 : CHEX_OK;
}

void chex_lockfile_release(const char *dir, const char *name, int fd, bool remove) {
    char *path = remove ? chex_fs_join(dir, name) : NULL;
    if (fd < 0) {
        free(path);
        return;
    }
    if (path)
        unlink(path);
    int ignored = ftruncate(fd, 0);
    (void)ignored;
    close(fd);
    free(path);
}
