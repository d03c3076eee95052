/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs chex_create() or chex_reshard() on all ranks of the launch, and prints the result on rank 0.
 */
#include "shard_make.h"

#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
#include "launch/group.h"

enum chex_status shard_complete(struct chex_create_options *o, const char *fractions,
                                struct chex_error *err) {
    o->workers = shard_threads(o->workers);
    o->tool_version = "chexnet " CHEXNET_VERSION;
    if (o->split_mode != CHEX_SPLIT_OFFICIAL && (o->train_list || o->val_list || o->test_list))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--train-list, --val-list and --test-list need "
                              "--split official");
    return fractions ? chex_split_parse_fractions(fractions, &o->fractions, err) : CHEX_OK;
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

json_t *shard_result_json(const char *name, const char *output,
                          const struct chex_create_result *r) {
    char schema[64];
    json_t *splits = json_object();
    snprintf(schema, sizeof schema, "chexnet-shard-%s", name);
    for (int i = 0; i < CHEX_SPLIT_COUNT; i++)
        if (r->shards[i])
            json_object_set_new(
                splits, chex_split_names[i],
                chex_result(CHEX_FIELD("rows", r->rows[i]), CHEX_FIELD("shards", r->shards[i])));
    return chex_result(CHEX_FIELD("schema", schema), CHEX_FIELD("version", 1),
                       CHEX_FIELD("output", output), CHEX_FIELD("splits", splits),
                       CHEX_MEMBER(r, rejected), CHEX_FIELD("shards_kept", r->kept),
                       CHEX_MEMBER(r, seconds), CHEX_FIELD("images_per_s", rate(r)));
}

/* o: the object of shard_result_json(). Adds what only the text has. */
void shard_print_result(json_t *o, size_t shards, const struct chex_create_result *r) {
    json_object_set_new(o, "images", chex_json_unsigned(row_count(r)));
    json_object_set_new(o, "rows_kept", chex_json_unsigned(r->kept_rows));
    if (r->done) {
        chex_result_text(stdout, o,
                         "{output}: nothing to do: the set of {images image} is complete\n");
        return;
    }
    for (int i = 0; i < CHEX_SPLIT_COUNT; i++) {
        const json_t *split = json_object_get(json_object_get(o, "splits"), chex_split_names[i]);
        if (split) {
            printf("%-5s ", chex_split_names[i]);
            chex_result_text(stdout, split, "{rows:8d image} in {shards shard}\n");
        }
        if (r->shards[i] && r->shards[i] < shards)
            chex_warn("split %s has %zu image%s, too few for %zu shards", chex_split_names[i],
                      r->rows[i], chex_text_s(r->rows[i]), shards);
    }
    chex_result_text(
        stdout, o,
        "{rejected?{rejected image} left out: {output}/rejected.csv\n}"
        "{shards_kept?{shards_kept shard} kept from the interrupted run\n}"
        "{output}: {images image}{shards_kept?, {rows_kept} of them kept,} in {seconds:t}, "
        "{images_per_s:.0f} img/s\n");
}

/* If a rank is lost, each process prints its error and aborts the job. */
enum chex_status shard_launched(shard_make_fn *make, const struct chex_create_options *options,
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

enum chex_status shard_make(const char *name, shard_make_fn *make,
                            const struct chex_create_options *options, bool json,
                            struct chex_error *err) {
    struct chex_create_result result;
    int rank = 0;
    if (json)
        CHEX_TRY(chex_text_for_json("--output", options->output, "--json", err));
    enum chex_status st = shard_launched(make, options, &result, &rank, err);
    if (rank != 0)
        err->text[0] = '\0';
    if (st != CHEX_OK || rank != 0)
        return st;
    json_t *o = shard_result_json(name, options->output, &result);
    if (json || !o)
        return chex_result_print(stdout, o, NULL, JSON_INDENT(1), err);
    shard_print_result(o, options->shards, &result);
    json_decref(o);
    return CHEX_OK;
}
