/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard reshard: the same rows in another number of shards, without the images.
 */
#include "ingest/reshard.h"
#include "shard_commands.h"
#include "shard_make.h"

struct reshard_settings {
    struct chex_opt_common common;
    struct chex_create_options create;
};

#define AT(field) offsetof(struct reshard_settings, field)
static const struct chex_opt reshard_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Output"),
    SHARD_OUTPUT_ROW(AT(create)),
    SHARD_RUN_ROWS(AT(create)),
};
#undef AT

static enum chex_status run_reshard(struct chex_opt_set *set, void *settings,
                                    struct chex_error *err) {
    const struct reshard_settings *s = settings;
    struct chex_create_options o = s->create;
    o.set = chex_opt_word(set, 0);
    CHEX_TRY(shard_complete(&o, NULL, err));
    return shard_make("reshard", chex_reshard, &o, s->common.json, err);
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
