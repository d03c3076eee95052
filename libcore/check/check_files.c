/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of folders: can files be written where the commands write them? The probe writes a file,
 * because permissions alone do not show quotas, read-only mounts and broken servers.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/units.h"
#include "check/checks.h"
#include "check/storage.h"

static const uint64_t MIB = UINT64_C(1) << 20;

/* Writes a small file. Returns 0, or the errno of the first step that failed. */
static int try_write(const char *dir) {
    static const char bytes[4096];
    int status = 0, fd = chex_storage_open_nameless(dir);
    if (fd < 0)
        return errno;
    if (write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes || fsync(fd) != 0)
        status = errno ? errno : ENOSPC;
    close(fd);
    return status;
}

void chex_check_judge_folder(const struct chex_folder_seen *f, enum chex_fault fault,
                             const char *remedy, struct chex_check_result *r) {
    const bool full = f->error == ENOSPC || f->error == EDQUOT;
    const bool others = f->prolog && f->total >= f->wanted && f->free + f->left < f->min;
    if (f->error == EFBIG)
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_USER,
                          "raise it with ulimit -f unlimited where the job is submitted");
    else if (f->error != 0 && !full)
        chex_check_worsen(r, CHEX_FAIL, fault, "%s", remedy);
    else if (full || f->free < f->wanted)
        chex_check_worsen(r, (full || f->free < f->min) && !others ? CHEX_FAIL : CHEX_WARN, fault,
                          "%s", remedy);
}

/* Size of the file system of `dir`. False: unknown. */
static bool total_bytes(const char *dir, uint64_t *out) {
    struct statvfs s;
    if (statvfs(dir, &s) != 0)
        return false;
    *out = (uint64_t)s.f_blocks * s.f_frsize;
    return true;
}

/* ---- what ended jobs left ---- */

struct leftover {
    uid_t uid;
    uint64_t bytes;
    char path[160];
};

enum { USERS = 4096, FILES = 100000 };

/* The effective users of all processes. Returns their number; 0: not all can be seen. */
static int find_users(uid_t *users) {
    struct stat s;
    int count = 0;
    DIR *proc = stat("/proc/1", &s) == 0 ? opendir("/proc") : NULL;
    for (struct dirent *e; proc && count < USERS && (e = readdir(proc));) {
        int k = 0;
        if (e->d_name[0] < '0' || e->d_name[0] > '9' || fstatat(dirfd(proc), e->d_name, &s, 0) != 0)
            continue;
        while (k < count && users[k] != s.st_uid)
            k++;
        users[k] = s.st_uid;
        count += k == count;
    }
    if (proc)
        closedir(proc);
    return count < USERS ? count : 0;
}

static bool has_process(const uid_t *users, int count, uid_t uid) {
    int k = 0;
    while (k < count && users[k] != uid)
        k++;
    return k < count;
}

/* The bytes below `dir` of users that have no process here. Looks at FILES files at most. */
static uint64_t find_leftovers(const char *dir, struct leftover *largest) {
    uint64_t sum = 0;
    uid_t *users = chex_alloc_zeroed(USERS, sizeof *users);
    const int count = users ? find_users(users) : 0;
    char *const roots[] = {(char *)(uintptr_t)dir, NULL};
    FTS *tree = count ? fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL) : NULL;
    FTSENT *e;
    for (int files = 0; tree && files < FILES && (e = fts_read(tree)); files++) {
        if (e->fts_info != FTS_F || has_process(users, count, e->fts_statp->st_uid))
            continue;
        const uint64_t bytes = (uint64_t)e->fts_statp->st_blocks * 512;
        sum += bytes;
        if (bytes <= largest->bytes)
            continue;
        largest->bytes = bytes;
        largest->uid = e->fts_statp->st_uid;
        snprintf(largest->path, sizeof largest->path, "%s", e->fts_path);
    }
    if (tree)
        fts_close(tree);
    free(users);
    return sum;
}

/* min, wanted: as in struct chex_folder_seen. leftovers: look for files of ended jobs. */
static void probe_folder(const struct chex_check_context *c, struct chex_check_result *r,
                         const char *dir, enum chex_fault fault, uint64_t min, uint64_t wanted,
                         bool leftovers, const char *remedy) {
    char free_text[32], wanted_text[32];
    struct chex_error err = {0};
    struct leftover largest = {0};
    r->path = chex_hash64(dir, strlen(dir));
    struct chex_folder_seen f = {.error = try_write(dir),
                                 .min = min,
                                 .wanted = wanted,
                                 .prolog = chex_check_of_node(c->mode)};
    chex_check_expect(r, "writable, %s free",
                      chex_format_bytes(wanted_text, sizeof wanted_text, wanted));
    if (f.error == 0 && chex_fs_free_bytes(dir, &f.free, &err) != CHEX_OK) {
        chex_check_found(r, "%s", err.text);
        chex_check_worsen(r, CHEX_WARN, fault, "%s", remedy);
        return;
    }
    (void)total_bytes(dir, &f.total);
    if (f.error != 0)
        chex_check_found(r, "%s: %s", dir, strerror(f.error));
    else
        chex_check_found(r, "%s, %s free", dir,
                         chex_format_bytes(free_text, sizeof free_text, f.free));
    if (leftovers && f.free < wanted)
        f.left = find_leftovers(dir, &largest);
    chex_check_judge_folder(&f, fault, remedy, r);
    if (f.left > 0) {
        chex_check_found_more(r, "; users without a process here left %s",
                              chex_format_bytes(free_text, sizeof free_text, f.left));
        chex_check_worsen(r, r->verdict, fault,
                          "ended jobs left files: remove them, first %s of uid %u", largest.path,
                          (unsigned)largest.uid);
    }
}

static void probe_workdir(const struct chex_check_context *c, struct chex_check_result *r) {
    char dir[4096];
    if (!getcwd(dir, sizeof dir)) {
        chex_check_expect(r, "a folder that exists on this node");
        chex_check_found(r, "%s", strerror(errno));
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_USER, "change to a folder that all nodes see");
        return;
    }
    probe_folder(c, r, dir, CHEX_FAULT_USER, 16 * MIB, 1024 * MIB, false,
                 "start from a writable folder with free space that all nodes see");
}
CHEX_CHECK(workdir, .name = "workdir", .question = "can results be written in the current folder?",
           .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER, .probe = probe_workdir);

/* The prolog does not have the job's TMPDIR, so it checks /tmp of the node. */
static void probe_tmpdir(const struct chex_check_context *c, struct chex_check_result *r) {
    const char *dir = chex_check_of_node(c->mode) ? NULL : getenv("TMPDIR");
    const bool set = dir && *dir;
    probe_folder(c, r, set ? dir : "/tmp", set ? CHEX_FAULT_USER : CHEX_FAULT_NODE, MIB, 256 * MIB,
                 false,
                 set ? "set TMPDIR to a writable folder with free space on this node"
                     : "/tmp of this node is full or cannot be written: clean it");
}
CHEX_CHECK(tmpdir, .name = "tmpdir", .question = "can temporary files be written?",
           .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_tmpdir);

static void probe_shm(const struct chex_check_context *c, struct chex_check_result *r) {
    probe_folder(c, r, "/dev/shm", CHEX_FAULT_NODE, MIB, 64 * MIB, true,
                 "ranks of a node communicate through /dev/shm: free or enlarge it (container: "
                 "--shm-size)");
}
CHEX_CHECK(shm, .name = "shm", .question = "is there shared memory for the ranks of a node?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .probe = probe_shm);
