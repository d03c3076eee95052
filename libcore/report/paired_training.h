/* SPDX-License-Identifier: Apache-2.0
 *
 * In which training options two compared models differ. chex-eval writes the options into the
 * auroc.json next to predictions.csv, with the digest of that table.
 */
#ifndef CHEX_REPORT_PAIRED_TRAINING_H
#define CHEX_REPORT_PAIRED_TRAINING_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

struct chex_paired_training {
    json_t *facts;       /* as model/training_facts.h; NULL: unknown */
    const char *unknown; /* why, as the end of a sentence; NULL: known */
    int stopped_epoch;   /* after which sweep.sbatch stopped the run; 0: it did not */
};

/* Reads the auroc.json in the folder of a table, and the sweep-stop.json above it. Facts that are
 * missing are no error.
 * - digest: of the bytes of the table; an auroc.json of another table is not used
 * The caller calls chex_paired_training_release, which accepts {0} too. */
enum chex_status chex_paired_training_read(const char *table, const char *digest,
                                           struct chex_paired_training *out,
                                           struct chex_error *err);
void chex_paired_training_release(struct chex_paired_training *t);

/* A training option that differs: `name` only, or any other. NULL: none, or unknown. */
const char *chex_paired_training_differs(const struct chex_paired_training *first,
                                         const struct chex_paired_training *second,
                                         const char *name, bool only);

/* "differs in: --pos-weight balanced (second: none)", or why this is unknown. The caller frees it.
 * NULL: out of memory. */
char *chex_paired_training_text(const struct chex_paired_training *first,
                                const struct chex_paired_training *second);

/* The same as an object; null if one side is unknown. For the caller to release.
 *   differs         [{option, first, second}]
 *   other_images, other_weights   whether the training images and the label weights differ
 *   step_first, step_second       training steps
 *   weights_first, weights_second parameters that were read: ema or last */
json_t *chex_paired_training_json(const struct chex_paired_training *first,
                                  const struct chex_paired_training *second);

#endif
