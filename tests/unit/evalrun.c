/* SPDX-License-Identifier: Apache-2.0
 *
 * A split through an engine: each image once for any number of ranks, views of test-time
 * augmentation against crops cut here, faults that reach all ranks. The engine is a linear form of
 * the pixels, so every view has another answer; the ranks are threads.
 */
#include "infer/split_run.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/rng.h"
#include "input/augment.h"
#include "shard/shard_write.h"
#include "thread_coll.h"

enum { SHARDS = 2, STORED = 20, SIZE = 14, CLASSES = 3, ROWS = 45, MAX_RANKS = 50 };
static const size_t shard_rows[SHARDS] = {17, 28};
static char dir[] = "/tmp/chex-evalrun-XXXXXX";
static char name_a[] = "A", name_b[] = "B", name_c[] = "C";
static char *class_names[] = {name_a, name_b, name_c};
static struct chex_set set;

/* ---- data ---- */

static uint8_t pixel(size_t row, int y, int x) {
    return (uint8_t)chex_rng(1, CHEX_RNG_TEST, row, (uint32_t)(y * STORED + x)).v[0];
}

static int8_t label_of(size_t row, int c) { return (int8_t)((row + 2 * (size_t)c) % 4) - 2; }

struct facts {
    size_t first;
    int8_t labels[ROWS][CLASSES];
    char image[ROWS][32], patient[ROWS][32];
};

static void describe(const void *arg, size_t i, struct chex_shard_row *out) {
    const struct facts *f = arg;
    const size_t row = f->first + i;
    *out = (struct chex_shard_row){.image_id = f->image[i],
                                   .patient_id = f->patient[i],
                                   .labels = f->labels[i],
                                   .view = (enum chex_view)(row % 4),
                                   .age_years = (int)row - 1,
                                   .sex = row % 2 ? 'F' : 0};
}

static void make_shard(const char *path, size_t first, size_t rows) {
    static struct facts f;
    struct chex_error err = {0};
    struct chex_shard_writer *w = NULL;
    f.first = first;
    for (size_t i = 0; i < rows; i++) {
        snprintf(f.image[i], sizeof f.image[i], "%03zu.png", first + i);
        snprintf(f.patient[i], sizeof f.patient[i], "p%zu", (first + i) / 3);
        for (int c = 0; c < CLASSES; c++)
            f.labels[i][c] = label_of(first + i, c);
    }
    const struct chex_shard_spec spec = {.rows = rows,
                                         .size = STORED,
                                         .classes = CLASSES,
                                         .class_names = (const char *const *)class_names,
                                         .resize = "pillow-bilinear",
                                         .split = "test",
                                         .tool_version = "test",
                                         .row = describe,
                                         .arg = &f};
    BAIL_UNLESS(chex_shard_create(path, &spec, &w, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < rows; i++) {
        uint8_t pixels[STORED * STORED];
        for (int k = 0; k < STORED * STORED; k++)
            pixels[k] = pixel(first + i, k / STORED, k % STORED);
        BAIL_UNLESS(chex_shard_put(w, i, pixels, &err) == CHEX_OK, "%s", err.text);
    }
    BAIL_UNLESS(chex_shard_finish(w, "0123456789abcdef0123456789abcdef", &err) == CHEX_OK, "%s",
                err.text);
}

static void make_set(void) {
    static struct chex_shard *shards[SHARDS];
    static size_t first[SHARDS + 1];
    static char digest[] = "digest", resize[] = "pillow-bilinear";
    struct chex_error err = {0};
    for (int i = 0; i < SHARDS; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%d.h5", dir, i);
        make_shard(path, first[i], shard_rows[i]);
        BAIL_UNLESS(chex_shard_open(path, &shards[i], &err) == CHEX_OK, "%s", err.text);
        first[i + 1] = first[i] + shard_rows[i];
    }
    set = (struct chex_set){.dir = dir,
                            .split = CHEX_TEST,
                            .shards = shards,
                            .shard_count = SHARDS,
                            .first = first,
                            .rows = ROWS,
                            .size = STORED,
                            .classes = CLASSES,
                            .class_names = class_names,
                            .source_digest = digest,
                            .resize = resize};
}

/* ---- the engine ---- */

static double weight(int c, int y, int x) { return sin(1.7 * y + 0.3 * (c + 1) * x + c) / SIZE; }

/* In the image whose first pixel is this value (NaN: none) the logit is not finite. */
static float poison = NAN;

static enum chex_status linear_infer(void *self, const struct chex_batch *batch, float *logits,
                                     struct chex_error *err) {
    (void)self, (void)err;
    for (int i = 0; i < batch->n; i++)
        for (int c = 0; c < CLASSES; c++) {
            const float *p = batch->pixels + (size_t)i * SIZE * SIZE;
            double sum = c;
            for (int k = 0; k < SIZE * SIZE; k++)
                sum += (double)p[k] * weight(c, k / SIZE, k % SIZE);
            logits[i * CLASSES + c] = p[0] == poison ? INFINITY : (float)sum;
        }
    return CHEX_OK;
}

/* The same from stored rows. */
static enum chex_status raw_infer(void *self, const struct chex_batch *batch, float *logits,
                                  struct chex_error *err) {
    static _Thread_local float pixels[64 * SIZE * SIZE];
    const size_t row = (size_t)batch->stored_px * (size_t)batch->stored_px;
    struct chex_batch made = *batch;
    if (batch->pixels || batch->rows || batch->stored_count != batch->n)
        return chex_error_set(err, CHEX_E_FAIL, "a raw batch was expected");
    void *scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(batch->stored_px, SIZE));
    for (int i = 0; i < batch->n; i++)
        chex_augment_apply(batch->stored + (size_t)i * row, batch->stored_px, &batch->crops[i],
                           SIZE, false, pixels + (size_t)i * SIZE * SIZE, scratch);
    free(scratch);
    made.pixels = pixels;
    return linear_infer(self, &made, logits, err);
}

static bool takes_raw(void *self, int stored_px) {
    (void)self;
    return stored_px == STORED;
}

static enum chex_status make_resident(void *self, const struct chex_resident_request *what,
                                      struct chex_resident_result *out, struct chex_error *err) {
    (void)self, (void)what, (void)err;
    out->raw = true;
    return CHEX_OK;
}

static const struct chex_engine_resident resident = {takes_raw, make_resident};
static const struct chex_engine_impl raw = {
    .name = "raw", .infer = raw_infer, .resident = &resident};
static bool use_raw; /* by the engines that are made from here on */

static const struct chex_engine_impl linear = {.name = "linear", .infer = linear_infer};
static const struct chex_net net = {.model = "linear", .classes = CLASSES};

static struct chex_engine engine_of(int batch) {
    return (struct chex_engine){
        .impl = use_raw ? &raw : &linear,
        .config = {.net = &net, .image_size = SIZE, .batch = batch, .threads = 1}};
}

/* ---- the ranks ---- */

struct answer {
    struct coll_rank self;
    int batch;
    struct chex_eval_config config;
    struct chex_predictions *predictions;
    struct chex_eval_loss loss;
    enum chex_status status;
    struct chex_error err;
};

static const struct chex_loss smoothed = {.smoothing = 0.5};

static void *one_rank(void *arg) {
    struct answer *a = arg;
    a->config.loss = &smoothed;
    struct chex_engine engine = engine_of(a->batch);
    a->status =
        chex_eval_run(&engine, &set, &a->self.coll, &a->config, &a->predictions, &a->loss, &a->err);
    return NULL;
}

/* What each rank is given as `stop`. */
static const volatile sig_atomic_t *stops[MAX_RANKS];

/* What each rank is given as `logits`. */
static bool logits;

/* answers: (size); the caller destroys the predictions. */
static void run(int size, int batch, int workers, enum chex_tta tta, struct answer *answers) {
    static struct coll_world w;
    coll_world_open(&w, size);
    for (int r = 0; r < size; r++)
        answers[r] = (struct answer){
            .batch = batch,
            .config = {.workers = workers, .tta = tta, .stop = stops[r], .logits = logits},
            .loss = {NAN, NAN}};
    coll_run(&w, one_rank, answers, sizeof *answers);
}

/* ---- what it must be ---- */

struct expected {
    double p[ROWS][CLASSES], loss, training;
};

static double logit_of(size_t row, int c, int top, int left, bool flip) {
    double sum = c;
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++)
            sum += pixel(row, top + y, left + (flip ? SIZE - 1 - x : x)) / 255.0 * weight(c, y, x);
    return sum;
}

static struct expected expect(enum chex_tta tta) {
    const int room = STORED - SIZE, mid = room / 2;
    const int corner[5][2] = {{mid, mid}, {0, 0}, {0, room}, {room, 0}, {room, room}};
    const int crops = tta == CHEX_TTA_TENCROP ? 5 : 1, sides = tta == CHEX_TTA_NONE ? 1 : 2;
    struct expected e = {0};
    for (size_t i = 0; i < ROWS; i++)
        for (int c = 0; c < CLASSES; c++)
            for (int k = 0; k < crops * sides; k++) {
                double z = logit_of(i, c, corner[k / sides][0], corner[k / sides][1], k % sides);
                double p = 1 / (1 + exp(-z)), n = crops * sides;
                int y = label_of(i, c);
                e.p[i][c] += p / n;
                if (y < 0)
                    continue;
                e.loss -= log(y ? p : 1 - p) / (n * ROWS * CLASSES);
                e.training -=
                    (0.75 * log(y ? p : 1 - p) + 0.25 * log(y ? 1 - p : p)) / (n * ROWS * CLASSES);
            }
    return e;
}

static bool has_facts(const struct chex_row_facts *f, size_t row) {
    double sum = 0;
    for (int y = 0; y < STORED; y++)
        for (int x = 0; x < STORED; x++)
            sum += pixel(row, y, x);
    return f->view == (enum chex_view)(row % 4) && f->age_years == (int)row - 1 &&
           f->sex == (row % 2 ? 'F' : 0) && !f->study_id && !f->width_px &&
           f->brightness == (double)(float)(sum / (255.0 * STORED * STORED));
}

static void check_values(enum chex_tta tta, const struct answer *a) {
    const struct expected e = expect(tta);
    const struct chex_predictions *p = a->predictions;
    BAIL_UNLESS(p, "%s", a->err.text);
    double most = 0;
    bool facts = p->rows == ROWS && p->classes == CLASSES && p->facts;
    for (size_t i = 0; facts && i < ROWS; i++) {
        char image[32], patient[32];
        snprintf(image, sizeof image, "%03zu.png", i);
        snprintf(patient, sizeof patient, "p%zu", i / 3);
        facts = !strcmp(p->image_id[i], image) && !strcmp(p->patient_id[i], patient) &&
                has_facts(&p->facts[i], i);
        for (int c = 0; c < CLASSES; c++) {
            facts = facts && p->label[i * CLASSES + (size_t)c] == label_of(i, c);
            most = fmax(most, fabs(p->score[i * CLASSES + (size_t)c] - e.p[i][c]));
        }
    }
    OK(facts, "%s: each image once, in order, with its patient, labels and facts",
       chex_tta_names[tta]);
    /* fp32 pixels and logits of a few units: some 1e-7. */
    OK(most < 1e-6 && fabs(a->loss.bce - e.loss) < 1e-6 &&
           fabs(a->loss.training - e.training) < 1e-6,
       "%s: probabilities within %.1e, loss %.6f (%.6f), with smoothed labels %.6f (%.6f)",
       chex_tta_names[tta], most, a->loss.bce, e.loss, a->loss.training, e.training);
}

static bool same_loss(const struct answer *a, const struct answer *b) {
    return a->loss.bce == b->loss.bce && a->loss.training == b->loss.training;
}

static void test_ranks(void) {
    static const struct {
        int size, batch, workers;
    } forms[] = {{1, 8, 2}, {1, 45, 1}, {2, 8, 2}, {3, 7, 1}, {5, 4, 1}, {MAX_RANKS, 8, 1}};
    struct answer first, a[MAX_RANKS];
    for (enum chex_tta tta = CHEX_TTA_NONE; tta <= CHEX_TTA_TENCROP; tta++) {
        run(1, 16, 1, tta, &first);
        check_values(tta, &first);
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
            run(forms[f].size, forms[f].batch, forms[f].workers, tta, a);
            bool same = a[0].predictions &&
                        !memcmp(a[0].predictions->score, first.predictions->score,
                                sizeof(double) * ROWS * CLASSES) &&
                        !memcmp(a[0].predictions->label, first.predictions->label, ROWS * CLASSES);
            for (int r = 0; r < forms[f].size; r++)
                same = same && a[r].status == CHEX_OK && same_loss(&a[r], &first) &&
                       (r == 0) == (a[r].predictions != NULL);
            OK(same, "%s, %d ranks, batch %d, %d workers: the same bits, the loss at each rank",
               chex_tta_names[tta], forms[f].size, forms[f].batch, forms[f].workers);
            for (int r = 0; r < forms[f].size; r++)
                chex_predictions_destroy(a[r].predictions);
        }
        use_raw = true;
        run(2, 16, 2, tta, a);
        use_raw = false;
        OK(a[0].predictions && same_loss(&a[0], &first) &&
               !memcmp(a[0].predictions->score, first.predictions->score,
                       sizeof(double) * ROWS * CLASSES),
           "%s, by an engine that cuts the views itself: the same bits %s", chex_tta_names[tta],
           a[0].err.text);
        chex_predictions_destroy(a[0].predictions);
        chex_predictions_destroy(first.predictions);
    }
}

static void test_logits(void) {
    struct answer p, z[2];
    run(1, 8, 1, CHEX_TTA_NONE, &p);
    logits = true;
    run(2, 8, 1, CHEX_TTA_NONE, z);
    logits = false;
    bool same = p.predictions && z[0].predictions && same_loss(&p, &z[0]);
    for (size_t i = 0; same && i < ROWS * CLASSES; i++)
        same = chex_eval_as_written(chex_eval_probability(z[0].predictions->score[i])) ==
               p.predictions->score[i];
    OK(same, "scores that are logits have the probabilities and the losses of the others");
    chex_predictions_destroy(p.predictions);
    chex_predictions_destroy(z[0].predictions);
}

static void test_faults(void) {
    struct answer a[4];
    poison = (float)pixel(40, 3, 3) / 255.0f; /* the first of the centre crop of 20 px to 14 */
    run(4, 8, 1, CHEX_TTA_NONE, a);
    poison = NAN;
    bool all = true, none = true;
    for (int r = 0; r < 4; r++) {
        all = all && a[r].status == CHEX_E_DIVERGED && strstr(a[r].err.text, "the logit is inf");
        none = none && !a[r].predictions;
    }
    OK(all, "a logit that is not finite: %s", a[0].err.text);
    OK(none, "nothing is handed out on failure");

    struct chex_error err;
    OK_STATUS(chex_eval_check_size(&set, 21, CHEX_TTA_NONE, &err), CHEX_E_DATA, err,
              "stored at 20 px, and the image size is 21: create the shards again with --size 21");
    OK_STATUS(chex_eval_check_size(&set, 20, CHEX_TTA_TENCROP, &err), CHEX_E_USAGE, err,
              "--tta flip");
    OK_STATUS(chex_eval_check_size(&set, 20, CHEX_TTA_FLIP, &err), CHEX_OK, err, NULL);
    size_t from, to, next = 0;
    bool whole = true;
    for (int r = 0; r < 7; r++, next = to) {
        chex_eval_rows(45, r, 7, &from, &to);
        whole = whole && from == next && to - from >= 6 && to - from <= 7;
    }
    OK(whole && next == 45, "7 ranks share 45 rows without gap or overlap");
}

/* Ranks that ask one another after every batch. */
static void test_stop(void) {
    const volatile sig_atomic_t calm = 0, asked = 1;
    struct answer a[4], first;
    run(1, 16, 1, CHEX_TTA_NONE, &first);
    for (int r = 0; r < 4; r++)
        stops[r] = &calm;
    run(4, 8, 1, CHEX_TTA_NONE, a);
    OK(a[0].predictions && same_loss(&a[0], &first) && same_loss(&a[3], &first),
       "ranks that may be stopped, and are not: the same loss %s", a[0].err.text);
    chex_predictions_destroy(a[0].predictions);
    chex_predictions_destroy(first.predictions);
    stops[2] = &asked;
    run(4, 8, 1, CHEX_TTA_NONE, a);
    bool all = true;
    for (int r = 0; r < 4; r++)
        all = all && a[r].status == CHEX_E_PREEMPTED && !a[r].predictions;
    OK(all, "one rank is asked to stop: all do");
    poison = (float)pixel(40, 3, 3) / 255.0f;
    stops[2] = &calm;
    run(4, 8, 1, CHEX_TTA_NONE, a);
    poison = NAN;
    for (int r = 0; r < 4; r++) {
        all = all && a[r].status == CHEX_E_DIVERGED;
        stops[r] = NULL;
    }
    OK(all, "one rank fails: all leave with its status");
}

/* The logits of two members become those of the ensemble. */
static void test_combine(void) {
    const float z[2][CLASSES] = {{1, -800, NAN}, {3, -900, 2}};
    const float large[2][CLASSES] = {{1e30f, 0, 0}, {1, 0, 0}};
    struct chex_engine one = engine_of(1), two = one, *engines[] = {&one, &two};
    struct chex_ensemble e = {engines, 2, CHEX_MEAN_LOGIT};
    float out[CLASSES];
    chex_ensemble_combine(&e, z[0], 1, out);
    OK(out[0] == 2 && out[1] == -850 && isnan(out[2]), "the mean logit");
    e.mean = CHEX_MEAN_PROBABILITY;
    chex_ensemble_combine(&e, z[0], 1, out);
    const double mean = (chex_eval_probability(1) + chex_eval_probability(3)) / 2;
    OK(fabs(chex_eval_probability((double)out[0]) - mean) < 1e-7, "the mean probability");
    OK(isfinite(out[1]) && (float)chex_eval_probability((double)out[1]) == 0,
       "probabilities below the least double are 0: logit %g", (double)out[1]);
    OK(isnan(out[2]), "a logit that is no number stays so");
    chex_ensemble_combine(&e, large[0], 1, out);
    OK(fabs(chex_eval_probability((double)out[0]) - (1 + chex_eval_probability(1)) / 2) < 1e-7,
       "a probability of 1 is averaged");
    e.count = 1;
    chex_ensemble_combine(&e, z[0], 1, out);
    OK(memcmp(out, z, sizeof out) == 0, "one network keeps its logits");
}

int main(void) {
    struct chex_error err = {0};
    BAIL_UNLESS(mkdtemp(dir), "no scratch folder");
    make_set();
    test_ranks();
    test_logits();
    test_faults();
    test_stop();
    test_combine();
    for (int i = 0; i < SHARDS; i++)
        chex_shard_close(set.shards[i]);
    chex_fs_remove_tree(dir, &err);
    return tap_done();
}
