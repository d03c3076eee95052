/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of shards whose pixels and labels follow from the numbers of the rows, and what the tests
 * of the pipelines do with its batches. The program defines before it includes this:
 * - SHARDS, shard_rows, ROWS, CLASSES, STORED (px): the set;
 * - SIZE (px), BATCH, RANKS (logical ranks of this process): the batches;
 * - TICKETS: batches that are recorded.
 */
#ifndef CHEX_TESTS_UNIT_PIPELINE_SET_H
#define CHEX_TESTS_UNIT_PIPELINE_SET_H

#include <hdf5.h>

#include "base/hash.h"
#include "base/rng.h"
#include "dir.h"
#include "receiver.h"
#include "shard/shard_write.h"

static struct chex_error err;
static struct chex_set set;

static void row_pixels(size_t row, uint8_t *out) {
    for (uint32_t i = 0; i < STORED * STORED; i++)
        out[i] = (uint8_t)chex_rng(1, CHEX_RNG_TEST, row, i).v[0];
}

static int8_t row_label(size_t row, size_t c) { return (int8_t)((row + c) % 4) - 2; }

struct set_rows {
    int8_t labels[ROWS][CLASSES];
    char ids[ROWS][16];
};

static void set_describe(const void *arg, size_t i, struct chex_shard_row *out) {
    const struct set_rows *r = arg;
    *out = (struct chex_shard_row){
        .image_id = r->ids[i], .patient_id = "p1", .labels = r->labels[i], .age_years = -1};
}

static const char *set_shard(int i) { return dir_path("train-%05d-of-%05d.h5", i, SHARDS); }

static void set_write_shard(const char *path, size_t first, size_t rows) {
    static const char *const class_names[] = {"A", "B", "C"};
    static struct set_rows r;
    struct chex_shard_writer *w = NULL;
    uint8_t pixels[STORED * STORED];
    for (size_t i = 0; i < rows; i++) {
        snprintf(r.ids[i], sizeof r.ids[i], "image%03zu", first + i);
        for (size_t c = 0; c < CLASSES; c++)
            r.labels[i][c] = row_label(first + i, c);
    }
    const struct chex_shard_spec spec = {.rows = rows,
                                         .size = STORED,
                                         .classes = CLASSES,
                                         .class_names = class_names,
                                         .resize = "pillow-bilinear",
                                         .split = "train",
                                         .tool_version = "test",
                                         .row = set_describe,
                                         .arg = &r};
    MUST(chex_shard_create(path, &spec, &w, &err));
    for (size_t i = 0; i < rows; i++) {
        row_pixels(first + i, pixels);
        MUST(chex_shard_put(w, i, pixels, &err));
    }
    MUST(chex_shard_finish(w, "0123456789abcdef0123456789abcdef", &err));
}

static void set_make(void) {
    static struct chex_shard *shards[SHARDS];
    static size_t first[SHARDS + 1];
    dir_make();
    for (int i = 0; i < SHARDS; i++) {
        set_write_shard(set_shard(i), first[i], shard_rows[i]);
        MUST(chex_shard_open(set_shard(i), &shards[i], &err));
        first[i + 1] = first[i] + shard_rows[i];
    }
    BAIL_UNLESS(first[SHARDS] == ROWS, "rows");
    set = (struct chex_set){.dir = dir,
                            .shards = shards,
                            .shard_count = SHARDS,
                            .first = first,
                            .rows = ROWS,
                            .size = STORED,
                            .classes = CLASSES};
}

static void set_remove(void) {
    for (int i = 0; i < SHARDS; i++)
        chex_shard_close(set.shards[i]);
    dir_remove();
}

/* Turns over one bit of the pixels of a row of a shard, on the disk. */
static void set_damage(int shard, long row) {
    hid_t f = H5Fopen(set_shard(shard), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t d = H5Dopen2(f, "image", H5P_DEFAULT);
    const haddr_t at = H5Dget_offset(d);
    H5Dclose(d);
    H5Fclose(f);
    FILE *file = fopen(set_shard(shard), "r+b");
    BAIL_UNLESS(file && at != HADDR_UNDEF, "shard %d", shard);
    const long byte = (long)at + row * STORED * STORED + 11;
    fseek(file, byte, SEEK_SET);
    const int old = fgetc(file);
    fseek(file, byte, SEEK_SET);
    fputc(old ^ 16, file);
    BAIL_UNLESS(fclose(file) == 0, "shard %d", shard);
}

/* ---- batches ---- */

static uint64_t recorded[TICKETS];

static struct chex_pipeline *create(const struct chex_pipeline_config *c) {
    struct chex_pipeline *p = NULL;
    MUST(chex_pipeline_create(c, &p, &err));
    return p;
}

static void next(struct chex_pipeline *p, struct chex_ready *r) {
    MUST(chex_pipeline_next(p, r, &err));
}

/* Everything that a consumer can see of a batch. */
static uint64_t digest(const struct chex_ready *r) {
    const size_t n = (size_t)r->batch.n;
    const uint64_t place[] = {r->epoch, r->step, (uint64_t)r->logical_rank, n};
    uint64_t d = chex_hash64_mix(0, r->batch.pixels, n * SIZE * SIZE * sizeof(float));
    d = chex_hash64_mix(d, r->batch.labels, n * CLASSES);
    d = chex_hash64_mix(d, r->rows, n * sizeof *r->rows);
    return chex_hash64_mix(d, place, sizeof place);
}

/* Whether pixels and labels are those of the rows. */
static bool batch_is_right(const struct chex_pipeline_config *c, const struct chex_ready *r) {
    bool good = true;
    uint8_t pixels[STORED * STORED];
    float want[SIZE * SIZE];
    void *scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(STORED, SIZE));
    for (size_t i = 0; i < (size_t)r->batch.n; i++) {
        const size_t row = r->rows[i];
        row_pixels(row, pixels);
        const struct chex_crop crop =
            c->training ? chex_augment_draw(&c->augment, c->order.seed, r->epoch, row, STORED)
                        : chex_augment_centre(STORED, SIZE);
        chex_augment_apply(pixels, STORED, &crop, SIZE, false, want, scratch);
        good = good && memcmp(want, r->batch.pixels + i * SIZE * SIZE, sizeof want) == 0;
        for (size_t k = 0; k < CLASSES; k++)
            good = good && r->batch.labels[i * CLASSES + k] == row_label(row, k);
    }
    free(scratch);
    return good;
}

typedef void set_order(const struct chex_order_config *c, int logical_rank, uint64_t epoch,
                       size_t *rows, size_t *scratch);

/* Records all batches. They hold the rows that `order` gives to each rank. */
static void check_content(const char *name, struct chex_pipeline_config c, set_order *order) {
    static size_t rows[RANKS][ROWS], scratch[ROWS];
    const int steps = (int)chex_order_steps(&c.order);
    struct chex_pipeline *p = create(&c);
    bool placed = true, in_order = true, right = true;
    for (int t = 0; t < TICKETS; t++) {
        struct chex_ready r;
        const uint64_t epoch = (uint64_t)(t / (RANKS * steps));
        const size_t step = (size_t)(t % (RANKS * steps) / RANKS);
        for (int k = 0; t % (RANKS * steps) == 0 && k < RANKS; k++)
            order(&c.order, c.rank_from + k, epoch, rows[k], scratch);
        next(p, &r);
        placed = placed && r.epoch == epoch && r.step == step &&
                 r.logical_rank == c.rank_from + t % RANKS && r.batch.n == BATCH && r.waited_s >= 0;
        in_order =
            in_order && memcmp(rows[t % RANKS] + step * BATCH, r.rows, BATCH * sizeof *r.rows) == 0;
        right = right && batch_is_right(&c, &r);
        recorded[t] = digest(&r);
        chex_pipeline_release(p, &r);
    }
    chex_pipeline_destroy(p);
    OK(placed, "%s: epoch, step and logical rank of %d batches", name, TICKETS);
    OK(in_order, "%s: rows are those of the order", name);
    OK(right, "%s: pixels and labels are those of the rows", name);
}

/* The pipeline starts with the batch `ticket`. */
static struct chex_pipeline_config start_at(struct chex_pipeline_config c, int ticket) {
    const int steps = (int)chex_order_steps(&c.order);
    c.epoch = (uint64_t)(ticket / RANKS / steps);
    c.step = (size_t)(ticket / RANKS % steps);
    return c;
}

/* Whether a pipeline gives every `every`-th recorded batch of [from, to). */
static bool gives(const struct chex_pipeline_config *c, int from, int to, int every) {
    struct chex_pipeline *p = create(c);
    bool same = true;
    for (int t = from; t < to; t += every) {
        struct chex_ready r;
        next(p, &r);
        same = same && digest(&r) == recorded[t];
        chex_pipeline_release(p, &r);
    }
    chex_pipeline_destroy(p);
    return same;
}

static bool same_from(struct chex_pipeline_config c, int from, int to) {
    c = start_at(c, from);
    return gives(&c, from, to, 1);
}

/* Whether raw batches give the pixels of the recorded ones of [from, to). */
static bool receives(struct chex_pipeline *p, struct receiver *receiver, int from, int to) {
    bool same = true;
    for (int t = from; t < to; t++) {
        struct chex_ready r;
        next(p, &r);
        same = same && receiver_develop(receiver, &r) && digest(&r) == recorded[t];
        chex_pipeline_release(p, &r);
    }
    return same;
}

static void check_early_end(const char *name, struct chex_pipeline_config c) {
    for (c.workers = 1; c.workers <= 4; c.workers++)
        for (int taken = 0; taken < 5; taken++) {
            struct chex_pipeline *p = create(&c);
            struct chex_ready r;
            for (int t = 0; t < taken; t++) {
                next(p, &r);
                if (t % 2)
                    chex_pipeline_release(p, &r);
            }
            if (c.workers == 2)
                chex_clock_sleep_ms(5); /* all slots are full and the workers wait */
            chex_pipeline_destroy(p);
        }
    OK(true, "%s: 20 pipelines ended early, with batches taken, kept and ready", name);
}

#endif
