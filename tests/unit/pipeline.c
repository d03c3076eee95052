/* SPDX-License-Identifier: Apache-2.0
 *
 * The pipeline over real shards: the same batches for any number of workers and slots, resumption
 * at any step, faults in their place, and an end at any moment.
 */
#include "input/pipeline.h"

#include "base/clock.h"

enum {
    SHARDS = 3,
    STORED = 40,
    SIZE = 32,
    CLASSES = 3,
    BATCH = 8,
    ROWS = 128,
    RANKS = 2, /* of 4 logical ranks: 4 steps an epoch, so 8 batches an epoch are ours */
    TICKETS = 40,
};
static const size_t shard_rows[SHARDS] = {37, 50, 41};

#include "pipeline_set.h"

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

static void test_workers(void) {
    for (int workers = 1; workers <= 4; workers++) {
        bool same = true;
        for (int slots = 2; slots <= 16; slots += 7)
            same = same && same_from(training(workers, slots), 0, TICKETS);
        OK(same, "%d workers, 2 to 16 slots: the same batches", workers);
    }
}

static void test_resume(void) {
    bool same = true;
    for (int from = 0; from < 16; from += 2)
        same = same && same_from(training(2, 4), from, 24);
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
    OK(gives(&c, 1, TICKETS, 2), "logical rank 2 sees the same in another company");
}

/* Raw batches from `from` on, against the recorded ones. */
static void receive(struct chex_pipeline_config c, int from, const char *what) {
    struct receiver to = receiver_create(ROWS, BATCH, STORED, SIZE);
    uint64_t after_one = 64 * STORED * STORED;
    c = start_at(c, from);
    struct chex_pipeline *p = create(&c);
    bool same = true;
    if (from == 0) {
        same = receives(p, &to, 0, 8);
        after_one = chex_pipeline_bytes(p);
    }
    same = same && receives(p, &to, from ? from : 8, TICKETS);
    OK(same, "%s, from batch %d: the same pixels", what, from);
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
        good = good && receiver_develop(&to, &r) && batch_is_right(&c, &r);
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
            good = good && batch_is_right(&c, &r) && r.step == (at - from) / BATCH;
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

static void test_damaged(void) {
    struct chex_ready r;
    /* A run that has read the row before the damage goes on: checked once, then trusted. */
    struct chex_pipeline_config c = training(1, 2);
    c.rank_to = 2;
    struct chex_pipeline *p = create(&c);
    for (int t = 0; t < 4; t++) {
        next(p, &r);
        chex_pipeline_release(p, &r);
    }
    set_damage(1, 23); /* row 60 */
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
            good += batch_is_right(&c, &r);
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
    set_make();
    check_content("new", training(1, 2), chex_order_epoch);
    test_workers();
    test_resume();
    test_elastic();
    test_raw();
    test_plain();
    test_refusals();
    check_early_end("new", training(1, 4));
    chex_pipeline_destroy(NULL);
    test_damaged();
    set_remove();
    return tap_done();
}
