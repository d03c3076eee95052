/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss inside the CUDA engine: the terms of the configuration reach the device. Values are
 * fp32.
 */
#include "op/loss_engine.h"

int main(void) {
    begin();
    check("cuda:s0", &loss_cases[0], 3, 1e-6);
    check("cuda:s0", &loss_cases[3], 2, 1e-6);
    check("cuda:s0", &loss_cases[9], 3, 1e-6);
    return end();
}
