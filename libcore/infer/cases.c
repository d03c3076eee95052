/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the hardest cases and makes their pictures. infer/cases.h explains who does what.
 *
 * The distinct rows of the cases are broadcast. Each rank makes one record of fixed size for each
 * row that it owns, in the order of the rows, so the gathered records are in the order of the rows
 * too. Their sum is small: 37 KB of pixels and one map per row.
 */
#include "infer/cases.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "image/resize.h"
#include "infer/cam_picture.h"
#include "infer/split_run.h"
#include "input/augment.h"

/* ---- the choice ---- */

/* Whether row `a` is harder than row `b`, both with this label. */
static bool is_harder(const struct chex_predictions *t, int c, bool positive, size_t a, size_t b) {
    const double x = t->score[a * (size_t)t->classes + (size_t)c],
                 y = t->score[b * (size_t)t->classes + (size_t)c];
    if (x != y)
        return positive ? x < y : x > y;
    return a < b;
}

/* Inserts the row into a list of at most `each` cases, the hardest first. */
static void offer(const struct chex_predictions *t, struct chex_case *list, size_t *count, int each,
                  const struct chex_case *k) {
    size_t at = *count;
    while (at > 0 && is_harder(t, k->class_index, k->positive, k->row, list[at - 1].row))
        at--;
    if (at == (size_t)each)
        return;
    if (*count < (size_t)each)
        (*count)++;
    memmove(list + at + 1, list + at, (*count - 1 - at) * sizeof *list);
    list[at] = *k;
}

enum chex_status chex_cases_choose(const struct chex_predictions *t, int each,
                                   struct chex_cases **cases_out, struct chex_error *err) {
    const size_t most = 2 * (size_t)each * (size_t)t->classes;
    struct chex_cases *k = chex_alloc_zeroed(1, sizeof *k);
    if (k)
        k->one = chex_alloc_zeroed(most, sizeof *k->one);
    if (!k || !k->one) {
        chex_cases_destroy(k);
        return chex_error_memory(err, "%zu cases", most);
    }
    k->table = t;
    for (int c = 0; c < t->classes; c++)
        for (int positive = 0; positive < 2; positive++) {
            size_t count = 0;
            for (size_t row = 0; row < t->rows; row++)
                if (t->label[row * (size_t)t->classes + (size_t)c] == positive)
                    offer(t, k->one + k->count, &count, each,
                          &(struct chex_case){
                              .row = row, .class_index = c, .positive = positive != 0});
            k->count += count;
        }
    *cases_out = k;
    return CHEX_OK;
}

void chex_cases_destroy(struct chex_cases *k) {
    if (!k)
        return;
    for (size_t i = 0; i < k->count; i++) {
        free(k->one[i].image);
        free(k->one[i].map);
    }
    free(k->one);
    free(k);
}

/* ---- the records ---- */

/* What all ranks know. */
struct shared {
    struct chex_engine *engine;
    const struct chex_set *set;
    int px;       /* side of a picture */
    int side;     /* of a map, in positions */
    size_t *rows; /* (count) distinct, increasing */
    uint64_t count;
    size_t map_bytes, record_bytes;
};

/* A record: the local logits (side, side, classes), the logits (classes), the picture (px, px). */
static size_t floats_of(const struct shared *s) {
    return ((size_t)s->side * (size_t)s->side + 1) * (size_t)s->engine->config.net->classes;
}

static int compare_rows(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* On rank 0: the distinct rows of the cases. */
static enum chex_status list_rows(const struct chex_cases *k, struct shared *s,
                                  struct chex_error *err) {
    size_t *rows = chex_alloc_zeroed(k->count ? k->count : 1, sizeof *rows);
    CHEX_ALLOCATED(rows, err, "%zu cases", k->count);
    for (size_t i = 0; i < k->count; i++)
        rows[i] = k->one[i].row;
    qsort(rows, k->count, sizeof *rows, compare_rows);
    for (size_t i = 0; i < k->count; i++)
        if (i == 0 || rows[i] != rows[i - 1])
            rows[s->count++] = rows[i];
    s->rows = rows;
    return CHEX_OK;
}

static enum chex_status share_rows(struct shared *s, struct chex_coll *coll,
                                   const struct chex_cases *k, struct chex_error *err) {
    enum chex_status st = coll->rank == 0 ? list_rows(k, s, err) : CHEX_OK;
    CHEX_TRY(chex_group_follow(coll->group, 0, st, err));
    CHEX_TRY(chex_group_broadcast(coll->group, &s->count, sizeof s->count, 0, err));
    if (!s->rows && !(s->rows = chex_alloc_zeroed(s->count ? s->count : 1, sizeof *s->rows)))
        st = chex_error_memory(err, "the rows of the cases");
    CHEX_TRY(chex_group_agree(coll->group, st, err));
    return chex_group_broadcast(coll->group, s->rows, s->count * sizeof *s->rows, 0, err);
}

/* Buffers of one image. */
struct work {
    uint8_t *stored;
    float *pixels;
    void *scratch;
    struct chex_resizer *resizer;
};

/* Makes the record of one row that this rank owns. */
static enum chex_status make_record(const struct shared *s, struct work *w, size_t row,
                                    unsigned char *record, struct chex_error *err) {
    const int stored = s->set->size, px = s->engine->config.image_size;
    const struct chex_crop crop = chex_augment_centre(stored, px);
    const size_t floats = floats_of(s), logits = (size_t)s->engine->config.net->classes;
    struct chex_cam *cam = NULL;
    size_t at;
    const struct chex_shard *shard = chex_set_locate(s->set, row, &at);
    CHEX_TRY(chex_shard_read(shard, at, 1, true, w->stored, err));
    chex_augment_apply(w->stored, stored, &crop, px, false, w->pixels, w->scratch);
    CHEX_TRY(chex_cam_create(s->engine, w->pixels, &cam, err));
    memcpy(record, cam->local, (floats - logits) * sizeof(float));
    memcpy(record + (floats - logits) * sizeof(float), cam->logit, logits * sizeof(float));
    chex_cam_destroy(cam);
    return chex_resize(w->resizer, w->stored, stored, stored, record + s->map_bytes, s->px, s->px,
                       err);
}

/* The rows that this rank owns: [*from, *to) of s->rows. */
static void own_rows(const struct shared *s, const struct chex_coll *coll, size_t *from,
                     size_t *to) {
    size_t first, end;
    chex_eval_rows(s->set->rows, coll->rank, coll->size, &first, &end);
    for (*from = 0; *from < s->count && s->rows[*from] < first;)
        (*from)++;
    for (*to = *from; *to < s->count && s->rows[*to] < end;)
        (*to)++;
}

static enum chex_status make_records(const struct shared *s, size_t from, size_t to,
                                     unsigned char **records_out, struct chex_error *err) {
    const size_t side = (size_t)s->set->size, px = (size_t)s->engine->config.image_size;
    CHEX_AUTO_FREE uint8_t *stored = chex_alloc_aligned(side, side);
    CHEX_AUTO_FREE float *pixels = chex_alloc_aligned(px * px, sizeof *pixels);
    CHEX_AUTO_FREE void *scratch =
        chex_alloc_aligned(1, chex_augment_scratch_bytes((int)side, (int)px));
    struct work w = {stored, pixels, scratch, NULL};
    *records_out = chex_alloc_zeroed(to > from ? to - from : 1, s->record_bytes);
    CHEX_ALLOCATED(stored && pixels && scratch && *records_out, err, "%zu cases", to - from);
    enum chex_status st = chex_resizer_create(&w.resizer, err);
    for (size_t i = from; i < to && st == CHEX_OK; i++)
        st = make_record(s, &w, s->rows[i], *records_out + (i - from) * s->record_bytes, err);
    chex_resizer_destroy(w.resizer);
    return st;
}

/* ---- the pictures, on rank 0 ---- */

static enum chex_status draw_map(const struct shared *s, struct chex_case *k, uint8_t *picture,
                                 float *floats, struct chex_error *err) {
    const size_t classes = (size_t)s->engine->config.net->classes;
    struct chex_cam cam = {.classes = s->engine->config.net->classes,
                           .side = s->side,
                           .local = floats,
                           .logit = floats + floats_of(s) - classes};
    const struct chex_image image = {.pixels = picture, .width = s->px, .height = s->px};
    chex_cam_place(s->engine->config.net, &cam.first_px, &cam.step_px);
    const struct chex_cam_picture p = {
        .cam = &cam,
        .image = &image,
        .view = chex_cam_view_of(s->px, s->px, s->set->size, s->engine->config.image_size),
        .drawn = &k->class_index,
        .count = 1,
        .alpha = 0.55,
        .overlay = true};
    struct chex_cam_sheet sheet = {0};
    CHEX_TRY(chex_cam_draw(&p, &sheet, err));
    CHEX_AUTO_FREE uint8_t *rgb = sheet.rgb;
    return chex_image_encode_png(rgb, sheet.width, sheet.height, sheet.channels, &k->map,
                                 &k->map_bytes, err);
}

static enum chex_status draw_all(const struct shared *s, struct chex_cases *cases,
                                 unsigned char *records, struct chex_error *err) {
    cases->positions = s->side;
    for (size_t i = 0; i < cases->count; i++) {
        struct chex_case *k = &cases->one[i];
        const size_t *found = bsearch(&k->row, s->rows, s->count, sizeof *s->rows, compare_rows);
        unsigned char *record = records + (size_t)(found - s->rows) * s->record_bytes;
        uint8_t *picture = record + s->map_bytes;
        CHEX_TRY(chex_image_encode_png(picture, s->px, s->px, 1, &k->image, &k->image_bytes, err));
        CHEX_TRY(draw_map(s, k, picture, (float *)(void *)record, err));
    }
    return CHEX_OK;
}

/* ---- all together ---- */

static enum chex_status measure(struct shared *s, struct chex_error *err) {
    CHEX_TRY(chex_cam_side(s->engine, &s->side, err));
    s->map_bytes = floats_of(s) * sizeof(float);
    s->record_bytes = (s->map_bytes + (size_t)s->px * (size_t)s->px + 63) / 64 * 64;
    return CHEX_OK;
}

static enum chex_status gather(struct shared *s, struct chex_coll *coll, struct chex_cases *cases,
                               struct chex_error *err) {
    size_t from, to, bytes;
    CHEX_AUTO_FREE unsigned char *mine = NULL;
    CHEX_AUTO_FREE void *all = NULL;
    CHEX_TRY(share_rows(s, coll, cases, err));
    own_rows(s, coll, &from, &to);
    enum chex_status st = measure(s, err);
    if (st == CHEX_OK)
        st = make_records(s, from, to, &mine, err);
    CHEX_TRY(chex_group_agree(coll->group, st, err));
    CHEX_TRY(
        chex_group_gather(coll->group, mine, (to - from) * s->record_bytes, &all, &bytes, err));
    st = coll->rank == 0 ? draw_all(s, cases, all, err) : CHEX_OK;
    return chex_group_follow(coll->group, 0, st, err);
}

enum chex_status chex_cases_draw(struct chex_engine *engine, const struct chex_set *set,
                                 struct chex_coll *coll, struct chex_cases *cases,
                                 struct chex_error *err) {
    struct shared s = {.engine = engine, .set = set};
    s.px = set->size < CHEX_CASE_PICTURE_PX ? set->size : CHEX_CASE_PICTURE_PX;
    enum chex_status st = gather(&s, coll, cases, err);
    free(s.rows);
    return st;
}
