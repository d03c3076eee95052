/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows kept in memory, windows (--shuffle-block) and the old pipeline: the batches are what the
 * order says, for any number of workers, from any start, and faults come out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "input/augment.h"
#include "input/pipeline.h"
#include "input/reader.h"
#include "shard/shard_write.h"

#include "receiver.h"
#include "tap.h"

enum { SHARDS = 3, ROWS = 4600, STORED = 12, SIZE = 8, BATCH = 16, RANKS = 2, BUFFER = 500 };
static const size_t shard_rows[SHARDS] = {1501, 1, 3098};
static char dir[256];
static struct chex_set set;
static const char *const class_names[] = {"A", "B"};
enum { CLASSES = 2 };

static void row_pixels(size_t row, uint8_t *out) {
    for (size_t i = 0; i < STORED * STORED; i++)
        out[i] = (uint8_t)(row * 31 + i * 7 + row * i / 5);
    out[0] = (uint8_t)(row >> 8); /* no two rows are alike */
    out[1] = (uint8_t)row;
}
static int8_t row_label(size_t row, size_t c) { return (int8_t)((row >> c) & 1); }

struct table {
    size_t first;
    char ids[ROWS][12];
    int8_t labels[ROWS][CLASSES];
};

static void describe(const void *arg, size_t i, struct chex_shard_row *out) {
    const struct table *t = arg;
    *out = (struct chex_shard_row){
        .image_id = t->ids[i], .patient_id = "p", .labels = t->labels[i], .age_years = -1};
}

static const char *shard_path(int i) {
    static char path[512];
    snprintf(path, sizeof path, "%s/train-%05d-of-%05d.h5", dir, i, SHARDS);
    return path;
}

static void make_shard(int number, size_t first, size_t rows) {
    static struct table t;
    struct chex_error err = {0};
    struct chex_shard_writer *w = NULL;
    uint8_t pixels[STORED * STORED];
    for (size_t i = 0; i < rows; i++) {
        snprintf(t.ids[i], sizeof t.ids[i], "i%zu", first + i);
        for (size_t c = 0; c < CLASSES; c++)
            t.labels[i][c] = row_label(first + i, c);
    }
    struct chex_shard_spec spec = {.rows = rows,
                                   .size = STORED,
                                   .classes = CLASSES,
                                   .class_names = class_names,
                                   .resize = "pillow-bilinear",
                                   .split = "train",
                                   .tool_version = "test",
                                   .row = describe,
                                   .arg = &t};
    BAIL_UNLESS(chex_shard_create(shard_path(number), &spec, &w, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < rows; i++) {
        row_pixels(first + i, pixels);
        BAIL_UNLESS(chex_shard_put(w, i, pixels, &err) == CHEX_OK, "%s", err.text);
    }
    BAIL_UNLESS(chex_shard_finish(w, "0123456789abcdef0123456789abcdef", &err) == CHEX_OK, "%s",
                err.text);
}

static void make_set(void) {
    static struct chex_shard *shards[SHARDS];
    static size_t first[SHARDS + 1];
    struct chex_error err = {0};
    for (int i = 0; i < SHARDS; i++) {
        make_shard(i, first[i], shard_rows[i]);
        BAIL_UNLESS(chex_shard_open(shard_path(i), &shards[i], &err) == CHEX_OK, "%s", err.text);
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

static uint64_t digest(const struct chex_ready *r) {
    size_t n = (size_t)r->batch.n;
    uint64_t place[] = {r->epoch, r->step, (uint64_t)r->logical_rank, n};
    uint64_t d = chex_hash64_mix(0, r->batch.pixels, n * SIZE * SIZE * sizeof(float));
    d = chex_hash64_mix(d, r->batch.labels, n * CLASSES);
    d = chex_hash64_mix(d, r->rows, n * sizeof *r->rows);
    return chex_hash64_mix(d, place, sizeof place);
}

static bool batch_is_right(const struct chex_ready *r) {
    bool good = r->batch.n == BATCH;
    uint8_t pixels[STORED * STORED];
    float want[SIZE * SIZE];
    void *scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(STORED, SIZE));
    for (size_t i = 0; good && i < BATCH; i++) {
        row_pixels(r->rows[i], pixels);
        struct chex_crop crop =
            chex_augment_draw(&chex_augment_defaults, 9, r->epoch, r->rows[i], STORED);
        chex_augment_apply(pixels, STORED, &crop, SIZE, false, want, scratch);
        good = memcmp(want, r->batch.pixels + i * SIZE * SIZE, sizeof want) == 0;
        for (size_t c = 0; c < CLASSES; c++)
            good = good && r->batch.labels[i * CLASSES + c] == row_label(r->rows[i], c);
    }
    free(scratch);
    return good;
}

/* 4,600 rows over 2 ranks are 143 steps; runs of 4 make windows of 64 steps, three an epoch. */
enum { STEPS = ROWS / RANKS / BATCH, TICKETS = 2 * RANKS * STEPS + 40 };
static uint64_t recorded[TICKETS];

/* What the order says, rank by rank and step by step. */
static void test_content(const char *name, struct chex_pipeline_config c) {
    static size_t rows[RANKS][ROWS], scratch[ROWS];
    struct chex_pipeline *p = create(&c);
    bool right = true, in_order = true;
    for (int t = 0; t < TICKETS; t++) {
        struct chex_ready r;
        if (t % (RANKS * STEPS) == 0)
            for (int v = 0; v < RANKS; v++)
                chex_order_epoch(&c.order, v, (uint64_t)(t / (RANKS * STEPS)), rows[v], scratch);
        next(p, &r);
        size_t step = (size_t)(t % (RANKS * STEPS) / RANKS);
        in_order = in_order && r.step == step && r.logical_rank == t % RANKS &&
                   memcmp(rows[t % RANKS] + step * BATCH, r.rows, BATCH * sizeof *r.rows) == 0;
        right = right && batch_is_right(&r);
        recorded[t] = digest(&r);
        chex_pipeline_release(p, &r);
    }
    chex_pipeline_destroy(p);
    OK(in_order, "%s: %d batches hold the rows of the order", name, TICKETS);
    OK(right, "%s: with their pixels and labels", name);
}

static bool same_from(struct chex_pipeline_config c, int from, int to) {
    c.epoch = (uint64_t)(from / RANKS / STEPS);
    c.step = (size_t)(from / RANKS % STEPS);
    struct chex_pipeline *p = create(&c);
    bool same = true;
    for (int t = from; t < to; t++) {
        struct chex_ready r;
        next(p, &r);
        same = same && digest(&r) == recorded[t];
        chex_pipeline_release(p, &r);
    }
    chex_pipeline_destroy(p);
    return same;
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
        c.step = (size_t)(from / RANKS);
        struct chex_pipeline *p = create(&c);
        bool good = true;
        for (int t = from; t < TICKETS; t++) {
            struct chex_ready r;
            next(p, &r);
            good = good && receiver_develop(&to, &r) && digest(&r) == recorded[t];
            chex_pipeline_release(p, &r);
        }
        const uint64_t read = chex_pipeline_bytes(p) / STORED / STORED; /* some of them ahead */
        OK(good && read >= (uint64_t)to.came && read <= ROWS,
           "%s, held, %d workers: the same, and each row is read once (%d came)", name, c.workers,
           to.came);
        chex_pipeline_destroy(p);
        receiver_release(&to);
    }
}

static void test_early_end(const char *name, struct chex_pipeline_config c) {
    for (c.workers = 1; c.workers <= 3; c.workers++)
        for (int taken = 0; taken < 5; taken++) {
            struct chex_pipeline *p = create(&c);
            struct chex_ready r;
            for (int t = 0; t < taken; t++) {
                next(p, &r);
                if (t + 1 < taken)
                    chex_pipeline_release(p, &r);
            }
            chex_pipeline_destroy(p);
        }
    OK(true, "%s: ended early, with a batch in hand", name);
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
static void buffered(int v, int ranks, uint64_t epoch, size_t *out) {
    size_t resident[BUFFER], n = 0, gone = 0;
    for (size_t row = (size_t)v; row < ROWS || n; row += (size_t)ranks) {
        if (row < ROWS)
            resident[n++] = row;
        if (n < BUFFER && row < ROWS)
            continue;
        size_t at = chex_order_buffer_pick(9, epoch, v, gone, n);
        out[gone++] = resident[at];
        resident[at] = resident[--n];
    }
}

static void test_old(void) {
    static size_t rows[RANKS][ROWS];
    struct chex_pipeline_config c = config(CHEX_PIPELINE_OLD, 0, false);
    struct chex_pipeline *p = create(&c);
    bool right = true, in_order = true;
    for (int t = 0; t < TICKETS; t++) {
        struct chex_ready r;
        uint64_t epoch = (uint64_t)(t / (RANKS * STEPS));
        size_t step = (size_t)(t % (RANKS * STEPS) / RANKS);
        if (t % (RANKS * STEPS) == 0)
            for (int v = 0; v < RANKS; v++)
                buffered(v, RANKS, epoch, rows[v]);
        next(p, &r);
        in_order = in_order && r.epoch == epoch && r.step == step && r.logical_rank == t % RANKS &&
                   memcmp(rows[t % RANKS] + step * BATCH, r.rows, BATCH * sizeof *r.rows) == 0;
        right = right && batch_is_right(&r);
        recorded[t] = digest(&r);
        chex_pipeline_release(p, &r);
    }
    chex_pipeline_destroy(p);
    OK(in_order, "old: record i goes to rank i %% %d, through a buffer of %d", RANKS, BUFFER);
    OK(right, "old: with their pixels and labels");
    OK(same_from(c, 40, 400) && same_from(c, RANKS * STEPS + 2, TICKETS), "old: from any start");
    c.keep = true;
    OK(same_from(c, 0, 400), "old: the same from memory");
    c.rank_from = 1;
    p = create(&c);
    bool same = true;
    for (int t = 1; t < 300; t += RANKS) {
        struct chex_ready r;
        next(p, &r);
        same = same && digest(&r) == recorded[t];
        chex_pipeline_release(p, &r);
    }
    chex_pipeline_destroy(p);
    OK(same, "old: rank 1 alone sees the same");
    c = config(CHEX_PIPELINE_OLD, 0, false);
    OK(chex_pipeline_threads(&c) == 1, "old: one reader");
    OK(chex_pipeline_width(c.kind, &c.order) == BUFFER, "old: a shuffle of %d rows", BUFFER);
    size_t first, end;
    chex_pipeline_rows(c.kind, &c.order, 1, 2, &first, &end);
    OK(first == 0 && end == ROWS, "old: every rank reads everything");
    c.training = false;
    struct chex_error err = {0};
    OK_STATUS(chex_pipeline_create(&c, &p, &err), CHEX_E_FAIL, err, "pipeline old");
    test_early_end("old", config(CHEX_PIPELINE_OLD, 0, false));
}

/* A byte of the last shard is turned over on the disk. */
static void damage(void) {
    FILE *f = fopen(shard_path(2), "r+b");
    BAIL_UNLESS(f && fseek(f, 0, SEEK_END) == 0, "shard 2");
    uint8_t pixels[STORED * STORED], seen[STORED * STORED];
    row_pixels(3000, pixels);
    long at = 0;
    for (long size = (fseek(f, 0, SEEK_END), ftell(f)); at < size; at++) {
        fseek(f, at, SEEK_SET);
        if (fread(seen, 1, sizeof seen, f) == sizeof seen && memcmp(seen, pixels, sizeof seen) == 0)
            break;
    }
    fseek(f, at + 5, SEEK_SET);
    fputc(pixels[5] ^ 1, f);
    fclose(f);
}

static void test_damaged(const char *name, struct chex_pipeline_config c) {
    struct chex_error err = {0};
    struct chex_ready r;
    struct chex_pipeline *p = create(&c);
    int taken = 0;
    while (taken < TICKETS && chex_pipeline_next(p, &r, &err) == CHEX_OK) {
        chex_pipeline_release(p, &r);
        taken++;
    }
    OK(err.status == CHEX_E_DATA && strstr(err.text, "row 1498 (i3000)"), "%s: %s", name, err.text);
    OK_STATUS(chex_pipeline_next(p, &r, &err), CHEX_E_DATA, err, "i3000");
    chex_pipeline_destroy(p);
}

int main(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/chex-kinds-XXXXXX", tmp ? tmp : "/tmp");
    BAIL_UNLESS(mkdtemp(dir), "%s", dir);
    make_set();
    test_content("memory", config(CHEX_PIPELINE_NEW, 0, true));
    test_same("memory", config(CHEX_PIPELINE_NEW, 0, true));
    test_same("files", config(CHEX_PIPELINE_NEW, 0, false));
    test_content("windows", config(CHEX_PIPELINE_NEW, 4, false));
    test_same("windows", config(CHEX_PIPELINE_NEW, 4, false));
    test_same("windows from memory", config(CHEX_PIPELINE_NEW, 4, true));
    test_held("windows", config(CHEX_PIPELINE_NEW, 4, false));
    struct chex_pipeline_config c = config(CHEX_PIPELINE_NEW, 4, false);
    c.order.kind = CHEX_ORDER_GLOBAL; /* rows go from rank to rank between epochs */
    test_content("windows of all rows", c);
    test_held("windows of all rows", c);
    test_early_end("windows", config(CHEX_PIPELINE_NEW, 4, false));
    test_early_end("memory", config(CHEX_PIPELINE_NEW, 0, true));
    test_bytes();
    test_old();
    damage();
    test_damaged("files", config(CHEX_PIPELINE_NEW, 0, false));
    test_damaged("memory", config(CHEX_PIPELINE_NEW, 0, true));
    test_damaged("windows", config(CHEX_PIPELINE_NEW, 4, false));
    test_damaged("old", config(CHEX_PIPELINE_OLD, 0, false));
    for (int i = 0; i < SHARDS; i++)
        chex_shard_close(set.shards[i]);
    chex_fs_remove_tree(dir, NULL);
    return tap_done();
}
