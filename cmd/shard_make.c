/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs chex_create() or chex_reshard() on all ranks of the launch, and prints the result on rank 0.
 */
#include "shard_make.h"

#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "launch/group.h"
#include "shard_commands.h"

enum chex_status shard_image_options(const struct shard_image_settings *s,
                                     struct chex_create_options *options_out,
                                     struct chex_error *err) {
    struct chex_create_options o = {.output = s->out.output,
                                    .train_list = s->train_list,
                                    .val_list = s->val_list,
                                    .test_list = s->test_list,
                                    .tool_version = "chexnet " CHEXNET_VERSION,
                                    .split_mode = (enum chex_split_mode)s->split,
                                    .shared_patients =
                                        (enum chex_shared_patients)s->shared_patients,
                                    .uncertain = (enum chex_uncertain)s->uncertain,
                                    .size = (int)s->size,
                                    .workers = shard_threads(s->out.workers),
                                    .shards = (size_t)s->out.shards,
                                    .max_bad = (size_t)s->max_bad,
                                    .seed = (uint64_t)s->seed,
                                    .force = s->out.force,
                                    .resume = s->out.resume};
    if (o.split_mode != CHEX_SPLIT_OFFICIAL && (o.train_list || o.val_list || o.test_list))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--train-list, --val-list and --test-list need "
                              "--split official");
    CHEX_TRY(chex_split_parse_fractions(s->fractions, &o.fractions, err));
    *options_out = o;
    return CHEX_OK;
}

enum chex_status shard_create(const void *options, struct chex_group *group,
                              struct chex_create_result *result_out, struct chex_error *err) {
    return chex_create(options, group, result_out, err);
}

static size_t row_count(const struct chex_create_result *r) {
    size_t rows = 0;
    for (int i = 0; i < CHEX_SPLIT_COUNT; i++)
        rows += r->rows[i];
    return rows;
}

/* Images per second, without rows that were kept from an interrupted run. */
static double rate(const struct chex_create_result *r) {
    const size_t made = row_count(r) - r->kept_rows;
    return r->seconds > 0 && !r->done ? (double)made / r->seconds : 0.0;
}

static json_t *result_json(const char *name, const char *output,
                           const struct chex_create_result *r) {
    char schema[64];
    json_t *splits = json_object();
    snprintf(schema, sizeof schema, "chexnet-shard-%s", name);
    for (int i = 0; i < CHEX_SPLIT_COUNT; i++)
        if (r->shards[i])
            json_object_set_new(splits, chex_split_names[i],
                                json_pack("{s:I, s:I}", "rows", (json_int_t)r->rows[i], "shards",
                                          (json_int_t)r->shards[i]));
    return json_pack("{s:s, s:i, s:s, s:o, s:I, s:I, s:f, s:f}", "schema", schema, "version", 1,
                     "output", output, "splits", splits, "rejected", (json_int_t)r->rejected,
                     "shards_kept", (json_int_t)r->kept, "seconds", r->seconds, "images_per_s",
                     rate(r));
}

static void print_result(const char *output, size_t shards, const struct chex_create_result *r) {
    if (r->done) {
        printf("%s: nothing to do: the set of %zu image%s is complete\n", output, row_count(r),
               chex_text_s(row_count(r)));
        return;
    }
    for (int i = 0; i < CHEX_SPLIT_COUNT; i++) {
        if (r->shards[i])
            printf("%-5s %8zu image%s in %zu shard%s\n", chex_split_names[i], r->rows[i],
                   chex_text_s(r->rows[i]), r->shards[i], chex_text_s(r->shards[i]));
        if (r->shards[i] && r->shards[i] < shards)
            chex_warn("split %s has %zu image%s, too few for %zu shards", chex_split_names[i],
                      r->rows[i], chex_text_s(r->rows[i]), shards);
    }
    if (r->rejected)
        printf("%zu image%s left out: %s/rejected.csv\n", r->rejected, chex_text_s(r->rejected),
               output);
    if (r->kept)
        printf("%zu shard%s kept from the interrupted run\n", r->kept, chex_text_s(r->kept));
    char time[32], kept[64] = "";
    if (r->kept)
        snprintf(kept, sizeof kept, ", %zu of them kept,", r->kept_rows);
    printf("%s: %zu image%s%s in %s, %.0f img/s\n", output, row_count(r), chex_text_s(row_count(r)),
           kept, chex_format_duration(time, sizeof time, r->seconds), rate(r));
}

/* Joins the launch, runs `make` and leaves the launch. *rank_out: 0 on the process that prints. If
 * a rank is lost, each process prints its error and aborts the job. */
static enum chex_status make_launched(shard_make_fn *make, const void *options,
                                      struct chex_create_result *result, int *rank_out,
                                      struct chex_error *err) {
    struct chex_launch launch;
    struct chex_group *group = NULL;
    CHEX_TRY(chex_launch_init(&launch, err));
    chex_log_set_rank(launch.rank, launch.size, launch.host);
    chex_launch_warn_left_out(&launch);
    enum chex_status st = chex_group_of_launch(&launch, CHEX_GROUP_WORK_MS, &group, err);
    if (st == CHEX_OK)
        st = make(options, group, result, err);
    *rank_out = launch.rank;
    if (!group || group->broken) {
        *rank_out = 0;
        chex_err("%s", err->text);
        err->text[0] = '\0';
        chex_launch_abort(&launch, st);
    }
    chex_group_destroy(group);
    chex_launch_finish(&launch);
    return st;
}

enum chex_status shard_make(const char *name, shard_make_fn *make, const void *options,
                            const char *output, size_t shards, bool json, struct chex_error *err) {
    struct chex_create_result result;
    int rank = 0;
    if (json)
        CHEX_TRY(chex_text_for_json("--output", output, "--json", err));
    enum chex_status st = make_launched(make, options, &result, &rank, err);
    if (rank != 0)
        err->text[0] = '\0';
    if (st != CHEX_OK || rank != 0)
        return st;
    if (json)
        return shard_print_json(result_json(name, output, &result), err);
    print_result(output, shards, &result);
    return CHEX_OK;
}
