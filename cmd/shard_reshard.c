/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard reshard: the same rows in another number of shards, without the images.
 */
#include "data/reshard.h"
#include "shard_commands.h"
#include "shard_make.h"

struct reshard_settings {
    struct chex_opt_common common;
    const char *output;
    int64_t shards, workers;
    bool force, resume;
};

#define AT(field) offsetof(struct reshard_settings, field)
static const struct chex_opt reshard_opts[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Output"},
    {"output", 'o', CHEX_OPT_STRING, AT(output), NULL, "DIR", "folder of the new set",
     .required = true},
    {"shards", 0, CHEX_OPT_INT, AT(shards), "16", "N", "shards a split", .min = 1, .max = 99999},
    {"force", 0, CHEX_OPT_FLAG, AT(force),
     .help = "replace the set in DIR once the new one is complete"},
    {"resume", 0, CHEX_OPT_FLAG, AT(resume),
     .help = "keep finished shards of an interrupted run, and of this one should it fail"},
    SHARD_WORKERS(struct reshard_settings),
};
#undef AT

static const struct chex_opt_program reshard_program = {
    .name = "chex-shard reshard",
    .summary = "the same rows in another number of shards, without the images",
    .usage = "chex-shard reshard IN --output DIR --shards N [options]",
    .opts = reshard_opts,
    .count = COUNT(reshard_opts),
    .epilog = "The new set is what create would have made with N shards of the images that were "
              "not\nleft out: the same rows in the same order, the same manifest. Under srun the "
              "ranks share\nthe work.\n\n"
              "Examples\n"
              "  chex-shard reshard shards/ --output shards-64/ --shards 64\n\n" SHARD_EXIT_STATUS};

static enum chex_status reshard(const void *options, const struct chex_create_ranks *ranks,
                                struct chex_create_result *result_out, struct chex_error *err) {
    return chex_reshard(options, ranks, result_out, err);
}

static enum chex_status run_reshard(const struct chex_opt_set *set, const void *settings,
                                    struct chex_error *err) {
    const struct reshard_settings *s = settings;
    CHEX_TRY(shard_one_word(set, "chex-shard reshard", err));
    struct chex_reshard_options o = {.input = chex_opt_word(set, 0),
                                     .output = s->output,
                                     .tool_version = "chexnet " CHEXNET_VERSION,
                                     .shards = (size_t)s->shards,
                                     .workers = shard_threads(s->workers),
                                     .force = s->force,
                                     .resume = s->resume};
    return shard_make("reshard", reshard, &o, o.output, o.shards, s->common.json, err);
}

const struct shard_command shard_command_reshard = {"reshard", &reshard_program,
                                                    sizeof(struct reshard_settings), run_reshard};
