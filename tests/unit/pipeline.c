/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline over real shards: the same batches for any number of workers and slots, resumption
 * at any step, faults in their place, and an end at any moment.
 */
#include "input/pipeline.h"

#include <hdf5.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/rng.h"
#include "input/augment.h"
#include "receiver.h"
#include "shard/shard_write.h"
#include "tap.h"

enum { SHARDS = 3, STORED = 40, SIZE = 32, CLASSES = 3, BATCH = 8, ROWS = 128 };
static const size_t shard_rows[SHARDS] = {37, 50, 41};
static char dir[256];
static struct chex_set set;
static const char *const class_names[] = {"A", "B", "C"};

static void row_pixels(size_t row, uint8_t *out) {
    for (uint32_t i = 0; i < STORED * STORED; i++)
        out[i] = (uint8_t)chex_rng(1, CHEX_RNG_TEST, row, i).v[0];
}

static int8_t row_label(size_t row, int c) { return (int8_t)((row + (size_t)c) % 4) - 2; }

struct rows_of {
    int8_t labels[ROWS][CLASSES];
    char ids[ROWS][16];
};

static void describe(const void *arg, size_t i, struct chex_shard_row *out) {
    const struct rows_of *r = arg;
    *out = (struct chex_shard_row){
        .image_id = r->ids[i], .patient_id = "p1", .labels = r->labels[i], .age_years = -1};
}

static void make_shard(const char *path, size_t first, size_t rows) {
    static struct rows_of r;
    struct chex_error err = {0};
    struct chex_shard_writer *w = NULL;
    uint8_t pixels[STORED * STORED];
    for (size_t i = 0; i < rows; i++) {
        snprintf(r.ids[i], sizeof r.ids[i], "image%03zu", first + i);
        for (int c = 0; c < CLASSES; c++)
            r.labels[i][c] = row_label(first + i, c);
    }
    struct chex_shard_spec spec = {.rows = rows,
                                   .size = STORED,
                                   .classes = CLASSES,
                                   .class_names = class_names,
                                   .resize = "pillow-bilinear",
                                   .split = "train",
                                   .tool_version = "test",
                                   .row = describe,
                                   .arg = &r};
    BAIL_UNLESS(chex_shard_create(path, &spec, &w, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < rows; i++) {
        row_pixels(first + i, pixels);
        BAIL_UNLESS(chex_shard_put(w, i, pixels, &err) == CHEX_OK, "%s", err.text);
    }
    BAIL_UNLESS(chex_shard_finish(w, "0123456789abcdef0123456789abcdef", &err) == CHEX_OK, "%s",
                err.text);
}

static const char *shard_path(int i) {
    static char path[512];
    snprintf(path, sizeof path, "%s/train-%05d-of-00003.h5", dir, i);
    return path;
}

static void open_set(void) {
    static struct chex_shard *shards[SHARDS];
    static size_t first[SHARDS + 1];
    struct chex_error err = {0};
    for (int i = 0; i < SHARDS; i++) {
        BAIL_UNLESS(chex_shard_open(shard_path(i), &shards[i], &err) == CHEX_OK, "%s", err.text);
        first[i + 1] = first[i] + shard_rows[i];
    }
    set = (struct chex_set){.dir = dir,
                            .shards = shards,
                            .shard_count = SHARDS,
                            .first = first,
                            .rows = ROWS,
                            .size = STORED,
                            .classes = CLASSES};
}

static void close_set(void) {
    for (int i = 0; i < SHARDS; i++) {
        chex_shard_close(set.shards[i]);
        set.shards[i] = NULL;
    }
}

static struct chex_pipeline_config training(int workers, int slots) {
    return (struct chex_pipeline_config){
        .set = &set,
        .image_size = SIZE,
        .batch = BATCH,
        .workers = workers,
        .slots = slots,
        .training = true,
        .order = {.rows = ROWS, .logical_ranks = 4, .batch = BATCH, .seed = 77},
        .augment = chex_augment_defaults,
        .rank_from = 1,
        .rank_to = 3};
}

static struct chex_pipeline_config plain(int workers, size_t from, size_t to) {
    return (struct chex_pipeline_config){.set = &set,
                                         .image_size = SIZE,
                                         .batch = BATCH,
                                         .workers = workers,
                                         .slots = 3,
                                         .row_from = from,
                                         .row_to = to};
}

/* Everything a consumer can see of a batch. */
static uint64_t digest(const struct chex_ready *r) {
    size_t n = (size_t)r->batch.n;
    uint64_t d = chex_hash64_mix(0, r->batch.pixels, n * SIZE * SIZE * sizeof(float));
    d = chex_hash64_mix(d, r->batch.labels, n * CLASSES);
    d = chex_hash64_mix(d, r->rows, n * sizeof *r->rows);
    uint64_t place[] = {r->epoch, r->step, (uint64_t)r->logical_rank};
    return chex_hash64_mix(d, place, sizeof place);
}

static struct chex_pipeline *create(const struct chex_pipeline_config *c) {
    struct chex_pipeline *p = NULL;
    struct chex_error err = {0};
    BAIL_UNLESS(chex_pipeline_create(c, &p, &err) == CHEX_OK, "%s", err.text);
    return p;
}

static void next(struct chex_pipeline *p, struct chex_ready *r) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_pipeline_next(p, r, &err) == CHEX_OK, "%s", err.text);
}

static bool batch_is_right(const struct chex_ready *r, bool train) {
    bool good = true;
    uint8_t pixels[STORED * STORED];
    static float want[SIZE * SIZE];
    void *scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(STORED, SIZE));
    for (size_t i = 0; i < (size_t)r->batch.n; i++) {
        size_t row = r->rows[i];
        row_pixels(row, pixels);
        struct chex_crop c =
            train ? chex_augment_draw(&chex_augment_defaults, 77, r->epoch, row, STORED)
                  : chex_augment_centre(STORED, SIZE);
        chex_augment_apply(pixels, STORED, &c, SIZE, false, want, scratch);
        good = good && memcmp(want, r->batch.pixels + i * SIZE * SIZE, sizeof want) == 0;
        for (int k = 0; k < CLASSES; k++)
            good = good && r->batch.labels[i * CLASSES + (size_t)k] == row_label(row, k);
    }
    free(scratch);
    return good;
}

/* 128 rows, 4 ranks, batch 8: 4 steps an epoch; two ranks are ours, so 8 batches an epoch. */
enum { TICKETS = 40 };
static uint64_t recorded[TICKETS];

static void test_content(void) {
    struct chex_pipeline_config c = training(1, 2);
    struct chex_pipeline *p = create(&c);
    bool right = true, placed = true, in_order = true;
    size_t rows[ROWS], scratch[ROWS];
    for (int t = 0; t < TICKETS; t++) {
        struct chex_ready r;
        next(p, &r);
        placed = placed && r.epoch == (uint64_t)t / 8 && r.step == (size_t)t % 8 / 2 &&
                 r.logical_rank == 1 + t % 2 && r.batch.n == BATCH && r.waited_s >= 0;
        right = right && batch_is_right(&r, true);
        chex_order_epoch(&c.order, r.logical_rank, r.epoch, rows, scratch);
        in_order = in_order && memcmp(rows + r.step * BATCH, r.rows, BATCH * sizeof *rows) == 0;
        recorded[t] = digest(&r);
        chex_pipeline_release(p, &r);
    }
    chex_pipeline_destroy(p);
    OK(placed, "epoch, step and logical rank of %d batches over 5 epochs", TICKETS);
    OK(in_order, "rows are those of the order");
    OK(right, "pixels and labels are those of the rows");
}

static void test_workers(void) {
    for (int workers = 1; workers <= 4; workers++) {
        bool same = true;
        for (int slots = 2; slots <= 16; slots += 7) {
            struct chex_pipeline_config c = training(workers, slots);
            struct chex_pipeline *p = create(&c);
            for (int t = 0; t < TICKETS; t++) {
                struct chex_ready r;
                next(p, &r);
                same = same && digest(&r) == recorded[t];
                chex_pipeline_release(p, &r);
            }
            chex_pipeline_destroy(p);
        }
        OK(same, "%d workers, 2 to 16 slots: the same batches", workers);
    }
}

static void test_resume(void) {
    bool same = true;
    for (int from = 0; from < 16; from += 2) {
        struct chex_pipeline_config c = training(2, 4);
        c.epoch = (uint64_t)from / 8;
        c.step = (size_t)from % 8 / 2;
        struct chex_pipeline *p = create(&c);
        for (int t = from; t < 24; t++) {
            struct chex_ready r;
            next(p, &r);
            same = same && digest(&r) == recorded[t];
            chex_pipeline_release(p, &r);
        }
        chex_pipeline_destroy(p);
    }
    OK(same, "a start at any (epoch, step) gives the rest of the same run");
    /* The end of an epoch is the start of the next one. */
    struct chex_pipeline_config c = training(1, 2);
    struct chex_ready r;
    c.step = 4;
    struct chex_pipeline *p = create(&c);
    next(p, &r);
    OK(digest(&r) == recorded[8] && r.epoch == 1 && r.step == 0, "step 4 of 4 is epoch 1");
    chex_pipeline_destroy(p);
}

/* One process that plays rank 2 alone sees what the process with ranks 1 and 2 saw of it. */
static void test_elastic(void) {
    struct chex_pipeline_config c = training(2, 3);
    c.rank_from = 2;
    struct chex_pipeline *p = create(&c);
    bool same = true;
    for (int t = 1; t < TICKETS; t += 2) {
        struct chex_ready r;
        next(p, &r);
        same = same && digest(&r) == recorded[t];
        chex_pipeline_release(p, &r);
    }
    chex_pipeline_destroy(p);
    OK(same, "logical rank 2 sees the same in another company");
}

/* Raw batches from `from` on, against the recorded ones. */
static void receive(struct chex_pipeline_config c, int from, const char *what) {
    struct receiver to = receiver_create(ROWS, BATCH, STORED, SIZE);
    bool good = true, same = true;
    uint64_t after_one = 64 * STORED * STORED;
    c.epoch = (uint64_t)from / 8;
    c.step = (size_t)from % 8 / 2;
    struct chex_pipeline *p = create(&c);
    for (int t = from; t < TICKETS; t++) {
        struct chex_ready r;
        next(p, &r);
        good = good && receiver_develop(&to, &r);
        same = same && digest(&r) == recorded[t];
        chex_pipeline_release(p, &r);
        if (from == 0 && t == 7)
            after_one = chex_pipeline_bytes(p);
    }
    OK(good && same, "%s, from batch %d: the same pixels", what, from);
    if (c.resident)
        OK(to.came == 64 && after_one == 64 * STORED * STORED &&
               chex_pipeline_bytes(p) == after_one,
           "%s: each row comes once and is read once (%d came)", what, to.came);
    chex_pipeline_destroy(p);
    receiver_release(&to);
}

static void test_raw(void) {
    for (int resident = 0; resident < 2; resident++)
        for (int workers = 1; workers <= 3; workers++)
            for (int from = 0; from <= 12; from += 6) {
                struct chex_pipeline_config c = training(workers, 2 + workers);
                char what[64];
                c.raw = true;
                c.resident = resident;
                snprintf(what, sizeof what, "raw%s, %d workers", resident ? ", held" : "", workers);
                receive(c, from, what);
            }
    struct chex_pipeline_config c = plain(2, 30, 101);
    struct receiver to = receiver_create(ROWS, BATCH, STORED, SIZE);
    c.raw = true;
    struct chex_pipeline *p = create(&c);
    struct chex_ready r;
    bool good = true;
    for (next(p, &r); r.batch.n; next(p, &r)) {
        good = good && receiver_develop(&to, &r) && batch_is_right(&r, false);
        chex_pipeline_release(p, &r);
    }
    OK(good && to.came == 71, "raw: an evaluation's batches");
    chex_pipeline_destroy(p);
    receiver_release(&to);
}

static void test_plain(void) {
    static const size_t ranges[][2] = {{0, ROWS}, {30, 101}, {36, 38}, {5, 6}, {7, 7}, {120, 128}};
    for (size_t k = 0; k < sizeof ranges / sizeof ranges[0]; k++) {
        size_t from = ranges[k][0], to = ranges[k][1], at = from;
        struct chex_pipeline_config c = plain(1 + (int)k % 3, from, to);
        struct chex_pipeline *p = create(&c);
        struct chex_ready r;
        bool good = true;
        for (next(p, &r); r.batch.n; next(p, &r)) {
            good = good && batch_is_right(&r, false) && r.step == (at - from) / BATCH;
            for (int i = 0; i < r.batch.n; i++)
                good = good && r.rows[i] == at++;
            chex_pipeline_release(p, &r);
        }
        next(p, &r);
        OK(good && at == to && r.batch.n == 0, "rows %zu to %zu in order, then the end", from, to);
        chex_pipeline_release(p, &r);
        chex_pipeline_destroy(p);
    }
    struct chex_pipeline_config c = plain(1, 0, 4);
    c.image_size = STORED;
    struct chex_pipeline *p = create(&c);
    struct chex_ready r;
    uint8_t pixels[STORED * STORED];
    bool same = true;
    next(p, &r);
    row_pixels(2, pixels);
    for (size_t i = 0; i < STORED * STORED; i++)
        same =
            same && fabsf(r.batch.pixels[2 * STORED * STORED + i] - (float)pixels[i] / 255) < 1e-7f;
    OK(same, "the stored size itself is copied");
    chex_pipeline_destroy(p);
}

static void test_refusals(void) {
    struct chex_error err = {0};
    struct chex_pipeline *p = NULL;
    struct chex_pipeline_config c = plain(1, 0, 8);
    c.image_size = STORED + 1;
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_DATA, err, "smaller than the image size");
    c = plain(0, 0, 8);
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_USAGE, err, "--workers 0");
    c = plain(1, 0, ROWS + 1);
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_FAIL, err, "rows 0 to 129");
    c = training(1, 17);
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_USAGE, err, "17 ready batches");
    c = training(1, 2);
    c.step = 5;
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_DATA, err, "an epoch has 4");
    c = training(1, 2);
    c.order.logical_ranks = 17;
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_USAGE, err, "less than one batch");
    c = training(1, 2);
    c.raw = true;
    c.kind = CHEX_PIPELINE_OLD;
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_FAIL, err, "only `new` makes raw batches");
    c = plain(1, 0, 8);
    c.raw = c.resident = true;
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_FAIL, err,
              "need raw batches and training");
    struct chex_shard *kept = set.shards[0];
    set.shards[0] = NULL;
    c = training(1, 2);
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_FAIL, err, "is not open");
    c.rank_from = 2; /* rows 64 to 95: shards 1 and 2 */
    struct chex_pipeline *own = create(&c);
    struct chex_ready r;
    next(own, &r);
    OK(digest(&r) == recorded[1], "a rank needs its own shards alone");
    chex_pipeline_destroy(own);
    set.shards[0] = kept;
    OK(!p, "nothing is handed out");
}

static void test_early_end(void) {
    for (int workers = 1; workers <= 4; workers++)
        for (int taken = 0; taken < 4; taken++) {
            struct chex_pipeline_config c = training(workers, 4);
            struct chex_pipeline *p = create(&c);
            struct chex_ready r;
            for (int t = 0; t < taken; t++) {
                next(p, &r);
                if (t % 2)
                    chex_pipeline_release(p, &r);
            }
            if (workers == 2)
                chex_clock_sleep_ms(5); /* all slots are full and the workers wait */
            chex_pipeline_destroy(p);
        }
    chex_pipeline_destroy(NULL);
    OK(true, "16 pipelines ended early, with batches taken, kept and ready");
}

/* One byte of row 60 (row 23 of shard 1) turned over on the disk. */
static void damage(void) {
    hid_t f = H5Fopen(shard_path(1), H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t d = H5Dopen2(f, "image", H5P_DEFAULT);
    haddr_t at = H5Dget_offset(d);
    H5Dclose(d);
    H5Fclose(f);
    FILE *file = fopen(shard_path(1), "r+b");
    BAIL_UNLESS(file && at != HADDR_UNDEF, "shard 1");
    long byte = (long)at + 23L * STORED * STORED + 11;
    fseek(file, byte, SEEK_SET);
    int old = fgetc(file);
    fseek(file, byte, SEEK_SET);
    fputc(old ^ 16, file);
    BAIL_UNLESS(fclose(file) == 0, "shard 1");
}

static void test_damaged(void) {
    struct chex_error err = {0};
    struct chex_ready r;
    /* A run that has read the row before the damage goes on: checked once, then trusted. */
    struct chex_pipeline_config c = training(1, 2);
    c.rank_to = 2;
    struct chex_pipeline *p = create(&c);
    for (int t = 0; t < 4; t++) {
        next(p, &r);
        chex_pipeline_release(p, &r);
    }
    damage();
    for (int t = 0; t < 4; t++) {
        next(p, &r);
        chex_pipeline_release(p, &r);
    }
    OK(true, "rows are checked at their first read only");
    chex_pipeline_destroy(p);
    for (int workers = 1; workers <= 4; workers++) {
        c = plain(workers, 0, ROWS);
        p = create(&c);
        int good = 0;
        while (chex_pipeline_next(p, &r, &err) == CHEX_OK && r.batch.n) {
            good += batch_is_right(&r, false);
            chex_pipeline_release(p, &r);
        }
        OK(good == 7 && err.status == CHEX_E_DATA && strstr(err.text, "train-00001-of-00003.h5") &&
               strstr(err.text, "row 23") && strstr(err.text, "image060"),
           "%d workers: batches 0 to 6, then: %s", workers, err.text);
        OK_STATUS(chex_pipeline_next(p, &r, &err), CHEX_E_DATA, err, "row 23");
        chex_pipeline_destroy(p);
    }
}

int main(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/chex-pipeline-XXXXXX", tmp ? tmp : "/tmp");
    BAIL_UNLESS(mkdtemp(dir), "%s", dir);
    size_t first = 0;
    for (int i = 0; i < SHARDS; first += shard_rows[i++])
        make_shard(shard_path(i), first, shard_rows[i]);
    open_set();
    test_content();
    test_workers();
    test_resume();
    test_elastic();
    test_raw();
    test_plain();
    test_refusals();
    test_early_end();
    test_damaged();
    close_set();
    chex_fs_remove_tree(dir, NULL);
    return tap_done();
}
