/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and compares the training of two models.
 */
#include "report/paired_training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/result.h"
#include "model/training_facts.h"

#define RESULTS_NAME "auroc.json"

/* ---- reading ---- */

/* Why the results say nothing about the training of the table. NULL: they do. */
static const char *fault_of(const json_t *results, const char *digest) {
    const char *of = json_string_value(json_object_get(results, "predictions_digest"));
    if (!results)
        return "the " RESULTS_NAME " next to it is damaged";
    if (!of || strcmp(of, digest) != 0)
        return "the " RESULTS_NAME " next to it is of another table or an earlier version";
    const json_t *provenance = json_object_get(results, "provenance");
    if (json_object_get(provenance, "ensemble"))
        return "it is of an ensemble, and each member has its own training options";
    if (!json_is_object(json_object_get(provenance, "training_options")))
        return "its network does not record training options";
    return NULL;
}

/* The epoch after which sweep.sbatch stopped the run of RUN/eval/predictions.csv. */
static int stopped_epoch_of(const char *table) {
    CHEX_AUTO_FREE char *path =
        chex_fs_format("%.*s../sweep-stop.json", (int)(chex_fs_name(table) - table), table);
    json_auto_t *decision = path ? json_load_file(path, 0, NULL) : NULL;
    const bool stopped = json_is_true(json_object_get(decision, "stopped"));
    return stopped ? (int)json_integer_value(json_object_get(decision, "epoch")) : 0;
}

enum chex_status chex_paired_training_read(const char *table, const char *digest,
                                           struct chex_paired_training *out,
                                           struct chex_error *err) {
    enum { LIMIT_BYTES = 64 << 20 };
    CHEX_AUTO_FREE char *path =
        chex_fs_format("%.*s%s", (int)(chex_fs_name(table) - table), table, RESULTS_NAME);
    CHEX_AUTO_FREE char *text = NULL;
    size_t size = 0;
    struct chex_error unread;
    *out = (struct chex_paired_training){.unknown = "no " RESULTS_NAME " next to it",
                                         .stopped_epoch = stopped_epoch_of(table)};
    CHEX_ALLOCATED(path, err, "%s", table);
    if (chex_fs_exists(path) && chex_fs_read(path, LIMIT_BYTES, &text, &size, &unread) == CHEX_OK) {
        json_auto_t *results = json_loadb(text, size, 0, NULL);
        out->unknown = fault_of(results, digest);
        if (!out->unknown)
            out->facts = json_incref(json_object_get(results, "provenance"));
    } else if (chex_fs_exists(path)) {
        out->unknown = "the " RESULTS_NAME " next to it cannot be read";
    }
    return CHEX_OK;
}

void chex_paired_training_release(struct chex_paired_training *t) {
    json_decref(t->facts);
    *t = (struct chex_paired_training){0};
}

/* ---- differences ---- */

static const json_t *option_of(const json_t *facts, const char *name) {
    return json_object_get(json_object_get(facts, "training_options"), name);
}

const char *chex_paired_training_differs(const struct chex_paired_training *first,
                                         const struct chex_paired_training *second,
                                         const char *name, bool only) {
    const char *option;
    json_t *v;
    json_object_foreach(json_object_get(first->facts, "training_options"), option, v) {
        const json_t *other = option_of(second->facts, option);
        if (other && !json_equal(v, other) && strcmp(option, "data") != 0 &&
            (strcmp(option, name) == 0) == only)
            return option;
    }
    return NULL;
}

/* Weights that follow from other options or images are no difference of their own. */
static bool other_weights(const json_t *a, const json_t *b) {
    const bool same_source = json_equal(option_of(a, "pos-weight"), option_of(b, "pos-weight")) &&
                             json_equal(option_of(a, "loss-mean"), option_of(b, "loss-mean"));
    return same_source && !chex_training_differs(a, b, "training_images") &&
           chex_training_differs(a, b, "training_weights");
}

/* Whether one side read the moving average and the other did not, although both training options or
 * none have one. */
static bool other_parameters(const json_t *a, const json_t *b) {
    return json_equal(option_of(a, "ema"), option_of(b, "ema")) &&
           chex_training_differs(a, b, "weights");
}

static const char *parameters_of(const json_t *facts) {
    return json_string_value(json_object_get(facts, "weights"));
}

static long long step_of(const json_t *facts) {
    return (long long)json_integer_value(json_object_get(facts, "training_step"));
}

json_t *chex_paired_training_json(const struct chex_paired_training *first,
                                  const struct chex_paired_training *second) {
    const json_t *a = first->facts, *b = second->facts;
    if (!a || !b)
        return json_null();
    return chex_result(CHEX_FIELD("differs", chex_training_differences(a, b)),
                       CHEX_FIELD("other_images", chex_training_differs(a, b, "training_images")),
                       CHEX_FIELD("other_weights", other_weights(a, b)),
                       CHEX_FIELD("step_first", step_of(a)), CHEX_FIELD("step_second", step_of(b)),
                       CHEX_FIELD("weights_first", parameters_of(a)),
                       CHEX_FIELD("weights_second", parameters_of(b)));
}

/* ---- the text ---- */

/* The value of an option for people. */
static const char *value_of(const json_t *item, const char *side) {
    const char *text = json_string_value(json_object_get(item, side));
    return !text ? "not recorded" : *text ? text : "not given";
}

static void put_unknown(FILE *to, const char *which, const struct chex_paired_training *t) {
    if (t->unknown)
        fprintf(to, "; %s file: %s", which, t->unknown);
}

/* Both sides are known. */
static void put_differences(FILE *to, const json_t *a, const json_t *b, const json_t *differs) {
    const json_t *item;
    size_t i;
    json_array_foreach(differs, i, item) fprintf(to, "%s--%s %s (second: %s)", i ? ", " : "",
                                                 json_string_value(json_object_get(item, "option")),
                                                 value_of(item, "first"), value_of(item, "second"));
    if (json_array_size(differs) == 0)
        fputs("no training option", to);
    if (chex_training_differs(a, b, "training_images"))
        fputs("; other training images", to);
    if (other_weights(a, b))
        fputs("; other weights of the labels", to);
    if (other_parameters(a, b))
        fprintf(to, "; --weights %s (second: %s)", parameters_of(a), parameters_of(b));
    if (step_of(a) != step_of(b))
        fprintf(to, "; %lld steps (second: %lld)", step_of(a), step_of(b));
}

char *chex_paired_training_text(const struct chex_paired_training *first,
                                const struct chex_paired_training *second) {
    const json_t *a = first->facts, *b = second->facts;
    json_auto_t *differs = a && b ? chex_training_differences(a, b) : json_null();
    char *text = NULL;
    size_t size = 0;
    FILE *to = differs ? open_memstream(&text, &size) : NULL;
    if (!to)
        return NULL;
    fputs("differs in: ", to);
    if (a && b) {
        put_differences(to, a, b, differs);
    } else {
        fputs("unknown", to);
        put_unknown(to, "first", first);
        put_unknown(to, "second", second);
    }
    if (second->stopped_epoch)
        fprintf(to, "; the second was stopped after epoch %d", second->stopped_epoch);
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}
