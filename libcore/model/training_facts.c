/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts of the training, and their differences.
 *
 * Results depend on the inputs, the seed and the logical ranks, not on the machine's threads,
 * caches or saves. Options of that kind are listed here and left out. An option that is missing in
 * the list is reported, so a new option of the training needs no line here.
 */
#include "model/training_facts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/result.h"

/* Options of chex-train that cannot change the parameters. --accumulate sets --logical-ranks. */
static const char *const without_effect[] = {
    "output",          "resume",         "cache",           "resident",    "stage",
    "threads",         "workers",        "accumulate",      "audit-steps", "checkpoint-every",
    "checkpoint-keep", "preempt-signal", "save-before-end", "requeue",     "stall-warn",
    "stall-abort",     "job-comment",    "timeline",        "bench",       "bench-layers",
    "bench-infer",     "bench-input",    "consume",         "metrics"};

/* Options that --features refuses, at their defaults. */
static const char *const of_images[] = {
    "model",    "image-size", "crop-scale", "hflip",     "antialias", "rotate",     "brightness",
    "contrast", "sync-bn",    "engine",     "precision", "freeze",    "layer-decay"};

/* Whether the options are those of a training on features, which has no option of this name. */
static bool is_of_images(const json_t *options, const char *name) {
    const char *features = json_string_value(json_object_get(options, "features"));
    for (size_t i = 0; features && *features && i < CHEX_COUNT(of_images); i++)
        if (strcmp(of_images[i], name) == 0)
            return true;
    return false;
}

static json_t *options_of(const json_t *meta) {
    const json_t *ranks = json_object_get(json_object_get(meta, "identity"), "logical_ranks");
    json_t *options = json_copy(json_object_get(meta, "options"));
    for (size_t i = 0; i < CHEX_COUNT(without_effect); i++)
        json_object_del(options, without_effect[i]);
    for (size_t i = 0; i < CHEX_COUNT(of_images); i++)
        if (is_of_images(options, of_images[i]))
            json_object_del(options, of_images[i]);
    if (options && json_is_integer(ranks)) { /* the option may say 0: the number of processes */
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)json_integer_value(ranks));
        json_object_set_new(options, "logical-ranks", json_string(text));
    }
    return options;
}

/* NULL: no weights. */
static json_t *weights_of(const json_t *meta) {
    const json_t *loss = json_object_get(meta, "loss");
    char digest[CHEX_HASH128_HEX_BYTES];
    CHEX_AUTO_FREE char *text = loss ? json_dumps(loss, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (!text)
        return NULL;
    chex_hash128_hex(text, strlen(text), digest);
    return json_string(digest);
}

json_t *chex_training_facts(const json_t *meta) {
    if (!json_is_object(json_object_get(meta, "options")))
        return NULL;
    json_auto_t *weights = weights_of(meta);
    json_t *facts = chex_result(
        CHEX_FIELD("training_options", options_of(meta)),
        CHEX_FIELD("training_images", json_string_value(json_object_get(
                                          json_object_get(meta, "identity"), "source_digest"))),
        CHEX_FIELD("training_step",
                   json_integer_value(json_object_get(json_object_get(meta, "position"), "step"))));
    if (facts && weights)
        json_object_set(facts, "training_weights", weights);
    return facts;
}

/* The sum of an energy over the starts of a run; NaN: one does not state it. */
static double sum_energy(const json_t *starts, const char *key) {
    double sum = json_array_size(starts) ? 0 : NAN;
    json_t *start;
    size_t i;
    json_array_foreach(starts, i, start) {
        const json_t *v = json_object_get(json_object_get(start, "energy"), key);
        sum += json_is_number(v) ? json_number_value(v) : NAN;
    }
    return sum;
}

void chex_training_energy(json_t *object, const char *checkpoint) {
    const char *name = chex_fs_is_dir(checkpoint) ? "" : chex_fs_name(checkpoint);
    const int folder = (int)(strlen(checkpoint) - strlen(name));
    char *path = chex_fs_format("%.*s%sprovenance.json", folder, checkpoint, *name ? "" : "/");
    json_auto_t *provenance = path ? json_load_file(path, 0, NULL) : NULL;
    json_t *starts = json_object_get(provenance, "starts");
    const double gpu_j = sum_energy(starts, "gpu_joules"),
                 node_j = sum_energy(starts, "node_joules");
    free(path);
    if (!isnan(gpu_j))
        json_object_set_new(object, "training_gpu_joules", json_real(gpu_j));
    if (!isnan(node_j))
        json_object_set_new(object, "training_whole_node_joules", json_real(node_j));
}

char *chex_training_options_text(const json_t *options) {
    const char *name;
    json_t *v;
    char *text = strdup("");
    json_object_foreach((json_t *)options, name, v) {
        const char *value = json_string_value(v);
        if (!text || !value || !*value)
            continue;
        char *longer = chex_fs_format("%s%s--%s %s", text, *text ? " " : "", name, value);
        free(text);
        text = longer;
    }
    return text;
}

static bool add_difference(json_t *list, const char *name, const json_t *first,
                           const json_t *second) {
    return strcmp(name, "data") == 0 ||
           json_array_append_new(list,
                                 chex_result(CHEX_FIELD("option", name),
                                             CHEX_FIELD("first", json_string_value(first)),
                                             CHEX_FIELD("second", json_string_value(second)))) == 0;
}

json_t *chex_training_differences(const json_t *first, const json_t *second) {
    json_t *a = json_object_get(first, "training_options"), *v;
    json_t *b = json_object_get(second, "training_options"), *list = json_array();
    const char *name;
    bool good = list != NULL;
    json_object_foreach(a, name, v) {
        const json_t *other = json_object_get(b, name);
        if (good && !json_equal(v, other) && !is_of_images(b, name))
            good = add_difference(list, name, v, other);
    }
    json_object_foreach(b, name, v) {
        if (good && !json_object_get(a, name) && !is_of_images(a, name))
            good = add_difference(list, name, NULL, v);
    }
    if (!good)
        json_decref(list);
    return good ? list : NULL;
}

bool chex_training_differs(const json_t *first, const json_t *second, const char *key) {
    const json_t *a = json_object_get(first, key), *b = json_object_get(second, key);
    return a && b && !json_is_null(a) && !json_is_null(b) && !json_equal(a, b);
}
