/* SPDX-License-Identifier: Apache-2.0
 *
 * Can files be written where we would write them? Tried with a file, because permissions alone say
 * little about quotas, read-only mounts and sick servers.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/units.h"
#include "check/checks.h"

static const uint64_t MIB = UINT64_C(1) << 20;

/* 0, or the errno of the first step that failed. Nothing stays behind. */
static int try_write(const char *dir) {
    static const char bytes[4096];
    char path[4096];
    int status = 0;
    if (snprintf(path, sizeof path, "%s/.chex-env-XXXXXX", dir) >= (int)sizeof path)
        return ENAMETOOLONG;
    int fd = mkstemp(path);
    if (fd < 0)
        return errno;
    if (write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes || fsync(fd) != 0)
        status = errno ? errno : ENOSPC;
    close(fd);
    unlink(path);
    return status;
}

/* least, wanted: below the first it fails, below the second it warns. */
static void probe_folder(struct chex_check_result *r, const char *dir, enum chex_fault fault,
                         uint64_t least, uint64_t wanted, const char *remedy) {
    char free_text[32], wanted_text[32];
    uint64_t bytes = 0;
    struct chex_error err = {0};
    chex_check_expect(r, "writable, %s free",
                      chex_format_bytes(wanted_text, sizeof wanted_text, wanted));
    int status = try_write(dir);
    if (status != 0) {
        chex_check_found(r, "%s: %s", dir, strerror(status));
        chex_check_worsen(r, CHEX_FAIL, fault, "%s", remedy);
        return;
    }
    if (chex_fs_free_bytes(dir, &bytes, &err) != CHEX_OK) {
        chex_check_found(r, "%s", err.text);
        chex_check_worsen(r, CHEX_WARN, fault, "%s", remedy);
        return;
    }
    chex_check_found(r, "%s, %s free", dir, chex_format_bytes(free_text, sizeof free_text, bytes));
    if (bytes < wanted)
        chex_check_worsen(r, bytes < least ? CHEX_FAIL : CHEX_WARN, fault, "%s", remedy);
}

static void probe_workdir(const struct chex_check_context *c, struct chex_check_result *r) {
    char dir[4096];
    (void)c;
    if (!getcwd(dir, sizeof dir)) {
        chex_check_expect(r, "a folder that exists on this node");
        chex_check_found(r, "%s", strerror(errno));
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_USER, "change to a folder that all nodes see");
        return;
    }
    probe_folder(r, dir, CHEX_FAULT_USER, 16 * MIB, 1024 * MIB,
                 "start from a folder with space that you may write, seen by all nodes");
}
const struct chex_check chex_check_workdir = {"workdir",
                                              "can results be written in the current folder?",
                                              CHEX_IN_JOB | CHEX_IN_LOGIN,
                                              CHEX_FAULT_USER,
                                              probe_workdir,
                                              NULL};

/* In the prolog TMPDIR is not the job's: the node's own /tmp is looked at. */
static void probe_tmpdir(const struct chex_check_context *c, struct chex_check_result *r) {
    const char *dir = c->mode == CHEX_MODE_PROLOG ? NULL : getenv("TMPDIR");
    const bool set = dir && *dir;
    probe_folder(r, set ? dir : "/tmp", set ? CHEX_FAULT_USER : CHEX_FAULT_NODE, MIB, 256 * MIB,
                 set ? "set TMPDIR to a folder on this node with space that you may write"
                     : "/tmp of this node is full or cannot be written: clean it");
}
const struct chex_check chex_check_tmpdir = {
    "tmpdir", "can temporary files be written?", CHEX_IN_ALL, CHEX_FAULT_NODE, probe_tmpdir, NULL};

static void probe_shm(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    probe_folder(r, "/dev/shm", CHEX_FAULT_NODE, MIB, 64 * MIB,
                 "ranks of a node talk through /dev/shm: free or enlarge it (container: "
                 "--shm-size)");
}
const struct chex_check chex_check_shm = {"shm",
                                          "is there shared memory for the ranks of a node?",
                                          CHEX_IN_JOB | CHEX_IN_PROLOG,
                                          CHEX_FAULT_NODE,
                                          probe_shm,
                                          NULL};
