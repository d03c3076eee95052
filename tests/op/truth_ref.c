/* SPDX-License-Identifier: Apache-2.0 */
#include "truth.h"

/* A step takes a second; the loss of the second one depends on the update. The cpu engine takes all
 * twenty. */
int main(void) {
    static const struct truth_plan plans[] = {
#if !TAP_SLOW_BUILD /* op-grad_ref and op-engine_ref run the same loops on small networks */
        {"densenet121", "ref", CHEX_FP32, "adam", 2},
        {"densenet121", "ref", CHEX_BF16, NULL},
#endif
        {"resnet50", "ref", CHEX_FP32, "sgd", 2},
        {"resnet50", "ref", CHEX_BF16, NULL},
    };
    return truth_main(plans, sizeof plans / sizeof plans[0]);
}
