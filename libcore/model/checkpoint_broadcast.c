/* SPDX-License-Identifier: Apache-2.0
 *
 * Broadcasts a checkpoint: first a head of fixed size, by which the other ranks allocate; then, if
 * all have the memory, names, meta and the vectors.
 */
#include "model/checkpoint_broadcast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct head {
    char model[sizeof((struct chex_checkpoint *)0)->model];
    int32_t classes, image_size;
    uint64_t names_bytes, meta_bytes; /* with the NULs */
    uint8_t has[CHEX_CHECKPOINT_VECTORS];
};

static struct head head_of(struct chex_checkpoint *c) {
    struct head h = {
        .classes = c->classes, .image_size = c->image_size, .meta_bytes = strlen(c->meta) + 1};
    snprintf(h.model, sizeof h.model, "%s", c->model);
    for (int i = 0; i < c->classes; i++)
        h.names_bytes += strlen(c->class_names[i]) + 1;
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        h.has[i] = c->vectors[i] != NULL;
    return h;
}

/* The names of the classes, each with its NUL, in fresh memory. */
static char *join_names(const struct chex_checkpoint *c, size_t bytes) {
    char *all = malloc(bytes), *at = all;
    for (int i = 0; all && i < c->classes; i++)
        at = stpcpy(at, c->class_names[i]) + 1;
    return all;
}

static enum chex_status split_names(struct chex_checkpoint *c, const char *all,
                                    struct chex_error *err) {
    for (int i = 0; i < c->classes; i++) {
        if (!(c->class_names[i] = strdup(all)))
            return chex_error_memory(err, NULL);
        all += strlen(all) + 1;
    }
    return CHEX_OK;
}

/* A rank other than 0: the network, and memory for the checkpoint. */
static enum chex_status allocate(const struct head *h, struct chex_net **net,
                                 struct chex_checkpoint *c, struct chex_error *err) {
    memcpy(c->model, h->model, sizeof c->model);
    c->image_size = h->image_size;
    CHEX_TRY(chex_net_create(h->model, h->classes, net, err));
    c->class_names = chex_alloc_zeroed((size_t)h->classes, sizeof *c->class_names);
    c->classes = c->class_names ? h->classes : 0;
    c->meta = malloc(h->meta_bytes);
    bool all = c->class_names && c->meta;
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        if (h->has[i]) {
            c->vectors[i] = chex_alloc_aligned((*net)->state_count, sizeof(float));
            all = all && c->vectors[i];
        }
    return all ? CHEX_OK : chex_error_memory(err, NULL);
}

/* All ranks have the memory. */
static enum chex_status send(struct chex_group *g, const struct head *h, const struct chex_net *net,
                             struct chex_checkpoint *c, char *names, struct chex_error *err) {
    CHEX_TRY(chex_group_broadcast(g, names, h->names_bytes, 0, err));
    CHEX_TRY(chex_group_broadcast(g, c->meta, h->meta_bytes, 0, err));
    for (int i = 0; i < CHEX_CHECKPOINT_VECTORS; i++)
        if (h->has[i])
            CHEX_TRY(
                chex_group_broadcast(g, c->vectors[i], net->state_count * sizeof(float), 0, err));
    return chex_group_agree(g, g->rank == 0 ? CHEX_OK : split_names(c, names, err), err);
}

static enum chex_status exchange(struct chex_group *g, struct head *h, struct chex_net **net,
                                 struct chex_checkpoint *c, struct chex_error *err) {
    CHEX_TRY(chex_group_broadcast(g, h, sizeof *h, 0, err));
    CHEX_AUTO_FREE char *names =
        g->rank == 0 ? join_names(c, h->names_bytes) : malloc(h->names_bytes);
    enum chex_status st = names ? CHEX_OK : chex_error_memory(err, NULL);
    if (st == CHEX_OK && g->rank != 0)
        st = allocate(h, net, c, err);
    CHEX_TRY(chex_group_agree(g, st, err));
    return send(g, h, *net, c, names, err);
}

enum chex_status chex_checkpoint_broadcast(struct chex_group *g, struct chex_net **net,
                                           struct chex_checkpoint **c, struct chex_error *err) {
    struct head h = {0};
    if (g->size == 1)
        return CHEX_OK;
    if (g->rank == 0) {
        h = head_of(*c);
        return exchange(g, &h, net, *c, err);
    }
    CHEX_AUTO(chex_net_destroy_at) struct chex_net *their_net = NULL;
    CHEX_AUTO(chex_checkpoint_destroy_at)
    struct chex_checkpoint *theirs = calloc(1, sizeof *theirs);
    if (!theirs) /* a few bytes: the caller ends the job */
        return chex_error_memory(err, NULL);
    CHEX_TRY(exchange(g, &h, &their_net, theirs, err));
    *net = CHEX_TAKE(their_net);
    *c = CHEX_TAKE(theirs);
    return CHEX_OK;
}
