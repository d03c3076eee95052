/* SPDX-License-Identifier: Apache-2.0
 *
 * How the parameters of a checkpoint were trained: from its meta into the provenance of an
 * evaluation, and the differences of two such records.
 */
#ifndef CHEX_MODEL_TRAINING_FACTS_H
#define CHEX_MODEL_TRAINING_FACTS_H

#include <jansson.h>
#include <stdbool.h>

/* The keys, in the order of a result. */
#define CHEX_TRAINING_KEYS                                                                         \
    "training_step", "training_images", "training_weights", "training_options"

/* The facts of a checkpoint's meta (train/store/save.c), for the caller to release:
 *   training_options  object: text of each option that can change the parameters, by long name;
 *                     of a resumed run those of its last start
 *   training_images   digest of the images that it was trained on
 *   training_weights  XXH3-128 of the weights of the labels; absent: none, or not recorded
 *   training_step     steps
 * NULL: the meta has no options, or out of memory. */
json_t *chex_training_facts(const json_t *meta);

/* Adds the energy of the run in whose folder the checkpoint is, if each start recorded it:
 * training_gpu_joules, and training_whole_node_joules of processors and memory. */
void chex_training_energy(json_t *object, const char *checkpoint);

/* training_options as "--lr 0.001 --sync-bn yes", without those that are empty. The caller frees
 * it. NULL: out of memory. */
char *chex_training_options_text(const json_t *options);

/* An array of {option, first, second} for the options that differ, without --data; null: that side
 * did not record the option. NULL: out of memory. */
json_t *chex_training_differences(const json_t *first, const json_t *second);

/* Whether a fact with this key is known on both sides and differs. */
bool chex_training_differs(const json_t *first, const json_t *second, const char *key);

#endif
