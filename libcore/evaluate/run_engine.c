/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses and creates the engine of chex-eval.
 */
#include "evaluate/run_engine.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/choose.h"
#include "engine/ref/head_engine.h"

enum chex_status chex_eval_engine_choose(struct chex_eval_engine *e, const struct chex_opt_set *set,
                                         const struct chex_eval_settings *s,
                                         struct chex_world *world, struct chex_error *err) {
    if (s->features) {
        e->spec = "head";
        e->precision = CHEX_FP32;
        return CHEX_OK;
    }
    enum chex_status st = chex_choose_engine(s->engine, &world->gpu, &e->spec, err);
    CHEX_TRY(chex_choose_gpu(&world->launch, world->group, &world->binding, &world->gpu,
                             st == CHEX_OK ? e->spec : NULL, &e->gpu, &e->has_gpu, err));
    e->precision = (enum chex_precision)s->precision;
    return chex_choose_precision(world->group, e->spec,
                                 chex_opt_origin(set, "precision") != CHEX_FROM_DEFAULT,
                                 &e->precision, err);
}

enum chex_status chex_eval_engine_open(struct chex_eval_engine *e,
                                       const struct chex_eval_settings *s,
                                       const struct chex_world *world,
                                       const struct chex_eval_network *network, int image_size,
                                       int batch, struct chex_error *err) {
    e->threads = s->threads ? (int)s->threads : world->binding.threads;
    struct chex_engine_config config = {.image_size = image_size,
                                        .batch = batch,
                                        .precision = e->precision,
                                        .threads = e->threads,
                                        .device = e->has_gpu ? &e->gpu : NULL};
    struct chex_ensemble *all = &e->ensemble;
    const int networks = network->networks;
    const float *state = network->state;
    uint64_t bytes = network->net->state_count * sizeof *state;
    all->mean = network->mean;
    if (!(all->engine = chex_alloc_zeroed((size_t)networks, sizeof *all->engine)))
        return chex_error_memory(err, "%d networks", networks);
    for (int k = 0; k < networks; k++) {
        config.net = network->member ? network->member[k] : network->net;
        config.lender = e->engine;
        CHEX_TRY(s->features ? chex_head_engine_create(&config, &all->engine[k], err)
                             : chex_engine_create(e->spec, &config, &all->engine[k], err));
        all->count++;
        e->engine = all->engine[0];
        CHEX_TRY(chex_engine_set(all->engine[k], CHEX_STATE_PARAMS, state, err));
        state += config.net->state_count;
        bytes += all->engine[k]->impl->bytes(all->engine[k]->self);
    }
    char text[32];
    if (networks > 1)
        chex_info("ensemble of %d networks by %s: each image is decoded once and inferred %d "
                  "times; %s on each rank",
                  networks, chex_ensemble_names[all->mean], networks,
                  chex_format_bytes(text, sizeof text, bytes));
    return CHEX_OK;
}

void chex_eval_engine_close(struct chex_eval_engine *e) {
    while (e->ensemble.count > 0)
        chex_engine_destroy(e->ensemble.engine[--e->ensemble.count]);
    free(e->ensemble.engine);
    e->ensemble.engine = NULL;
    e->engine = NULL;
}
