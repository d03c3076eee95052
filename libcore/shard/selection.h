/* SPDX-License-Identifier: Apache-2.0
 *
 * What a training run reads of its sets: which sets, rows and findings, and with which labels.
 *
 * Problem: a hospital has several sets, wants some of their findings, or only some images, or
 * treats uncertain labels in another way. Making new shards for each of these costs hours and disk
 * space, although no pixel changes.
 *
 * Idea: a selection is a table in memory between the shards and all their readers. It numbers the
 * chosen rows of all sets from 0 on, as one set. chex_selection_open() returns a struct chex_set,
 * so the sample order, pipelines, caches, validation and checkpoints work unchanged. Without
 * options it returns the set itself: no table, no cost, the same bits.
 *
 * Several sets: a row number belongs to a piece of PIECE_ROWS neighbouring rows of one set. The
 * pieces are ordered by their relative position in their set. So any range of rows has nearly the
 * same share of each set, and each logical rank gets a mixture with --order local too.
 *
 * Weights: a row that an epoch uses w times has w row numbers, each with its own place in the order
 * and its own augmentation. So nothing else knows of weights.
 *
 * Findings are matched by name. A finding that a set does not have is not stated there (-2).
 * NAME=A|B is a new finding, the union of others: positive if one is; else uncertain if one is;
 * else not stated if one is not; else negative.
 *
 * Folds (shard/folds.h): splits train and val of one set, or split all, are divided by patient.
 * Fold `number` is validation, the others are training. `where` chooses rows after the division.
 */
#ifndef CHEX_SHARD_SELECTION_H
#define CHEX_SHARD_SELECTION_H

#include "label/uncertain_policy.h"
#include "launch/group.h"
#include "shard/folds.h"
#include "shard/manifest.h"
#include "shard/shard.h"
#include "shard/sources.h"
#include "shard/where.h"

/* Training reads split train, or split all if the set was not split. Validation reads val. An
 * evaluation has only rows of the part VAL. */
enum chex_part { CHEX_PART_TRAIN, CHEX_PART_VAL, CHEX_PART_COUNT };

/* The options as typed; NULL or "": not given. */
struct chex_selection_config {
    const char *data;      /* shard/sources.h */
    const char *findings;  /* names and unions with commas between them; without: all, in the order
                              of the first set, then of later ones. An evaluation adds the unions */
    const char *uncertain; /* label/uncertain_policy.h */
    const char *where;     /* shard/where.h */
    const char *weights;   /* for each set, how often an epoch uses each of its training rows: whole
                              numbers with commas between them; without: once */
    struct chex_fold fold;
    const struct chex_splits *evaluated; /* by an evaluation without `fold`; NULL: training */
};

/* One set. */
struct chex_selection_source {
    struct chex_manifest *manifest;
    bool admitted; /* by the conditions on sources */
    int *class_at; /* (classes of the selection, parts) the class of this set; -1: it has none; -2:
                      no more parts */
    struct chex_splits splits[CHEX_PART_COUNT];
    size_t rows[CHEX_PART_COUNT], kept[CHEX_PART_COUNT]; /* in the splits; chosen */
    const uint8_t *keep[CHEX_PART_COUNT];                /* (rows) 1: chosen; NULL: all */
    size_t uses[CHEX_PART_COUNT]; /* of each chosen row in an epoch; each use has a row number */
};

/* The chosen rows of a part, as pieces of shards. */
struct chex_row_map {
    size_t pieces;
    size_t *first;      /* (pieces + 1) first row of each piece */
    int *source;        /* (pieces) */
    size_t *shard;      /* (pieces) number of its shard in the split of the source */
    uint32_t *in_shard; /* (rows) number of the row in its shard */
};

/* Read-only for others. */
struct chex_selection {
    struct chex_sources sources;
    struct chex_selection_source *source; /* (sources.count) */
    int size;                             /* side of the stored images, px */
    int classes;
    char **class_names;
    char **unions;                          /* (CHEX_MAX_CLASSES) "A|B"; NULL: the class itself */
    int parts;                              /* of the longest union; at least 1 */
    char *source_digest;                    /* of the set; of several: a hash of their digests */
    struct chex_uncertain_policy *policies; /* (classes) */
    float *uncertain_target;       /* (classes) for struct chex_loss; NULL: every uncertain label is
                                      masked */
    size_t total[CHEX_PART_COUNT]; /* rows of all sets */
    size_t rows[CHEX_PART_COUNT];  /* chosen rows by their uses; valid after
                                      chex_selection_choose() */

    struct chex_fold fold;
    struct chex_fold_facts fold_facts; /* on rank 0 */
    bool evaluation;
    struct chex_splits val; /* rows of the part VAL without folds */
    struct chex_where *where;
    bool own_labels; /* labels differ from those of the shards */
    bool mapped;     /* rows are not those of one set */
    uint8_t *keep;   /* `keep` of all sources */
    struct chex_row_map map[CHEX_PART_COUNT];
};

/* Reads the manifests and resolves the options. Opens no shard. The caller destroys *out.
 * - CHEX_E_USAGE: an option that is not valid, or names a set or finding that is not there.
 * - CHEX_E_DATA: no manifest; nothing to train on; sets of different image size or resize; a set
 *   given twice. */
enum chex_status chex_selection_create(const struct chex_selection_config *config,
                                       struct chex_selection **out, struct chex_error *err);
void chex_selection_destroy(struct chex_selection *s); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_selection, chex_selection_destroy)

/* Ranks that choose rows together. */
struct chex_selection_ranks {
    struct chex_group *group;
    void (*opened)(void *arg); /* after each shard, for a watchdog */
    void (*waits)(void *arg);  /* before waiting for other ranks */
    void *arg;
};

/* Chooses the rows. Conditions on rows, and folds, need what the shards state: each rank opens its
 * share of the shards once, and all ranks get the result. Without them no shard is opened.
 * - CHEX_E_DATA: no row is left to train on, or to evaluate; fewer patients than folds; a shard
 *   cannot be read. All ranks return the same.
 * Collective. */
enum chex_status chex_selection_choose(struct chex_selection *s,
                                       const struct chex_selection_ranks *ranks,
                                       struct chex_error *err);

/* The rows [*first_out, *end_out) of source `source`, in its splits, that contain the rows [from,
 * to) of the part. Equal: none. */
void chex_selection_span(const struct chex_selection *s, enum chex_part part, int source,
                         size_t from, size_t to, size_t *first_out, size_t *end_out);

/* Opens the shards with rows [from, to) of the part, as chex_set_open_splits(). The set borrows
 * from the selection.
 * - dirs (sources.count): folders to read instead of those of --data; NULL: these. */
enum chex_status chex_selection_open(const struct chex_selection *s, enum chex_part part,
                                     size_t from, size_t to, const char *const *dirs,
                                     void (*opened)(void *arg), void *arg,
                                     struct chex_set **set_out, struct chex_error *err);

/* The images that are chosen, each counted once. */
size_t chex_selection_images(const struct chex_selection *s, enum chex_part part);

/* The source of a row of the part. */
int chex_selection_source_of(const struct chex_selection *s, enum chex_part part, size_t row);

#endif
