/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard create: label file and images to a set of shards.
 */
#include "shard_commands.h"

#include "base/log.h"
#include "base/units.h"
#include "data/create.h"
#include "data/shard_write.h"
#include "launch/launch.h"

/* The other ranks may be this much slower with their shards before they count as lost. */
static const uint64_t wait_ms = 12 * 3600 * 1000;

struct create_settings {
    struct chex_opt_common common;
    const char *images, *labels, *output, *train_list, *val_list, *test_list, *fractions, *views;
    int64_t size, shards, max_bad, workers, seed;
    int format, split, uncertain;
    bool force, resume;
};

static const char *const formats[] = {"auto", "nih", "list", NULL};

#define AT(field) offsetof(struct create_settings, field)
static const struct chex_opt create_opts[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Input"},
    {"images", 0, CHEX_OPT_STRING, AT(images), NULL, "DIR",
     "folder of the images; folders, .tar, .tar.gz and .tgz in it are searched too",
     .required = true},
    {"labels", 0, CHEX_OPT_STRING, AT(labels), NULL, "FILE", "label file", .required = true},
    {"format", 0, CHEX_OPT_CHOICE, AT(format), "auto", "FORMAT", "format of the label file",
     formats},
    {"views", 0, CHEX_OPT_STRING, AT(views), NULL, "PA,AP", "keep only images of these views"},
    {"uncertain", 0, CHEX_OPT_CHOICE, AT(uncertain), "keep", "POLICY",
     "what becomes of uncertain labels", chex_uncertain_names},
    {"max-bad", 0, CHEX_OPT_INT, AT(max_bad), "0", "N",
     "leave out up to N images that are missing or broken", .min = 0, .max = 1e9},
    {.type = CHEX_OPT_GROUP, .help = "Splits"},
    {"split", 0, CHEX_OPT_CHOICE, AT(split), "official", "HOW",
     "official lists, at random by patient, or none", chex_split_mode_names},
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
             "chex-shard audit A B\n"
             "chex-shard import-tfrecord FILE... --output DIR [options]\n"
             "chex-shard phantom --count N --output DIR [--size PX] [--seed N]\n"
             "chex-shard SUBCOMMAND --help",
    .opts = create_opts,
    .count = COUNT(create_opts),
    .epilog =
        "Subcommands\n"
        "  create           label file and images to a set of shards (the default)\n"
        "  info             what a set or a shard holds\n"
        "  verify           read everything and compare checksums, counts and patients\n"
        "  audit            patients that two sources share\n"
        "  import-tfrecord  TFRecord files to a set of shards\n"
        "  phantom          synthetic images with planted findings, and their labels\n\n"
        "Examples\n"
        "  chex-shard --images images/ --labels Data_Entry_2017.csv --output shards/\n"
        "  chex-shard --images images/ --labels labels.csv --split patient --size 64 \\\n"
        "             --shards 4 --output shards/\n"
        "  srun -n 8 chex-shard --images images/ --labels Data_Entry_2017.csv --output shards/\n"
        "  chex-shard verify shards/\n"
        "  chex-shard audit train_val_list.txt test_list.txt\n\n" SHARD_EXIT_STATUS};

static enum chex_status exchange(void *arg, const char *key, const void *mine, size_t bytes,
                                 void *all_out, struct chex_error *err) {
    return chex_launch_exchange(arg, key, mine, bytes, all_out, wait_ms, err);
}

static enum chex_status create_options(const struct create_settings *s,
                                       struct chex_create_options *o, struct chex_error *err) {
    *o = (struct chex_create_options){.images = s->images,
                                      .labels = s->labels,
                                      .output = s->output,
                                      .format = formats[s->format],
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
    if (s->views)
        CHEX_TRY(chex_labels_parse_views(s->views, &o->views, err));
    return CHEX_OK;
}

static json_t *result_json(const struct chex_create_options *o,
                           const struct chex_create_result *r) {
    json_t *splits = json_object();
    size_t rows = 0;
    for (int i = 0; i < CHEX_SPLIT_COUNT; i++) {
        rows += r->rows[i];
        if (r->shards[i])
            json_object_set_new(splits, chex_split_names[i],
                                json_pack("{s:I, s:I}", "rows", (json_int_t)r->rows[i], "shards",
                                          (json_int_t)r->shards[i]));
    }
    return json_pack("{s:s, s:i, s:s, s:o, s:I, s:I, s:f, s:f}", "schema", "chexnet-shard-create",
                     "version", 1, "output", o->output, "splits", splits, "rejected",
                     (json_int_t)r->rejected, "shards_kept", (json_int_t)r->kept, "seconds",
                     r->seconds, "images_per_s", r->seconds > 0 ? (double)rows / r->seconds : 0.0);
}

static void say_result(const struct chex_create_options *o, const struct chex_create_result *r) {
    size_t rows = 0;
    for (int i = 0; i < CHEX_SPLIT_COUNT; i++) {
        rows += r->rows[i];
        if (r->shards[i])
            printf("%-5s %8zu images in %zu shards\n", chex_split_names[i], r->rows[i],
                   r->shards[i]);
        if (r->shards[i] && r->shards[i] < o->shards)
            chex_warn("split %s has %zu images, too few for %zu shards", chex_split_names[i],
                      r->rows[i], o->shards);
    }
    if (r->rejected)
        printf("%zu images left out: %s/rejected.csv\n", r->rejected, o->output);
    if (r->kept)
        printf("%zu shards kept from the interrupted run\n", r->kept);
    char time[32];
    printf("%s: %zu images in %s, %.0f img/s\n", o->output, rows,
           chex_format_duration(time, sizeof time, r->seconds),
           r->seconds > 0 ? (double)rows / r->seconds : 0.0);
}

/* The only place that knows of a launcher. *said: the error belongs to another rank, or to all, and
 * is printed by rank 0. */
static enum chex_status create_launched(const struct chex_create_options *o,
                                        struct chex_create_result *result, int *rank_out,
                                        struct chex_error *err) {
    struct chex_launch launch;
    CHEX_TRY(chex_launch_init(&launch, err));
    chex_log_set_rank(launch.rank, launch.size, launch.host);
    struct chex_create_ranks ranks = {launch.rank, launch.size, exchange, &launch};
    enum chex_status st = chex_create(o, &ranks, result, err);
    *rank_out = st == CHEX_E_LOST ? 0 : launch.rank;
    if (st == CHEX_E_LOST) {
        chex_err("%s", err->text);
        err->text[0] = '\0';
        chex_launch_abort(&launch, st);
    }
    chex_launch_finish(&launch);
    return st;
}

enum chex_status shard_run_create(struct chex_create_options *o, const char *fractions, bool json,
                                  struct chex_error *err) {
    struct chex_create_result result;
    int rank = 0;
    o->tool_version = "chexnet " CHEXNET_VERSION;
    if (o->split_mode != CHEX_SPLIT_OFFICIAL && (o->train_list || o->val_list || o->test_list))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--train-list, --val-list and --test-list need "
                              "--split official");
    CHEX_TRY(chex_split_parse_fractions(fractions, &o->fractions, err));
    enum chex_status st = create_launched(o, &result, &rank, err);
    if (rank != 0)
        err->text[0] = '\0';
    if (st != CHEX_OK || rank != 0)
        return st;
    if (json)
        return shard_print_json(result_json(o, &result), err);
    say_result(o, &result);
    return CHEX_OK;
}

static enum chex_status run_create(const struct chex_opt_set *set, const void *settings,
                                   struct chex_error *err) {
    const struct create_settings *s = settings;
    struct chex_create_options o;
    if (chex_opt_word_count(set))
        return chex_error_set(err, CHEX_E_USAGE, "unexpected word '%s'; try 'chex-shard --help'",
                              chex_opt_word(set, 0));
    CHEX_TRY(create_options(s, &o, err));
    return shard_run_create(&o, s->fractions, s->common.json, err);
}

const struct shard_command shard_command_create = {"create", &create_program,
                                                   sizeof(struct create_settings), run_create};
