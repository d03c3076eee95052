/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses and creates the engine of chex-eval.
 */
#include "evaluate/run_engine.h"

#include "engine/choose.h"

enum chex_status chex_eval_engine_choose(struct chex_eval_engine *e, const struct chex_opt_set *set,
                                         const struct chex_eval_settings *s,
                                         struct chex_world *world, struct chex_error *err) {
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
    const struct chex_engine_config config = {.net = network->net,
                                              .image_size = image_size,
                                              .batch = batch,
                                              .precision = e->precision,
                                              .threads = e->threads,
                                              .device = e->has_gpu ? &e->gpu : NULL};
    CHEX_TRY(chex_engine_create(e->spec, &config, &e->engine, err));
    return chex_engine_set(e->engine, CHEX_STATE_PARAMS, network->state, err);
}

void chex_eval_engine_close(struct chex_eval_engine *e) {
    chex_engine_destroy(e->engine);
    e->engine = NULL;
}
