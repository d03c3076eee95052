/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard create: makes a set of shards from images and a label file.
 */
#include "shard_commands.h"
#include "shard_make.h"

#include "ingest/create.h"

struct create_settings {
    struct chex_opt_common common;
    struct chex_create_options create;
    const char *fractions, *views;
    int format;
};

#define AT(field) offsetof(struct create_settings, field)
static const struct chex_opt create_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Input"),
    OPTION("images", STRING, AT(create.images), .metavar = "DIR", .required = true,
           .help = "folder of the images; folders, .tar, .tar.gz and .tgz in it are searched too"),
    OPTION("labels", STRING, AT(create.labels), .metavar = "FILE", .required = true,
           .help = "label file, plain or .gz"),
    OPTION("format", CHOICE, AT(format), .def = "auto", .metavar = "FORMAT",
           .choices = chex_label_format_names, .help = "format of the label file"),
    OPTION(
        "columns", STRING, AT(create.columns), .metavar = "ROLE=NAME,...",
        .help =
            "which column of a CSV file is image, patient, study, view, age, sex, split, findings "
            "(names with | between) and labels (A:B:C, columns of 1, 0, -1 or nothing)"),
    OPTION("views", STRING, AT(views), .metavar = "PA,AP",
           .help = "keep only images of these views"),
    SHARD_UNCERTAIN_ROW(AT(create)),
    OPTION("not-stated", CHOICE, AT(create.not_stated), .def = "keep", .metavar = "POLICY",
           .choices = chex_not_stated_names,
           .help = "what becomes of labels that the file leaves open"),
    SHARD_MAX_BAD_ROW(AT(create), "missing or broken"),
    OPTION_GROUP("Splits"),
    SHARD_SPLIT_ROWS(AT(create), AT(fractions), "official",
                     "lists, or what the label file itself states", "labels"),
    OPTION_GROUP("Output"),
    SHARD_OUTPUT_ROW(AT(create)),
    SHARD_SIZE_ROW(AT(create)),
    SHARD_RUN_ROWS(AT(create)),
};
#undef AT

static enum chex_status run_create(struct chex_opt_set *set, void *settings,
                                   struct chex_error *err) {
    const struct create_settings *s = settings;
    struct chex_create_options o = s->create;
    (void)set;
    CHEX_TRY(shard_complete(&o, s->fractions, err));
    o.format = chex_label_format_names[s->format];
    if (s->views)
        CHEX_TRY(chex_labels_parse_views(s->views, &o.views, err));
    return shard_make("create", chex_create, &o, s->common.json, err);
}

const struct chex_opt_program shard_create_program = {
    .name = "chex-shard",
    .summary = "make shards from chest X-ray images and their labels",
    .usage = "chex-shard [create] --images DIR --labels FILE --output DIR [options]\n"
             "chex-shard info DIR|FILE [--json]\n"
             "chex-shard verify DIR|FILE [--labels FILE]\n"
             "chex-shard audit A B [--labels FILE]\n"
             "chex-shard audit SET [SET...] --near BITS\n"
             "chex-shard reshard IN --output DIR --shards N\n"
             "chex-shard relabel SET --labels FILE --output DIR [options]\n"
             "chex-shard import-tfrecord FILE... --output DIR [options]\n"
             "chex-shard phantom --count N --output DIR [--size PX] [--seed N]\n"
             "chex-shard SUBCOMMAND --help",
    .opts = create_opts,
    .count = COUNT(create_opts),
    .epilog =
        "Examples\n"
        "  chex-shard --images images/ --labels Data_Entry_2017.csv --output shards/\n"
        "  chex-shard --images images/ --labels labels.csv --split patient --size 64 \\\n"
        "             --shards 4 --output shards/\n"
        "  srun -n 8 chex-shard --images images/ --labels Data_Entry_2017.csv --output shards/\n"
        "  chex-shard verify shards/\n"
        "  chex-shard audit train_val_list.txt test_list.txt\n\n" SHARD_EXIT_STATUS,
    .settings_size = sizeof(struct create_settings),
    .run = run_create,
    .listed = "label file and images to a set of shards (the default)",
    .subcommands = shard_subcommands,
    .word = "create",
};
