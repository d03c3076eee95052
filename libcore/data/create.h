/* SPDX-License-Identifier: Apache-2.0
 *
 * From a label file and a folder of images to a set of shards: split, plan, decode, resize, write.
 *
 * The set is the same to the byte for any number of workers and ranks. Nothing stands under a final
 * name before everything is done; the manifest comes last.
 */
#ifndef CHEX_DATA_CREATE_H
#define CHEX_DATA_CREATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/labels.h"
#include "data/shard.h"
#include "data/split.h"

enum chex_split_mode { CHEX_SPLIT_OFFICIAL, CHEX_SPLIT_PATIENT, CHEX_SPLIT_NONE };
extern const char *const chex_split_mode_names[]; /* "official", "patient", "none", NULL */

/* The folder below the output in which finished shards wait for the last one. */
#define CHEX_CREATE_PARTIAL ".chex-shard-partial"

struct chex_create_options {
    const char *images, *labels, *output;
    const char *format, *columns;                  /* chex_labels_load */
    const char *train_list, *val_list, *test_list; /* NULL: chex_split_official's defaults */
    const char *tool_version;
    /* Instead of labels and images: TFRecord files and the order of their labels (tfrecord.h).
     * `labels` and `images` then name the first of them, for texts. */
    const char *const *records; /* (record_count) or NULL */
    size_t record_count;
    const char *label_order;
    struct chex_fractions fractions;
    enum chex_split_mode split_mode;
    enum chex_shared_patients shared_patients;
    enum chex_uncertain uncertain;
    enum chex_not_stated not_stated;
    unsigned views; /* bit mask of enum chex_view; 0 keeps all */
    int size, workers;
    size_t shards, max_bad;
    uint64_t seed;
    bool force;  /* replace a set that is there */
    bool resume; /* keep what an interrupted run finished; a failure keeps it too */
};

/* Who makes the set with us. exchange: every rank gives `bytes` bytes, all_out gets size * bytes in
 * rank order; it is a barrier too. May be NULL where size is 1. */
struct chex_create_ranks {
    int rank, size;
    enum chex_status (*exchange)(void *arg, const char *key, const void *mine, size_t bytes,
                                 void *all_out, struct chex_error *err);
    void *arg;
};

struct chex_create_result {
    size_t rows[CHEX_SPLIT_COUNT], shards[CHEX_SPLIT_COUNT];
    size_t kept;      /* shards of an interrupted run, of all ranks */
    size_t kept_rows; /* images in them */
    size_t rejected;
    bool done; /* --resume met the complete set: nothing was to do */
    double seconds;
};

/* Collective: every rank calls it with the same options (workers may differ) and gets the same
 * status; the text on all of them is that of the first rank that failed. CHEX_E_USAGE: the output
 * is there already. CHEX_E_DATA: more than max_bad images that are missing or broken, which
 * OUTPUT.rejected.csv then lists, or faults of the label file. CHEX_E_ENV: another run works in the
 * output. CHEX_E_RESOURCE: no room. With `resume` an output that is this very set is no failure. */
enum chex_status chex_create(const struct chex_create_options *options,
                             const struct chex_create_ranks *ranks,
                             struct chex_create_result *result_out, struct chex_error *err);

#endif
