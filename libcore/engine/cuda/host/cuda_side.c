/* SPDX-License-Identifier: Apache-2.0
 *
 * The second stream of backward. A weight gradient is computed in parts; the kernel that adds them
 * runs on this stream, beside the operations that follow. It is short of blocks and waits for
 * memory, so it costs little there.
 *
 * Each operation of backward takes the next bytes of the workspace for its parts. When the
 * workspace is used up, and at the end of each part of a step, the compute stream waits for the
 * second one.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/host/cuda_engine.h"
#include "engine/cuda/host/dependent.h"

enum chex_status chex_cuda_side_init(struct cuda_engine *e, struct chex_error *err) {
    const char *asked = getenv("CHEX_CUDA_SIDE");
    if (!e->config.training || (asked && strcmp(asked, "0") == 0))
        return CHEX_OK;
    CHEX_CUDA(cudaStreamCreateWithFlags(&e->side.stream, cudaStreamNonBlocking));
    CHEX_CUDA(cudaEventCreateWithFlags(&e->side.parts_written, cudaEventDisableTiming));
    CHEX_CUDA(cudaEventCreateWithFlags(&e->side_done, cudaEventDisableTiming));
    return CHEX_OK;
}

void chex_cuda_side_release(struct cuda_engine *e) {
    gpu_event_destroy(e->side.parts_written);
    gpu_event_destroy(e->side_done);
    if (e->side.stream)
        cudaStreamDestroy(e->side.stream);
}

enum chex_status chex_cuda_join(struct cuda_engine *e, struct chex_error *err) {
    e->workspace_at = 0;
    if (!e->side.used)
        return CHEX_OK;
    e->side.used = false;
    CHEX_CUDA(cudaEventRecord(e->side_done, e->side.stream));
    CHEX_CUDA(cudaStreamWaitEvent(e->stream, e->side_done, 0));
    gpu_dependents_break();
    return CHEX_OK;
}

enum chex_status chex_cuda_take_workspace(struct cuda_engine *e, size_t bytes, void **out,
                                          struct chex_error *err) {
    if (e->workspace_at + bytes > e->workspace_bytes)
        CHEX_TRY(chex_cuda_join(e, err));
    *out = (char *)e->workspace + e->workspace_at;
    e->workspace_at += cuda_padded(bytes);
    return CHEX_OK;
}
