/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss of a run. Rank 0 resolves the weights, because it has the label counts of all ranks and
 * reads the file of --pos-weight; the others get them from it.
 */
#include "train/loss_setup.h"

#include <string.h>

/* The weights that the proven start recorded, or those of the checkpoint if --pos-weight was not
 * given again. The caller releases the reference. */
static json_t *recorded_weights(const struct chex_session *s) {
    const json_t *origins = json_object_get(s->config.options, "origins");
    const char *origin = json_string_value(json_object_get(origins, "pos-weight"));
    if (s->config.proven_loss)
        return json_incref((json_t *)s->config.proven_loss);
    if (!s->restored || !origin || strcmp(origin, "run") != 0)
        return NULL;
    json_auto_t *meta = json_loads(s->restored->meta, 0, NULL);
    return json_incref(json_object_get(meta, "loss"));
}

static enum chex_status resolve(struct chex_session *s, const struct chex_loss *loss,
                                const struct chex_label_counts *counts, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    const struct chex_loss_rows rows = {chex_set_class_names(s->input.train), s->net->classes,
                                        counts};
    json_auto_t *recorded = recorded_weights(s);
    return chex_loss_weights_make(loss, c->pos_weight, c->loss_mean, recorded, &rows, &s->loss,
                                  err);
}

/* Every rank has the same weights; only rank 0 has resolved them. */
static enum chex_status broadcast(struct chex_session *s, float **weights, bool used,
                                  struct chex_error *err) {
    const size_t bytes = (size_t)s->net->classes * sizeof **weights;
    return used ? chex_group_broadcast(s->world.coll->group, *weights, bytes, 0, err) : CHEX_OK;
}

enum chex_status chex_session_make_loss(struct chex_session *s,
                                        const struct chex_label_counts *counts,
                                        struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    const size_t classes = (size_t)s->net->classes;
    const bool pos = strcmp(c->pos_weight, "none") != 0;
    const bool class = c->loss_mean != CHEX_LOSS_MEAN_ALL;
    enum chex_status st = CHEX_OK;
    struct chex_loss loss = c->loss;
    loss.uncertain_target = s->input.selection->uncertain_target;
    if (s->rank == 0)
        st = resolve(s, &loss, counts, err);
    else
        st = chex_loss_weights_alloc(&loss, pos, class, classes, &s->loss, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    CHEX_TRY(broadcast(s, &s->loss.pos, pos, err));
    CHEX_TRY(broadcast(s, &s->loss.class, class, err));
    json_t *record =
        chex_loss_weights_json(&s->loss, chex_set_class_names(s->input.train), s->net->classes);
    if (record)
        json_object_set_new(s->config.options, "loss", record);
    return CHEX_OK;
}
