/* SPDX-License-Identifier: Apache-2.0
 *
 * Is the folder of results the same on all nodes? Rank 0 writes there; after a restart another node
 * may be the one of rank 0.
 *
 * A folder on a local file system is compared by the file system's number, inode and time of birth.
 * If they differ, the folders are different. If they are equal, they may still be two folders, on
 * nodes whose disks are copies of one image.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "check/checks.h"

/* Identity of a folder on a local file system. 0: on a shared one, or unknown. */
static uint64_t identity(const char *dir) {
    struct statfs fs;
    struct statx s;
    if (!chex_fs_is_local(dir) || statfs(dir, &fs) != 0 ||
        statx(AT_FDCWD, dir, 0, STATX_INO | STATX_BTIME, &s) != 0)
        return 0;
    uint64_t digest = chex_hash64(&fs.f_fsid, sizeof fs.f_fsid);
    digest = chex_hash64_mix(digest, &s.stx_ino, sizeof s.stx_ino);
    if (s.stx_mask & STATX_BTIME) {
        const int64_t born[2] = {s.stx_btime.tv_sec, s.stx_btime.tv_nsec};
        digest = chex_hash64_mix(digest, born, sizeof born);
    }
    return digest ? digest : 1;
}

static void probe_output(const struct chex_check_context *c, struct chex_check_result *r) {
    char *dir = c->output ? chex_fs_existing(c->output) : getcwd(NULL, 0);
    chex_check_expect(r, "one folder that all nodes share");
    chex_check_found(r, "%s", c->output ? c->output : dir ? dir : "the current folder is gone");
    if (c->output)
        r->path = chex_hash64(c->output, strlen(c->output));
    if (dir)
        r->kind = identity(dir);
    free(dir);
}

static void across_output(const struct chex_check_record *records,
                          const struct chex_check_result *const *all, int n,
                          struct chex_check_result *merged) {
    char names[CHEX_NODES_BYTES];
    bool *other = chex_alloc_zeroed((size_t)n, sizeof *other);
    for (int i = 0; other && i < n; i++)
        other[i] = records[i].node != records[0].node && all[i]->kind != all[0]->kind;
    if (other && chex_check_name_nodes(records, other, n, true, names, sizeof names) > 0) {
        chex_check_found(merged, "%s: %s is not the folder of rank 0 (%s)", names, all[0]->found,
                         records[0].host);
        chex_check_worsen(merged, all[0]->path ? CHEX_FAIL : CHEX_WARN, CHEX_FAULT_USER,
                          "name a folder that all nodes share with --output");
    }
    free(other);
}
CHEX_CHECK(output, .name = "output", .question = "do all nodes see the folder of results?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe_output,
           .across = across_output);
