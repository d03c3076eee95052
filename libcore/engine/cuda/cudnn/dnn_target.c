/* SPDX-License-Identifier: Apache-2.0
 *
 * Targets of cuDNN plans, and the list of those that plans share.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/cudnn/dnn_graph.h"

/* Devices are selected per thread: another thread may have opened the target. */
static enum chex_status select_device(const struct gpu_device *device, struct chex_error *err) {
    const cudaError_t e = cudaSetDevice(device->index);
    return e == cudaSuccess ? CHEX_OK
                            : chex_error_set(err, CHEX_E_ENV, "device %d: %s", device->index,
                                             cudaGetErrorString(e));
}

/* Opens a handle on the thread's device, which is `device`. */
static enum chex_status target_open(const struct gpu_device *device, struct dnn_target *target_out,
                                    struct chex_error *err) {
    struct dnn_target t = {0};
    CHEX_TRY(CHEX_DNN(cudnnCreate(&t.handle), err));
    snprintf(t.key, sizeof t.key, "cudnn %zu, %s, capability %d, %d multiprocessors",
             cudnnGetVersion(), device->name, device->capability, device->sms);
    *target_out = t;
    return CHEX_OK;
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
    CHEX_TRY(select_device(device, err));
    enum chex_status status = CHEX_OK;
    pthread_mutex_lock(&shared_lock);
    struct shared *s = shared;
    while (s && (s->planning || s->device != device->index))
        s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        status = s ? target_open(device, &s->target, err) : chex_error_memory(err, "cuDNN handle");
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
