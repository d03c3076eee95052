/* SPDX-License-Identifier: Apache-2.0
 *
 * --prove: repeats stretches of a run and compares the results with what the run recorded.
 *
 * A stretch is the steps from one recorded checkpoint to the next one. Its start needs a file
 * (pruning keeps few), or is step 0; of its end the digest in checkpoints.jsonl suffices.
 *
 * A stretch starts with the state in the file, or with the initial state of --seed or --init. It
 * does the same steps with the same data and options, and ends with a digest of parameters and
 * moments. Equal digests mean equal bits. If they differ, the losses in metrics.jsonl tell the
 * first step after which the states differed, and the file of the stretch's end, if it exists, the
 * first parameter.
 *
 * Before the stretches the files are checked without repeating a step (prove/prove_files.h).
 *
 * Nothing is written. Options of the run come from provenance.json.
 */
#ifndef CHEX_PROVE_PROVE_H
#define CHEX_PROVE_PROVE_H

#include "train/trainer.h"

struct chex_prove {
    const char *run;
    int64_t stretches; /* chosen at random; 0: all */
};

/* The options of the newest start of a run, and its engine ("cpu:avx2"); "auto" if the run does not
 * say. CHEX_E_DATA: the folder holds no run. */
struct chex_prove_options {
    json_t *options; /* name and text; the caller releases it */
    char engine[128];
};
enum chex_status chex_prove_options_read(const char *run, struct chex_prove_options *out,
                                         struct chex_error *err);

/* world->restore must be set. *proof_out: a JSON object on rank 0, which the caller releases, also
 * with CHEX_E_DATA; NULL on the other ranks. share/man/chex-train.1 lists its keys.
 * - CHEX_OK: all stretches and files are equal.
 * - CHEX_E_DATA: a stretch or file differs, or the run has none that can be repeated.
 * - CHEX_E_USAGE, CHEX_E_ENV: these processes or this machine cannot give the same bits.
 * - CHEX_E_PREEMPTED: a signal asked to stop.
 * *together_out as in chex_train_run. Collective. */
enum chex_status chex_train_prove(const struct chex_prove *prove,
                                  const struct chex_train_world *world, json_t **proof_out,
                                  bool *together_out, struct chex_error *err);

#endif
