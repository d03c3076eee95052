/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard verify: everything is read and compared.
 */
#include "shard_commands.h"

#include <stdio.h>

#include "base/units.h"
#include "data/verify.h"

struct verify_settings {
    struct chex_opt_common common;
    int64_t workers;
};

static const struct chex_opt verify_opts[] = {
    CHEX_OPT_COMMON,
    {.type = CHEX_OPT_GROUP, .help = "Work"},
    SHARD_WORKERS_ROW(offsetof(struct verify_settings, workers))};

static const struct chex_opt_program verify_program = {
    .name = "chex-shard verify",
    .summary = "read everything and compare checksums, counts and patients",
    .usage = "chex-shard verify DIR|FILE [options]",
    .opts = verify_opts,
    .count = COUNT(verify_opts),
    .epilog = "Examples\n  chex-shard verify shards/\n\n" SHARD_EXIT_STATUS};
static enum chex_status run_verify(const struct chex_opt_set *set, const void *settings,
                                   struct chex_error *err) {
    const struct verify_settings *s = settings;
    struct chex_verify_result r;
    CHEX_TRY(shard_one_word(set, "chex-shard verify", err));
    const char *path = chex_opt_word(set, 0);
    CHEX_TRY(chex_verify(path, shard_threads(s->workers), true, &r, err));
    char bytes[32], time[32];
    if (s->common.json)
        return shard_print_json(
            json_pack("{s:s, s:i, s:b, s:I, s:I, s:I, s:f}", "schema", "chexnet-shard-verify",
                      "version", 1, "sound", 1, "shards", (json_int_t)r.shards, "rows",
                      (json_int_t)r.rows, "bytes", (json_int_t)r.bytes, "seconds", r.seconds),
            err);
    printf("%s: sound: %zu images in %zu shards, %s in %s\n", path, r.rows, r.shards,
           chex_format_bytes(bytes, sizeof bytes, r.bytes),
           chex_format_duration(time, sizeof time, r.seconds));
    return CHEX_OK;
}

const struct shard_command shard_command_verify = {
    "verify", &verify_program, sizeof(struct verify_settings), run_verify, .alone = true};
