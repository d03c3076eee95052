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

/* asked: what --engine says ("auto", "cpu", "cpu:avx2", "ref", "cuda"). *spec_out is what
 * chex_engine_create takes: `asked` itself, or a string that lives for ever.
 * auto: cuda where a GPU was allotted, else cpu, and that is logged. A GPU that was allotted and
 * cannot be used is CHEX_E_ENV with the remedy, never a silent run on the CPU; so is cuda where it
 * cannot run. An unknown name is CHEX_E_USAGE. */
enum chex_status chex_choose_engine(const char *asked, const struct chex_gpu_view *view,
                                    const char **spec_out, struct chex_error *err);

/* The precision where none was asked for: chex_engine_usual_precision of every rank's `spec` where
 * they agree, fp32 where nodes differ, and that is logged. Collective. */
enum chex_status chex_choose_precision(struct chex_launch *launch, const char *spec,
                                       enum chex_precision *precision_out, struct chex_error *err);

#endif
