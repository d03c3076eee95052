/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the deployment part of a parameter file. A file is not trusted: each number is
 * checked before it is used.
 */
#include "infer/deployment.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/result.h"
#include "infer/features.h"

enum { SCHEMA = 1 };
static const uint64_t max_json_bytes = (uint64_t)16 << 20;

static const char *const view_names[CHEX_DEPLOYMENT_VIEWS] = {[CHEX_VIEW_UNKNOWN] = "unknown",
                                                              [CHEX_VIEW_PA] = "PA",
                                                              [CHEX_VIEW_AP] = "AP",
                                                              [CHEX_VIEW_LATERAL] = "lateral"};

void chex_deployment_digest(const struct chex_net *net, const float *state, char out[17]) {
    uint64_t digest = 0;
    for (int i = 0; i < net->param_total; i++)
        digest = chex_hash64_mix(digest, state + net->params[i].offset,
                                 net->params[i].count * sizeof *state);
    snprintf(out, 17, "%016" PRIx64, digest);
}

bool chex_deployment_recalibrates(const struct chex_deployment *d) {
    return d && d->recalibration && strcmp(d->recalibration, "none") != 0;
}

/* ---- memory ---- */

enum chex_status chex_deployment_create(int classes, char *const *class_names,
                                        struct chex_deployment **out, struct chex_error *err) {
    const size_t n = (size_t)classes;
    struct chex_deployment *d = chex_alloc_zeroed(1, sizeof *d);
    if (d) {
        d->class_names = chex_alloc_zeroed(n, sizeof *d->class_names);
        d->threshold = chex_alloc_zeroed(n, sizeof *d->threshold);
        d->calibration = chex_alloc_zeroed(n, sizeof *d->calibration);
    }
    bool good = d && d->class_names && d->threshold && d->calibration;
    for (int c = 0; good && c < classes; c++, d->classes++) {
        good = (d->class_names[c] = strdup(class_names[c])) != NULL;
        d->threshold[c] = NAN;
        d->calibration[c] = (struct chex_calibration){1, 0};
    }
    if (!good) {
        chex_deployment_destroy(d);
        return chex_error_memory(err, "the thresholds of %d findings", classes);
    }
    *out = d;
    return CHEX_OK;
}

void chex_deployment_destroy(struct chex_deployment *d) {
    if (!d)
        return;
    for (int c = 0; c < d->classes; c++)
        free(d->class_names[c]);
    free(d->class_names);
    free(d->threshold);
    free(d->calibration);
    free(d->rule);
    free(d->recalibration);
    chex_features_destroy(d->features);
    json_decref(d->provenance);
    free(d);
}

/* ---- writing ---- */

static json_t *thresholds_json(const struct chex_deployment *d) {
    json_t *o = json_object();
    for (int c = 0; c < d->classes; c++)
        json_object_set_new(o, d->class_names[c], chex_json_real(d->threshold[c]));
    return o;
}

static json_t *calibration_json(const struct chex_deployment *d) {
    json_t *o = json_object();
    for (int c = 0; c < d->classes; c++)
        json_object_set_new(o, d->class_names[c],
                            chex_result(CHEX_MEMBER(&d->calibration[c], slope),
                                        CHEX_MEMBER(&d->calibration[c], intercept)));
    return o;
}

static json_t *views_json(const struct chex_deployment *d) {
    json_t *o = json_object();
    for (int v = 0; v < CHEX_DEPLOYMENT_VIEWS; v++)
        json_object_set_new(o, view_names[v], json_integer((json_int_t)d->views[v]));
    return o;
}

json_t *chex_deployment_json(const struct chex_deployment *d) {
    return chex_result(
        CHEX_FIELD("schema", (int)SCHEMA), CHEX_FIELD("tool_version", CHEXNET_VERSION),
        CHEX_FIELD("parameters_digest", d->parameters_digest), CHEX_MEMBER(d, rule),
        CHEX_MEMBER(d, recalibration), CHEX_FIELD("thresholds", thresholds_json(d)),
        CHEX_FIELD("calibration", calibration_json(d)), CHEX_FIELD("views", views_json(d)),
        CHEX_FIELD("features", d->features ? chex_features_json(d->features) : json_null()),
        CHEX_FIELD("provenance", d->provenance ? json_incref(d->provenance) : json_null()));
}

enum chex_status chex_deployment_write(const char *path, const struct chex_net *net,
                                       const float *state, int64_t batches_tracked,
                                       const struct chex_safetensors_about *about,
                                       struct chex_deployment *d, struct chex_error *err) {
    struct chex_statistic statistics[CHEX_FEATURES_TENSORS] = {{0}};
    struct chex_safetensors_about with = *about;
    enum chex_status st = CHEX_OK;
    chex_deployment_digest(net, state, d->parameters_digest);
    json_auto_t *o = chex_deployment_json(d);
    CHEX_AUTO_FREE char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    CHEX_ALLOCATED(text, err, "%s", path);
    with.deployment = text;
    if (d->features)
        st = chex_features_tensors(d->features, statistics, err);
    if (st == CHEX_OK)
        st = chex_safetensors_write(path, net, state, batches_tracked, &with, statistics,
                                    d->features ? CHEX_FEATURES_TENSORS : 0, err);
    for (int i = 0; i < CHEX_FEATURES_TENSORS; i++) {
        free(statistics[i].name);
        free(statistics[i].data);
    }
    return st;
}

/* ---- reading ---- */

static enum chex_status bad_part(const char *path, const char *what, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_DATA, "%s: deployment part: %s", path, what);
}

static enum chex_status take_text(const char *path, const json_t *o, const char *key, char **out,
                                  struct chex_error *err) {
    const char *text = json_string_value(json_object_get(o, key));
    if (text && !(*out = strdup(text)))
        return chex_error_memory(err, "%s", path);
    return CHEX_OK;
}

static enum chex_status take_threshold(const char *path, const json_t *thresholds, const char *name,
                                       double *out, struct chex_error *err) {
    const json_t *value = json_object_get(thresholds, name);
    if (!value)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: no threshold for finding %s: the thresholds are those of other "
                              "findings",
                              path, name);
    *out = json_is_null(value) ? NAN : json_number_value(value);
    if (!json_is_null(value) && !(json_is_number(value) && isfinite(*out)))
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: the threshold of finding %s is neither a number nor null", path,
                              name);
    return CHEX_OK;
}

/* A class that is not in `calibration` is not recalibrated. */
static enum chex_status take_calibration(const char *path, const json_t *calibration,
                                         const char *name, struct chex_calibration *out,
                                         struct chex_error *err) {
    const json_t *o = json_object_get(calibration, name);
    const json_t *slope = json_object_get(o, "slope"), *intercept = json_object_get(o, "intercept");
    if (!o || json_is_null(o))
        return CHEX_OK;
    *out = (struct chex_calibration){json_number_value(slope), json_number_value(intercept)};
    if (json_is_number(slope) && json_is_number(intercept) && out->slope > 0 &&
        isfinite(out->slope) && isfinite(out->intercept))
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_DATA,
        "%s: the calibration of finding %s is not a slope above 0 and an intercept", path, name);
}

/* Fills what the JSON object has. Only `thresholds` is required. */
static enum chex_status take_all(const char *path, const json_t *o, struct chex_deployment *d,
                                 struct chex_error *err) {
    const json_t *thresholds = json_object_get(o, "thresholds");
    const json_t *calibration = json_object_get(o, "calibration");
    const json_t *schema = json_object_get(o, "schema");
    const char *digest = json_string_value(json_object_get(o, "parameters_digest"));
    if (schema && json_integer_value(schema) != SCHEMA)
        return bad_part(path, "a schema other than 1: written by a newer chexnet?", err);
    if (!json_is_object(thresholds))
        return bad_part(path, "no object 'thresholds'", err);
    for (int c = 0; c < d->classes; c++) {
        const char *name = d->class_names[c];
        CHEX_TRY(take_threshold(path, thresholds, name, &d->threshold[c], err));
        CHEX_TRY(take_calibration(path, calibration, name, &d->calibration[c], err));
    }
    for (int v = 0; v < CHEX_DEPLOYMENT_VIEWS; v++) {
        const json_t *count = json_object_get(json_object_get(o, "views"), view_names[v]);
        d->views[v] = (uint64_t)json_integer_value(count);
    }
    snprintf(d->parameters_digest, sizeof d->parameters_digest, "%s", digest ? digest : "");
    CHEX_TRY(take_text(path, o, "rule", &d->rule, err));
    CHEX_TRY(take_text(path, o, "recalibration", &d->recalibration, err));
    d->provenance = json_incref(json_object_get(o, "provenance"));
    if (!d->recalibration && !(d->recalibration = strdup("none")))
        return chex_error_memory(err, "%s", path);
    return CHEX_OK;
}

static enum chex_status parse_part(const char *path, const char *text, json_t **out,
                                   struct chex_error *err) {
    json_auto_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(o))
        return bad_part(path, "it is no JSON object", err);
    *out = json_incref(o);
    return CHEX_OK;
}

static enum chex_status take_features(const char *path, const struct chex_tensor_set *set,
                                      const json_t *o, struct chex_deployment *d,
                                      struct chex_error *err) {
    struct chex_statistic *statistics = NULL;
    int count = 0;
    CHEX_TRY(chex_statistics_read(set, &statistics, &count, err));
    enum chex_status st = chex_features_read(path, statistics, count,
                                             json_object_get(o, "features"), &d->features, err);
    chex_statistics_destroy(statistics, count);
    return st;
}

static enum chex_status take_part(const char *path, const struct chex_tensor_set *set,
                                  const struct chex_safetensors_about *about, const char *digest,
                                  struct chex_deployment **out, struct chex_error *err) {
    json_auto_t *o = NULL;
    struct chex_deployment *d = NULL;
    if (!about->classes)
        return bad_part(path, "the file does not name its findings", err);
    CHEX_TRY(parse_part(path, about->deployment, &o, err));
    enum chex_status st = chex_deployment_create(about->classes, about->class_names, &d, err);
    if (st == CHEX_OK)
        st = take_all(path, o, d, err);
    if (st == CHEX_OK && strcmp(d->parameters_digest, digest) != 0)
        st = chex_error_set(err, CHEX_E_DATA,
                            "%s: the thresholds are those of other parameters (digest %.16s; the "
                            "file's parameters have %s): deploy these parameters again",
                            path, d->parameters_digest[0] ? d->parameters_digest : "missing",
                            digest);
    if (st == CHEX_OK)
        st = take_features(path, set, o, d, err);
    if (st == CHEX_OK)
        *out = d;
    else
        chex_deployment_destroy(d);
    return st;
}

enum chex_status chex_deployment_read(const char *path, const struct chex_net *net,
                                      const float *state, struct chex_deployment **out,
                                      struct chex_error *err) {
    struct chex_tensor_set set = {0};
    struct chex_safetensors_about about = {0};
    char digest[17];
    *out = NULL;
    CHEX_TRY(chex_safetensors_open(path, &set, &about, err));
    chex_deployment_digest(net, state, digest);
    enum chex_status st =
        about.deployment ? take_part(path, &set, &about, digest, out, err) : CHEX_OK;
    chex_tensor_set_release(&set);
    chex_safetensors_about_release(&about);
    return st;
}

/* ---- thresholds alone ---- */

/* The objects `thresholds` and `calibration` from the classes of an auroc.json. NULL: it has none.
 */
static json_t *from_results(const json_t *results) {
    json_auto_t *thresholds = json_object(), *calibration = json_object();
    const json_t *head = json_object_get(results, "operating"), *class;
    size_t i;
    json_array_foreach(json_object_get(results, "classes"), i, class) {
        const char *name = json_string_value(json_object_get(class, "name"));
        json_t *operating = json_object_get(class, "operating");
        if (!name || !json_is_object(operating))
            continue;
        json_object_set(thresholds, name, json_object_get(operating, "threshold"));
        if (json_is_object(json_object_get(operating, "calibration")))
            json_object_set(calibration, name, json_object_get(operating, "calibration"));
    }
    if (!json_object_size(thresholds))
        return NULL;
    return chex_result(
        CHEX_FIELD("rule", json_string_value(json_object_get(head, "rule"))),
        CHEX_FIELD("recalibration", json_string_value(json_object_get(head, "recalibration"))),
        CHEX_FIELD("thresholds", json_incref(thresholds)),
        CHEX_FIELD("calibration", json_incref(calibration)));
}

static enum chex_status read_json(const char *path, json_t **out, struct chex_error *err) {
    CHEX_AUTO_FREE char *text = NULL;
    size_t size = 0;
    CHEX_TRY(chex_fs_read(path, max_json_bytes, &text, &size, err));
    json_auto_t *o = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    *out = json_object_get(o, "thresholds") ? json_incref(o) : from_results(o);
    if (!*out)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: no thresholds (expected a file of chex-eval deploy, or an "
                              "auroc.json with operating points)",
                              path);
    return CHEX_OK;
}

static enum chex_status read_any(const char *path, json_t **out, struct chex_error *err) {
    struct chex_safetensors_about about = {0};
    if (!chex_text_ends_with(path, ".safetensors"))
        return read_json(path, out, err);
    CHEX_TRY(chex_safetensors_open(path, NULL, &about, err));
    enum chex_status st =
        about.deployment ? parse_part(path, about.deployment, out, err)
                         : chex_error_set(err, CHEX_E_DATA,
                                          "%s: no deployment part: make the file with chex-eval "
                                          "deploy",
                                          path);
    chex_safetensors_about_release(&about);
    return st;
}

enum chex_status chex_deployment_thresholds(const char *path, int classes, char *const *class_names,
                                            struct chex_deployment **out, struct chex_error *err) {
    json_auto_t *o = NULL;
    struct chex_deployment *d = NULL;
    CHEX_TRY(read_any(path, &o, err));
    enum chex_status st = chex_deployment_create(classes, class_names, &d, err);
    if (st == CHEX_OK)
        st = take_all(path, o, d, err);
    if (st == CHEX_OK)
        *out = d;
    else
        chex_deployment_destroy(d);
    return st;
}
