/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss inside the engines ref and cpu, and what they refuse. The gradients are fp32 values that
 * are added in double.
 */
#include "op/loss_engine.h"

int main(void) {
    static const float bad[LOSS_CLASSES] = {1, 1, -1, 1, 1};
    struct chex_error err;
    begin();
    check("cpu", &loss_cases[0], 3, 2e-7);
    check("cpu", &loss_cases[3], 1, 2e-7);
    check("cpu", &loss_cases[5], 3, 2e-7);
    check("cpu", &loss_cases[9], 2, 2e-7);
    check("ref", &loss_cases[9], 1, 2e-7);
    check_threads("cpu", &loss_cases[9]);
    struct chex_engine *e = NULL;
    const struct chex_engine_config config = {.net = net,
                                              .image_size = SIZE,
                                              .batch = 1,
                                              .threads = 1,
                                              .training = true,
                                              .loss = {.pos_weight = bad}};
    OK_STATUS(chex_engine_create("cpu", &config, &e, &err), CHEX_E_USAGE, err, "finding 3: -1");
    return end();
}
