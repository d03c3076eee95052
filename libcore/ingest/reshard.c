/* SPDX-License-Identifier: Apache-2.0
 *
 * Reshards a set: opens all its shards, makes a label table from their rows and runs the steps of
 * create.c with the pixels of the old shards (struct chex_create_origin). Layout, build,
 * --resume and publishing are those of chex_create().
 */
#include "ingest/reshard.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/create_private.h"
#include "shard/shard_write.h"

struct place {
    const struct chex_shard *shard;
    size_t index, row; /* of the shard in its set, of the row in the shard */
};

struct reshard {
    struct chex_create create; /* first: chex_create_run() gives load() a pointer to it */
    struct chex_create_options options;
    struct chex_create_origin origin;
    const struct chex_reshard_labels *labels;
    struct chex_manifest *manifest;
    struct chex_set *sets[CHEX_SPLIT_COUNT];
    struct place *places; // (table->count)
    uint64_t *content;    // (table->count)
};

static enum chex_status open_sets(struct reshard *r, const char *dir, struct chex_error *err) {
    size_t shards = 0, most = 0, rows = 0;
    if (r->options.output && chex_fs_same(dir, r->options.output))
        return chex_error_set(err, CHEX_E_USAGE, "output %s is the input: give a new folder", dir);
    CHEX_TRY(chex_manifest_read(dir, &r->manifest, err));
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        if (!r->manifest->splits[s].shard_count)
            continue;
        CHEX_TRY(chex_set_open(dir, (enum chex_split)s, 0, SIZE_MAX, &r->sets[s], err));
        shards += r->sets[s]->shard_count;
        most = r->sets[s]->shard_count > most ? r->sets[s]->shard_count : most;
        rows += r->sets[s]->rows;
    }
    if (!rows)
        return chex_error_data(err, "%s: the set has no split", dir);
    chex_info("%s: %zu image%s in %zu shard%s", dir, rows, chex_text_s(rows), shards,
              chex_text_s(shards));
    if (!r->options.shards)
        r->options.shards = most;
    r->options.size = r->manifest->size;
    r->options.seed = r->manifest->seed;
    return CHEX_OK;
}

static enum chex_status allocate_rows(struct reshard *r, struct chex_error *err) {
    struct chex_label_table *t = calloc(1, sizeof *t);
    size_t rows = 0;
    if (!(r->create.table = t))
        return chex_error_memory(err, "the list of images");
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        rows += r->sets[s] ? r->sets[s]->rows : 0;
    t->rows = chex_alloc_zeroed(rows, sizeof *t->rows);
    t->path = strdup(r->origin.dir);
    r->create.split = chex_alloc_zeroed(rows, sizeof *r->create.split);
    r->places = chex_alloc_zeroed(rows, sizeof *r->places);
    r->content = chex_alloc_zeroed(rows, sizeof *r->content);
    if (!t->rows || !t->path || !r->create.split || !r->places || !r->content)
        return chex_error_memory(err, "the list of images");
    t->classes = (const char *const *)r->manifest->classes;
    t->class_count = r->manifest->class_count;
    return CHEX_OK;
}

/* Adds the rows of one shard to the label table, which borrows the shard's ids and labels. */
static void add_rows(struct reshard *r, enum chex_split split, size_t index, uint64_t sum[2]) {
    const struct chex_shard *shard = r->sets[split]->shards[index];
    chex_shard_add_source(shard, sum);
    struct chex_label_table *t = r->create.table;
    for (size_t i = 0; i < chex_shard_rows(shard); i++) {
        size_t at = t->count++;
        t->rows[at] = (struct chex_label_row){.image_id = chex_shard_image_id(shard, i),
                                              .path = chex_shard_image_id(shard, i),
                                              .patient_id = chex_shard_patient_id(shard, i),
                                              .study_id = chex_shard_study_id(shard, i),
                                              .labels = (int8_t *)chex_shard_labels(shard, i),
                                              .view = chex_shard_view(shard, i),
                                              .age_years = chex_shard_age_years(shard, i),
                                              .sex = chex_shard_sex(shard, i)};
        r->create.split[at] = split;
        r->places[at] = (struct place){shard, index, i};
        r->content[at] = chex_shard_checksum(shard, i);
    }
}

static enum chex_status load(struct chex_create *c, struct chex_error *err) {
    struct reshard *r = (struct reshard *)c;
    CHEX_TRY(open_sets(r, r->origin.dir, err));
    CHEX_TRY(allocate_rows(r, err));
    uint64_t sum[2] = {0, 0}; /* of the source digests */
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        for (size_t i = 0; r->sets[s] && i < r->sets[s]->shard_count; i++)
            add_rows(r, (enum chex_split)s, i, sum);
    r->origin.manifest = r->manifest;
    r->origin.content = r->content;
    return r->labels ? r->labels->apply(r->labels->arg, c->table, c->split, sum, r->manifest, err)
                     : CHEX_OK;
}

static const struct chex_shard *shard_of(const void *arg, size_t row, size_t *row_in_shard_out) {
    const struct place *p = &((const struct reshard *)arg)->places[row];
    *row_in_shard_out = p->row;
    return p->shard;
}

static enum chex_status fetch(const void *arg, size_t row, uint8_t *pixels,
                              struct chex_error *err) {
    enum { PREFETCH_ROWS = 64 };
    const struct place *p = &((const struct reshard *)arg)->places[row];
    if (p->row % PREFETCH_ROWS == 0) {
        size_t left = chex_shard_rows(p->shard) - p->row;
        chex_shard_will_need(p->shard, p->row, left < 2 * PREFETCH_ROWS ? left : 2 * PREFETCH_ROWS);
    }
    return chex_shard_read(p->shard, p->row, 1, true, pixels, err);
}

/* The digest of a single image is not stored, only the sum of each old shard. So the sum includes
 * every old shard that gives a row. */
static enum chex_status sum_digests(const void *arg, const struct chex_layout_shard *shard,
                                    uint64_t sum_out[2], struct chex_error *err) {
    const struct reshard *r = arg;
    CHEX_AUTO_FREE bool *seen = chex_alloc_zeroed(r->sets[shard->split]->shard_count, sizeof *seen);
    if (!seen)
        return chex_error_memory(err, "the list of images");
    sum_out[0] = sum_out[1] = 0;
    for (size_t k = 0; k < shard->row_count; k++) {
        const struct place *p = &r->places[shard->rows[k]];
        if (!seen[p->index])
            chex_shard_add_source(p->shard, sum_out);
        seen[p->index] = true;
    }
    return CHEX_OK;
}

static void begin(struct reshard *r, const struct chex_create_options *o,
                  const struct chex_reshard_labels *labels, struct chex_group *group) {
    *r = (struct reshard){.options = *o,
                          .origin = {.dir = o->set,
                                     .shard = shard_of,
                                     .fetch = fetch,
                                     .sum_digests = sum_digests,
                                     .new_labels = labels != NULL},
                          .labels = labels};
    r->options.labels = labels ? o->labels : o->set; /* in messages */
    r->origin.arg = r;
    r->create = (struct chex_create){.o = &r->options, .group = group, .origin = &r->origin};
}

static void end(struct reshard *r) {
    chex_sets_close(&r->sets);
    chex_manifest_free(r->manifest);
    free(r->places);
    free(r->content);
}

enum chex_status chex_reshard_with(const struct chex_create_options *o,
                                   const struct chex_reshard_labels *labels,
                                   struct chex_group *group, struct chex_create_result *result_out,
                                   struct chex_error *err) {
    CHEX_AUTO(end) struct reshard r;
    begin(&r, o, labels, group);
    if (result_out)
        return chex_create_run(&r.create, load, result_out, err);
    const enum chex_status st = chex_group_agree(group, load(&r.create, err), err);
    chex_labels_free(r.create.table);
    free(r.create.split);
    return st;
}

enum chex_status chex_reshard(const struct chex_create_options *o, struct chex_group *group,
                              struct chex_create_result *result_out, struct chex_error *err) {
    return chex_reshard_with(o, NULL, group, result_out, err);
}
