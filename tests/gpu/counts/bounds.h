/* SPDX-License-Identifier: Apache-2.0
 *
 * The times that the counts of a training step allow on a device: a model.
 */
#ifndef CHEX_TESTS_GPU_COUNTS_BOUNDS_H
#define CHEX_TESTS_GPU_COUNTS_BOUNDS_H

#include "gpu/devices.h"
#include "gpu/emulated/counts.h"
#include "model/net.h"

/* Labels of counts: 2 * op for forward, + 1 for backward; then: */
enum { COUNTS_LOSS = 10000, COUNTS_UPDATE };

/* Prints a table of the step of `images` images on `d`, from the counts so far. */
void bounds_print(const struct test_device *d, const struct chex_net *net, int images);

#endif
