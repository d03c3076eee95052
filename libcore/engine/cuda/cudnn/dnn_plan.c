/* SPDX-License-Identifier: Apache-2.0
 *
 * Execution plans of a graph: engine search, choice by numerical notes, cache of plans, and
 * execution.
 *
 * Choice. cuDNN's heuristics order configurations by expected speed (mode A by its model, B by a
 * finer one, then the fallbacks). The first configuration that is allowed and can be planned is
 * chosen. Engines that are not deterministic are not allowed, because a step's result must depend
 * only on state and batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/cuda/cudnn/dnn_graph.h"
#include "engine/cuda/host/device_cache.h"

/* Limits: configurations per mode, and plans tried. Generating code for one plan takes about a
 * second. */
enum { MAX_CONFIGS = 32, MAX_TRIES = 12, MODES = 3, CACHE_KEY_BYTES = DNN_GRAPH_KEY_BYTES + 512 };

struct config {
    cudnnBackendDescriptor_t desc, engine;
    unsigned notes; /* bit i: cudnnBackendNumericalNote_t i */
};

struct search {
    cudnnBackendDescriptor_t ops; /* the operation graph */
    struct config configs[MODES * MAX_CONFIGS];
    int count;
    struct chex_error why; /* reason why a mode offered no configuration */
};

static bool has_note(const struct config *c, cudnnBackendNumericalNote_t note) {
    return c->notes >> note & 1u;
}

static bool allowed(const struct config *c, bool strict) {
    return !has_note(c, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
           !has_note(c, CUDNN_NUMERICAL_NOTE_FFT) && !has_note(c, CUDNN_NUMERICAL_NOTE_WINOGRAD) &&
           !has_note(c, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
           !has_note(c, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
           !(strict && has_note(c, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

/* ---- search ---- */

static void release(struct search *s) {
    for (int i = 0; i < s->count; i++) {
        cudnnBackendDestroyDescriptor(s->configs[i].engine);
        if (s->configs[i].desc)
            cudnnBackendDestroyDescriptor(s->configs[i].desc);
    }
    if (s->ops)
        cudnnBackendDestroyDescriptor(s->ops);
}

static enum chex_status operation_graph(struct dnn_graph *g, const struct dnn_target *target,
                                        struct search *s, struct chex_error *err) {
    CHEX_TRY(DNN_CREATE(OPERATIONGRAPH, &s->ops, err));
    CHEX_TRY(DNN_SET(s->ops, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 1, &g->op, err));
    if (target->handle)
        CHEX_TRY(DNN_SET(s->ops, OPERATIONGRAPH_HANDLE, HANDLE, 1, &target->handle, err));
    return CHEX_DNN(cudnnBackendFinalize(s->ops), err);
}

/* Reads the engine's notes. False: they cannot be read; the configuration is not used. */
static bool describe(struct config *c) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0, one = 0;
    if (cudnnBackendGetAttribute(c->desc, CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &c->engine) != 0 ||
        cudnnBackendGetAttribute(c->engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                 notes) != 0)
        return false;
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++)
        c->notes |= 1u << notes[i];
    return true;
}

static enum chex_status query_heuristics(struct search *s, const struct dnn_target *target,
                                         cudnnBackendHeurMode_t mode,
                                         cudnnBackendDescriptor_t heuristics,
                                         struct chex_error *err) {
    cudnnBackendDescriptor_t results[MAX_CONFIGS] = {NULL};
    int64_t found = 0;
    int made = 0;
    CHEX_TRY(DNN_SET(heuristics, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, &s->ops, err));
    CHEX_TRY(DNN_SET(heuristics, ENGINEHEUR_MODE, HEUR_MODE, 1, &mode, err));
    if (target->properties)
        CHEX_TRY(DNN_SET(heuristics, ENGINEHEUR_DEVICEPROP, BACKEND_DESCRIPTOR, 1,
                         &target->properties, err));
    CHEX_TRY(CHEX_DNN(cudnnBackendFinalize(heuristics), err));
    enum chex_status status = CHEX_OK;
    for (; made < MAX_CONFIGS && status == CHEX_OK; made++)
        status = DNN_CREATE(ENGINECFG, &results[made], err);
    if (status == CHEX_OK)
        status = DNN_GET(heuristics, ENGINEHEUR_RESULTS, BACKEND_DESCRIPTOR, MAX_CONFIGS, &found,
                         results, err);
    for (int i = 0; i < made; i++) {
        struct config c = {.desc = results[i]};
        if (status == CHEX_OK && i < found &&
            cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &c.engine) == 0 &&
            describe(&c)) {
            s->configs[s->count++] = c;
            continue;
        }
        if (c.engine)
            cudnnBackendDestroyDescriptor(c.engine);
        if (c.desc)
            cudnnBackendDestroyDescriptor(c.desc);
    }
    return status;
}

/* Finds all configurations of all modes, in order of preference. A mode without configurations is
 * not an error; s->why keeps its reason. */
static enum chex_status search(struct dnn_graph *g, const struct dnn_target *target,
                               struct search *s, struct chex_error *err) {
    static const cudnnBackendHeurMode_t modes[MODES] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                        CUDNN_HEUR_MODE_FALLBACK};
    if (g->err.status != CHEX_OK)
        return chex_error_set(err, g->err.status, "%s", g->err.text);
    CHEX_TRY(operation_graph(g, target, s, err));
    for (int i = 0; i < MODES; i++) {
        cudnnBackendDescriptor_t heuristics = NULL;
        CHEX_TRY(DNN_CREATE(ENGINEHEUR, &heuristics, err));
        (void)query_heuristics(s, target, modes[i], heuristics, &s->why);
        cudnnBackendDestroyDescriptor(heuristics);
    }
    return CHEX_OK;
}

enum chex_status dnn_graph_search(struct dnn_graph *g, const struct dnn_target *target, bool strict,
                                  int *found_out, struct chex_error *err) {
    struct search s = {0};
    int found = 0;
    const enum chex_status status = search(g, target, &s, err);
    for (int i = 0; i < s.count; i++)
        found += allowed(&s.configs[i], strict);
    release(&s);
    if (status == CHEX_OK)
        *found_out = found;
    return status;
}

/* ---- plans ---- */

static enum chex_status new_plan(const struct dnn_target *target, struct dnn_plan *plan,
                                 struct chex_error *err) {
    *plan = (struct dnn_plan){.handle = target->handle};
    CHEX_TRY(DNN_CREATE(EXECUTION_PLAN, &plan->desc, err));
    if (target->handle)
        return DNN_SET(plan->desc, EXECUTION_PLAN_HANDLE, HANDLE, 1, &target->handle, err);
    return DNN_SET(plan->desc, EXECUTION_PLAN_DEVICEPROP, BACKEND_DESCRIPTOR, 1,
                   &target->properties, err);
}

static enum chex_status finalize_plan(struct dnn_plan *plan, struct chex_error *err) {
    int64_t bytes = 0, one = 0;
    CHEX_TRY(CHEX_DNN(cudnnBackendFinalize(plan->desc), err));
    CHEX_TRY(DNN_GET(plan->desc, EXECUTION_PLAN_WORKSPACE_SIZE, INT64, 1, &one, &bytes, err));
    plan->workspace = (size_t)bytes;
    return CHEX_OK;
}

void dnn_plan_release(struct dnn_plan *plan) {
    if (plan->desc)
        cudnnBackendDestroyDescriptor(plan->desc);
    if (plan->config)
        cudnnBackendDestroyDescriptor(plan->config);
    memset(plan, 0, sizeof *plan);
}

/* Makes a plan. On success the plan owns the configuration. */
static enum chex_status make_plan(struct config *c, const struct dnn_target *target,
                                  struct dnn_plan *plan_out, struct chex_error *err) {
    struct dnn_plan plan;
    enum chex_status status = new_plan(target, &plan, err);
    if (status == CHEX_OK)
        status =
            DNN_SET(plan.desc, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, &c->desc, err);
    if (status == CHEX_OK)
        status = finalize_plan(&plan, err);
    if (status != CHEX_OK) {
        dnn_plan_release(&plan);
        return status;
    }
    plan.config = c->desc;
    c->desc = NULL;
    *plan_out = plan;
    return CHEX_OK;
}

static enum chex_status choose(struct search *s, const struct dnn_target *target, bool strict,
                               struct dnn_plan *plan_out, struct chex_error *err) {
    struct chex_error why = s->why;
    int fit = 0;
    for (int i = 0; i < s->count && fit < MAX_TRIES; i++)
        if (allowed(&s->configs[i], strict)) {
            fit++;
            if (make_plan(&s->configs[i], target, plan_out, &why) == CHEX_OK)
                return CHEX_OK;
        }
    if (fit)
        return chex_error_set(err, CHEX_E_ENV, "cuDNN: %d engines found, none can be planned: %s",
                              fit, why.text);
    if (s->count)
        return chex_error_set(err, CHEX_E_ENV,
                              "cuDNN: %d engines found, none is deterministic and exact", s->count);
    return chex_error_set(err, CHEX_E_ENV, "cuDNN: no engine found%s%s", why.text[0] ? ": " : "",
                          why.text);
}

/* ---- the cache ---- */

static bool cache_key(const struct dnn_graph *g, const struct dnn_target *target, bool strict,
                      char *key) {
    const int n =
        snprintf(key, CACHE_KEY_BYTES, "%s|%s|%s", target->key, strict ? "strict" : "any", g->key);
    return n > 0 && n < CACHE_KEY_BYTES;
}

static bool load_plan(const char *cache, const char *key, const struct dnn_target *target,
                      struct dnn_plan *plan_out) {
    struct chex_error err = {0};
    struct dnn_plan plan = {0};
    size_t size = 0;
    char *text = gpu_cache_get(cache, GPU_CACHE_PLAN, key, &size);
    if (!text)
        return false;
    enum chex_status status = new_plan(target, &plan, &err);
    if (status == CHEX_OK)
        status =
            DNN_SET(plan.desc, EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, (int64_t)size, text, &err);
    if (status == CHEX_OK)
        status = finalize_plan(&plan, &err);
    free(text);
    if (status != CHEX_OK) {
        chex_debug("plan cache: %s", err.text);
        dnn_plan_release(&plan);
        gpu_cache_drop(cache, GPU_CACHE_PLAN, key);
        return false;
    }
    *plan_out = plan;
    return true;
}

static enum chex_status serialised(const struct dnn_plan *plan, char **text_out, size_t *size_out,
                                   struct chex_error *err) {
    int64_t bytes = 0, got = 0;
    CHEX_TRY(DNN_GET(plan->desc, EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, 0, &bytes, NULL, err));
    char *text = malloc(bytes > 0 ? (size_t)bytes : 1);
    if (!text)
        return chex_error_memory(err, "a plan of %lld bytes", (long long)bytes);
    const enum chex_status status =
        DNN_GET(plan->desc, EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, bytes, &got, text, err);
    if (status != CHEX_OK) {
        free(text);
        return status;
    }
    *text_out = text;
    *size_out = (size_t)got;
    return CHEX_OK;
}

static void store_plan(const char *cache, const char *key, const struct dnn_plan *plan) {
    struct chex_error err = {0};
    char *text = NULL;
    size_t size = 0;
    if (serialised(plan, &text, &size, &err) == CHEX_OK)
        gpu_cache_put(cache, GPU_CACHE_PLAN, key, text, size);
    else
        chex_debug("plan cache: %s", err.text);
    free(text);
}

enum chex_status dnn_graph_plan(struct dnn_graph *g, const struct dnn_target *target, bool strict,
                                const char *cache, struct dnn_plan *plan_out,
                                struct chex_error *err) {
    char key[CACHE_KEY_BYTES];
    struct search s = {0};
    if (g->err.status != CHEX_OK)
        return chex_error_set(err, g->err.status, "%s", g->err.text);
    if (!cache_key(g, target, strict, key))
        cache = NULL;
    if (cache && load_plan(cache, key, target, plan_out))
        return CHEX_OK;
    enum chex_status status = search(g, target, &s, err);
    if (status == CHEX_OK)
        status = choose(&s, target, strict, plan_out, err);
    release(&s);
    if (status == CHEX_OK && cache)
        store_plan(cache, key, plan_out);
    return status;
}

/* ---- running ---- */

static enum chex_status run(const struct dnn_plan *plan, cudnnBackendDescriptor_t pack,
                            void *const pointers[DNN_MAX_ROLES], void *workspace,
                            cudaStream_t stream, struct chex_error *err) {
    int64_t uids[DNN_MAX_ROLES];
    void *data[DNN_MAX_ROLES];
    int64_t count = 0;
    for (int role = 1; role < DNN_MAX_ROLES; role++)
        if (pointers[role]) {
            uids[count] = role;
            data[count++] = pointers[role];
        }
    CHEX_TRY(DNN_SET(pack, VARIANT_PACK_UNIQUE_IDS, INT64, count, uids, err));
    CHEX_TRY(DNN_SET(pack, VARIANT_PACK_DATA_POINTERS, VOID_PTR, count, data, err));
    CHEX_TRY(DNN_SET(pack, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &workspace, err));
    CHEX_TRY(CHEX_DNN(cudnnBackendFinalize(pack), err));
    CHEX_TRY(CHEX_DNN(cudnnSetStream(plan->handle, stream), err));
    return CHEX_DNN(cudnnBackendExecute(plan->handle, plan->desc, pack), err);
}

cudaError_t dnn_plan_run(const struct dnn_plan *plan, void *const pointers[DNN_MAX_ROLES],
                         void *workspace, cudaStream_t stream) {
    struct chex_error err = {0};
    cudnnBackendDescriptor_t pack = NULL;
    enum chex_status status = DNN_CREATE(VARIANT_PACK, &pack, &err);
    if (status == CHEX_OK)
        status = run(plan, pack, pointers, workspace, stream, &err);
    if (pack)
        cudnnBackendDestroyDescriptor(pack);
    if (status == CHEX_OK)
        return cudaSuccess;
    chex_err("%s", err.text);
    return cudaErrorUnknown;
}
