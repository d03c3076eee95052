/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard create: turns a label file and a folder of images into a set of shards.
 *
 * - The set is byte-identical for every number of workers and ranks.
 * - Shards get their final names only after all of them are finished. The manifest is written last;
 *   an output folder with a manifest and no partial folder is a complete set.
 */
#ifndef CHEX_INGEST_CREATE_H
#define CHEX_INGEST_CREATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "label/labels.h"
#include "label/split.h"
#include "launch/group.h"
#include "shard/shard.h"

enum chex_split_mode { CHEX_SPLIT_OFFICIAL, CHEX_SPLIT_PATIENT, CHEX_SPLIT_NONE };
extern const char *const chex_split_mode_names[]; /* "official", "patient", "none", NULL */

/* Folder below the output that holds the lock and the finished shards until the run publishes. */
#define CHEX_CREATE_PARTIAL ".chex-shard-partial"

/* chex-shard parses its options straight into this. */
struct chex_create_options {
    const char *images, *labels, *output;
    const char *set;              /* chex_reshard, chex_relabel: the folder of the images' set */
    const char *format, *columns; /* chex_labels_load */
    const char *train_list, *val_list, *test_list; /* NULL: chex_split_official's defaults */
    const char *tool_version;
    /* TFRecord files that replace labels and images, and the order of their labels (tfrecord.h).
     * If set, `labels` and `images` hold the first path and are used in messages only. */
    const char *const *records; /* (record_count) or NULL */
    size_t record_count;
    const char *label_order;
    struct chex_fractions fractions;
    enum chex_split_mode split_mode;
    enum chex_shared_patients shared_patients;
    enum chex_uncertain uncertain;
    enum chex_not_stated not_stated;
    unsigned views; /* bit mask of enum chex_view; 0 keeps all */
    int64_t size, workers;
    size_t shards; /* per split; 0 in chex_reshard: as many as the set has */
    size_t max_bad;
    uint64_t seed;
    bool force;  /* replace an existing set */
    bool resume; /* reuse the shards of an interrupted run; after a failure, keep the new ones */
};

struct chex_create_result {
    size_t rows[CHEX_SPLIT_COUNT], shards[CHEX_SPLIT_COUNT];
    size_t kept;      /* shards reused from an interrupted run, sum over all ranks */
    size_t kept_rows; /* images in these shards */
    size_t rejected;
    bool done; /* --resume found the complete set and did nothing */
    double seconds;
};

/* Makes the set. Collective: every rank calls it with the same options (`workers` may differ).
 * All ranks return the same status and text (chex_group_agree).
 * - CHEX_E_USAGE: the output already holds a set, an interrupted run or other files. If `resume` is
 *   set and the output is the set of these options, the call succeeds with `done` set.
 * - CHEX_E_DATA: the label file is faulty; or more than max_bad images are missing or broken
 *   (OUTPUT.rejected.csv lists them); or a rank reads other labels or images than rank 0.
 * - CHEX_E_ENV: another run works in the output, or the output cannot be written.
 * - CHEX_E_RESOURCE: not enough free space. */
enum chex_status chex_create(const struct chex_create_options *options, struct chex_group *group,
                             struct chex_create_result *result_out, struct chex_error *err);

#endif
