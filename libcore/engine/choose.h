/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses engine, GPU and precision. chex-train and chex-eval share these rules.
 */
#ifndef CHEX_ENGINE_CHOOSE_H
#define CHEX_ENGINE_CHOOSE_H

#include "base/error.h"
#include "engine/engine.h"
#include "launch/bind.h"
#include "launch/group.h"

/* Resolves the value of --engine and logs the choice.
 * - asked: "auto", "cpu", "cpu:avx2", "ref", "cuda" or "cuda:s1". auto: cuda if a GPU was
 *   allotted, else cpu.
 * - *spec_out: for chex_engine_create; `asked` itself or a static string.
 * - CHEX_E_USAGE: unknown name.
 * - The status of the engine's probe, with the remedy: cuda was chosen or requested but cannot
 *   run. The CPU is never used silently instead. */
enum chex_status chex_choose_engine(const char *asked, const struct chex_gpu_view *view,
                                    const char **spec_out, struct chex_error *err);

/* Chooses the GPU of this rank for an engine of `spec`. Collective.
 * - Each rank of a node gets a GPU of its own among those it sees, as close to its CPUs as
 *   possible. Ranks share a GPU only if CUDA MPS is active (NCCL does not support that).
 * - *has_out: false if the engine uses no GPU.
 * - Each rank logs its GPU in one line.
 * - spec NULL: this rank has already failed, and err holds the error. Then all ranks fail with it.
 * - All ranks fail together (chex_group_agree): CHEX_E_ENV, or CHEX_E_NODE for an unhealthy GPU. */
enum chex_status chex_choose_gpu(const struct chex_launch *launch, struct chex_group *group,
                                 const struct chex_binding *binding,
                                 const struct chex_gpu_view *view, const char *spec,
                                 struct chex_gpu *gpu_out, bool *has_out, struct chex_error *err);

/* Chooses the precision. Collective; all ranks return the same status.
 * - asked: --precision is given, and *precision holds it. CHEX_E_USAGE if another rank has another
 *   value or none.
 * - Otherwise *precision becomes chex_engine_usual_precision of `spec` if it is the same on all
 *   ranks, else fp32, and that is logged. */
enum chex_status chex_choose_precision(struct chex_group *group, const char *spec, bool asked,
                                       enum chex_precision *precision, struct chex_error *err);

#endif
