/* SPDX-License-Identifier: Apache-2.0
 *
 * Dependent launches (CUDA: programmatic dependent launch). A kernel may be launched before the
 * kernel ahead of it in its stream has ended. Its blocks take the places that become free, and wait
 * in gpu_begin (kernels/device.cuh) until the other kernel has ended and its writes are visible. So
 * the time of the launch itself is hidden; results cannot change.
 *
 * A launch is dependent only if the operation ahead of it in the stream is a kernel: after a copy,
 * a memset or a wait for an event it is an ordinary one. The state belongs to the calling thread,
 * like a capture.
 */
#ifndef CHEX_ENGINE_CUDA_HOST_DEPENDENT_H
#define CHEX_ENGINE_CUDA_HOST_DEPENDENT_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_device;

/* Whether the device (capability 9.0 and later), its driver (CUDA 12.3 and later, for captures) and
 * the loaded code of the kernels support dependent launches. CHEX_CUDA_DEPENDENT=0: never. */
bool gpu_dependents_supported(const struct gpu_device *device);

/* From here to gpu_dependents_end, kernels on `stream` are launched dependent; the first one is
 * not. */
void gpu_dependents_begin(cudaStream_t stream);
/* The operation enqueued last on that stream is not a kernel. */
void gpu_dependents_break(void);
void gpu_dependents_end(void);

/* For the launcher: whether the next launch, on `stream`, is a dependent one. */
bool gpu_dependents_next(cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
