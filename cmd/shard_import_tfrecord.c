/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard import-tfrecord: Dell's TFRecord files to a set of shards.
 */
#include "shard_commands.h"

#include <stdlib.h>

#include "data/create.h"
#include "data/shard_write.h"

struct import_settings {
    struct chex_opt_common common;
    const char *output, *label_order, *train_list, *val_list, *test_list, *fractions;
    int64_t size, shards, max_bad, workers, seed;
    int split, uncertain;
    bool force, resume;
};

#define AT(field) offsetof(struct import_settings, field)
static const struct chex_opt import_opts[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Input"},
    {"label-order", 0, CHEX_OPT_STRING, AT(label_order), "dell", "ORDER",
     "order of the records' labels: dell, chexnet or the 14 names with commas"},
    {"uncertain", 0, CHEX_OPT_CHOICE, AT(uncertain), "keep", "POLICY",
     "what becomes of uncertain labels", chex_uncertain_names},
    {"max-bad", 0, CHEX_OPT_INT, AT(max_bad), "0", "N", "leave out up to N images that are broken",
     .min = 0, .max = 1e9},
    {.type = CHEX_OPT_GROUP, .help = "Splits"},
    {"split", 0, CHEX_OPT_CHOICE, AT(split), "patient", "HOW",
     "official lists, at random by patient, or none", chex_split_mode_names},
    {"train-list", 0, CHEX_OPT_STRING, AT(train_list), NULL, "FILE",
     "names of the training images, instead of train_val_list.txt beside the records"},
    {"val-list", 0, CHEX_OPT_STRING, AT(val_list), NULL, "FILE",
     "names of the validation images, instead of patients cut from the training list"},
    {"test-list", 0, CHEX_OPT_STRING, AT(test_list), NULL, "FILE",
     "names of the test images, instead of test_list.txt beside the records"},
    {"fractions", 0, CHEX_OPT_STRING, AT(fractions), "0.7,0.1,0.2", "T,V,E",
     "shares of train, val and test"},
    SHARD_SEED(struct import_settings, "seed of the split and of the order of rows"),
    {.type = CHEX_OPT_GROUP, .help = "Output"},
    {"output", 'o', CHEX_OPT_STRING, AT(output), NULL, "DIR", "folder of the new set",
     .required = true},
    {"size", 0, CHEX_OPT_INT, AT(size), "256", "PX", "side of the stored images", .min = 16,
     .max = CHEX_SHARD_MAX_SIZE_PX},
    {"shards", 0, CHEX_OPT_INT, AT(shards), "16", "N", "shards a split", .min = 1, .max = 99999},
    {"force", 0, CHEX_OPT_FLAG, AT(force),
     .help = "replace the set in DIR once the new one is complete"},
    {"resume", 0, CHEX_OPT_FLAG, AT(resume),
     .help = "keep finished shards of an interrupted run, and of this one should it fail"},
    SHARD_WORKERS(struct import_settings),
};
#undef AT

static const struct chex_opt_program import_program = {
    .name = "chex-shard import-tfrecord",
    .summary = "TFRecord files with image/encoded, image/filename and image/label to shards",
    .usage = "chex-shard import-tfrecord FILE... --output DIR [options]",
    .opts = import_opts,
    .count = COUNT(import_opts),
    .epilog = "The records do not name their labels: --label-order does. Patients are taken from "
              "the file names.\n\nExamples\n"
              "  chex-shard import-tfrecord tf_records/train-* --output shards/\n"
              "  chex-shard import-tfrecord own.tfrecord --label-order chexnet --split none \\\n"
              "             --output shards/\n\n" SHARD_EXIT_STATUS};

static enum chex_status run_import(const struct chex_opt_set *set, const void *settings,
                                   struct chex_error *err) {
    const struct import_settings *s = settings;
    size_t count = (size_t)chex_opt_word_count(set);
    struct chex_create_options o = {.output = s->output,
                                    .label_order = s->label_order,
                                    .record_count = count,
                                    .train_list = s->train_list,
                                    .val_list = s->val_list,
                                    .test_list = s->test_list,
                                    .split_mode = (enum chex_split_mode)s->split,
                                    .uncertain = (enum chex_uncertain)s->uncertain,
                                    .size = (int)s->size,
                                    .workers = shard_threads(s->workers),
                                    .shards = (size_t)s->shards,
                                    .max_bad = (size_t)s->max_bad,
                                    .seed = (uint64_t)s->seed,
                                    .force = s->force,
                                    .resume = s->resume};
    if (!count)
        return chex_error_set(err, CHEX_E_USAGE,
                              "chex-shard import-tfrecord takes one or more TFRecord files; try "
                              "'chex-shard import-tfrecord --help'");
    const char **paths = calloc(count, sizeof *paths);
    if (!paths)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory at the start");
    for (size_t i = 0; i < count; i++)
        paths[i] = chex_opt_word(set, i);
    o.records = paths;
    o.images = o.labels = paths[0];
    enum chex_status st = shard_run_create(&o, s->fractions, s->common.json, err);
    free(paths);
    return st;
}

const struct shard_command shard_command_import_tfrecord = {
    "import-tfrecord", &import_program, sizeof(struct import_settings), run_import};
