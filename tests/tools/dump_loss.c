/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: dump_loss
 * Prints the losses of tests/loss_cases.h on one batch with masked and uncertain labels as a JSON
 * array: settings, logits, labels, the loss of each value, their mean and its gradient. For
 * tests/peers/losses_torch.py.
 */
#include <jansson.h>
#include <stdio.h>

#include "../loss_cases.h"
#include "base/result.h"

enum { IMAGES = 33, COUNT = IMAGES * LOSS_CLASSES };

static json_t *numbers(const float *values, int count) {
    json_t *all = json_array();
    for (int i = 0; values && i < count; i++)
        json_array_append_new(all, json_real((double)values[i]));
    return all;
}

int main(void) {
    float logits[COUNT], dlogits[COUNT];
    int8_t labels[COUNT];
    json_t *all = json_array();
    loss_batch(COUNT, logits, labels);
    for (int i = 0; i < LOSS_CASES; i++) {
        const struct chex_loss *l = &loss_cases[i].loss;
        const double mean = chex_loss_mean(l, logits, labels, IMAGES, LOSS_CLASSES, dlogits);
        json_t *y = json_array(), *values = json_array();
        for (int k = 0; k < COUNT; k++) {
            json_array_append_new(y, json_integer(labels[k]));
            json_array_append_new(values, json_real(chex_loss_value(l, k % LOSS_CLASSES, labels[k],
                                                                    (double)logits[k])));
        }
        json_array_append_new(
            all,
            chex_result(CHEX_FIELD("name", loss_cases[i].name),
                        CHEX_FIELD("kind", chex_loss_names[l->kind]), CHEX_MEMBER(l, smoothing),
                        CHEX_MEMBER(l, gamma_pos), CHEX_MEMBER(l, gamma_neg), CHEX_MEMBER(l, clip),
                        CHEX_MEMBER(l, alpha), CHEX_FIELD("classes", LOSS_CLASSES),
                        CHEX_FIELD("pos_weight", numbers(l->pos_weight, LOSS_CLASSES)),
                        CHEX_FIELD("class_weight", numbers(l->class_weight, LOSS_CLASSES)),
                        CHEX_FIELD("uncertain_target", numbers(l->uncertain_target, LOSS_CLASSES)),
                        CHEX_FIELD("logits", numbers(logits, COUNT)), CHEX_FIELD("labels", y),
                        CHEX_FIELD("values", values), CHEX_FIELD("loss", mean),
                        CHEX_FIELD("dlogits", numbers(dlogits, COUNT))));
    }
    json_dumpf(all, stdout, JSON_REAL_PRECISION(17));
    json_decref(all);
    return 0;
}
