/* SPDX-License-Identifier: Apache-2.0
 *
 * The part that all kinds of pipelines share: checks the configuration, creates the reader and
 * calls the implementation (pipeline_new.c, pipeline_old.c).
 */
#include "input/pipeline.h"

#include "base/alloc.h"
#include "input/augment.h"
#include "input/pipeline_private.h"

const char *const chex_pipeline_names[] = {"new", "old", NULL};
static const struct chex_pipeline_impl *const impls[] = {&chex_pipeline_new, &chex_pipeline_old};

enum { MIN_SLOTS = 2, MAX_SLOTS = 16, MAX_WORKERS = 1024 };

struct chex_pipeline {
    const struct chex_pipeline_impl *impl;
    void *self;
    struct chex_reader *reader;
};

void chex_pipeline_rows(enum chex_pipeline_kind kind, const struct chex_order_config *order,
                        int from, int to, size_t *first_out, size_t *end_out) {
    *first_out = 0;
    *end_out = order->rows;
    if (!impls[kind]->reads_all)
        chex_order_range(order, from, to, first_out, end_out);
}

size_t chex_pipeline_width(enum chex_pipeline_kind kind, const struct chex_order_config *order) {
    const size_t own = order->rows / (size_t)order->logical_ranks, buffer = impls[kind]->shuffle;
    return !buffer ? chex_order_width(order) : own < buffer ? own : buffer;
}

int chex_pipeline_threads(const struct chex_pipeline_config *config) {
    return impls[config->kind]->reads_all ? 1 : config->workers;
}

/* Rows that an epoch of training reads if no row is kept. */
static uint64_t epoch_rows(const struct chex_pipeline_config *c) {
    if (impls[c->kind]->reads_all)
        return c->order.rows;
    return (uint64_t)(c->rank_to - c->rank_from) * chex_order_steps(&c->order) * c->order.batch;
}

struct chex_crop chex_pipeline_crop(const struct chex_pipeline_config *c, uint64_t epoch,
                                    size_t row) {
    int stored = c->set->size;
    return c->training ? chex_augment_draw(&c->augment, c->order.seed, epoch, row, stored)
                       : chex_augment_centre(stored, c->image_size);
}

void chex_pipeline_place(const struct chex_pipeline_config *c, uint64_t epoch, size_t row,
                         const uint8_t *pixels, float *out, void *scratch) {
    struct chex_crop crop = chex_pipeline_crop(c, epoch, row);
    chex_augment_apply(pixels, c->set->size, &crop, c->image_size, true, out, scratch);
}

static enum chex_status check_open(const struct chex_pipeline_config *c, size_t first, size_t end,
                                   struct chex_error *err) {
    for (size_t i = 0; i < c->set->shard_count; i++)
        if (!c->set->shards[i] && c->set->first[i] < end && c->set->first[i + 1] > first)
            return chex_error_set(err, CHEX_E_FAIL,
                                  "%s: shard %zu holds rows of this process but is not open",
                                  c->set->dir, i);
    return CHEX_OK;
}

static enum chex_status check_training(const struct chex_pipeline_config *c,
                                       struct chex_error *err) {
    CHEX_TRY(chex_order_check(&c->order, err));
    if (c->order.rows != c->set->rows || c->order.batch != (size_t)c->batch)
        return chex_error_set(err, CHEX_E_FAIL,
                              "an order of %zu rows, batch %zu, for a set of %zu, batch %d",
                              c->order.rows, c->order.batch, c->set->rows, c->batch);
    if (c->rank_from < 0 || c->rank_from >= c->rank_to || c->rank_to > c->order.logical_ranks)
        return chex_error_set(err, CHEX_E_FAIL, "logical ranks %d to %d of %d", c->rank_from,
                              c->rank_to, c->order.logical_ranks);
    if (c->epoch >= UINT32_MAX || c->step > chex_order_steps(&c->order))
        return chex_error_data(err, "start at epoch %llu, step %zu: an epoch has %zu",
                               (unsigned long long)c->epoch, c->step, chex_order_steps(&c->order));
    return CHEX_OK;
}

/* Row numbers must fit into 32 bits: the reader sorts by (row, position) in 64 bits. */
static enum chex_status check_plain(const struct chex_pipeline_config *c, struct chex_error *err) {
    if (c->row_from > c->row_to || c->row_to > c->set->rows || c->row_to > UINT32_MAX)
        return chex_error_set(err, CHEX_E_FAIL, "rows %zu to %zu of a set of %zu", c->row_from,
                              c->row_to, c->set->rows);
    return CHEX_OK;
}

static enum chex_status check(const struct chex_pipeline_config *c, struct chex_error *err) {
    if (c->workers < 1 || c->workers > MAX_WORKERS)
        return chex_error_set(err, CHEX_E_USAGE, "--workers %d: expected 1 to %d", c->workers,
                              MAX_WORKERS);
    if (c->slots < MIN_SLOTS || c->slots > MAX_SLOTS)
        return chex_error_set(err, CHEX_E_USAGE, "%d ready batches: expected %d to %d", c->slots,
                              MIN_SLOTS, MAX_SLOTS);
    if (c->batch < 1 || c->image_size < 1)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--batch-size %d, --image-size %d: expected 1 or more", c->batch,
                              c->image_size);
    if (c->set->size < c->image_size)
        return chex_error_data(err,
                               "%s holds images of %d px, smaller than the image size of %d px: "
                               "shard again with a larger --size or lower --image-size",
                               c->set->dir, c->set->size, c->image_size);
    if (c->kind != CHEX_PIPELINE_NEW && (c->raw || c->features.count || !c->training))
        return chex_error_set(err, CHEX_E_FAIL,
                              "pipeline %s: only `new` makes raw batches, features and batches of "
                              "an evaluation",
                              chex_pipeline_names[c->kind]);
    if (c->features.count && (c->raw || c->keep))
        return chex_error_set(err, CHEX_E_FAIL, "features have no images");
    if (c->resident && !(c->raw && c->training))
        return chex_error_set(err, CHEX_E_FAIL, "resident rows need raw batches and training");
    return c->training ? check_training(c, err) : check_plain(c, err);
}

static struct chex_reader_config reader_of(const struct chex_pipeline_config *c) {
    struct chex_reader_config r = {
        .set = c->set, .first = c->row_from, .end = c->row_to, .keep = c->keep};
    if (c->training)
        chex_pipeline_rows(c->kind, &c->order, c->rank_from, c->rank_to, &r.first, &r.end);
    return r;
}

enum chex_status chex_pipeline_measure(const struct chex_pipeline_config *c,
                                       struct chex_pipeline_needs *out, struct chex_error *err) {
    CHEX_TRY(check(c, err));
    const struct chex_reader_config r = reader_of(c);
    CHEX_TRY(check_open(c, r.first, r.end, err));
    const uint64_t px = (uint64_t)c->set->size;
    *out = (struct chex_pipeline_needs){.ring_bytes = impls[c->kind]->ring_bytes(c),
                                        .rows_bytes = chex_reader_memory_bytes(&r)};
    if (!c->training || c->features.count)
        return CHEX_OK;
    out->first_read_bytes = c->keep ? out->rows_bytes : epoch_rows(c) * px * px;
    out->later_read_bytes = c->keep || c->resident ? 0 : out->first_read_bytes;
    return CHEX_OK;
}

enum chex_status chex_pipeline_create(const struct chex_pipeline_config *config,
                                      struct chex_pipeline **pipeline_out, struct chex_error *err) {
    CHEX_TRY(check(config, err));
    CHEX_AUTO(chex_pipeline_destroy_at) struct chex_pipeline *p = calloc(1, sizeof *p);
    if (!p)
        return chex_error_memory(err, "input pipeline");
    p->impl = impls[config->kind];
    const struct chex_reader_config r = reader_of(config);
    CHEX_TRY(check_open(config, r.first, r.end, err));
    CHEX_TRY(chex_reader_create(&r, &p->reader, err));
    CHEX_TRY(p->impl->create(config, p->reader, &p->self, err));
    *pipeline_out = CHEX_TAKE(p);
    return CHEX_OK;
}

void chex_pipeline_destroy(struct chex_pipeline *p) {
    if (!p)
        return;
    if (p->self)
        p->impl->destroy(p->self);
    chex_reader_destroy(p->reader);
    free(p);
}

enum chex_status chex_pipeline_next(struct chex_pipeline *p, struct chex_ready *ready_out,
                                    struct chex_error *err) {
    return p->impl->next(p->self, ready_out, err);
}

void chex_pipeline_release(struct chex_pipeline *p, const struct chex_ready *ready) {
    p->impl->release(p->self, ready);
}

uint64_t chex_pipeline_bytes(const struct chex_pipeline *p) { return chex_reader_bytes(p->reader); }
