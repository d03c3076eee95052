/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard verify: everything is read and compared.
 */
#include "shard_commands.h"

#include <stdio.h>

#include "base/log.h"
#include "base/text.h"
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

static json_t *verify_json(const struct chex_verify_result *r) {
    json_t *faults = json_array();
    for (size_t i = 0; i < r->fault_count; i++) {
        const struct chex_verify_fault *f = &r->faults[i];
        json_array_append_new(faults, json_pack("{s:s?, s:I, s:s}", "file", f->file, "rows",
                                                (json_int_t)f->rows, "text", f->text));
    }
    return json_pack("{s:s, s:i, s:b, s:I, s:I, s:I, s:f, s:o}", "schema", "chexnet-shard-verify",
                     "version", 1, "sound", r->fault_count == 0, "shards", (json_int_t)r->shards,
                     "rows", (json_int_t)r->rows, "bytes", (json_int_t)r->bytes, "seconds",
                     r->seconds, "faults", faults);
}

static void say_verified(const char *path, const struct chex_verify_result *r) {
    char bytes[32], time[32];
    printf("%s: sound: %zu images in %zu shards, %s in %s\n", path, r->rows, r->shards,
           chex_format_bytes(bytes, sizeof bytes, r->bytes),
           chex_format_duration(time, sizeof time, r->seconds));
}

static enum chex_status run_verify(const struct chex_opt_set *set, const void *settings,
                                   struct chex_error *err) {
    const struct verify_settings *s = settings;
    struct chex_verify_result r;
    CHEX_TRY(shard_one_word(set, "chex-shard verify", err));
    const char *path = chex_opt_word(set, 0);
    if (s->common.json)
        CHEX_TRY(chex_text_for_json("DIR", path, "--json", err));
    enum chex_status st = chex_verify(path, shard_threads(s->workers), true, &r, err);
    for (size_t i = 0; r.fault_count > 1 && i < r.fault_count; i++)
        chex_warn("%s", r.faults[i].text);
    if (s->common.json && (st == CHEX_OK || st == CHEX_E_DATA)) {
        struct chex_error unprinted = {0};
        if (shard_print_json(verify_json(&r), &unprinted) != CHEX_OK) {
            *err = unprinted;
            st = unprinted.status;
        }
    } else if (st == CHEX_OK) {
        say_verified(path, &r);
    }
    chex_verify_release(&r);
    return st;
}

const struct shard_command shard_command_verify = {
    "verify", &verify_program, sizeof(struct verify_settings), run_verify, .alone = true};
