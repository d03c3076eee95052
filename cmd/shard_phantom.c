/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard phantom: synthetic images with planted findings.
 */
#include "shard_commands.h"

#include <stdio.h>

#include "base/result.h"
#include "base/text.h"
#include "ingest/phantom.h"

struct phantom_settings {
    struct chex_opt_common common;
    struct chex_phantom_options phantom;
};

#define AT(field) offsetof(struct phantom_settings, phantom.field)
static const struct chex_opt phantom_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Images"),
    OPTION("count", INT, AT(count), .letter = 'n', .metavar = "N", .min = 1, .max = 1e7,
           .required = true, .help = "how many images"),
    OPTION("size", INT, AT(size), .def = "64", .metavar = "PX", .min = CHEX_PHANTOM_MIN_SIZE_PX,
           .max = CHEX_PHANTOM_MAX_SIZE_PX, .help = "side of the images"),
    SHARD_SEED_ROW(AT(seed), "seed: the same one gives the same images"),
    OPTION("output", STRING, AT(dir), .letter = 'o', .metavar = "DIR", .required = true,
           .help = "folder for images/ and labels.csv"),
    SHARD_WORKERS_ROW(AT(workers)),
};
#undef AT

static enum chex_status run_phantom(struct chex_opt_set *set, void *settings,
                                    struct chex_error *err) {
    struct phantom_settings *s = settings;
    struct chex_phantom_options *o = &s->phantom;
    (void)set;
    if (s->common.json)
        CHEX_TRY(chex_text_for_json("--output", o->dir, "--json", err));
    o->workers = shard_threads(o->workers);
    CHEX_TRY(chex_phantom_write(o, err));
    json_t *result = chex_result(CHEX_FIELD("schema", "chexnet-shard-phantom"),
                                 CHEX_FIELD("version", 1), CHEX_FIELD("output", o->dir),
                                 CHEX_MEMBER(o, count), CHEX_MEMBER(o, size), CHEX_MEMBER(o, seed));
    const char *text = "{output}: {count image} of {size} px in images/, labels in labels.csv\n";
    return chex_result_print(stdout, result, s->common.json ? NULL : text, JSON_INDENT(1), err);
}

const struct chex_opt_program shard_phantom_program = {
    .name = "chex-shard phantom",
    .summary = "synthetic chest images with planted findings, and their labels",
    .usage = "chex-shard phantom --count N --output DIR [options]",
    .opts = phantom_opts,
    .count = COUNT(phantom_opts),
    .epilog = "Examples\n  chex-shard phantom --count 2000 --size 64 --output phantom/\n"
              "  chex-shard --images phantom/images --labels phantom/labels.csv --size 64 \\\n"
              "             --split patient --output shards/\n\n" SHARD_EXIT_STATUS,
    .settings_size = sizeof(struct phantom_settings),
    .run = run_phantom,
    .alone = true,
    .listed = "synthetic images with planted findings, and their labels",
    .word = "phantom",
};
