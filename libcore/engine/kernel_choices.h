/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernel choices: which of several kernels that compute the same an engine uses for each
 * convolution (struct chex_engine_choices). They decide the time of a step and the order of its
 * sums. An engine is made with fixed choices. It can measure others on its device, as PyTorch does
 * with torch.backends.cudnn.benchmark, XLA with its autotuner, and use choices of another engine.
 *
 * CHEX_CUDA_MEASURE=SECONDS asks for a measurement of at most that time. Without it, or with 0, the
 * choices are fixed: a measurement may choose otherwise the next time, and then the bits of a run
 * with the same seed differ.
 */
#ifndef CHEX_ENGINE_KERNEL_CHOICES_H
#define CHEX_ENGINE_KERNEL_CHOICES_H

#include "engine/engine.h"

/* The value of CHEX_CUDA_MEASURE; unset or empty: 0. CHEX_E_USAGE: it is not a number of seconds,
 * or too large. */
enum chex_status chex_kernel_measure_limit(double *limit_s_out, struct chex_error *err);

/* Measures if CHEX_CUDA_MEASURE asks for it and the engine has choices. Call it before the engine
 * has its state. For programs of one rank: ranks of a job must use the same choices. */
enum chex_status chex_kernel_measure(struct chex_engine *e, struct chex_error *err);

/* Whether two texts of choices are of the same kind of device: their first lines are equal. */
bool chex_kernel_same_device(const char *a, const char *b);

#endif
