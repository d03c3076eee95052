/* SPDX-License-Identifier: Apache-2.0 */
#include "truth.h"

int main(void) {
    static const struct truth_plan plans[] = {
        {"densenet121", "cpu", CHEX_FP32, "adam"},
        {"resnet50", "cpu", CHEX_FP32, "sgd"},
        {"densenet121", "cpu", CHEX_BF16, NULL},
        {"resnet50", "cpu", CHEX_BF16, NULL},
    };
    return truth_main(plans, sizeof plans / sizeof plans[0]);
}
