/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the subcommands that make a set of shards (create, import-tfrecord, reshard): option
 * rows, the ranks under srun, and the printed result.
 */
#ifndef CHEX_CMD_SHARD_MAKE_H
#define CHEX_CMD_SHARD_MAKE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/result.h"
#include "ingest/create.h"
#include "shard/shard_write.h"
#include "shard_commands.h"

/* ---- options ---- */

/* Rows of option tables. at: offset of a struct chex_create_options in the settings. INT rows write
 * non-negative numbers to its members of 64 bits, CHOICE rows to its enums. */
#define SHARD_IN(at, field) ((at) + offsetof(struct chex_create_options, field))

#define SHARD_OUTPUT_ROW(at)                                                                       \
    OPTION("output", STRING, SHARD_IN(at, output), .letter = 'o', .metavar = "DIR",                \
           .required = true, .help = "folder of the new set")
#define SHARD_RUN_ROWS(at)                                                                         \
    OPTION("shards", INT, SHARD_IN(at, shards), .def = "16", .metavar = "N", .min = 1,             \
           .max = 99999, .help = "shards a split"),                                                \
        SHARD_WRITE_ROWS(at)
#define SHARD_WRITE_ROWS(at)                                                                       \
    OPTION("force", FLAG, SHARD_IN(at, force),                                                     \
           .help = "replace the set in DIR once the new one is complete"),                         \
        OPTION("resume", FLAG, SHARD_IN(at, resume),                                               \
               .help = "keep finished shards of an interrupted run, and of this one should it "    \
                       "fail"),                                                                    \
        SHARD_WORKERS_ROW(SHARD_IN(at, workers))
#define SHARD_UNCERTAIN_ROW(at)                                                                    \
    OPTION("uncertain", CHOICE, SHARD_IN(at, uncertain), .def = "keep", .metavar = "POLICY",       \
           .choices = chex_uncertain_names, .help = "what becomes of uncertain labels")
/* flaws: "missing or broken" */
#define SHARD_MAX_BAD_ROW(at, flaws)                                                               \
    OPTION("max-bad", INT, SHARD_IN(at, max_bad), .def = "0", .metavar = "N", .min = 0,            \
           .max = 1e9, .help = "leave out up to N images that are " flaws)
/* how: default of --split; official: help text for "official"; beside: the lists are searched in
 * the folder of this ("labels" or "records"). fractions_at: offset of a text. */
#define SHARD_SPLIT_ROWS(at, fractions_at, how, official, beside)                                  \
    OPTION("split", CHOICE, SHARD_IN(at, split_mode), .def = how, .metavar = "HOW",                \
           .choices = chex_split_mode_names,                                                       \
           .help = "official (" official "), at random by patient, or none"),                      \
        OPTION("shared-patients", CHOICE, SHARD_IN(at, shared_patients), .def = "refuse",          \
               .metavar = "POLICY", .choices = chex_shared_patients_names,                         \
               .help = "what becomes of patients in two official splits; drop leaves out their "   \
                       "images of train before val before test"),                                  \
        OPTION("train-list", STRING, SHARD_IN(at, train_list), .metavar = "FILE",                  \
               .help = "names of the training images, instead of train_val_list.txt beside "       \
                       "the " beside),                                                             \
        OPTION("val-list", STRING, SHARD_IN(at, val_list), .metavar = "FILE",                      \
               .help = "names of the validation images, instead of patients cut from the "         \
                       "training list"),                                                           \
        OPTION("test-list", STRING, SHARD_IN(at, test_list), .metavar = "FILE",                    \
               .help = "names of the test images, instead of test_list.txt beside the " beside),   \
        OPTION("fractions", STRING, fractions_at, .def = "0.7,0.1,0.2", .metavar = "T,V,E",        \
               .help = "shares of train, val and test"),                                           \
        SHARD_SEED_ROW(SHARD_IN(at, seed), "seed of the split and of the order of rows")
#define SHARD_SIZE_ROW(at)                                                                         \
    OPTION("size", INT, SHARD_IN(at, size), .def = "256", .metavar = "PX", .min = 16,              \
           .max = CHEX_SHARD_MAX_SIZE_PX, .help = "side of the stored images")

/* Completes parsed options: threads, the version, and for images the fractions (NULL: none).
 * CHEX_E_USAGE: lists without --split official, or fractions that do not parse. */
enum chex_status shard_complete(struct chex_create_options *o, const char *fractions,
                                struct chex_error *err);

/* ---- running ---- */

/* chex_create() or chex_reshard(). */
typedef enum chex_status shard_make_fn(const struct chex_create_options *options,
                                       struct chex_group *group,
                                       struct chex_create_result *result_out,
                                       struct chex_error *err);

/* The steps of shard_make(). shard_launched: joins the other ranks, calls `make` and leaves them;
 * *rank_out is 0 on the process that prints. shard_result_json: the result as JSON; NULL: out of
 * memory. shard_print_result: prints it as text, and adds members to it. */
enum chex_status shard_launched(shard_make_fn *make, const struct chex_create_options *options,
                                struct chex_create_result *result, int *rank_out,
                                struct chex_error *err);
json_t *shard_result_json(const char *name, const char *output,
                          const struct chex_create_result *result);
void shard_print_result(json_t *o, size_t shards, const struct chex_create_result *result);

/* Joins the other ranks, makes the set, and prints the result on rank 0. name: the subcommand, such
 * as "create". If all ranks return the same error, only rank 0 has its text. */
enum chex_status shard_make(const char *name, shard_make_fn *make,
                            const struct chex_create_options *options, bool json,
                            struct chex_error *err);

#endif
