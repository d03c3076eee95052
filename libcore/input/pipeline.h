/* SPDX-License-Identifier: Apache-2.0
 *
 * The input pipeline: makes batches from shard rows in its own threads, so that input and compute
 * overlap.
 *
 * `new`: workers take slots by ticket number. A worker reads the rows of its batch in disk order,
 * augments (training) or centre-crops (evaluation) them into the slot and marks the slot ready. The
 * content of a batch depends only on its ticket.
 *
 * - raw: the workers only read rows and draw crops. The engine makes the pixels (batch.h).
 * - resident (with raw): a row is read only for the first batch that contains it. The engine keeps
 *   it. This is safe because the engine gets batches in the order of tickets: rows of ticket t are
 *   there for every later ticket. Rows are not sent in advance in bulk. That would need a second
 *   reader and an agreement on which rows are there, and would save little.
 *
 * `old`: the first pipeline of Dell's and NVIDIA's article, kept to reproduce its measurements. One
 * thread of each process reads and augments every row of every shard in disk order, then keeps only
 * the rows of its logical ranks. A shuffle buffer holds 500 augmented records; one batch is
 * prefetched.
 */
#ifndef CHEX_INPUT_PIPELINE_H
#define CHEX_INPUT_PIPELINE_H

#include <stdbool.h>

#include "base/trace.h"
#include "input/augment.h"
#include "input/batch.h"
#include "input/order.h"
#include "shard/shard.h"

enum chex_pipeline_kind { CHEX_PIPELINE_NEW, CHEX_PIPELINE_OLD };
extern const char *const chex_pipeline_names[];

/* Vectors in memory that batches hold instead of images (chex_batch.features): the pooled features
 * of the rows from `first` on. */
struct chex_pipeline_features {
    int count;         /* values per row; 0: batches of images */
    const float *rows; /* (rows, count); borrowed */
    size_t first;      /* row number of the first vector */
};

struct chex_pipeline_config {
    const struct chex_set *set; /* borrowed */
    int image_size;
    int batch;
    int workers; /* >= 1; the old pipeline always has one thread */
    int slots;   /* batches ready or lent, 2..16; the old pipeline always has two */
    bool training;
    enum chex_pipeline_kind kind; /* evaluation: always `new` */
    bool keep;                    /* keep stored rows in host memory after their first read */
    bool raw;                     /* raw batches (batch.h); only `new` */
    bool resident;                /* the engine keeps rows; only with raw and training */
    struct chex_pipeline_features features; /* of every row of the pipeline; only `new` */
    struct chex_trace *trace;               /* borrowed; NULL: none. The old pipeline ignores it */
    /* training: */
    struct chex_order_config order;
    struct chex_augment_options augment;
    int rank_from, rank_to; /* the logical ranks of this process. Order of the batches:
                               (step 0, rank_from), (step 0, rank_from + 1), ..., (step 1, ...) */
    uint64_t epoch;         /* first epoch */
    size_t step;            /* first step in that epoch */
    /* evaluation: rows [row_from, row_to) in order; the last batch may be short */
    size_t row_from, row_to;
};

struct chex_pipeline;

/* The rows [*first_out, *end_out) that a training pipeline may read for logical ranks [from, to).
 * Their shards must be open. */
void chex_pipeline_rows(enum chex_pipeline_kind kind, const struct chex_order_config *order,
                        int from, int to, size_t *first_out, size_t *end_out);

/* Width of the shuffle, in rows (chex_order_width()). */
size_t chex_pipeline_width(enum chex_pipeline_kind kind, const struct chex_order_config *order);

/* Number of threads that augment. */
int chex_pipeline_threads(const struct chex_pipeline_config *config);

/* What a pipeline needs. */
struct chex_pipeline_needs {
    uint64_t ring_bytes; /* memory: slots and read buffers */
    uint64_t rows_bytes; /* memory: stored rows with `keep` */
    /* training: bytes read from files in the first epoch and in each later one */
    uint64_t first_read_bytes, later_read_bytes;
};

/* Checks the configuration as chex_pipeline_create() does and computes its needs. Allocates
 * nothing. */
enum chex_status chex_pipeline_measure(const struct chex_pipeline_config *config,
                                       struct chex_pipeline_needs *needs_out,
                                       struct chex_error *err);

/* One ready batch, borrowed until release. */
struct chex_ready {
    struct chex_batch batch;
    const size_t *rows;         /* (batch.n) row numbers in the set */
    const uint64_t *pixel_sums; /* (batch.n) sums of the stored pixels; only in evaluation */
    uint64_t epoch;
    size_t step;
    int logical_rank;
    double waited_s; /* time next() was blocked */
};

enum chex_status chex_pipeline_create(const struct chex_pipeline_config *config,
                                      struct chex_pipeline **pipeline_out, struct chex_error *err);
void chex_pipeline_destroy(struct chex_pipeline *p); /* NULL allowed; joins the workers */
CHEX_AUTO_POINTER(struct chex_pipeline, chex_pipeline_destroy)

/* Returns the next batch in order; waits for it.
 * - Training never ends: the next epoch follows. Evaluation ends with batch.n = 0.
 * - Returns the error of a worker, if the batch failed. Later calls return the same error.
 * - Only one thread may call it. It must hold fewer batches than `slots` (`old`: at most one). */
enum chex_status chex_pipeline_next(struct chex_pipeline *p, struct chex_ready *ready_out,
                                    struct chex_error *err);
void chex_pipeline_release(struct chex_pipeline *p, const struct chex_ready *ready);

/* Bytes of pixels read from files so far, without rows that were in memory. */
uint64_t chex_pipeline_bytes(const struct chex_pipeline *p);

#endif
