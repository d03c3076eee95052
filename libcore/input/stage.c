/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies the shards of a node to node-local storage. stage.h explains the protocol.
 *
 * The ranks exchange their needs (struct need), agree that every copy is made, and exchange the
 * random parts of the folders' names (struct copy).
 */
#include "input/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "shard/manifest.h"

enum { COPY_BYTES = 4 << 20, NAME_BYTES = 96 };

/* What the ranks exchange as raw bytes: first `need`, then `copy`. maker: the rank that copies. */
struct need {
    int32_t node, part_count;
    struct {
        int32_t split;
        uint64_t row_from, row_to;
    } parts[CHEX_STAGE_PARTS];
};
struct copy {
    int32_t node, maker;
    char name[NAME_BYTES];
};

struct chex_stage {
    const struct chex_stage_config *c;
    char *path; /* folder of the copy; NULL before it has a name */
    bool ours;  /* this rank made the folder and has not removed it */
    struct chex_manifest *manifest;
    bool **wanted; /* [split][shard] */
    char *buffer;
};

/* Called after each block. Also calls `copied`, which shows the watchdog that the rank works. */
static bool asked_to_stop(const struct chex_stage *s) {
    if (s->c->copied)
        s->c->copied(s->c->arg);
    return s->c->stop && *s->c->stop;
}

/* ---- what the node needs ---- */

/* Marks the shards that hold rows of `n`. */
static void mark(struct chex_stage *s, const struct need *n) {
    for (int i = 0; i < n->part_count; i++) {
        const struct chex_manifest_split *split = &s->manifest->splits[n->parts[i].split];
        uint64_t first = 0;
        for (size_t k = 0; k < split->shard_count; first += split->shards[k++].rows)
            if (first < n->parts[i].row_to && first + split->shards[k].rows > n->parts[i].row_from)
                s->wanted[n->parts[i].split][k] = true;
    }
}

static enum chex_status find_wanted(struct chex_stage *s, const struct need *all,
                                    struct chex_error *err) {
    CHEX_TRY(chex_manifest_read(s->c->source, &s->manifest, err));
    s->wanted = chex_alloc_zeroed(CHEX_SPLIT_COUNT, sizeof *s->wanted);
    for (int i = 0; s->wanted && i < CHEX_SPLIT_COUNT; i++)
        if (!(s->wanted[i] = chex_alloc_zeroed(s->manifest->splits[i].shard_count, sizeof(bool))))
            return chex_error_memory(err, NULL);
    if (!s->wanted)
        return chex_error_memory(err, NULL);
    for (int r = 0; r < s->c->group->size; r++)
        if (all[r].node == s->c->node)
            mark(s, &all[r]);
    return CHEX_OK;
}

/* Calls fn for the file of each wanted shard. */
typedef enum chex_status (*file_fn)(struct chex_stage *s, const char *file, void *arg,
                                    struct chex_error *err);

static enum chex_status each_file(struct chex_stage *s, file_fn fn, void *arg,
                                  struct chex_error *err) {
    for (int i = 0; i < CHEX_SPLIT_COUNT; i++)
        for (size_t k = 0; k < s->manifest->splits[i].shard_count; k++)
            if (s->wanted[i][k])
                CHEX_TRY(fn(s, s->manifest->splits[i].shards[k].file, arg, err));
    return CHEX_OK;
}

struct total {
    uint64_t bytes;
    size_t files;
};

static enum chex_status add_size(struct chex_stage *s, const char *file, void *arg,
                                 struct chex_error *err) {
    struct total *t = arg;
    struct stat info;
    const struct chex_path path = chex_path(s->c->source, file);
    if (stat(path.text, &info) != 0)
        return chex_error_errno(err, CHEX_E_DATA, errno, "%s", path.text);
    t->bytes += (uint64_t)info.st_size;
    t->files++;
    return CHEX_OK;
}

/* ---- copying ---- */

static enum chex_status stopped(struct chex_error *err) {
    return chex_error_set(err, CHEX_E_PREEMPTED,
                          "asked to stop while staging; nothing was done yet");
}

static enum chex_status copy_bytes(struct chex_stage *s, int in, const char *from, int out,
                                   const char *to, struct chex_error *err) {
    for (uint64_t at = 0, n = 1; n; at += n) {
        if (asked_to_stop(s))
            return stopped(err);
        n = chex_fs_pread(in, s->buffer, COPY_BYTES, at);
        if (n < COPY_BYTES && errno)
            return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read %s", from);
        if (chex_fs_pwrite(out, s->buffer, n, at) != n)
            return chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", to);
    }
    return CHEX_OK;
}

static enum chex_status copy_file(struct chex_stage *s, const char *from, const char *to,
                                  struct chex_error *err) {
    CHEX_AUTO(chex_fs_close_at) int in = -1, out = -1;
    uint64_t bytes = 0;
    CHEX_TRY(chex_fs_open(from, &in, &bytes, err));
    posix_fadvise(in, 0, 0, POSIX_FADV_SEQUENTIAL);
    out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot create %s", to);
    int rc = bytes ? posix_fallocate(out, 0, (off_t)bytes) : 0;
    if (rc == ENOSPC || rc == EDQUOT) /* other errors: the file system cannot reserve space */
        return chex_error_errno(err, CHEX_E_RESOURCE, rc, "cannot write %s", to);
    CHEX_TRY(copy_bytes(s, in, from, out, to, err));
    rc = close(out);
    out = -1;
    return rc == 0 ? CHEX_OK : chex_error_errno(err, CHEX_E_ENV, errno, "cannot write %s", to);
}

/* Reads every row of the copy, as training will, and verifies its checksum. */
static enum chex_status verify_copy(struct chex_stage *s, const char *path,
                                    struct chex_error *err) {
    CHEX_AUTO(chex_shard_close_at) struct chex_shard *shard = NULL;
    CHEX_TRY(chex_shard_open(path, &shard, err));
    size_t row_bytes = (size_t)chex_shard_size(shard) * (size_t)chex_shard_size(shard);
    size_t rows = chex_shard_rows(shard), max_rows = COPY_BYTES / row_bytes;
    CHEX_AUTO_FREE uint8_t *big = max_rows ? NULL : chex_alloc_aligned(1, row_bytes);
    if (!max_rows && !big)
        return chex_error_memory(err, NULL);
    max_rows = max_rows ? max_rows : 1;
    for (size_t row = 0, n; row < rows; row += n) {
        n = rows - row < max_rows ? rows - row : max_rows;
        CHEX_TRY(chex_shard_read(shard, row, n, true, big ? big : (uint8_t *)s->buffer, err));
        if (asked_to_stop(s))
            return stopped(err);
    }
    return CHEX_OK;
}

static enum chex_status stage_shard(struct chex_stage *s, const char *file, void *arg,
                                    struct chex_error *err) {
    (void)arg;
    const struct chex_path to = chex_path(s->path, file);
    CHEX_TRY(chex_fs_make_folder_of(to.text, err));
    CHEX_TRY(copy_file(s, chex_path(s->c->source, file).text, to.text, err));
    return verify_copy(s, to.text, err);
}

static enum chex_status check_space(struct chex_stage *s, struct total *t, struct chex_error *err) {
    char need[32], have[32];
    uint64_t bytes;
    if (!chex_fs_is_dir(s->c->dir))
        return chex_error_set(err, CHEX_E_ENV, "--stage %s: no such folder on this node",
                              s->c->dir);
    CHEX_TRY(each_file(s, add_size, t, err));
    CHEX_TRY(chex_fs_free_bytes(s->c->dir, &bytes, err));
    chex_format_bytes(need, sizeof need, t->bytes);
    chex_format_bytes(have, sizeof have, bytes);
    if (t->bytes > bytes)
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "--stage %s: %zu shards need %s, and %s is free there", s->c->dir,
                              t->files, need, have);
    chex_info("%s %zu shard%s, %s, from %s to %s (%s free)", s->c->look ? "would stage" : "staging",
              t->files, chex_text_s(t->files), need, s->c->source, s->c->dir, have);
    return CHEX_OK;
}

static enum chex_status no_folder(const struct chex_stage *s, struct chex_error *err) {
    return chex_error_errno(err, CHEX_E_ENV, errno, "--stage %s: cannot make a folder there",
                            s->c->dir);
}

static enum chex_status make_copy(struct chex_stage *s, const struct need *all,
                                  struct chex_error *err) {
    struct total t = {0};
    double start = chex_clock_s();
    CHEX_TRY(find_wanted(s, all, err));
    CHEX_TRY(check_space(s, &t, err));
    if (s->c->look)
        return access(s->c->dir, W_OK | X_OK) == 0 ? CHEX_OK : no_folder(s, err);
    s->path =
        chex_fs_format("%s/chexnet-%.40s-XXXXXX", s->c->dir, *s->c->job ? s->c->job : "nojob");
    s->buffer = chex_alloc_aligned(1, COPY_BYTES);
    if (!s->path || !s->buffer)
        return chex_error_memory(err, NULL);
    if (!mkdtemp(s->path))
        return no_folder(s, err);
    s->ours = true;
    CHEX_TRY(each_file(s, stage_shard, NULL, err));
    CHEX_TRY(copy_file(s, chex_path(s->c->source, CHEX_MANIFEST_NAME).text,
                       chex_path(s->path, CHEX_MANIFEST_NAME).text, err));
    double seconds = chex_clock_s() - start;
    chex_info("staged and verified in %.1f s (%.2f GB/s)", seconds,
              (double)t.bytes / 1e9 / (seconds > 0 ? seconds : 1));
    return CHEX_OK;
}

/* ---- the ranks of a node ---- */

static void tell(const struct chex_stage_config *c, void (*fn)(void *arg)) {
    if (fn)
        fn(c->arg);
}

static enum chex_status exchange_needs(const struct chex_stage_config *c, struct chex_error *err) {
    struct need mine;
    memset(&mine, 0, sizeof mine);
    mine.node = c->node;
    mine.part_count = c->part_count;
    for (int i = 0; i < c->part_count; i++) {
        mine.parts[i].split = (int32_t)c->parts[i].split;
        mine.parts[i].row_from = c->parts[i].row_from;
        mine.parts[i].row_to = c->parts[i].row_to;
    }
    return chex_group_exchange(c->group, "stage-needs", &mine, sizeof mine, err);
}

/* Sets the path of the node's copy on the ranks that did not make it. */
static enum chex_status exchange_names(struct chex_stage *s, struct chex_error *err) {
    const struct chex_stage_config *c = s->c;
    struct copy mine;
    memset(&mine, 0, sizeof mine);
    mine.node = c->node;
    mine.maker = c->local_rank == 0;
    if (s->path)
        snprintf(mine.name, sizeof mine.name, "%s", s->path + strlen(s->path) - strlen("-XXXXXX"));
    CHEX_TRY(chex_group_exchange(c->group, "stage-names", &mine, sizeof mine, err));
    const struct copy *all = c->group->all;
    for (int k = 0; !s->path && k < c->group->size; k++)
        if (all[k].node == c->node && all[k].maker)
            s->path = chex_fs_format("%s/chexnet-%.40s%s", c->dir, *c->job ? c->job : "nojob",
                                     all[k].name);
    return chex_group_agree(c->group, s->path ? CHEX_OK : chex_error_memory(err, NULL), err);
}

/* Agrees that every copy is made and that every rank has its path. Other ranks wait here while a
 * node copies. made: of this rank. */
static enum chex_status finish(struct chex_stage *s, enum chex_status made,
                               struct chex_error *err) {
    CHEX_TRY(chex_group_agree(s->c->group, made, err));
    if (!s->c->look)
        return exchange_names(s, err);
    s->path = strdup(s->c->source);
    return chex_group_agree(s->c->group, s->path ? CHEX_OK : chex_error_memory(err, NULL), err);
}

enum chex_status chex_stage_create(const struct chex_stage_config *c, struct chex_stage **stage_out,
                                   struct chex_error *err) {
    CHEX_AUTO(chex_stage_destroy_at) struct chex_stage *s = calloc(1, sizeof *s);
    tell(c, c->waits);
    enum chex_status st =
        chex_group_agree(c->group, s ? CHEX_OK : chex_error_memory(err, NULL), err);
    if (st == CHEX_OK)
        st = exchange_needs(c, err);
    tell(c, c->copied);
    CHEX_TRY(st);
    s->c = c;
    st = c->local_rank == 0 ? make_copy(s, c->group->all, err) : CHEX_OK;
    if (st != CHEX_OK)
        chex_stage_remove(s);
    tell(c, c->waits);
    st = finish(s, st, err);
    tell(c, c->copied);
    CHEX_TRY(st);
    s->c = NULL; /* owned by the caller; not used after this */
    *stage_out = CHEX_TAKE(s);
    return CHEX_OK;
}

const char *chex_stage_path(const struct chex_stage *s) { return s->path; }

void chex_stage_remove(struct chex_stage *s) {
    struct chex_error err = {0};
    if (!s->ours)
        return;
    s->ours = false;
    if (chex_fs_remove_tree(s->path, &err) != CHEX_OK)
        chex_warn("%s", err.text);
}

void chex_stage_destroy(struct chex_stage *s) {
    if (!s)
        return;
    chex_stage_remove(s);
    for (int i = 0; s->wanted && i < CHEX_SPLIT_COUNT; i++)
        free(s->wanted[i]);
    free(s->wanted);
    chex_manifest_free(s->manifest);
    CHEX_FREE(s->buffer, s->path, s);
}
