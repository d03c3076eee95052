/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard import-tfrecord: makes a set of shards from Dell's TFRecord files.
 */
#include "shard_commands.h"
#include "shard_make.h"

#include "base/alloc.h"

struct import_settings {
    struct chex_opt_common common;
    struct chex_create_options create;
    const char *fractions;
};

#define AT(field) offsetof(struct import_settings, field)
static const struct chex_opt import_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Input"),
    OPTION("label-order", STRING, AT(create.label_order), .def = "dell", .metavar = "ORDER",
           .help = "order of the records' labels: dell, chexnet or the 14 names with commas"),
    SHARD_UNCERTAIN_ROW(AT(create)),
    SHARD_MAX_BAD_ROW(AT(create), "broken"),
    OPTION_GROUP("Splits"),
    SHARD_SPLIT_ROWS(AT(create), AT(fractions), "patient", "lists", "records"),
    OPTION_GROUP("Output"),
    SHARD_OUTPUT_ROW(AT(create)),
    SHARD_SIZE_ROW(AT(create)),
    SHARD_RUN_ROWS(AT(create)),
};
#undef AT

static enum chex_status run_import(struct chex_opt_set *set, void *settings,
                                   struct chex_error *err) {
    const struct import_settings *s = settings;
    size_t count = (size_t)chex_opt_word_count(set);
    struct chex_create_options o = s->create;
    CHEX_TRY(shard_complete(&o, s->fractions, err));
    CHEX_AUTO_FREE const char **paths = calloc(count, sizeof *paths);
    CHEX_ALLOCATED(paths, err, NULL);
    for (size_t i = 0; i < count; i++)
        paths[i] = chex_opt_word(set, i);
    o.records = paths;
    o.record_count = count;
    o.images = o.labels = paths[0];
    return shard_make("import-tfrecord", chex_create, &o, s->common.json, err);
}

const struct chex_opt_program shard_import_program = {
    .name = "chex-shard import-tfrecord",
    .summary = "TFRecord files with image/encoded, image/filename and image/label to shards",
    .usage = "chex-shard import-tfrecord FILE... --output DIR [options]",
    .opts = import_opts,
    .count = COUNT(import_opts),
    .epilog = "The records do not name their labels: --label-order does. Patients are taken from "
              "the file names.\n\nExamples\n"
              "  chex-shard import-tfrecord tf_records/train-* --output shards/\n"
              "  chex-shard import-tfrecord own.tfrecord --label-order chexnet --split none \\\n"
              "             --output shards/\n\n" SHARD_EXIT_STATUS,
    .words = "one or more TFRecord files",
    .min_words = 1,
    .max_words = SIZE_MAX,
    .settings_size = sizeof(struct import_settings),
    .run = run_import,
    .listed = "TFRecord files to a set of shards",
    .word = "import-tfrecord",
};
