/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine that --engine, --precision and --threads ask for, with the network's parameters.
 */
#ifndef CHEX_EVALUATE_RUN_ENGINE_H
#define CHEX_EVALUATE_RUN_ENGINE_H

#include "engine/engine.h"
#include "evaluate/network.h"
#include "evaluate/settings.h"
#include "launch/world.h"

/* Starts as {0}. */
struct chex_eval_engine {
    struct chex_engine *engine;    /* NULL: not open; of an ensemble that of the first member */
    struct chex_ensemble ensemble; /* all engines */
    const char *spec;              /* as "cpu:avx2" */
    struct chex_gpu gpu;
    bool has_gpu;
    enum chex_precision precision;
    int threads;
};

/* Chooses engine, GPU and precision. set: says whether the user gave --precision. Collective in the
 * world's group; all ranks return the same status. */
enum chex_status chex_eval_engine_choose(struct chex_eval_engine *e, const struct chex_opt_set *set,
                                         const struct chex_eval_settings *s,
                                         struct chex_world *world, struct chex_error *err);

/* Creates the chosen engine for crops of image_size px and `batch` images at once; for an ensemble
 * one for each member, and logs its memory. Not collective. The caller calls
 * chex_eval_engine_close, after an error too. */
enum chex_status chex_eval_engine_open(struct chex_eval_engine *e,
                                       const struct chex_eval_settings *s,
                                       const struct chex_world *world,
                                       const struct chex_eval_network *network, int image_size,
                                       int batch, struct chex_error *err);
void chex_eval_engine_close(struct chex_eval_engine *e);

#endif
