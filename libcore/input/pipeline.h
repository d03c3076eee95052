/* SPDX-License-Identifier: Apache-2.0
 *
 * From shard rows to ready batches, in threads of its own, so that input and compute overlap.
 *
 * Workers claim batch slots by ticket, pread the rows of the batch, check them against their
 * checksums at the first read of a run, augment (training) or centre-crop (otherwise) straight
 * into the slot and mark it ready. The content of a batch depends on its ticket alone.
 */
#ifndef CHEX_INPUT_PIPELINE_H
#define CHEX_INPUT_PIPELINE_H

#include <stdbool.h>

#include "data/shard.h"
#include "input/augment.h"
#include "input/batch.h"
#include "input/order.h"

enum chex_pipeline_kind { CHEX_PIPELINE_NEW };
extern const char *const chex_pipeline_names[];

struct chex_pipeline_config {
    const struct chex_set *set; /* borrowed */
    int image_size;
    int batch;
    int workers; /* >= 1 */
    int slots;   /* ready batches held, 2..16 */
    bool training;
    enum chex_pipeline_kind kind;
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
 * who holds fewer batches than there are slots. */
enum chex_status chex_pipeline_next(struct chex_pipeline *p, struct chex_ready *ready_out,
                                    struct chex_error *err);
void chex_pipeline_release(struct chex_pipeline *p, const struct chex_ready *ready);

#endif
