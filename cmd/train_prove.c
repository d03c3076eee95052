/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a proof as text: one line for each stretch, then the sum.
 */
#include "train_prove.h"

#include <stdio.h>

#include "base/result.h"

static const char stretch_text[] =
    "from step {from_step:8d} to {to_step:8d}: {equal?equal, digest {digest}}{equal!DIFFERENT: "
    "recorded {digest}, repeated {repeated_digest}"
    "{first_other_step?\n  the first other loss is that of step {first_other_step}}"
    "{first_other_parameter?\n  the first other parameter is {first_other_parameter}}}\n";

static const char sum_text[] =
    "{run}: {equal_stretches} of {repeated} repeated stretches are equal to the last bit "
    "({possible_stretches} of {recorded_checkpoints} recorded checkpoints can be repeated)\n";

void train_prove_print(const json_t *proof) {
    json_t *stretch, *list = json_object_get(proof, "stretches"), *sum = json_copy((json_t *)proof);
    size_t i;
    json_array_foreach(list, i, stretch) chex_result_text(stdout, stretch, stretch_text);
    json_object_set_new(sum, "repeated", json_integer((json_int_t)json_array_size(list)));
    chex_result_text(stdout, sum, sum_text);
    json_decref(sum);
}
