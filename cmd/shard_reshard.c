/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard reshard: the same rows in another number of shards, without the images.
 */
#include "ingest/reshard.h"
#include "shard_commands.h"
#include "shard_make.h"

struct reshard_settings {
    struct chex_opt_common common;
    struct shard_output_settings out;
};

#define AT(field) offsetof(struct reshard_settings, field)
static const struct chex_opt reshard_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Output"),
    SHARD_OUTPUT_ROW(AT(out)),
    SHARD_RUN_ROWS(AT(out)),
};
#undef AT

static enum chex_status reshard(const void *options, struct chex_group *group,
                                struct chex_create_result *result_out, struct chex_error *err) {
    return chex_reshard(options, group, result_out, err);
}

static enum chex_status run_reshard(struct chex_opt_set *set, void *settings,
                                    struct chex_error *err) {
    const struct reshard_settings *s = settings;
    struct chex_reshard_options o = {.input = chex_opt_word(set, 0),
                                     .output = s->out.output,
                                     .tool_version = "chexnet " CHEXNET_VERSION,
                                     .shards = (size_t)s->out.shards,
                                     .workers = shard_threads(s->out.workers),
                                     .force = s->out.force,
                                     .resume = s->out.resume};
    return shard_make("reshard", reshard, &o, o.output, o.shards, s->common.json, err);
}

const struct chex_opt_program shard_reshard_program = {
    .name = "chex-shard reshard",
    .summary = "the same rows in another number of shards, without the images",
    .usage = "chex-shard reshard IN --output DIR --shards N [options]",
    .opts = reshard_opts,
    .count = COUNT(reshard_opts),
    .epilog = "The new set is what create would have made with N shards of the images that were "
              "not\nleft out: the same rows in the same order, the same manifest. Under srun the "
              "ranks share\nthe work.\n\n"
              "Examples\n"
              "  chex-shard reshard shards/ --output shards-64/ --shards 64\n\n" SHARD_EXIT_STATUS,
    .words = "one folder or file",
    .min_words = 1,
    .max_words = 1,
    .settings_size = sizeof(struct reshard_settings),
    .run = run_reshard,
    .word = "reshard",
};
