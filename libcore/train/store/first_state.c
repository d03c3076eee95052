/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a run that does not resume: parameters by --seed or from --init, moments of zero.
 */
#include "train/store/restore.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "model/weights.h"

/* Reads --init. The file's head is used only if its classes are the same: an equal number of other
 * classes is not enough. */
static enum chex_status read_init(const struct chex_session *s, float *state,
                                  struct chex_error *err) {
    const char *path = s->config.init;
    struct chex_weights w;
    bool head = false;
    CHEX_TRY(chex_weights_open(path, false, &w, err));
    const bool ours = chex_safetensors_may_be(&w.about, chex_set_class_names(s->input.train),
                                              s->input.train->classes);
    enum chex_status st = chex_tensor_set_load(&w.tensors, s->net, state, ours ? &head : NULL, err);
    if (st == CHEX_OK && head && !w.about.classes && s->rank == 0)
        chex_warn("%s does not name its %d findings: those of the data are assumed", path,
                  s->net->classes);
    const bool averaged = w.about.weights && strcmp(w.about.weights, "ema") == 0;
    chex_weights_close(&w);
    CHEX_TRY(st);
    chex_info("parameters from %s%s; the head is %s", path,
              averaged ? " (their moving average)" : "",
              head   ? "the file's"
              : ours ? "new, because the file has none of this shape"
                     : "new, because the file's is for other findings or another order of them");
    return CHEX_OK;
}

/* Reads the parameters that do not depend on the data, only to see whether they can be read. Warns
 * here, before the data are opened. */
static enum chex_status try_init(const char *path, const struct chex_net *net,
                                 struct chex_error *err) {
    struct chex_weights w;
    CHEX_TRY(chex_weights_open(path, false, &w, err));
    CHEX_AUTO_FREE float *state = chex_alloc_aligned(net->state_count, sizeof *state);
    enum chex_status st = state ? CHEX_OK : chex_error_memory(err, NULL);
    if (w.about.model && strcmp(w.about.model, net->model) != 0)
        st = chex_error_set(err, CHEX_E_DATA, "%s is a %s, --model says %s", path, w.about.model,
                            net->model);
    if (st == CHEX_OK)
        st = chex_tensor_set_load(&w.tensors, net, state, NULL, err);
    if (st == CHEX_OK)
        st = chex_tensor_set_warn(&w.tensors, net, err);
    chex_weights_close(&w);
    return st;
}

enum chex_status chex_session_check_init(struct chex_session *s, struct chex_error *err) {
    struct chex_net *net = NULL;
    enum chex_status st = CHEX_OK;
    if (s->rank == 0 && !s->at.step && s->config.init) {
        st = chex_net_create(chex_session_model(s), 1, &net, err);
        if (st == CHEX_OK)
            st = try_init(s->config.init, net, err);
        chex_net_destroy(net);
    }
    return chex_session_agree(s, st, err);
}

/* Rank 0 makes the parameters and gives them to all ranks. So all begin with the same bits, and
 * ranks that share cores do the work once. */
static enum chex_status first_params(struct chex_session *s, float *state, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    enum chex_status st = CHEX_OK;
    if (s->rank == 0 && c->init) {
        chex_net_init_head(s->net, c->seed, state); /* the file may have none that fits */
        st = read_init(s, state, err);
    } else if (s->rank == 0) {
        chex_net_init_state(s->net, c->seed, c->threads, state);
    }
    CHEX_TRY(chex_session_agree(s, st, err));
    return chex_session_broadcast(s, state, s->net->state_count * sizeof *state, err);
}

enum chex_status chex_session_init_state(struct chex_session *s, struct chex_error *err) {
    const size_t count = s->net->state_count;
    CHEX_AUTO_FREE float *state = chex_alloc_aligned(count, sizeof *state);
    CHEX_TRY(chex_session_agree(s, state ? CHEX_OK : chex_error_memory(err, NULL), err));
    CHEX_TRY(first_params(s, state, err));
    CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_PARAMS, state, err));
    if (s->config.ema_decay > 0)
        CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_EMA, state, err));
    memset(state, 0, count * sizeof *state);
    CHEX_TRY(chex_engine_set(s->engine, CHEX_STATE_MOMENT1, state, err));
    return chex_engine_set(s->engine, CHEX_STATE_MOMENT2, state, err);
}
