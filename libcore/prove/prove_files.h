/* SPDX-License-Identifier: Apache-2.0
 *
 * --prove: the files of a run, without repeating any step.
 *
 * - Every checkpoint (numbered, last.h5, best.h5) must be whole, by all of its checksums, and hold
 *   the state that checkpoints.jsonl recorded for its step.
 * - last.h5 must exist if a checkpoint was recorded, and best.h5 if one was recorded as the best.
 * - config.json must have the options of the newest start in provenance.json.
 * The lines of metrics.jsonl, the events, run.html and ranks.json have no digests: only the losses
 * of repeated steps are compared, by the repetition.
 */
#ifndef CHEX_PROVE_PROVE_FILES_H
#define CHEX_PROVE_PROVE_FILES_H

#include <jansson.h>

#include "train/store/checkpoint_log.h"

/* Appends to the array `files` an object for each file: file, equal, step, digest, recorded_digest,
 * fault (why it is not equal). lines: of checkpoints.jsonl. An error is one of this machine; what
 * is wrong with a file is in its object. Rank 0. */
enum chex_status chex_prove_files(const char *run, const json_t *provenance,
                                  const struct chex_checkpoint_line *lines, size_t count,
                                  json_t *files, struct chex_error *err);

/* The digest of the state in a checkpoint, and its step. */
enum chex_status chex_prove_digest(const char *path, char digest[CHEX_HASH128_HEX_BYTES],
                                   uint64_t *step_out, struct chex_error *err);

#endif
