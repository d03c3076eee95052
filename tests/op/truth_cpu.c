/* SPDX-License-Identifier: Apache-2.0 */
#include "truth.h"

int main(void) {
    static const struct truth_plan plans[] = {
        {"densenet121", "cpu", CHEX_FP32_STRICT, "adam"},
        {"resnet50", "cpu", CHEX_FP32_STRICT, "sgd", 10},
        {"densenet121", "cpu:generic", CHEX_FP32_STRICT, "adam", 2},
        {"resnet50", "cpu:generic", CHEX_FP32, NULL},
        {"densenet121", "cpu", CHEX_BF16, "sgd", 10},
        {"resnet50", "cpu", CHEX_BF16, NULL},
    };
    return truth_main(plans, sizeof plans / sizeof plans[0]);
}
