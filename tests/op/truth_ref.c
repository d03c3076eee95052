/* SPDX-License-Identifier: Apache-2.0 */
#include "truth.h"

int main(void) {
    static const struct truth_plan plans[] = {
        {"densenet121", "ref", CHEX_FP32, "adam"},
        {"resnet50", "ref", CHEX_FP32, "sgd"},
        {"densenet121", "ref", CHEX_BF16, NULL},
        {"resnet50", "ref", CHEX_BF16, NULL},
    };
    return truth_main(plans, sizeof plans / sizeof plans[0]);
}
