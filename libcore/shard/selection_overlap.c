/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the checksums of all images, and the hashes of all patient ids, with their set and side;
 * sorts the list; and looks for equal ones on both sides in different sets.
 */
#include "shard/selection_overlap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/text.h"

struct item {
    uint64_t key;
    size_t row; /* in the split */
    int16_t source, split;
    bool trained;
};

struct items {
    struct item *image, *patient; /* (count) of both */
    size_t count;
};

static void release(struct items *list) {
    free(list->image);
    free(list->patient);
}

/* Equal keys on both sides. */
struct overlap {
    size_t held; /* validation and test items */
    struct item first_held, first_trained;
};

static size_t count_rows(const struct chex_selection *s) {
    size_t rows = 0;
    for (int i = 0; i < s->sources.count; i++)
        for (int k = 0; k < CHEX_SPLIT_COUNT; k++)
            rows += s->source[i].manifest->splits[k].rows;
    return rows;
}

/* Adds the rows of one split: training rows that are chosen, or validation and test rows. */
static enum chex_status add_split(const struct chex_selection *s, int at, int split,
                                  void (*opened)(void *arg), void *arg, struct items *list,
                                  struct chex_error *err) {
    const struct chex_selection_source *source = &s->source[at];
    const bool trained = split == source->splits[CHEX_PART_TRAIN].from;
    const uint8_t *keep = trained ? source->keep[CHEX_PART_TRAIN] : NULL;
    CHEX_AUTO(chex_set_close_at) struct chex_set *set = NULL;
    CHEX_TRY(chex_set_open_splits(s->sources.set[at].dir, chex_splits_one((enum chex_split)split),
                                  0, SIZE_MAX, opened, arg, &set, err));
    for (size_t row = 0, in_shard; row < set->rows; row++) {
        const struct chex_shard *shard = chex_set_locate(set, row, &in_shard);
        const char *patient = chex_shard_patient_id(shard, in_shard);
        struct item item = {chex_shard_checksum(shard, in_shard), row, (int16_t)at, (int16_t)split,
                            trained};
        if (keep && !keep[row])
            continue;
        list->image[list->count] = item;
        item.key = chex_hash64(patient, strlen(patient));
        list->patient[list->count++] = item;
    }
    return CHEX_OK;
}

static int by_key(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

/* Items [from, to) have one key. Two training items of different sets suffice: each held item
 * differs from one of them. */
static void compare(const struct item *items, size_t from, size_t to, struct overlap *o) {
    const struct item *one = NULL, *other = NULL;
    for (size_t i = from; i < to; i++) {
        if (items[i].trained && one && items[i].source != one->source)
            other = &items[i];
        if (items[i].trained && !one)
            one = &items[i];
    }
    for (size_t i = from; one && i < to; i++) {
        const struct item *in_train = items[i].source != one->source ? one : other;
        if (items[i].trained || !in_train)
            continue;
        if (o->held++ == 0) {
            o->first_held = items[i];
            o->first_trained = *in_train;
        }
    }
}

static struct overlap find_overlap(struct item *items, size_t count) {
    struct overlap o = {0};
    qsort(items, count, sizeof *items, by_key);
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && items[to].key == items[from].key;)
            to++;
        compare(items, from, to, &o);
    }
    return o;
}

/* The image id of an item; "?" if its shard cannot be opened again. */
static void name_image(const struct chex_selection *s, const struct item *item, char out[64]) {
    CHEX_AUTO(chex_set_close_at) struct chex_set *set = NULL;
    size_t at;
    snprintf(out, 64, "?");
    if (chex_set_open(s->sources.set[item->source].dir, (enum chex_split)item->split, item->row,
                      item->row + 1, &set, NULL) != CHEX_OK)
        return;
    const struct chex_shard *shard = chex_set_locate(set, item->row, &at);
    chex_text_printable(chex_shard_image_id(shard, at), out, 64);
}

static enum chex_status judge(const struct chex_selection *s, const struct overlap *images,
                              const struct overlap *patients, char *warning, size_t size,
                              struct chex_error *err) {
    const struct chex_source *set = s->sources.set;
    const struct item *held = &images->first_held, *trained = &images->first_trained;
    if (patients->held)
        snprintf(warning, size,
                 "--data: %zu validation or test image%s of patients whose ids training images of "
                 "another set have too (the first: %s and %s); if these are the same people, the "
                 "AUROC is too high",
                 patients->held, patients->held == 1 ? " is" : "s are",
                 set[patients->first_held.source].name, set[patients->first_trained.source].name);
    if (!images->held)
        return CHEX_OK;
    char held_name[64], trained_name[64];
    name_image(s, held, held_name);
    name_image(s, trained, trained_name);
    return chex_error_data(err,
                           "--data: %zu validation or test image%s a training image of another set "
                           "(the first: %s of %s, split %s, is %s of %s): make one of the sets "
                           "again without them, or train on one with --where source=%s",
                           images->held, images->held == 1 ? " is" : "s are each", held_name,
                           set[held->source].name, chex_split_names[held->split], trained_name,
                           set[trained->source].name, set[trained->source].name);
}

enum chex_status chex_selection_check_overlap(const struct chex_selection *s,
                                              void (*opened)(void *arg), void *arg, char *warning,
                                              size_t size, struct chex_error *err) {
    warning[0] = '\0';
    if (s->sources.count < 2)
        return CHEX_OK;
    const size_t rows = count_rows(s);
    CHEX_AUTO(release)
    struct items list = {chex_alloc_zeroed(rows, sizeof *list.image),
                         chex_alloc_zeroed(rows, sizeof *list.patient), 0};
    if (!list.image || !list.patient)
        return chex_error_memory(err, "the checksums of %zu images", rows);
    for (int i = 0; i < s->sources.count; i++)
        for (int k = 0; s->source[i].admitted && k < CHEX_SPLIT_COUNT; k++)
            if (s->source[i].manifest->splits[k].rows)
                CHEX_TRY(add_split(s, i, k, opened, arg, &list, err));
    const struct overlap images = find_overlap(list.image, list.count);
    const struct overlap patients = find_overlap(list.patient, list.count);
    return judge(s, &images, &patients, warning, size, err);
}
