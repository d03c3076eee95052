/* SPDX-License-Identifier: Apache-2.0
 *
 * The files that --checkpoint names, and several networks as one file (doc/ensembles.md).
 */
#ifndef CHEX_EVALUATE_ENSEMBLE_FILES_H
#define CHEX_EVALUATE_ENSEMBLE_FILES_H

#include "evaluate/settings.h"
#include "infer/ensemble.h"
#include "model/weights.h"

struct chex_eval_files {
    char **path; /* (count), then NULL */
    int count;
    struct chex_weights *kept; /* (count) files whose tensors chex_eval_files_open joined */
};

/* The parts of the text between commas, or the whole text if it exists. A part is a file, which
 * need not exist, or a folder of runs: best.h5 of each run, in the order of their names.
 * CHEX_E_USAGE: the folder of one run, or a folder without runs. CHEX_E_DATA: a run without
 * best.h5. The caller calls chex_eval_files_release, after an error too. */
enum chex_status chex_eval_files_find(const char *text, struct chex_eval_files *out,
                                      struct chex_error *err);
void chex_eval_files_release(struct chex_eval_files *files);

/* chex_eval_file_check of --output, which is none of the files of --checkpoint. */
enum chex_status chex_eval_files_check(const struct chex_eval_settings *s, struct chex_error *err);

/* Reads the file, or several as one file of several networks. The caller calls chex_weights_close,
 * before `files` are released. CHEX_E_DATA: as chex_weights_open, and a member that is an ensemble,
 * or has another resize, image size, stored size or other findings than the first. */
enum chex_status chex_eval_files_open(const struct chex_eval_settings *s,
                                      struct chex_eval_files *files,
                                      struct chex_weights *weights_out, struct chex_error *err);

/* The metadata key `ensemble` of such a file: JSON text for the caller to free (NULL: out of
 * memory), and the reverse. facts: an array of objects with file, digest (XXH3-128 of the file),
 * model, weights, step, seed and CHEX_MEMBER_TRAINED; the caller releases it. */
#define CHEX_MEMBER_TRAINED "training_split", "training_digest", "training_members", "training_fold"
char *chex_eval_members_text(enum chex_ensemble_mean mean, const json_t *facts);
enum chex_status chex_eval_members_parse(const char *path, const char *text,
                                         enum chex_ensemble_mean *mean_out, json_t **facts_out,
                                         struct chex_error *err);

#endif
