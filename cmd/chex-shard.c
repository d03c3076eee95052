/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard: label files and images to shards, and what one wants to know of shards.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/opt.h"
#include "base/pool.h"
#include "base/progress.h"
#include "base/units.h"
#include "data/create.h"
#include "data/manifest.h"
#include "data/phantom.h"
#include "data/shard.h"
#include "data/shard_write.h"
#include "data/verify.h"
#include "launch/launch.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* The other ranks may be this much slower with their shards before they count as lost. */
static const uint64_t wait_ms = 12 * 3600 * 1000;

struct create_settings {
    struct chex_opt_common common;
    const char *images, *labels, *output, *train_list, *val_list, *test_list, *fractions, *views;
    int64_t size, shards, max_bad, workers, seed;
    int format, split, uncertain;
    bool force, resume;
};

struct read_settings { /* info, verify, audit */
    struct chex_opt_common common;
    int64_t workers;
};

struct phantom_settings {
    struct chex_opt_common common;
    const char *output;
    int64_t count, size, seed, workers;
};

static const char *const formats[] = {"auto", "nih", "list", NULL};

/* One place for options that several subcommands have. */
#define WORKERS(type)                                                                              \
    {                                                                                              \
        "workers", 'j', CHEX_OPT_INT, offsetof(type, workers), "0", "N",                           \
            "threads; 0 is one for each CPU this process may use", .min = 0, .max = 1024           \
    }
#define SEED(type, what)                                                                           \
    { "seed", 0, CHEX_OPT_INT, offsetof(type, seed), "1", "N", what, .min = 0, .max = 9e15 }

#define AT(field) offsetof(struct create_settings, field)
static const struct chex_opt create_opts[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Input"},
    {"images", 0, CHEX_OPT_STRING, AT(images), NULL, "DIR",
     "folder of the images; folders in it are searched too", .required = true},
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
    SEED(struct create_settings, "seed of the split and of the order of rows"),
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
    WORKERS(struct create_settings),
};
#undef AT

static const struct chex_opt read_opts[] = {
    CHEX_OPT_COMMON, {.type = CHEX_OPT_GROUP, .help = "Work"}, WORKERS(struct read_settings)};
static const struct chex_opt plain_opts[] = {CHEX_OPT_COMMON};

#define AT(field) offsetof(struct phantom_settings, field)
static const struct chex_opt phantom_opts[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Images"},
    {"count", 'n', CHEX_OPT_INT, AT(count), NULL, "N", "how many images", .min = 1, .max = 1e7,
     .required = true},
    {"size", 0, CHEX_OPT_INT, AT(size), "64", "PX", "side of the images",
     .min = CHEX_PHANTOM_MIN_SIZE_PX, .max = CHEX_PHANTOM_MAX_SIZE_PX},
    SEED(struct phantom_settings, "seed: the same one gives the same images"),
    {"output", 'o', CHEX_OPT_STRING, AT(output), NULL, "DIR", "folder for images/ and labels.csv",
     .required = true},
    WORKERS(struct phantom_settings),
};
#undef AT

#define EXIT_STATUS                                                                                \
    "Exit status: 0 done, 1 failure of ours, 2 usage, 3 bad input data, 4 environment,\n"          \
    "7 a rank was lost, 9 out of memory or disk.\n"

static const struct chex_opt_program create_program = {
    .name = "chex-shard",
    .summary = "make shards from chest X-ray images and their labels",
    .usage = "chex-shard [create] --images DIR --labels FILE --output DIR [options]\n"
             "chex-shard info DIR|FILE [--json]\n"
             "chex-shard verify DIR|FILE\n"
             "chex-shard audit A B\n"
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
        "  phantom   synthetic images with planted findings, and their labels\n\n"
        "Examples\n"
        "  chex-shard --images images/ --labels Data_Entry_2017.csv --output shards/\n"
        "  chex-shard --images images/ --labels labels.csv --split patient --size 64 \\\n"
        "             --shards 4 --output shards/\n"
        "  srun -n 8 chex-shard --images images/ --labels Data_Entry_2017.csv --output shards/\n"
        "  chex-shard verify shards/\n"
        "  chex-shard audit train_val_list.txt test_list.txt\n\n" EXIT_STATUS};

static const struct chex_opt_program info_program = {
    .name = "chex-shard info",
    .summary = "what a set or a shard holds",
    .usage = "chex-shard info DIR|FILE [--json]",
    .opts = plain_opts,
    .count = COUNT(plain_opts),
    .epilog = "Examples\n  chex-shard info shards/\n"
              "  chex-shard info shards/val/val-00000-of-00016.h5 --json\n\n" EXIT_STATUS};
static const struct chex_opt_program verify_program = {
    .name = "chex-shard verify",
    .summary = "read everything and compare checksums, counts and patients",
    .usage = "chex-shard verify DIR|FILE [options]",
    .opts = read_opts,
    .count = COUNT(read_opts),
    .epilog = "Examples\n  chex-shard verify shards/\n\n" EXIT_STATUS};
static const struct chex_opt_program audit_program = {
    .name = "chex-shard audit",
    .summary = "patients and images that two sources share; exit status 3 where there are any",
    .usage = "chex-shard audit A B [--json]",
    .opts = plain_opts,
    .count = COUNT(plain_opts),
    .epilog = "A and B are sets, folders of one split, shards, label files or lists of file "
              "names.\n\nExamples\n"
              "  chex-shard audit shards/train shards/test\n"
              "  chex-shard audit train_val_list.txt test_list.txt\n\n" EXIT_STATUS};
static const struct chex_opt_program phantom_program = {
    .name = "chex-shard phantom",
    .summary = "synthetic chest images with planted findings, and their labels",
    .usage = "chex-shard phantom --count N --output DIR [options]",
    .opts = phantom_opts,
    .count = COUNT(phantom_opts),
    .epilog = "Examples\n  chex-shard phantom --count 2000 --size 64 --output phantom/\n"
              "  chex-shard --images phantom/images --labels phantom/labels.csv --size 64 \\\n"
              "             --split patient --output shards/\n\n" EXIT_STATUS};

static int threads_of(int64_t workers) { return workers ? (int)workers : chex_cpu_count(); }

static enum chex_status print_json(json_t *object, struct chex_error *err) {
    char *text = object ? json_dumps(object, JSON_INDENT(1)) : NULL;
    json_decref(object);
    if (!text)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory while writing JSON");
    puts(text);
    free(text);
    return CHEX_OK;
}

/* create */

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
                                      .tool_version = "chexnet " CHEXNET_VERSION,
                                      .split_mode = (enum chex_split_mode)s->split,
                                      .uncertain = (enum chex_uncertain)s->uncertain,
                                      .size = (int)s->size,
                                      .workers = threads_of(s->workers),
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

static enum chex_status run_create(const struct chex_opt_set *set, const void *settings,
                                   struct chex_error *err) {
    const struct create_settings *s = settings;
    struct chex_create_options o;
    struct chex_create_result result;
    int rank = 0;
    if (chex_opt_word_count(set))
        return chex_error_set(err, CHEX_E_USAGE, "unexpected word '%s'; try 'chex-shard --help'",
                              chex_opt_word(set, 0));
    CHEX_TRY(create_options(s, &o, err));
    enum chex_status st = create_launched(&o, &result, &rank, err);
    if (rank != 0)
        err->text[0] = '\0';
    if (st != CHEX_OK || rank != 0)
        return st;
    if (s->common.json)
        return print_json(result_json(&o, &result), err);
    say_result(&o, &result);
    return CHEX_OK;
}

/* info */

static json_t *counts_json(char *const *names, size_t classes, const size_t *counts) {
    json_t *object = json_object();
    for (size_t i = 0; i < classes; i++)
        json_object_set_new(object, names[i], json_integer((json_int_t)counts[i]));
    return object;
}

static void print_set(const char *dir, const struct chex_manifest *m) {
    printf("%s: %d x %d px, %s, by %s\n", dir, m->size, m->size, m->resize, m->tool_version);
    printf("labels %s, uncertain %s, split %s, seed %llu, rejected %zu\nsource %s\n\n",
           m->label_format, m->uncertain, m->split_mode, (unsigned long long)m->seed, m->rejected,
           m->source_digest);
    static const char *const rows[] = {"images", "patients", "shards"};
    printf("%-20s", "");
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (m->splits[s].shard_count)
            printf(" %9s", chex_split_names[s]);
    for (int line = 0; line < 3; line++) {
        printf("\n%-20s", rows[line]);
        for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
            const struct chex_manifest_split *p = &m->splits[s];
            size_t value[] = {p->rows, p->patients, p->shard_count};
            if (p->shard_count)
                printf(" %9zu", value[line]);
        }
    }
    printf("\npositive:");
    for (size_t c = 0; c < m->class_count; c++) {
        printf("\n  %-18s", m->classes[c]);
        for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
            if (m->splits[s].shard_count)
                printf(" %9zu", m->splits[s].positives[c]);
    }
    printf("\n");
}

static json_t *set_json(const struct chex_manifest *m) {
    json_t *splits = json_object(), *classes = json_array();
    for (size_t c = 0; c < m->class_count; c++)
        json_array_append_new(classes, json_string(m->classes[c]));
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        const struct chex_manifest_split *p = &m->splits[s];
        if (p->shard_count)
            json_object_set_new(
                splits, chex_split_names[s],
                json_pack("{s:I, s:I, s:I, s:o, s:o}", "rows", (json_int_t)p->rows, "patients",
                          (json_int_t)p->patients, "shards", (json_int_t)p->shard_count,
                          "positives", counts_json(m->classes, m->class_count, p->positives),
                          "uncertain", counts_json(m->classes, m->class_count, p->uncertain)));
    }
    return json_pack("{s:s, s:i, s:s, s:i, s:s, s:s, s:s, s:I, s:s, s:s, s:I, s:o, s:o}", "schema",
                     "chexnet-shard-info", "version", 1, "kind", "set", "size", m->size, "resize",
                     m->resize, "label_format", m->label_format, "split_mode", m->split_mode,
                     "seed", (json_int_t)m->seed, "source_digest", m->source_digest, "tool_version",
                     m->tool_version, "rejected", (json_int_t)m->rejected, "classes", classes,
                     "splits", splits);
}

static enum chex_status info_set(const char *dir, bool json, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    enum chex_status st = CHEX_OK;
    CHEX_TRY(chex_manifest_read(dir, &m, err));
    if (json)
        st = print_json(set_json(m), err);
    else
        print_set(dir, m);
    chex_manifest_free(m);
    return st;
}

static json_t *shard_json(const struct chex_shard *s, char *const *names, const size_t *positives) {
    char digest[17];
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)chex_shard_digest(s));
    return json_pack("{s:s, s:i, s:s, s:s, s:I, s:i, s:s, s:s, s:s, s:s, s:o}", "schema",
                     "chexnet-shard-info", "version", 1, "kind", "shard", "split",
                     chex_shard_split(s), "rows", (json_int_t)chex_shard_rows(s), "size",
                     chex_shard_size(s), "resize", chex_shard_resize(s), "source_digest",
                     chex_shard_source_digest(s), "tool_version", chex_shard_tool_version(s),
                     "digest", digest, "positives",
                     counts_json(names, (size_t)chex_shard_classes(s), positives));
}

static void print_shard(const struct chex_shard *s, const size_t *positives) {
    printf("%s: %zu images of split %s, %d x %d px, %s, by %s\nsource %s, digest %016llx\n\n"
           "positive:\n",
           chex_shard_path(s), chex_shard_rows(s), chex_shard_split(s), chex_shard_size(s),
           chex_shard_size(s), chex_shard_resize(s), chex_shard_tool_version(s),
           chex_shard_source_digest(s), (unsigned long long)chex_shard_digest(s));
    for (int c = 0; c < chex_shard_classes(s); c++)
        printf("  %-18s %9zu\n", chex_shard_class(s, c), positives[c]);
}

static enum chex_status info_shard(const char *path, bool json, struct chex_error *err) {
    struct chex_shard *s = NULL;
    CHEX_TRY(chex_shard_open(path, &s, err));
    size_t classes = (size_t)chex_shard_classes(s);
    size_t *positives = calloc(classes, sizeof *positives);
    char **names = calloc(classes, sizeof *names);
    enum chex_status st = CHEX_OK;
    if (!positives || !names)
        st = chex_error_set(err, CHEX_E_RESOURCE, "%s: out of memory", path);
    for (size_t c = 0; st == CHEX_OK && c < classes; c++) {
        names[c] = (char *)chex_shard_class(s, (int)c);
        for (size_t i = 0; i < chex_shard_rows(s); i++)
            positives[c] += chex_shard_labels(s, i)[c] == 1;
    }
    if (st == CHEX_OK && json)
        st = print_json(shard_json(s, names, positives), err);
    else if (st == CHEX_OK)
        print_shard(s, positives);
    free(names);
    free(positives);
    chex_shard_close(s);
    return st;
}

static enum chex_status one_word(const struct chex_opt_set *set, const char *name,
                                 struct chex_error *err) {
    if (chex_opt_word_count(set) == 1)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE, "%s takes one folder or file; try '%s --help'", name,
                          name);
}

static enum chex_status run_info(const struct chex_opt_set *set, const void *settings,
                                 struct chex_error *err) {
    const struct chex_opt_common *s = settings;
    CHEX_TRY(one_word(set, "chex-shard info", err));
    const char *path = chex_opt_word(set, 0);
    FILE *f = fopen(path, "rb"); /* a folder opens too, but cannot be read from */
    bool is_file = f && fgetc(f) != EOF;
    if (f)
        fclose(f);
    return is_file ? info_shard(path, s->json, err) : info_set(path, s->json, err);
}

/* verify */

static enum chex_status run_verify(const struct chex_opt_set *set, const void *settings,
                                   struct chex_error *err) {
    const struct read_settings *s = settings;
    struct chex_verify_result r;
    CHEX_TRY(one_word(set, "chex-shard verify", err));
    const char *path = chex_opt_word(set, 0);
    CHEX_TRY(chex_verify(path, threads_of(s->workers), true, &r, err));
    char bytes[32], time[32];
    if (s->common.json)
        return print_json(json_pack("{s:s, s:i, s:b, s:I, s:I, s:I, s:f}", "schema",
                                    "chexnet-shard-verify", "version", 1, "sound", 1, "shards",
                                    (json_int_t)r.shards, "rows", (json_int_t)r.rows, "bytes",
                                    (json_int_t)r.bytes, "seconds", r.seconds),
                          err);
    printf("%s: sound: %zu images in %zu shards, %s in %s\n", path, r.rows, r.shards,
           chex_format_bytes(bytes, sizeof bytes, r.bytes),
           chex_format_duration(time, sizeof time, r.seconds));
    return CHEX_OK;
}

/* audit */

static enum chex_status run_audit(const struct chex_opt_set *set, const void *settings,
                                  struct chex_error *err) {
    const struct chex_opt_common *s = settings;
    struct chex_audit a;
    if (chex_opt_word_count(set) != 2)
        return chex_error_set(err, CHEX_E_USAGE,
                              "chex-shard audit takes two sources; try "
                              "'chex-shard audit --help'");
    CHEX_TRY(chex_audit_paths(chex_opt_word(set, 0), chex_opt_word(set, 1), &a, err));
    if (s->json)
        CHEX_TRY(print_json(
            json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "schema",
                      "chexnet-shard-audit", "version", 1, "images_a", (json_int_t)a.images_a,
                      "images_b", (json_int_t)a.images_b, "patients_a", (json_int_t)a.patients_a,
                      "patients_b", (json_int_t)a.patients_b, "shared_images",
                      (json_int_t)a.shared_images, "shared_patients", (json_int_t)a.shared_patients,
                      "shared_patient_images_a", (json_int_t)a.shared_patient_images_a,
                      "shared_patient_images_b", (json_int_t)a.shared_patient_images_b),
            err));
    else
        printf("%-10s %9s %9s\n%-10s %9zu %9zu\n%-10s %9zu %9zu\n%-10s %9zu %9zu\n", "", "A", "B",
               "images", a.images_a, a.images_b, "patients", a.patients_a, a.patients_b,
               "of shared", a.shared_patient_images_a, a.shared_patient_images_b);
    if (!a.shared_patients && !a.shared_images)
        return CHEX_OK;
    if (!a.shared_patients)
        return chex_error_set(err, CHEX_E_DATA, "%zu images are in both, the first is %s",
                              a.shared_images, a.first_image);
    return chex_error_set(err, CHEX_E_DATA,
                          "%zu patients are in both, the first is %s; %zu images are in both",
                          a.shared_patients, a.first_patient, a.shared_images);
}

/* phantom */

static void phantom_progress(void *arg, uint64_t done) { chex_progress_set(arg, done, NULL); }

static enum chex_status run_phantom(const struct chex_opt_set *set, const void *settings,
                                    struct chex_error *err) {
    const struct phantom_settings *s = settings;
    if (chex_opt_word_count(set))
        return chex_error_set(err, CHEX_E_USAGE,
                              "unexpected word '%s'; try 'chex-shard phantom --help'",
                              chex_opt_word(set, 0));
    struct chex_progress *progress =
        chex_progress_create("drawing", "img", (uint64_t)s->count, true);
    struct chex_phantom_options o = {.dir = s->output,
                                     .count = (uint64_t)s->count,
                                     .size = (int)s->size,
                                     .seed = (uint64_t)s->seed,
                                     .threads = threads_of(s->workers),
                                     .progress = phantom_progress,
                                     .progress_arg = progress};
    enum chex_status st = chex_phantom_write(&o, err);
    chex_progress_destroy(progress, st == CHEX_OK);
    if (st != CHEX_OK)
        return st;
    if (s->common.json)
        return print_json(json_pack("{s:s, s:i, s:s, s:I, s:I, s:I}", "schema",
                                    "chexnet-shard-phantom", "version", 1, "output", s->output,
                                    "count", (json_int_t)s->count, "size", (json_int_t)s->size,
                                    "seed", (json_int_t)s->seed),
                          err);
    printf("%s: %lld images of %lld px in images/, labels in labels.csv\n", s->output,
           (long long)s->count, (long long)s->size);
    return CHEX_OK;
}

/* One line a subcommand; the first is the default. */
union settings {
    struct chex_opt_common common;
    struct create_settings create;
    struct read_settings read;
    struct phantom_settings phantom;
};

static const struct subcommand {
    const char *word;
    const struct chex_opt_program *program;
    size_t settings_size;
    enum chex_status (*run)(const struct chex_opt_set *set, const void *settings,
                            struct chex_error *err);
} subcommands[] = {
    {"create", &create_program, sizeof(struct create_settings), run_create},
    {"info", &info_program, sizeof(struct chex_opt_common), run_info},
    {"verify", &verify_program, sizeof(struct read_settings), run_verify},
    {"audit", &audit_program, sizeof(struct chex_opt_common), run_audit},
    {"phantom", &phantom_program, sizeof(struct phantom_settings), run_phantom},
};

static const struct subcommand *choose(int argc, char **argv, struct chex_error *err) {
    if (argc < 2 || argv[1][0] == '-')
        return &subcommands[0];
    for (size_t i = 0; i < COUNT(subcommands); i++)
        if (strcmp(argv[1], subcommands[i].word) == 0)
            return &subcommands[i];
    chex_error_set(err, CHEX_E_USAGE,
                   "unknown subcommand '%s': expected create, info, verify, audit or phantom",
                   argv[1]);
    return NULL;
}

/* True where the run is over after it. */
static bool inform(const struct subcommand *sub, const struct chex_opt_set *set,
                   const union settings *s) {
    char libraries[256];
    if (s->common.help)
        chex_opt_print_help(sub->program, stdout);
    else if (s->common.version)
        printf("chex-shard %s\n%s\ncompiler %s\n", CHEXNET_VERSION,
               chex_data_libraries(libraries, sizeof libraries), CHEXNET_COMPILER);
    else if (s->common.print_config)
        chex_opt_print_config(set, s, stdout);
    else
        return false;
    return true;
}

int main(int argc, char **argv) {
    struct chex_error err = {0};
    struct chex_opt_set *set = NULL;
    union settings settings;
    chex_log_init("chex-shard", CHEX_LOG_INFO);
    const struct subcommand *sub = choose(argc, argv, &err);
    enum chex_status st = sub ? CHEX_OK : err.status;
    if (sub) {
        bool named = argc > 1 && strcmp(argv[1], sub->word) == 0;
        st = chex_opt_parse(sub->program, argc - named, argv + named, &settings, sub->settings_size,
                            &set, &err);
    }
    if (st == CHEX_OK) {
        chex_log_set_level((enum chex_log_level)settings.common.log_level);
        if (!inform(sub, set, &settings))
            st = sub->run(set, &settings, &err);
        if (st == CHEX_OK && (fflush(stdout) != 0 || ferror(stdout)))
            st = chex_error_set(&err, CHEX_E_RESOURCE, "cannot write to standard output");
    }
    if (st != CHEX_OK && err.text[0])
        chex_err("%s", err.text);
    chex_opt_destroy(set);
    return (int)st;
}
