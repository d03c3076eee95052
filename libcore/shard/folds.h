/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides the patients of a set into K folds for cross-validation.
 *
 * Problem: a random division leaves folds without a positive of a rare finding.
 *
 * Idea: iterative stratification (Sechidis, Tsoumakas, Vlahavas 2011, algorithm 1) of whole
 * patients. A patient is positive for a finding if one image is. Again and again, the finding with
 * the fewest positive patients left is dealt out: each of them goes to the fold that still needs
 * most of this finding (its share is 1 / K); of equal folds to the one that needs most images; of
 * equal ones to the first. Patients without positives come last, by images alone. Patients are
 * taken in the order of a hash of seed and id where the paper draws at random. So the folds depend
 * on ids, labels, K and seed only: not on rows, shards, ranks or options that choose images.
 */
#ifndef CHEX_SHARD_FOLDS_H
#define CHEX_SHARD_FOLDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Fold `number` of `folds`, from 1 on. folds 0: the set is not divided. */
struct chex_fold {
    int number, folds;
};

enum { CHEX_FOLDS_MOST = 64, CHEX_FOLD_BYTES = 48 };

/* The text in checkpoints: number, folds, digest of the patients in the fold (unsigned long long).
 */
#define CHEX_FOLD_FORM "%d of %d, %016llx"

/* A record of a row: a byte that is 1 if the row is chosen, the XXH3-64 of its patient's id, and
 * its labels (classes). */
enum { CHEX_FOLD_RECORD_HEAD = 1 + (int)sizeof(uint64_t) };

struct chex_fold_facts {
    uint64_t digest;              /* of the patients in the fold */
    size_t patients, in_training; /* with a chosen row: in the fold, in the others */
};

/* Fills fold_out (rows) with 1 to fold.folds. CHEX_E_DATA: fewer patients than folds. */
enum chex_status chex_folds_assign(const uint8_t *records, size_t rows, size_t classes,
                                   struct chex_fold fold, uint64_t seed, uint8_t *fold_out,
                                   struct chex_fold_facts *facts_out, struct chex_error *err);

#endif
