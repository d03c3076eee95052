/* SPDX-License-Identifier: Apache-2.0
 *
 * The subcommands that make a set of shards, under srun together: their options, their ranks and
 * their result.
 */
#ifndef CHEX_CMD_SHARD_MAKE_H
#define CHEX_CMD_SHARD_MAKE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/opt.h"
#include "data/create.h"
#include "data/shard_write.h"
#include "shard_commands.h"

/* ---- options ---- */

/* Of every subcommand that makes a set. */
struct shard_output_settings {
    const char *output;
    int64_t shards, workers;
    bool force, resume;
};

/* Of those that make it from images; `out` comes first. */
struct shard_image_settings {
    struct shard_output_settings out;
    const char *train_list, *val_list, *test_list, *fractions;
    int64_t size, max_bad, seed;
    int split, shared_patients, uncertain;
};

/* Rows of option tables. at: where the struct above is within the subcommand's settings. */
#define SHARD_IN_OUT(at, field) ((at) + offsetof(struct shard_output_settings, field))
#define SHARD_IN_IMAGE(at, field) ((at) + offsetof(struct shard_image_settings, field))

#define SHARD_OUTPUT_ROW(at)                                                                       \
    {                                                                                              \
        "output", 'o', CHEX_OPT_STRING, SHARD_IN_OUT(at, output), NULL, "DIR",                     \
            "folder of the new set", .required = true                                              \
    }
#define SHARD_RUN_ROWS(at)                                                                         \
    {"shards",         0,        CHEX_OPT_INT, SHARD_IN_OUT(at, shards), "16", "N",                \
     "shards a split", .min = 1, .max = 99999},                                                    \
        {"force", 0, CHEX_OPT_FLAG, SHARD_IN_OUT(at, force),                                       \
         .help = "replace the set in DIR once the new one is complete"},                           \
        {"resume", 0, CHEX_OPT_FLAG, SHARD_IN_OUT(at, resume),                                     \
         .help = "keep finished shards of an interrupted run, and of this one should it fail"},    \
        SHARD_WORKERS_ROW(SHARD_IN_OUT(at, workers))
#define SHARD_UNCERTAIN_ROW(at)                                                                    \
    {                                                                                              \
        "uncertain", 0, CHEX_OPT_CHOICE, SHARD_IN_IMAGE(at, uncertain), "keep", "POLICY",          \
            "what becomes of uncertain labels", chex_uncertain_names                               \
    }
/* flaws: "missing or broken" */
#define SHARD_MAX_BAD_ROW(at, flaws)                                                               \
    {                                                                                              \
        "max-bad", 0, CHEX_OPT_INT, SHARD_IN_IMAGE(at, max_bad), "0", "N",                         \
            "leave out up to N images that are " flaws, .min = 0, .max = 1e9                       \
    }
/* how: --split's default; official: what "official" means here; beside: what the lists are looked
 * for beside. */
#define SHARD_SPLIT_ROWS(at, how, official, beside)                                                \
    {"split",                                                                                      \
     0,                                                                                            \
     CHEX_OPT_CHOICE,                                                                              \
     SHARD_IN_IMAGE(at, split),                                                                    \
     how,                                                                                          \
     "HOW",                                                                                        \
     "official (" official "), at random by patient, or none",                                     \
     chex_split_mode_names},                                                                       \
        {"shared-patients",                                                                        \
         0,                                                                                        \
         CHEX_OPT_CHOICE,                                                                          \
         SHARD_IN_IMAGE(at, shared_patients),                                                      \
         "refuse",                                                                                 \
         "POLICY",                                                                                 \
         "what becomes of patients on two sides of an official split; drop leaves out their "      \
         "images of train before val before test",                                                 \
         chex_shared_patients_names},                                                              \
        {"train-list",                                                                             \
         0,                                                                                        \
         CHEX_OPT_STRING,                                                                          \
         SHARD_IN_IMAGE(at, train_list),                                                           \
         NULL,                                                                                     \
         "FILE",                                                                                   \
         "names of the training images, instead of train_val_list.txt beside the " beside},        \
        {"val-list",                                                                               \
         0,                                                                                        \
         CHEX_OPT_STRING,                                                                          \
         SHARD_IN_IMAGE(at, val_list),                                                             \
         NULL,                                                                                     \
         "FILE",                                                                                   \
         "names of the validation images, instead of patients cut from the training list"},        \
        {"test-list",                                                                              \
         0,                                                                                        \
         CHEX_OPT_STRING,                                                                          \
         SHARD_IN_IMAGE(at, test_list),                                                            \
         NULL,                                                                                     \
         "FILE",                                                                                   \
         "names of the test images, instead of test_list.txt beside the " beside},                 \
        {"fractions",                                                                              \
         0,                                                                                        \
         CHEX_OPT_STRING,                                                                          \
         SHARD_IN_IMAGE(at, fractions),                                                            \
         "0.7,0.1,0.2",                                                                            \
         "T,V,E",                                                                                  \
         "shares of train, val and test"},                                                         \
        SHARD_SEED_ROW(SHARD_IN_IMAGE(at, seed), "seed of the split and of the order of rows")
#define SHARD_SIZE_ROW(at)                                                                         \
    {                                                                                              \
        "size", 0, CHEX_OPT_INT, SHARD_IN_IMAGE(at, size), "256", "PX",                            \
            "side of the stored images", .min = 16, .max = CHEX_SHARD_MAX_SIZE_PX                  \
    }

/* Options for chex_create() as far as the settings go; the rest is the caller's. CHEX_E_USAGE:
 * lists without --split official, fractions that do not parse. */
enum chex_status shard_image_options(const struct shard_image_settings *settings,
                                     struct chex_create_options *options_out,
                                     struct chex_error *err);

/* ---- running ---- */

/* For shard_make(). */
enum chex_status shard_create(const void *options, const struct chex_create_ranks *ranks,
                              struct chex_create_result *result_out, struct chex_error *err);

/* chex_create() or chex_reshard() behind one signature. */
typedef enum chex_status shard_make_fn(const void *options, const struct chex_create_ranks *ranks,
                                       struct chex_create_result *result_out,
                                       struct chex_error *err);

/* Joins the other ranks, makes the set and prints the result on rank 0. name: "create". output and
 * shards: as asked for. A failure that all ranks know of has its text on rank 0 alone. */
enum chex_status shard_make(const char *name, shard_make_fn *make, const void *options,
                            const char *output, size_t shards, bool json, struct chex_error *err);

#endif
