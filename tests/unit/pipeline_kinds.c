/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows kept in memory, windows (--shuffle-block) and the old pipeline: the batches are what the
 * order says, for any number of workers, from any start, and faults come out.
 */
#include "input/pipeline.h"

#include "base/clock.h"
#include "input/reader.h"

/* 4,600 rows over 2 ranks are 143 steps; runs of 4 make windows of 64 steps, three an epoch. */
enum {
    SHARDS = 3,
    ROWS = 4600,
    STORED = 12,
    SIZE = 8,
    CLASSES = 2,
    BATCH = 16,
    RANKS = 2,
    BUFFER = 500,
    STEPS = ROWS / RANKS / BATCH,
    TICKETS = 2 * RANKS * STEPS + 40,
};
static const size_t shard_rows[SHARDS] = {1501, 1, 3098};

#include "pipeline_set.h"

static struct chex_pipeline_config config(enum chex_pipeline_kind kind, size_t block, bool keep) {
    return (struct chex_pipeline_config){.set = &set,
                                         .image_size = SIZE,
                                         .batch = BATCH,
                                         .workers = 1,
                                         .slots = 4,
                                         .training = true,
                                         .kind = kind,
                                         .augment = chex_augment_defaults,
                                         .keep = keep,
                                         .order = {.rows = ROWS,
                                                   .logical_ranks = RANKS,
                                                   .batch = BATCH,
                                                   .shuffle_block = block,
                                                   .seed = 9},
                                         .rank_to = RANKS};
}

static void test_same(const char *name, struct chex_pipeline_config c) {
    for (c.workers = 1; c.workers <= 3; c.workers++)
        OK(same_from(c, 0, TICKETS), "%s, %d workers: the same", name, c.workers);
    c.workers = 2;
    bool same = true;
    for (int step = 1; step < STEPS + 8; step += 21)
        same = same && same_from(c, step * RANKS, step * RANKS + 150);
    OK(same && same_from(c, RANKS * STEPS, TICKETS), "%s: from any start", name);
}

/* Raw, with the rows of earlier batches held, against the recorded batches. */
static void test_held(const char *name, struct chex_pipeline_config c) {
    c.raw = c.resident = true;
    for (c.workers = 1; c.workers <= 3; c.workers++) {
        struct receiver to = receiver_create(ROWS, BATCH, STORED, SIZE);
        const int from = c.workers == 2 ? 90 * RANKS : 0; /* within a window */
        c = start_at(c, from);
        struct chex_pipeline *p = create(&c);
        const bool good = receives(p, &to, from, TICKETS);
        const uint64_t read = chex_pipeline_bytes(p) / STORED / STORED; /* some of them ahead */
        OK(good && read >= (uint64_t)to.came && read <= ROWS,
           "%s, held, %d workers: the same, and each row is read once (%d came)", name, c.workers,
           to.came);
        chex_pipeline_destroy(p);
        receiver_release(&to);
    }
}

static void test_bytes(void) {
    const uint64_t part = (uint64_t)RANKS * STEPS * BATCH * STORED * STORED;
    struct chex_pipeline_config c = config(CHEX_PIPELINE_NEW, 0, true);
    struct chex_pipeline *p = create(&c);
    struct chex_ready r;
    for (int t = 0; t < 3 * RANKS * STEPS; t++) {
        next(p, &r);
        chex_pipeline_release(p, &r);
    }
    uint64_t kept = chex_pipeline_bytes(p);
    chex_pipeline_destroy(p);
    /* A row may be read twice: by the thread that fills the memory, and by who needs it now. */
    OK(kept >= part && kept < 2 * part, "in memory: three epochs read %.2f times the rows",
       (double)kept / (double)part);
}

/* Records i % V == v in the order of the disk through a buffer, by another route. */
static void buffered(const struct chex_order_config *c, int v, uint64_t epoch, size_t *out,
                     size_t *scratch) {
    size_t resident[BUFFER], n = 0, gone = 0;
    (void)scratch;
    for (size_t row = (size_t)v; row < ROWS || n; row += (size_t)c->logical_ranks) {
        if (row < ROWS)
            resident[n++] = row;
        if (n < BUFFER && row < ROWS)
            continue;
        size_t at = chex_order_buffer_pick(c->seed, epoch, v, gone, n);
        out[gone++] = resident[at];
        resident[at] = resident[--n];
    }
}

static void test_old(void) {
    struct chex_pipeline_config c = config(CHEX_PIPELINE_OLD, 0, false);
    check_content("old: record i goes to rank i % 2, through a buffer of 500", c, buffered);
    OK(same_from(c, 40, 400) && same_from(c, RANKS * STEPS + 2, TICKETS), "old: from any start");
    c.keep = true;
    OK(same_from(c, 0, 400), "old: the same from memory");
    c.rank_from = 1;
    OK(gives(&c, 1, 300, RANKS), "old: rank 1 alone sees the same");
    c = config(CHEX_PIPELINE_OLD, 0, false);
    OK(chex_pipeline_threads(&c) == 1, "old: one reader");
    OK(chex_pipeline_width(c.kind, &c.order) == BUFFER, "old: a shuffle of %d rows", BUFFER);
    size_t first, end;
    chex_pipeline_rows(c.kind, &c.order, 1, 2, &first, &end);
    OK(first == 0 && end == ROWS, "old: every rank reads everything");
    c.training = false;
    struct chex_pipeline *p = NULL;
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_FAIL, err, "pipeline old");
    check_early_end("old", config(CHEX_PIPELINE_OLD, 0, false));
}

static void test_damaged(const char *name, struct chex_pipeline_config c) {
    struct chex_ready r;
    struct chex_pipeline *p = create(&c);
    int taken = 0;
    while (taken < TICKETS && chex_pipeline_next(p, &r, &err) == CHEX_OK) {
        chex_pipeline_release(p, &r);
        taken++;
    }
    OK(taken < TICKETS && err.status == CHEX_E_DATA && strstr(err.text, "row 1498 (image3000)"),
       "%s: %s", name, err.text);
    OK_STATUS(chex_pipeline_next(p, &r, &err), CHEX_E_DATA, err, "image3000");
    chex_pipeline_destroy(p);
}

int main(void) {
    set_make();
    check_content("memory", config(CHEX_PIPELINE_NEW, 0, true), chex_order_epoch);
    test_same("memory", config(CHEX_PIPELINE_NEW, 0, true));
    test_same("files", config(CHEX_PIPELINE_NEW, 0, false));
    check_content("windows", config(CHEX_PIPELINE_NEW, 4, false), chex_order_epoch);
    test_same("windows", config(CHEX_PIPELINE_NEW, 4, false));
    test_same("windows from memory", config(CHEX_PIPELINE_NEW, 4, true));
    test_held("windows", config(CHEX_PIPELINE_NEW, 4, false));
    struct chex_pipeline_config c = config(CHEX_PIPELINE_NEW, 4, false);
    c.order.kind = CHEX_ORDER_GLOBAL; /* rows go from rank to rank between epochs */
    check_content("windows of all rows", c, chex_order_epoch);
    test_held("windows of all rows", c);
    check_early_end("windows", config(CHEX_PIPELINE_NEW, 4, false));
    check_early_end("memory", config(CHEX_PIPELINE_NEW, 0, true));
    test_bytes();
    test_old();
    set_damage(2, 1498); /* row 3000 */
    test_damaged("files", config(CHEX_PIPELINE_NEW, 0, false));
    test_damaged("memory", config(CHEX_PIPELINE_NEW, 0, true));
    test_damaged("windows", config(CHEX_PIPELINE_NEW, 4, false));
    test_damaged("old", config(CHEX_PIPELINE_OLD, 0, false));
    set_remove();
    return tap_done();
}
