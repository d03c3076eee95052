/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard create: label file and images to a set of shards.
 */
#include "shard_commands.h"
#include "shard_make.h"

#include "data/create.h"
#include "data/shard_write.h"

struct create_settings {
    struct chex_opt_common common;
    const char *images, *labels, *columns, *output, *train_list, *val_list, *test_list, *fractions,
        *views;
    int64_t size, shards, max_bad, workers, seed;
    int format, split, shared_patients, uncertain, not_stated;
    bool force, resume;
};

#define AT(field) offsetof(struct create_settings, field)
static const struct chex_opt create_opts[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Input"},
    {"images", 0, CHEX_OPT_STRING, AT(images), NULL, "DIR",
     "folder of the images; folders in it are searched too", .required = true},
    {"labels", 0, CHEX_OPT_STRING, AT(labels), NULL, "FILE", "label file", .required = true},
    {"format", 0, CHEX_OPT_CHOICE, AT(format), "auto", "FORMAT", "format of the label file",
     chex_label_format_names},
    {"columns", 0, CHEX_OPT_STRING, AT(columns), NULL, "ROLE=NAME,...",
     "which column of a CSV file is image, patient, view, age, sex, split, findings (names with | "
     "between) and labels (A:B:C, columns of 1, 0, -1 or nothing)"},
    {"views", 0, CHEX_OPT_STRING, AT(views), NULL, "PA,AP", "keep only images of these views"},
    {"uncertain", 0, CHEX_OPT_CHOICE, AT(uncertain), "keep", "POLICY",
     "what becomes of uncertain labels", chex_uncertain_names},
    {"not-stated", 0, CHEX_OPT_CHOICE, AT(not_stated), "keep", "POLICY",
     "what becomes of labels that the file leaves open", chex_not_stated_names},
    {"max-bad", 0, CHEX_OPT_INT, AT(max_bad), "0", "N",
     "leave out up to N images that are missing or broken", .min = 0, .max = 1e9},
    {.type = CHEX_OPT_GROUP, .help = "Splits"},
    {"split", 0, CHEX_OPT_CHOICE, AT(split), "official", "HOW",
     "official (lists, or what the label file itself states), at random by patient, or none",
     chex_split_mode_names},
    {"shared-patients", 0, CHEX_OPT_CHOICE, AT(shared_patients), "refuse", "POLICY",
     "what becomes of patients on two sides of an official split; drop leaves out their images of "
     "train before val before test",
     chex_shared_patients_names},
    {"train-list", 0, CHEX_OPT_STRING, AT(train_list), NULL, "FILE",
     "names of the training images, instead of train_val_list.txt beside the labels"},
    {"val-list", 0, CHEX_OPT_STRING, AT(val_list), NULL, "FILE",
     "names of the validation images, instead of patients cut from the training list"},
    {"test-list", 0, CHEX_OPT_STRING, AT(test_list), NULL, "FILE",
     "names of the test images, instead of test_list.txt beside the labels"},
    {"fractions", 0, CHEX_OPT_STRING, AT(fractions), "0.7,0.1,0.2", "T,V,E",
     "shares of train, val and test"},
    SHARD_SEED(struct create_settings, "seed of the split and of the order of rows"),
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
    SHARD_WORKERS(struct create_settings),
};
#undef AT

static const struct chex_opt_program create_program = {
    .name = "chex-shard",
    .summary = "make shards from chest X-ray images and their labels",
    .usage = "chex-shard [create] --images DIR --labels FILE --output DIR [options]\n"
             "chex-shard info DIR|FILE [--json]\n"
             "chex-shard verify DIR|FILE\n"
             "chex-shard audit A B [--labels FILE]\n"
             "chex-shard reshard IN --output DIR --shards N\n"
             "chex-shard phantom --count N --output DIR [--size PX] [--seed N]\n"
             "chex-shard SUBCOMMAND --help",
    .opts = create_opts,
    .count = COUNT(create_opts),
    .epilog =
        "Subcommands\n"
        "  create    label file and images to a set of shards (the default)\n"
        "  info      what a set or a shard holds\n"
        "  verify    read everything and compare checksums, counts and patients\n"
        "  audit     patients that two sources share\n"
        "  reshard   the same rows in another number of shards, without the images\n"
        "  phantom   synthetic images with planted findings, and their labels\n\n"
        "Examples\n"
        "  chex-shard --images images/ --labels Data_Entry_2017.csv --output shards/\n"
        "  chex-shard --images images/ --labels labels.csv --split patient --size 64 \\\n"
        "             --shards 4 --output shards/\n"
        "  srun -n 8 chex-shard --images images/ --labels Data_Entry_2017.csv --output shards/\n"
        "  chex-shard verify shards/\n"
        "  chex-shard audit train_val_list.txt test_list.txt\n\n" SHARD_EXIT_STATUS};

static enum chex_status create_options(const struct create_settings *s,
                                       struct chex_create_options *o, struct chex_error *err) {
    *o = (struct chex_create_options){.images = s->images,
                                      .labels = s->labels,
                                      .output = s->output,
                                      .format = chex_label_format_names[s->format],
                                      .columns = s->columns,
                                      .train_list = s->train_list,
                                      .val_list = s->val_list,
                                      .test_list = s->test_list,
                                      .tool_version = "chexnet " CHEXNET_VERSION,
                                      .split_mode = (enum chex_split_mode)s->split,
                                      .shared_patients =
                                          (enum chex_shared_patients)s->shared_patients,
                                      .not_stated = (enum chex_not_stated)s->not_stated,
                                      .uncertain = (enum chex_uncertain)s->uncertain,
                                      .size = (int)s->size,
                                      .workers = shard_threads(s->workers),
                                      .shards = (size_t)s->shards,
                                      .max_bad = (size_t)s->max_bad,
                                      .seed = (uint64_t)s->seed,
                                      .force = s->force,
                                      .resume = s->resume};
    if (s->split != CHEX_SPLIT_OFFICIAL && (s->train_list || s->val_list || s->test_list))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--train-list, --val-list and --test-list need "
                              "--split official");
    if (s->views)
        CHEX_TRY(chex_labels_parse_views(s->views, &o->views, err));
    return chex_split_parse_fractions(s->fractions, &o->fractions, err);
}

static enum chex_status create(const void *options, const struct chex_create_ranks *ranks,
                               struct chex_create_result *result_out, struct chex_error *err) {
    return chex_create(options, ranks, result_out, err);
}

static enum chex_status run_create(const struct chex_opt_set *set, const void *settings,
                                   struct chex_error *err) {
    const struct create_settings *s = settings;
    struct chex_create_options o;
    if (chex_opt_word_count(set))
        return chex_error_set(err, CHEX_E_USAGE, "unexpected word '%s'; try 'chex-shard --help'",
                              chex_opt_word(set, 0));
    CHEX_TRY(create_options(s, &o, err));
    return shard_make("create", create, &o, o.output, o.shards, s->common.json, err);
}

const struct shard_command shard_command_create = {"create", &create_program,
                                                   sizeof(struct create_settings), run_create};
