/* SPDX-License-Identifier: Apache-2.0
 *
 * Which engine and precision a command runs with: the one rule of chex-train and chex-eval.
 */
#ifndef CHEX_ENGINE_CHOOSE_H
#define CHEX_ENGINE_CHOOSE_H

#include "base/error.h"
#include "engine/engine.h"
#include "launch/bind.h"
#include "launch/launch.h"

/* asked: what --engine says ("auto", "cpu", "cpu:avx2", "ref", "cuda", "cuda:s1"). *spec_out is
 * what chex_engine_create takes: `asked` itself, or a string that lives for ever. auto: cuda where
 * a GPU was allotted, else cpu, and that is logged. A GPU that was allotted and cannot be used is
 * CHEX_E_ENV with the remedy, never a silent run on the CPU; so is cuda where it cannot run. An
 * unknown name is CHEX_E_USAGE. */
enum chex_status chex_choose_engine(const char *asked, const struct chex_gpu_view *view,
                                    const char **spec_out, struct chex_error *err);

/* The GPU on which this rank is to create an engine of `spec`: of those it sees its own, no two
 * ranks of a node the same one, unless CUDA MPS is active (which NCCL does not support), and as
 * close to the rank's CPUs as can be. Logged in one line a rank. *has_out: false where the engine
 * uses none. All ranks fail together: CHEX_E_ENV, or CHEX_E_NODE for a GPU that is unhealthy, with
 * the first rank's text. spec NULL: this rank has failed already, and err says how; then all fail
 * with that. Collective. */
enum chex_status chex_choose_gpu(struct chex_launch *launch, const struct chex_binding *binding,
                                 const struct chex_gpu_view *view, const char *spec,
                                 struct chex_gpu *gpu_out, bool *has_out, struct chex_error *err);

/* The precision where none was asked for: chex_engine_usual_precision of every rank's `spec` where
 * they agree, fp32 where nodes differ, and that is logged. Collective. */
enum chex_status chex_choose_precision(struct chex_launch *launch, const char *spec,
                                       enum chex_precision *precision_out, struct chex_error *err);

#endif
