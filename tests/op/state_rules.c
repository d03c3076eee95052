/* SPDX-License-Identifier: Apache-2.0
 *
 * The updates of ref and cpu are those of engine/update.h, to the last bit.
 */
#include "op/state_rules.h"

int main(void) {
    rule_check("ref", SMALL_RESNET);
    rule_check("cpu:generic", SMALL_DENSENET);
    return tap_done();
}
