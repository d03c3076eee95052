/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets of cuDNN plans that are not present: the properties of a device, recorded as JSON.
 */
#ifndef CHEX_TESTS_GPU_DNN_RECORDED_H
#define CHEX_TESTS_GPU_DNN_RECORDED_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/cuda/cudnn/dnn_graph.h"

static inline enum chex_status properties(struct dnn_target *t, struct chex_error *err) {
    return DNN_CREATE(DEVICEPROP, &t->properties, err);
}

/* A target without a device. json: output of record_target on such a device. */
static inline enum chex_status recorded_target(const char *json, struct dnn_target *target_out,
                                               struct chex_error *err) {
    struct dnn_target t = {0};
    char hash[CHEX_HASH128_HEX_BYTES];
    const size_t bytes = strlen(json) + 1; /* cuDNN reads up to the NUL */
    chex_hash128_hex(json, bytes, hash);
    snprintf(t.key, sizeof t.key, "cudnn %zu, recorded device %s", cudnnGetVersion(), hash);
    enum chex_status status = properties(&t, err);
    if (status == CHEX_OK)
        status =
            DNN_SET(t.properties, DEVICEPROP_JSON_REPRESENTATION, CHAR, (int64_t)bytes, json, err);
    if (status == CHEX_OK)
        status = CHEX_DNN(cudnnBackendFinalize(t.properties), err);
    if (status != CHEX_OK) {
        dnn_target_close(&t);
        return status;
    }
    *target_out = t;
    return CHEX_OK;
}

/* Reads the JSON of a device properties descriptor. */
static inline enum chex_status read_json(cudnnBackendDescriptor_t d, char **json_out,
                                         struct chex_error *err) {
    int64_t bytes = 0, got = 0;
    CHEX_TRY(DNN_GET(d, DEVICEPROP_JSON_REPRESENTATION, CHAR, 0, &bytes, NULL, err));
    char *json = calloc((size_t)bytes + 1, 1);
    if (!json)
        return chex_error_memory(err, "device properties");
    const enum chex_status status =
        DNN_GET(d, DEVICEPROP_JSON_REPRESENTATION, CHAR, bytes, &got, json, err);
    if (status != CHEX_OK) {
        free(json);
        return status;
    }
    *json_out = json;
    return CHEX_OK;
}

/* The device's properties as JSON. The caller frees it. */
static inline enum chex_status record_target(const struct dnn_target *target, char **json_out,
                                             struct chex_error *err) {
    struct dnn_target t = {0};
    if (!target->handle)
        return read_json(target->properties, json_out, err);
    enum chex_status status = properties(&t, err);
    if (status == CHEX_OK)
        status = DNN_SET(t.properties, DEVICEPROP_HANDLE, HANDLE, 1, &target->handle, err);
    if (status == CHEX_OK)
        status = CHEX_DNN(cudnnBackendFinalize(t.properties), err);
    if (status == CHEX_OK)
        status = read_json(t.properties, json_out, err);
    dnn_target_close(&t);
    return status;
}

#endif
