/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooled features of rows of a split, on all ranks (features.h). Row i of n chosen rows is row
 * i * rows / n of the split. Each rank infers the chosen rows in its own range, so the gathered
 * vectors are in order of rows.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/progress.h"
#include "infer/features.h"
#include "infer/split_run.h"
#include "input/augment.h"
#include "launch/group.h"

struct run {
    struct chex_engine *engine;
    const struct chex_set *set;
    size_t chosen, batch, area, count;
    struct chex_crop crop;
    float *vectors; /* of this rank */
    size_t done;
    struct chex_progress *bar;
};

static size_t row_of(const struct run *r, size_t i) { return i * r->set->rows / r->chosen; }

/* The first chosen row at or after a row of the split. */
static size_t first_chosen(const struct run *r, size_t row) {
    size_t i = row * r->chosen / r->set->rows;
    while (i < r->chosen && row_of(r, i) < row)
        i++;
    return i;
}

/* Infers the chosen rows [first, end). */
static enum chex_status infer_rows(struct run *r, size_t first, size_t end,
                                   struct chex_error *err) {
    const int px = r->engine->config.image_size, side = r->set->size;
    const size_t classes = (size_t)r->engine->config.net->classes;
    CHEX_AUTO_FREE uint8_t *stored = chex_alloc_aligned((size_t)side, (size_t)side);
    CHEX_AUTO_FREE void *scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(side, px));
    CHEX_AUTO_FREE float *pixels = chex_alloc_aligned(r->batch * r->area, sizeof *pixels);
    CHEX_AUTO_FREE float *logits = chex_alloc_zeroed(r->batch * classes, sizeof *logits);
    r->vectors = chex_alloc_zeroed((end - first) * r->count, sizeof *r->vectors);
    CHEX_ALLOCATED(stored && scratch && pixels && logits && r->vectors, err,
                   "features of %zu images", end - first);
    for (size_t i = first; i < end; chex_progress_set(r->bar, i - first, NULL)) {
        const size_t n = end - i < r->batch ? end - i : r->batch;
        const struct chex_batch batch = {.n = (int)n, .pixels = pixels};
        for (size_t k = 0; k < n; k++) {
            size_t at;
            const struct chex_shard *shard = chex_set_locate(r->set, row_of(r, i + k), &at);
            CHEX_TRY(chex_shard_read(shard, at, 1, false, stored, err));
            chex_augment_apply(stored, side, &r->crop, px, false, pixels + k * r->area, scratch);
        }
        CHEX_TRY(chex_engine_infer(r->engine, &batch, logits, err));
        CHEX_TRY(chex_engine_features(r->engine, (int)n, r->vectors + r->done * r->count, err));
        r->done += n;
        i += n;
    }
    return CHEX_OK;
}

enum chex_status chex_features_of_split(struct chex_engine *engine, const struct chex_set *set,
                                        struct chex_group *group, size_t limit, float **vectors_out,
                                        size_t *rows_out, struct chex_error *err) {
    const size_t px = (size_t)engine->config.image_size;
    struct run r = {.engine = engine,
                    .set = set,
                    .chosen = set->rows < limit ? set->rows : limit,
                    .batch = (size_t)engine->config.batch,
                    .area = px * px,
                    .count = (size_t)chex_features_count(engine->config.net),
                    .crop = chex_augment_centre(set->size, engine->config.image_size)};
    void *all = NULL;
    size_t from, to, bytes = 0;
    chex_eval_rows(set->rows, group->rank, group->size, &from, &to);
    r.bar = chex_progress_create(group->size > 1 ? "features of rank 0's images" : "features",
                                 "img", r.chosen ? first_chosen(&r, to) : 0, group->rank == 0);
    enum chex_status st =
        r.chosen ? infer_rows(&r, first_chosen(&r, from), first_chosen(&r, to), err) : CHEX_OK;
    chex_progress_destroy(r.bar, st == CHEX_OK);
    st = chex_group_agree(group, st, err);
    if (st == CHEX_OK)
        st = chex_group_gather(group, r.vectors, r.done * r.count * sizeof *r.vectors, &all, &bytes,
                               err);
    free(r.vectors);
    CHEX_TRY(st);
    *vectors_out = all;
    *rows_out = r.chosen;
    return CHEX_OK;
}
