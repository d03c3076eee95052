/* SPDX-License-Identifier: Apache-2.0 */
#include "truth.h"

/* A step takes a second. What ten show, each batch two or three times, ten more show again; the cpu
 * engine takes all twenty. */
int main(void) {
    static const struct truth_plan plans[] = {
        {"densenet121", "ref", CHEX_FP32, "adam", 10},
        {"resnet50", "ref", CHEX_FP32, "sgd", 10},
        {"densenet121", "ref", CHEX_BF16, NULL},
        {"resnet50", "ref", CHEX_BF16, NULL},
    };
    return truth_main(plans, sizeof plans / sizeof plans[0]);
}
