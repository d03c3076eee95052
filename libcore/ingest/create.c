/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a set of shards with one or more ranks: the order of the steps and how the ranks agree.
 *
 * All ranks see the same input and the same output folder (a shared file system). Shard i belongs
 * to rank i mod size. The steps are:
 *
 *  1. The output folder is checked, before any input is read (create_store.h).
 *  2. Every rank loads the labels, splits them and lists the image files; the ranks compare digests
 *     of their rows and archives.
 *  3. With --resume: if the output is already this set, the run ends here.
 *  4. Compressed archives: archive i is resized into a spool by rank i mod size, then every rank
 *     opens all spools (create_spool.c).
 *  5. Every rank finds the file of each row. The ranks compare digests of the files.
 *  6. Every rank computes the layout: which row goes to which shard. It is a pure function of the
 *     input, so all ranks have the same layout without communication.
 *  7. The output is locked, if step 4 did not.
 *  8. Build rounds: every rank builds its missing shards and the ranks exchange new bad images. If
 *     there are any, all ranks compute a new layout without them and build again. Only shards whose
 *     rows changed have new names, so only these are built again. More than max_bad bad images end
 *     the run.
 *  9. The set is published.
 *
 * Invariant: work that can fail on one rank is followed by chex_group_agree(), work of rank 0 alone
 * by chex_group_follow(). Both give every rank the same status. So all ranks take the same branch
 * and reach the same exchanges in the same order. On failure rank 0 discards what the run made, or
 * keeps the finished shards with --resume.
 */
#include "ingest/create.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/create_private.h"

const char *const chex_split_mode_names[] = {"official", "patient", "none", NULL};

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

/* Builds until a round finds no new bad image, usually the first round. A later round builds only
 * the shards whose rows changed; the others are found under their names. */
static enum chex_status build_all(struct chex_create *c, struct chex_error *err) {
    for (int round = 0;; round++) {
        CHEX_AUTO_FREE struct chex_bad_row *bad = NULL;
        size_t n = 0, new_bad = 0;
        if (round > 0)
            CHEX_TRY(chex_group_agree(c->group, chex_create_make_layout(c, err), err));
        CHEX_TRY(chex_store_list(c->store, err));
        CHEX_TRY(chex_group_agree(c->group, chex_create_build(c, &bad, &n, err), err));
        CHEX_TRY(share_bad(c, bad, n, &new_bad, err));
        CHEX_TRY(chex_create_check_bad_limit(c, err));
        if (!new_bad)
            return CHEX_OK;
        chex_info("%zu image%s cannot be used; the shards are built again without %s", new_bad,
                  chex_text_s(new_bad), new_bad == 1 ? "it" : "them");
    }
}

static enum chex_status fill_result(struct chex_create *c, struct chex_create_result *out,
                                    struct chex_error *err) {
    const uint64_t kept[] = {c->store->kept, c->store->kept_rows};
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

/* The result of a run that found its set complete. */
static enum chex_status fill_done_result(const struct chex_create *c,
                                         struct chex_create_result *out, struct chex_error *err) {
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = NULL;
    CHEX_TRY(chex_manifest_read(c->o->output, &m, err));
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        out->shards[s] = m->splits[s].shard_count;
        out->rows[s] = m->splits[s].rows;
        out->kept += m->splits[s].shard_count;
    }
    out->rejected = m->rejected;
    out->done = true;
    return CHEX_OK;
}

/* Steps 2 to 9 of the head. Collective. */
static enum chex_status make_set(struct chex_create *c, chex_create_load_fn load,
                                 struct chex_create_result *result, struct chex_error *err) {
    bool done = false;
    CHEX_TRY(chex_group_agree(c->group, load(c, err), err));
    CHEX_TRY(chex_create_compare_rows(c, err));
    CHEX_TRY(chex_store_find_done(c->store, &done, err));
    if (done)
        return chex_group_agree(c->group, fill_done_result(c, result, err), err);
    if (!c->origin)
        CHEX_TRY(chex_create_find_images(c, err));
    CHEX_TRY(chex_group_agree(c->group, chex_create_make_layout(c, err), err));
    if (!c->check_only)
        CHEX_TRY(chex_store_lock(c->store, 0, err));
    CHEX_TRY(build_all(c, err));
    CHEX_TRY(fill_result(c, result, err));
    return chex_store_publish(c->store, err);
}

enum chex_status chex_create_run(struct chex_create *c, chex_create_load_fn load,
                                 struct chex_create_result *result_out, struct chex_error *err) {
    struct chex_error own = {0}; /* the ranks exchange the text even if the caller passes no err */
    struct chex_create_result result = {0};
    double start = chex_clock_s();
    err = err ? err : &own;
    enum chex_status st = chex_store_open(c, &c->store, err);
    if (st == CHEX_OK)
        st = make_set(c, load, &result, err);
    chex_store_close(c->store, st != CHEX_OK);
    result.seconds = chex_clock_s() - start;
    for (size_t r = 0; c->reasons && r < c->table->count; r++)
        free(c->reasons[r]);
    CHEX_FREE(c->reasons, c->bad, c->files, c->split, c->wanted, c->packed, c->archive_fault);
    chex_folder_close(c->folder);
    chex_layout_free(c->layout);
    chex_labels_free(c->table);
    if (st == CHEX_OK)
        *result_out = result;
    return st;
}

enum chex_status chex_create(const struct chex_create_options *options, struct chex_group *group,
                             struct chex_create_result *result_out, struct chex_error *err) {
    struct chex_create c = {.o = options, .group = group};
    return chex_create_run(&c, chex_create_load_input, result_out, err);
}
