/* SPDX-License-Identifier: Apache-2.0
 *
 * The updates of the cuda engine are those of engine/update.h, to the last bit.
 */
#include "op/state_rules.h"

int main(void) {
    rule_check("cuda", SMALL_DENSENET);
    return tap_done();
}
