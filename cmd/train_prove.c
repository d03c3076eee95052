/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a proof as text: one line for each stretch and for each file that is not what the run
 * recorded, then the sums.
 */
#include "train_print.h"

#include <stdio.h>

#include "base/result.h"

static const char stretch_text[] =
    "from step {from_step:8d} to {to_step:8d}: {equal?equal, digest {digest}}{equal!DIFFERENT: "
    "recorded {digest}, repeated {repeated_digest}"
    "{first_other_step?\n  the first other loss is that of step {first_other_step}}"
    "{first_other_parameter?\n  the first other parameter is {first_other_parameter}}}\n";

static const char file_text[] = "{equal!{file}: DIFFERENT: {fault}\n}";

static const char sum_text[] =
    "{run}: {equal_files} of {files} files hold what the run recorded (config.json, "
    "checkpoints with last.h5 and best.h5)\n"
    "{run}: {equal_stretches} of {stretches} repeated stretches are equal to the last bit "
    "({possible_stretches} of {recorded_checkpoints} recorded checkpoints can be repeated)\n";

void train_prove_print(const json_t *proof) {
    const json_t *list = json_object_get(proof, "stretches"),
                 *files = json_object_get(proof, "files");
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one) chex_result_text(stdout, one, stretch_text);
    json_array_foreach(files, i, one) chex_result_text(stdout, one, file_text);
    chex_result_text(stdout, proof, sum_text);
}
