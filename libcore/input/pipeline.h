/* SPDX-License-Identifier: Apache-2.0
 *
 * From shard rows to ready batches, in threads of its own, so that input and compute overlap.
 *
 * `new`: workers claim batch slots by ticket, read the rows of the batch in the order of the disk,
 * augment (training) or centre-crop (otherwise) straight into the slot and mark it ready. The
 * content of a batch depends on its ticket alone.
 *
 * With `raw` the workers read rows and draw crops, and leave it to the engine to make pixels of
 * them (batch.h). With `held` besides, a row is read for the first batch that it is in, and the
 * engine is trusted to keep it: batches reach it in the order of their tickets, so what ticket t
 * brings is there for every later one, and who brings what depends on the tickets alone too. That
 * is why rows are not sent ahead in bulk: it would need a second reader and an agreement on which
 * rows are there, to spare the few batches that mix.
 *
 * `old` is the first pipeline of Dell's and NVIDIA's article, kept so that its figures can be
 * measured again: every process reads and augments every row of every shard, in the order of the
 * disk and in one thread, and keeps the V-th part that falls to each of its logical ranks; a
 * shuffle buffer of 500 augmented records; batches; one of them ahead.
 */
#ifndef CHEX_INPUT_PIPELINE_H
#define CHEX_INPUT_PIPELINE_H

#include <stdbool.h>

#include "base/trace.h"
#include "data/shard.h"
#include "input/augment.h"
#include "input/batch.h"
#include "input/order.h"

enum chex_pipeline_kind { CHEX_PIPELINE_NEW, CHEX_PIPELINE_OLD };
extern const char *const chex_pipeline_names[];

struct chex_pipeline_config {
    const struct chex_set *set; /* borrowed */
    int image_size;
    int batch;
    int workers; /* >= 1; the old pipeline has one reader whatever this says */
    int slots;   /* batches ready or lent, 2..16; the old pipeline has two */
    bool training;
    enum chex_pipeline_kind kind; /* an evaluation is `new` always */
    bool keep;                    /* stored rows stay in memory from their first read on */
    bool raw;                     /* batches are raw; `new` alone */
    bool held;                    /* raw, training: the engine holds the rows of earlier batches */
    struct chex_trace *trace;     /* borrowed; NULL: none. The old pipeline records nothing */
    /* training: */
    struct chex_order_config order;
    struct chex_augment_options augment;
    int rank_from, rank_to; /* the logical ranks this process plays: their batches alternate,
                               step by step: (step 0, rank_from), (step 0, rank_from + 1), ... */
    uint64_t epoch;         /* where to start */
    size_t step;
    /* otherwise: rows [row_from, row_to) in order, the last batch may be short */
    size_t row_from, row_to;
};

struct chex_pipeline;

/* Rows [*first_out, *end_out) that a training pipeline of this kind may read for logical ranks
 * [from, to): their shards must be open. */
void chex_pipeline_rows(enum chex_pipeline_kind kind, const struct chex_order_config *order,
                        int from, int to, size_t *first_out, size_t *end_out);

/* How wide its shuffle is, in rows. */
size_t chex_pipeline_width(enum chex_pipeline_kind kind, const struct chex_order_config *order);

/* Threads that augment. */
int chex_pipeline_threads(const struct chex_pipeline_config *config);

/* What a pipeline would take, besides some kilobytes, and read. */
struct chex_pipeline_needs {
    uint64_t
        ring_bytes; /* of memory: batches that are ready or in work, and what is read for them */
    uint64_t rows_bytes; /* of memory: stored rows that stay (keep) */
    /* training: of files, in the first epoch and in each later one */
    uint64_t first_read_bytes, later_read_bytes;
};

/* Says whether chex_pipeline_create would take this configuration, and what it needs; makes
 * nothing. */
enum chex_status chex_pipeline_measure(const struct chex_pipeline_config *config,
                                       struct chex_pipeline_needs *needs_out,
                                       struct chex_error *err);

/* One ready batch, borrowed until release. */
struct chex_ready {
    struct chex_batch batch;
    const size_t *rows; /* (batch.n) row numbers in the set */
    uint64_t epoch;
    size_t step;
    int logical_rank;
    double waited_s; /* time next() was blocked */
};

enum chex_status chex_pipeline_create(const struct chex_pipeline_config *config,
                                      struct chex_pipeline **pipeline_out, struct chex_error *err);
void chex_pipeline_destroy(struct chex_pipeline *p); /* NULL allowed; joins the workers */

/* The next batch in order. After a fault the same fault comes again. A training pipeline never
 * ends: it goes on into the next epoch. An evaluation pipeline ends with batch.n = 0. A worker's
 * fault comes out here. One caller,
 * who holds fewer batches than there are slots (one with `old`). */
enum chex_status chex_pipeline_next(struct chex_pipeline *p, struct chex_ready *ready_out,
                                    struct chex_error *err);
void chex_pipeline_release(struct chex_pipeline *p, const struct chex_ready *ready);

/* Bytes of pixels read from files so far; what came from memory does not count. */
uint64_t chex_pipeline_bytes(const struct chex_pipeline *p);

#endif
