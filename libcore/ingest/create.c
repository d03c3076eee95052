/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a set of shards with one or more ranks: the order of the steps and how the ranks agree.
 *
 * All ranks see the same input and the same output folder (a shared file system). Shard i belongs
 * to rank i mod size. Only rank 0 changes the output folder's state: it takes the lock, publishes
 * and cleans up. Other ranks only write files below the partial folder. The steps are:
 *
 *  1. Rank 0 checks that the output folder can be used, before any input is read.
 *  2. Every rank loads the labels, splits them and lists the image files.
 *  3. The ranks compare digests of their rows and archives (create_same.c).
 *  4. With --resume, rank 0 checks if the output is already this set. If so, the run ends here.
 *  5. Compressed archives: rank 0 locks the output, archive i is resized into a spool by rank i mod
 *     size, then every rank opens all spools (create_spool.c).
 *  6. Every rank finds the file of each row. The ranks compare digests of the files.
 *  7. Every rank computes the layout: which row goes to which shard. It is a pure function of the
 *     input, so all ranks have the same layout without communication.
 *  8. Rank 0 locks the output, if step 5 did not, and checks the free space.
 *  9. Build rounds: every rank builds its missing shards and the ranks exchange new bad images. If
 *     there are any, all ranks compute a new layout without them and build again. Only shards whose
 *     rows changed have new names, so only these are built again. More than max_bad bad images end
 *     the run.
 * 10. Rank 0 publishes the set (create_output.c).
 *
 * Invariant: work that can fail on one rank is followed by chex_group_agree(), work of rank 0 alone
 * by chex_group_follow(). Both give every rank the same status. So all ranks take the same branch
 * and reach the same exchanges in the same order. On failure rank 0 discards what the run made, or
 * keeps the finished shards with --resume.
 */
#include "ingest/create.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/create_private.h"

const char *const chex_split_mode_names[] = {"official", "patient", "none", NULL};

/* Collective. If the ranks see different files, that error has precedence over missing images. */
static enum chex_status find_same_images(struct chex_create *c, struct chex_error *err) {
    struct chex_error other = {0};
    const enum chex_status st = chex_create_find_images(c, err);
    CHEX_TRY(chex_group_agree(c->group, st == CHEX_E_DATA ? CHEX_OK : st, err));
    const enum chex_status same = chex_create_compare_images(c, &other);
    return same == CHEX_OK ? st : chex_error_set(err, same, "%s", other.text);
}

/* Collective. All ranks exchange their new bad images and mark all of them. It uses batches of 16
 * because a launcher limits the size of one exchange. *new_out: new bad images of all ranks. */
static enum chex_status share_bad(struct chex_create *c, const struct chex_bad_row *mine, size_t n,
                                  size_t *new_out, struct chex_error *err) {
    enum { BATCH = 16 };
    const uint64_t none = UINT64_MAX;
    const size_t ranks = (size_t)c->group->size;
    const uint64_t own[] = {n, c->gave_up};
    struct chex_bad_row batch[BATCH];
    uint64_t largest = 0, sum = 0;
    enum chex_status st = CHEX_OK;
    CHEX_TRY(chex_group_exchange(c->group, "shard-bad-count", own, sizeof own, err));
    for (size_t r = 0; r < ranks; r++) {
        const uint64_t *theirs = (const uint64_t *)c->group->all + 2 * r;
        sum += theirs[0];
        largest = theirs[0] > largest ? theirs[0] : largest;
        c->gave_up = c->gave_up || theirs[1];
    }
    for (size_t at = 0; at < largest; at += BATCH) {
        memset(batch, 0, sizeof batch);
        for (size_t i = 0; i < BATCH; i++)
            if (at + i < n)
                batch[i] = mine[at + i];
            else
                batch[i].row = none;
        CHEX_TRY(chex_group_exchange(c->group, "shard-bad", batch, sizeof batch, err));
        const struct chex_bad_row *all = c->group->all;
        for (size_t i = 0; st == CHEX_OK && i < ranks * BATCH; i++)
            if (all[i].row != none)
                st = chex_create_mark_bad(c, all[i].row, all[i].reason, err);
    }
    *new_out = sum;
    return chex_group_agree(c->group, st, err);
}

/* Computes the layout and builds until a round finds no new bad image, usually the first round. A
 * later round builds only the shards whose rows changed; the others are found under their names.
 * They must not count as kept, hence the saved counts. */
static enum chex_status build_all(struct chex_create *c, struct chex_error *err) {
    for (int round = 0;; round++) {
        struct chex_bad_row *bad = NULL;
        size_t n = 0, new_bad = 0, kept = c->kept, kept_rows = c->kept_rows;
        enum chex_status st = CHEX_OK;
        if (round > 0)
            st = chex_create_make_layout(c, err);
        if (st == CHEX_OK)
            st = chex_create_build(c, &bad, &n, err);
        if (round > 0)
            c->kept = kept, c->kept_rows = kept_rows;
        st = chex_group_agree(c->group, st, err);
        if (st == CHEX_OK)
            st = share_bad(c, bad, n, &new_bad, err);
        free(bad);
        if (st == CHEX_OK)
            st = chex_create_check_bad_limit(c, err);
        if (st != CHEX_OK || !new_bad)
            return st;
        chex_info("%zu image%s cannot be used; the shards are built again without %s", new_bad,
                  chex_text_s(new_bad), new_bad == 1 ? "it" : "them");
    }
}

static enum chex_status fill_result(struct chex_create *c, struct chex_create_result *out,
                                    struct chex_error *err) {
    const uint64_t kept[] = {c->kept, c->kept_rows};
    CHEX_TRY(chex_group_exchange(c->group, "shard-kept", kept, sizeof kept, err));
    const uint64_t *all = c->group->all;
    for (int r = 0; r < c->group->size; r++)
        out->kept += all[2 * r], out->kept_rows += all[2 * r + 1];
    for (size_t i = 0; i < c->layout->shard_count; i++) {
        const struct chex_layout_shard *s = &c->layout->shards[i];
        out->shards[s->split] = s->count;
        out->rows[s->split] += s->row_count;
    }
    out->rejected = c->origin ? c->origin->manifest->rejected : c->bad_count;
    return CHEX_OK;
}

/* A compressed archive can only be read from start to end, so each is read once, before the rows
 * are assigned to shards. */
static enum chex_status spool_archives(struct chex_create *c, struct chex_error *err) {
    if (!c->packed_count)
        return CHEX_OK;
    enum chex_status st = c->group->rank == 0 ? chex_create_occupy(c, err) : CHEX_OK;
    CHEX_TRY(chex_group_follow(c->group, 0, st, err));
    CHEX_TRY(chex_group_agree(c->group, chex_create_spool(c, err), err));
    return chex_group_agree(c->group, chex_create_take_spools(c, err), err);
}

static enum chex_status name_partial(struct chex_create *c, struct chex_error *err) {
    c->partial = chex_fs_join(c->o->output, CHEX_CREATE_PARTIAL);
    return c->partial ? CHEX_OK : chex_error_memory(err, "the list of images");
}

/* Collective, for --resume: sets c->done on every rank if the output is already this set. */
static enum chex_status find_done(struct chex_create *c, struct chex_error *err) {
    if (!c->o->resume || c->o->force)
        return CHEX_OK;
    enum chex_status st = CHEX_OK;
    if (c->group->rank == 0)
        st = chex_create_is_done(c, &c->done, err);
    if (st == CHEX_OK && c->done)
        st = chex_create_tidy(c, err);
    CHEX_TRY(chex_group_follow(c->group, 0, st, err));
    return chex_group_broadcast(c->group, &c->done, sizeof c->done, 0, err);
}

/* Steps 2 to 7 of the head. Collective. */
static enum chex_status begin(struct chex_create *c, chex_create_load_fn load,
                              struct chex_error *err) {
    CHEX_TRY(chex_group_agree(c->group, load(c, err), err));
    CHEX_TRY(chex_create_compare_rows(c, err));
    CHEX_TRY(find_done(c, err));
    if (c->done)
        return CHEX_OK;
    if (!c->origin) {
        CHEX_TRY(spool_archives(c, err));
        CHEX_TRY(find_same_images(c, err));
    }
    return chex_create_make_layout(c, err);
}

/* The result of a run that found its set complete. */
static enum chex_status fill_done_result(const struct chex_create *c,
                                         struct chex_create_result *out, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(c->o->output, &m, err));
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        out->shards[s] = m->splits[s].shard_count;
        out->rows[s] = m->splits[s].rows;
        out->kept += m->splits[s].shard_count;
    }
    out->rejected = m->rejected;
    out->done = true;
    chex_manifest_free(m);
    return CHEX_OK;
}

/* Steps 8 to 10 of the head. Collective. */
static enum chex_status make_set(struct chex_create *c, struct chex_create_result *result,
                                 struct chex_error *err) {
    const bool first = c->group->rank == 0;
    if (!c->check_only)
        CHEX_TRY(
            chex_group_follow(c->group, 0, first ? chex_create_prepare(c, err) : CHEX_OK, err));
    CHEX_TRY(build_all(c, err));
    CHEX_TRY(fill_result(c, result, err));
    return chex_group_follow(c->group, 0, first ? chex_create_publish(c, err) : CHEX_OK, err);
}

static enum chex_status run_steps(struct chex_create *c, chex_create_load_fn load,
                                  struct chex_create_result *result, struct chex_error *err) {
    CHEX_TRY(chex_group_agree(c->group, name_partial(c, err), err));
    enum chex_status st = c->group->rank == 0 ? chex_create_check_folder(c, err) : CHEX_OK;
    CHEX_TRY(chex_group_follow(c->group, 0, st, err));
    st = chex_group_agree(c->group, begin(c, load, err), err);
    if (st == CHEX_OK)
        st = c->done ? chex_group_agree(c->group, fill_done_result(c, result, err), err)
                     : make_set(c, result, err);
    if (st != CHEX_OK && c->lock_fd >= 0)
        chex_create_discard(c);
    return st;
}

enum chex_status chex_create_run(struct chex_create *c, chex_create_load_fn load,
                                 struct chex_create_result *result_out, struct chex_error *err) {
    struct chex_error own = {0}; /* the ranks exchange the text even if the caller passes no err */
    struct chex_create_result result = {0};
    double start = chex_clock_s();
    enum chex_status st = run_steps(c, load, &result, err ? err : &own);
    result.seconds = chex_clock_s() - start;
    for (size_t r = 0; c->reasons && r < c->table->count; r++)
        free(c->reasons[r]);
    free(c->reasons);
    free(c->bad);
    free(c->files);
    free(c->split);
    free(c->partial);
    free(c->trusted);
    free(c->wanted);
    free(c->packed);
    free(c->archive_fault);
    chex_folder_close(c->folder);
    chex_layout_free(c->layout);
    chex_labels_free(c->table);
    if (st == CHEX_OK)
        *result_out = result;
    return st;
}

enum chex_status chex_create(const struct chex_create_options *options, struct chex_group *group,
                             struct chex_create_result *result_out, struct chex_error *err) {
    struct chex_create c = {.o = options, .group = group, .lock_fd = -1};
    return chex_create_run(&c, chex_create_load_input, result_out, err);
}
