/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices as CUDA shows them to this process, and the one that an engine computes on. The choice
 * among them is not made here (engine/choose.h): a task may see its own GPU only or all of a node,
 * and an index means nothing to the ranks beside it.
 */
#ifndef CHEX_ENGINE_CUDA_DEVICE_H
#define CHEX_ENGINE_CUDA_DEVICE_H

#include "engine/cuda/gpu.h"
#include "launch/devices.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `devices` of struct chex_engine_impl: no context is made. */
enum chex_status gpu_devices(struct chex_gpu_list *out, struct chex_error *err);

/* `probe` of struct chex_engine_impl. */
enum chex_status gpu_probe(char *text_out, size_t size, struct chex_error *err);

/* Makes `wanted` (NULL: the first of gpu_devices) the calling thread's device and describes it,
 * its free memory included; other threads of the engine call cudaSetDevice(out->index). A GPU that
 * the engine has no code for is CHEX_E_ENV. Makes the context. */
enum chex_status gpu_device_open(const struct chex_gpu *wanted, struct gpu_device *out,
                                 struct chex_error *err);

/* What CUDA said of `what` ("cudaMalloc(...)"), and whose fault that is: memory that is not
 * there is CHEX_E_RESOURCE, broken hardware CHEX_E_NODE, a driver or device that cannot be had
 * CHEX_E_ENV, all else a failure of ours. */
enum chex_status gpu_error(cudaError_t e, const char *what, struct chex_error *err);

/* Returns from the calling function where `call` fails; the text names the call. */
#define CHEX_CUDA(call, err)                                                                       \
    do {                                                                                           \
        cudaError_t chex_cuda_e_ = (call);                                                         \
        if (chex_cuda_e_ != cudaSuccess)                                                           \
            return gpu_error(chex_cuda_e_, #call, (err));                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
