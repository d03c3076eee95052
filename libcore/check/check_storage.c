/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of file systems: the rates of writing results and temporary files and of reading shards,
 * and whether rows of shards match their checksums.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/units.h"
#include "check/checks.h"
#include "check/measure.h"
#include "check/storage.h"
#include "shard/manifest.h"
#include "shard/shard.h"

/* ---- writing ---- */

/* Below these rates a checkpoint of 100 MB takes 10 s, and each synced line of a log 0.5 s. */
static const double min_write = 10e6, max_sync_s = 0.5;
static const uint64_t write_bytes = UINT64_C(64) << 20;
static const double write_s = 2;

/* Reports an error of a folder. fault: the node's for its own folders, the user's for a folder that
 * the user chose. */
static void fail_folder(struct chex_check_result *r, const char *dir, enum chex_fault fault,
                        const struct chex_error *err) {
    chex_check_found(r, "%s", err->text);
    chex_check_worsen(r, CHEX_FAIL, err->status == CHEX_E_NODE ? CHEX_FAULT_NODE : fault, "%s %s",
                      err->status == CHEX_E_NODE       ? "look at the disk or the file server of"
                      : err->status == CHEX_E_RESOURCE ? "free space, or use another folder than"
                                                       : "use a writable folder instead of",
                      dir);
}

static void probe_write(const struct chex_check_context *c, const char *dir, enum chex_fault fault,
                        struct chex_check_result *r) {
    struct chex_write_rate w;
    struct chex_error err = {0};
    uint64_t free_bytes = 0;
    char free_text[32];
    r->path = chex_hash64(dir, strlen(dir));
    chex_check_expect(r, "%.0f MB/s, an fsync in %.1f s", min_write / 1e6, max_sync_s);
    if (!chex_check_has_time(c, write_s + 1, r))
        return;
    if (chex_fs_free_bytes(dir, &free_bytes, &err) == CHEX_OK && free_bytes < 2 * write_bytes) {
        chex_check_skip(r, "%s has %s free, too little to try", dir,
                        chex_format_bytes(free_text, sizeof free_text, free_bytes));
        return;
    }
    chex_measure_begin(c->measure, CHEX_DISTURB_DISK);
    const enum chex_status st = chex_storage_write(dir, write_bytes, write_s, &w, &err);
    chex_measure_end(c->measure, r);
    if (st != CHEX_OK) {
        fail_folder(r, dir, fault, &err);
        return;
    }
    r->figures[0] = w.bytes_per_s / 1e6;
    r->figures[1] = w.sync_s * 1e3;
    r->spread[0] = w.bytes_spread;
    r->spread[1] = w.sync_spread;
    chex_check_found(r, "%.4g MB/s, fsync %.3g ms, %s free: %s", r->figures[0], r->figures[1],
                     chex_format_bytes(free_text, sizeof free_text, free_bytes), dir);
    if (w.bytes_per_s < min_write || w.sync_s > max_sync_s)
        chex_check_worsen(
            r, CHEX_WARN, fault,
            "checkpoints will be slow: use a faster file system, or write fewer of them "
            "with --checkpoint-every");
}

/* True on all ranks of a node except the first, because all would write to the same disk. */
static bool skips_node_disk(const struct chex_check_context *c, struct chex_check_result *r) {
    if (c->launch->local_rank == 0)
        return false;
    chex_check_found(r, "measured by local rank 0");
    return true;
}

static void probe_tmpdir_rate(const struct chex_check_context *c, struct chex_check_result *r) {
    const char *dir = chex_check_of_node(c->mode) ? NULL : getenv("TMPDIR");
    const bool set = dir && *dir;
    if (!skips_node_disk(c, r))
        probe_write(c, set ? dir : "/tmp", set ? CHEX_FAULT_USER : CHEX_FAULT_NODE, r);
}
CHEX_CHECK(
    tmpdir_rate, .name = "tmpdir-rate", .question = "how fast are temporary files written?",
    .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_tmpdir_rate, .level = 2,
    .start = CHEX_START_TOGETHER,
    .figures = {
        {.key = "mb_per_s", .unit = "MB/s", .compared = true, .warn_only = true, .margin = 0.3},
        {.key = "fsync_ms", .unit = "ms", .lower_is_better = true}});

static void probe_results(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_error err = {0};
    uint64_t free_bytes = write_bytes;
    char *dir = c->output ? chex_fs_existing(c->output) : getcwd(NULL, 0);
    if (!dir) {
        chex_check_skip(r, "the current folder is gone: see workdir");
    } else if (c->output && chex_fs_check_mkdirs(c->output, &err) != CHEX_OK) {
        chex_check_expect(r, "a folder, or one that can be created");
        fail_folder(r, c->output, CHEX_FAULT_USER, &err);
    } else {
        probe_write(c, dir, CHEX_FAULT_USER, r);
    }
    if (dir && r->verdict == CHEX_SKIP && chex_fs_free_bytes(dir, &free_bytes, &err) == CHEX_OK &&
        free_bytes < write_bytes)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "a checkpoint does not fit there: free space, or use another folder with "
                          "--output");
    free(dir);
}

/* Only rank 0 writes results. */
static void probe_output(const struct chex_check_context *c, struct chex_check_result *r) {
    if (c->launch->rank != 0)
        chex_check_found(r, "measured by rank 0, which writes results");
    else
        probe_results(c, r);
}
CHEX_CHECK(output_rate, .name = "output-rate", .question = "how fast are results written?",
           .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER, .probe = probe_output,
           .level = 2,
           .figures = {{.key = "mb_per_s", .unit = "MB/s", .margin = 0.3},
                       {.key = "fsync_ms", .unit = "ms", .lower_is_better = true}});

/* ---- reading ---- */

static const double read_s = 3;
enum { ROWS = 64 };

/* The path of a shard that this rank would read in training: the middle one of its share of the
 * first split that has rows. The caller frees the string. */
static char *own_shard(const struct chex_check_context *c, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    char *path = NULL;
    if (chex_manifest_read(c->data, &m, err) != CHEX_OK)
        return NULL;
    const struct chex_manifest_split *s = NULL;
    for (int i = 0; i < CHEX_SPLIT_COUNT && !s; i++)
        s = m->splits[i].shard_count > 0 && m->splits[i].rows > 0 ? &m->splits[i] : NULL;
    if (s)
        path = chex_fs_join(c->data, s->shards[(2 * (size_t)c->launch->rank + 1) * s->shard_count /
                                               (2 * (size_t)c->launch->size)]
                                         .file);
    if (!path)
        chex_error_set(err, s ? CHEX_E_RESOURCE : CHEX_E_DATA,
                       s ? "out of memory" : "%s: no split has rows", c->data);
    chex_manifest_free(m);
    return path;
}

/* Reads up to ROWS rows, spread evenly over the shard, and verifies their checksums. */
static enum chex_status verify(const char *path, int *rows_out, struct chex_error *err) {
    struct chex_shard *shard = NULL;
    CHEX_TRY(chex_shard_open(path, &shard, err));
    const size_t rows = chex_shard_rows(shard), side = (size_t)chex_shard_size(shard);
    const size_t count = rows < ROWS ? rows : ROWS;
    uint8_t *pixels = chex_alloc_aligned(side, side);
    enum chex_status st = pixels ? CHEX_OK : chex_error_memory(err, NULL);
    for (size_t i = 0; i < count && st == CHEX_OK; i++)
        st = chex_shard_read(shard, i * rows / count, 1, true, pixels, err);
    free(pixels);
    chex_shard_close(shard);
    *rows_out = (int)count;
    return st;
}

/* The folder is not a set of shards, or the set is incomplete. */
static void blame_set(const struct chex_error *err, struct chex_check_result *r) {
    chex_check_found(r, "%s", err->text);
    chex_check_worsen(
        r, CHEX_FAIL, err->status == CHEX_E_NODE ? CHEX_FAULT_NODE : CHEX_FAULT_USER,
        "pass the folder that chex-shard wrote with --data, on a file system that all "
        "nodes see");
}

/* Reads the same rows again. If they are valid now, the file is good, and the node is faulty. */
static void blame_data(const char *path, const struct chex_error *first,
                       struct chex_check_result *r) {
    struct chex_error again = {0};
    int rows;
    chex_storage_forget(path);
    chex_check_found(r, "%s", first->text);
    if (first->status == CHEX_E_DATA && verify(path, &rows, &again) == CHEX_OK)
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                          "a second read was correct: memory, or the path to the file system, "
                          "corrupts data on this node; drain it");
    else if (first->status == CHEX_E_NODE)
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE,
                          "the file system fails here: look at the server and this node's mount");
    else
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_USER,
                          "run chex-shard verify to list all damage of this set");
}

static void probe_data(const struct chex_check_context *c, struct chex_check_result *r) {
    struct chex_read_rate rate;
    struct chex_error err = {0};
    char bytes[32];
    int rows = 0;
    chex_check_expect(r, "as fast as others; every row as its checksum says");
    if (!c->data) {
        chex_check_skip(r, "no --data");
        return;
    }
    r->path = chex_hash64(c->data, strlen(c->data));
    if (!chex_check_has_time(c, read_s + 1, r))
        return;
    chex_measure_begin(c->measure, CHEX_DISTURB_DISK);
    char *path = own_shard(c, &err);
    enum chex_status st = path ? chex_storage_read(path, read_s, &rate, &err) : err.status;
    chex_measure_end(c->measure, r);
    if (st == CHEX_OK)
        st = verify(path, &rows, &err);
    if (st == CHEX_E_RESOURCE)
        chex_check_skip(r, "%s", err.text);
    else if (st != CHEX_OK && !path)
        blame_set(&err, r);
    else if (st != CHEX_OK)
        blame_data(path, &err, r);
    if (st == CHEX_OK) {
        r->figures[0] = rate.bytes_per_s / 1e6;
        r->kind = rate.cached;
        chex_check_found(r, "%.4g MB/s%s, %s of %s, %d rows sound", r->figures[0],
                         rate.cached ? " through the page cache" : "",
                         chex_format_bytes(bytes, sizeof bytes, rate.bytes), path, rows);
    }
    free(path);
}
CHEX_CHECK(
    data_rate, .name = "data-rate", .question = "how fast are shards read, and are they sound?",
    .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER, .probe = probe_data, .level = 2,
    .start = CHEX_START_TOGETHER,
    .figures = {
        {.key = "mb_per_s", .unit = "MB/s", .compared = true, .warn_only = true, .margin = 0.3}});
