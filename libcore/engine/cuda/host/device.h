/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs that CUDA shows to this process, and the one GPU that an engine uses. engine/choose.h
 * makes the choice. A task may see only its own GPU or all GPUs of a node, so a CUDA index means
 * nothing to other ranks.
 */
#ifndef CHEX_ENGINE_CUDA_HOST_DEVICE_H
#define CHEX_ENGINE_CUDA_HOST_DEVICE_H

#include "engine/cuda/host/gpu.h"
#include "launch/devices.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `devices` of struct chex_engine_hardware. Creates no CUDA context. */
enum chex_status gpu_devices(struct chex_gpu_list *out, struct chex_error *err);

/* `probe` of struct chex_engine_impl. */
enum chex_status gpu_probe(char *text_out, size_t size, struct chex_error *err);

/* Opens a device for an engine.
 *   - wanted: NULL means the first of gpu_devices.
 *   - Makes it the calling thread's device and creates the context. Other threads of the engine
 *     must call cudaSetDevice(out->index).
 *   - out: its properties, including the free memory.
 *   - CHEX_E_ENV: the GPU is not visible, or too old for this build. */
enum chex_status gpu_device_open(const struct chex_gpu *wanted, struct gpu_device *out,
                                 struct chex_error *err);

/* Sets err from a CUDA error in `what` ("cudaMalloc(...)"). Status: out of memory CHEX_E_RESOURCE,
 * broken hardware CHEX_E_NODE, unusable driver or device CHEX_E_ENV, everything else CHEX_E_FAIL.
 */
enum chex_status gpu_error(cudaError_t e, const char *what, struct chex_error *err);

/* If `call` fails, sets the calling function's `err` with the call's text and returns. */
#define CHEX_CUDA(call)                                                                            \
    do {                                                                                           \
        cudaError_t chex_cuda_e_ = (call);                                                         \
        if (chex_cuda_e_ != cudaSuccess)                                                           \
            return gpu_error(chex_cuda_e_, #call, err);                                            \
    } while (0)

/* NULL allowed. */
void gpu_event_destroy(cudaEvent_t event);

/* Warns, once in a process, if the device runs fewer clusters of so many blocks at once than
 * planned. */
void gpu_check_clusters(int at_once, int planned, int blocks);

#ifdef __cplusplus
}
#endif
#endif
