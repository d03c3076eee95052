/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets of cuDNN plans: a present device (by a handle), or recorded properties of a device. Also
 * the list of targets that plans share.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/cuda/cudnn/dnn_graph.h"

enum chex_status dnn_target_open(const struct gpu_device *device, struct dnn_target *target_out,
                                 struct chex_error *err) {
    struct dnn_target t = {0};
    const cudaError_t e = cudaSetDevice(device->index);
    if (e != cudaSuccess)
        return chex_error_set(err, CHEX_E_ENV, "device %d: %s", device->index,
                              cudaGetErrorString(e));
    CHEX_TRY(CHEX_DNN(cudnnCreate(&t.handle), err));
    snprintf(t.key, sizeof t.key, "cudnn %zu, %s, capability %d, %d multiprocessors",
             cudnnGetVersion(), device->name, device->capability, device->sms);
    *target_out = t;
    return CHEX_OK;
}

static enum chex_status properties(struct dnn_target *t, struct chex_error *err) {
    return CHEX_DNN(
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &t->properties), err);
}

enum chex_status dnn_target_recorded(const char *json, struct dnn_target *target_out,
                                     struct chex_error *err) {
    struct dnn_target t = {0};
    char hash[CHEX_HASH128_HEX_BYTES];
    const size_t bytes = strlen(json) + 1; /* cuDNN reads up to the NUL */
    chex_hash128_hex(json, bytes, hash);
    snprintf(t.key, sizeof t.key, "cudnn %zu, recorded device %s", cudnnGetVersion(), hash);
    enum chex_status status = properties(&t, err);
    if (status == CHEX_OK)
        status = CHEX_DNN(cudnnBackendSetAttribute(t.properties,
                                                   CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                   CUDNN_TYPE_CHAR, (int64_t)bytes, json),
                          err);
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
static enum chex_status read_json(cudnnBackendDescriptor_t d, char **json_out,
                                  struct chex_error *err) {
    int64_t bytes = 0, got = 0;
    CHEX_TRY(CHEX_DNN(cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                               CUDNN_TYPE_CHAR, 0, &bytes, NULL),
                      err));
    char *json = calloc((size_t)bytes + 1, 1);
    if (!json)
        return chex_error_memory(err, "device properties");
    const enum chex_status status =
        CHEX_DNN(cudnnBackendGetAttribute(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                          CUDNN_TYPE_CHAR, bytes, &got, json),
                 err);
    if (status != CHEX_OK) {
        free(json);
        return status;
    }
    *json_out = json;
    return CHEX_OK;
}

enum chex_status dnn_target_record(const struct dnn_target *target, char **json_out,
                                   struct chex_error *err) {
    struct dnn_target t = {0};
    if (!target->handle)
        return read_json(target->properties, json_out, err);
    enum chex_status status = properties(&t, err);
    if (status == CHEX_OK)
        status = CHEX_DNN(cudnnBackendSetAttribute(t.properties, CUDNN_ATTR_DEVICEPROP_HANDLE,
                                                   CUDNN_TYPE_HANDLE, 1, &target->handle),
                          err);
    if (status == CHEX_OK)
        status = CHEX_DNN(cudnnBackendFinalize(t.properties), err);
    if (status == CHEX_OK)
        status = read_json(t.properties, json_out, err);
    dnn_target_close(&t);
    return status;
}

void dnn_target_close(struct dnn_target *target) {
    if (target->properties)
        cudnnBackendDestroyDescriptor(target->properties);
    if (target->handle)
        cudnnDestroy(target->handle);
    memset(target, 0, sizeof *target);
}

/* ---- shared targets ---- */

/* List of all open targets. It is short: few threads plan at the same time. */
static struct shared {
    struct dnn_target target; /* first member: borrowers get its address */
    struct shared *next;
    int device, references;
    bool planning;
} * shared;
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;

enum chex_status dnn_target_borrow(const struct gpu_device *device, const struct dnn_target **out,
                                   struct chex_error *err) {
    enum chex_status status = CHEX_OK;
    const cudaError_t e =
        cudaSetDevice(device->index); /* per thread; another thread may have opened the target */
    if (e != cudaSuccess)
        return chex_error_set(err, CHEX_E_ENV, "device %d: %s", device->index,
                              cudaGetErrorString(e));
    pthread_mutex_lock(&shared_lock);
    struct shared *s = shared;
    while (s && (s->planning || s->device != device->index))
        s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        status =
            s ? dnn_target_open(device, &s->target, err) : chex_error_memory(err, "cuDNN handle");
        if (status == CHEX_OK) {
            s->device = device->index;
            s->next = shared;
            shared = s;
        } else
            free(s);
    }
    if (status == CHEX_OK) {
        s->planning = true;
        s->references++;
        *out = &s->target;
    }
    pthread_mutex_unlock(&shared_lock);
    return status;
}

void dnn_target_settle(const struct dnn_target *target) {
    pthread_mutex_lock(&shared_lock);
    ((struct shared *)target)->planning = false;
    pthread_mutex_unlock(&shared_lock);
}

void dnn_target_drop(const struct dnn_target *target) {
    struct shared *s = (struct shared *)target;
    if (!s)
        return;
    pthread_mutex_lock(&shared_lock);
    if (--s->references == 0) {
        struct shared **link = &shared;
        while (*link != s)
            link = &(*link)->next;
        *link = s->next;
        dnn_target_close(&s->target);
        free(s);
    }
    pthread_mutex_unlock(&shared_lock);
}
