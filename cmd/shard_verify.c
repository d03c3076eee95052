/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard verify: reads a whole set or shard and compares checksums, counts and patients.
 */
#include "shard_commands.h"

#include <stdio.h>

#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "shard/verify.h"

struct verify_settings {
    struct chex_opt_common common;
    const char *labels;
    int64_t workers;
};

static const struct chex_opt verify_opts[] = {
    CHEX_OPT_COMMON, OPTION_GROUP("Labels"),
    OPTION("labels", STRING, offsetof(struct verify_settings, labels), .metavar = "FILE",
           .help = "label file to compare with the digest of the one that the set was made from"),
    OPTION_GROUP("Work"), SHARD_WORKERS_ROW(offsetof(struct verify_settings, workers))};

static const char *const labels_names[] = {
    [CHEX_VERIFY_LABELS_NOT_GIVEN] = "not compared",
    [CHEX_VERIFY_LABELS_SAME] = "same",
    [CHEX_VERIFY_LABELS_OTHER] = "other",
};

static json_t *verify_json(const struct chex_verify_result *r) {
    json_t *faults = json_array();
    for (size_t i = 0; i < r->fault_count; i++) {
        const struct chex_verify_fault *f = &r->faults[i];
        json_array_append_new(
            faults, chex_result(CHEX_MEMBER(f, file), CHEX_MEMBER(f, rows), CHEX_MEMBER(f, text)));
    }
    return chex_result(CHEX_FIELD("schema", "chexnet-shard-verify"), CHEX_FIELD("version", 1),
                       CHEX_FIELD("sound", (bool)(r->fault_count == 0)), CHEX_MEMBER(r, shards),
                       CHEX_MEMBER(r, rows), CHEX_MEMBER(r, bytes), CHEX_MEMBER(r, seconds),
                       CHEX_FIELD("labels", labels_names[r->labels]), CHEX_FIELD("faults", faults));
}

static void print_labels(const char *labels, const struct chex_verify_result *r) {
    if (r->labels == CHEX_VERIFY_LABELS_NOT_GIVEN)
        printf("labels: not compared: give the label file with --labels\n");
    if (r->labels == CHEX_VERIFY_LABELS_SAME)
        printf("labels: %s is the label file that the set was made from\n", labels);
    if (r->source_differs)
        printf("source_digest: not compared: the set was resharded or relabelled, or its manifest "
               "was changed\n");
}

static enum chex_status run_verify(struct chex_opt_set *set, void *settings,
                                   struct chex_error *err) {
    const struct verify_settings *s = settings;
    struct chex_verify_result r;
    const char *path = chex_opt_word(set, 0);
    if (s->common.json)
        CHEX_TRY(chex_text_for_json("DIR", path, "--json", err));
    enum chex_status st = chex_verify(path, s->labels, shard_threads(s->workers), true, &r, err);
    for (size_t i = 0; r.fault_count > 1 && i < r.fault_count; i++)
        chex_warn("%s", r.faults[i].text);
    if (st == CHEX_OK || (s->common.json && st == CHEX_E_DATA)) {
        struct chex_error unprinted = {0};
        const char *text = "{rows image} in {shards shard}, {bytes:B} in {seconds:t}\n";
        if (!s->common.json)
            chex_text_printf(stdout, "%s: sound: ", path);
        if (chex_result_print(stdout, verify_json(&r), s->common.json ? NULL : text, JSON_INDENT(1),
                              &unprinted) != CHEX_OK) {
            *err = unprinted;
            st = unprinted.status;
        } else if (!s->common.json)
            print_labels(s->labels, &r);
    }
    chex_verify_release(&r);
    return st;
}

const struct chex_opt_program shard_verify_program = {
    .name = "chex-shard verify",
    .summary = "read everything and compare checksums, counts and patients",
    .usage = "chex-shard verify DIR|FILE [options]",
    .opts = verify_opts,
    .count = COUNT(verify_opts),
    .epilog = "Examples\n  chex-shard verify shards/\n"
              "  chex-shard verify shards/ --labels Data_Entry_2017.csv\n\n" SHARD_EXIT_STATUS,
    .words = "one folder or file",
    .min_words = 1,
    .max_words = 1,
    .settings_size = sizeof(struct verify_settings),
    .run = run_verify,
    .alone = true,
    .word = "verify",
};
