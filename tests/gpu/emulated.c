/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated device itself: host types, capture and replay, and what a capture refuses.
 */
#include "gpu/gpu_test.h"

static void types(void) {
    int wrong = 0;
    for (uint32_t i = 0; i < 65536; i++) {
        float f = gt_from_f16((uint16_t)i), b = gt_from_bf16((uint16_t)i);
        wrong += !isnan(f) && gt_to_f16(f) != i;
        wrong += !isnan(b) && gt_to_bf16(b) != i;
    }
    OK(wrong == 0, "every 16-bit value survives a way there and back");
    OK(gt_rounded(GPU_F16, 1.0f + 1.0f / 2048) == 1.0f &&
           gt_rounded(GPU_F16, 1.0f + 3.0f / 2048) == 1.0f + 2.0f / 1024 &&
           isinf(gt_rounded(GPU_F16, 65520.0f)) && gt_rounded(GPU_F16, 65519.0f) == 65504.0f,
       "fp16 rounds ties to even, and to infinity");
}

static void capture(void) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float host = 1, *device = gt_zeros(4);
    GT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    GT_OK(cudaMemcpyAsync(device, &host, 4, cudaMemcpyHostToDevice, stream));
    GT_OK(cudaStreamEndCapture(stream, &graph));
    GT_OK(cudaGraphInstantiate(&exec, graph, 0));
    float *before = gt_floats(device, 1);
    host = 7;
    GT_OK(cudaGraphLaunch(exec, stream));
    GT_OK(cudaStreamSynchronize(stream));
    float *after = gt_floats(device, 1);
    OK(*before == 0 && *after == 7, "a capture runs nothing; its launch reads what is there then");
    GT_OK(cudaGraphExecDestroy(exec));
    GT_OK(cudaGraphDestroy(graph));
    GT_OK(cudaStreamDestroy(stream));
    gt_release_all();
}

static void refusals(void) {
    cudaStream_t stream;
    cudaGraph_t graph;
    void *p = NULL;
    float *to = gt_zeros(16), *from = gt_zeros(16);
    GT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(gpu_add(to, from, 4, stream) == cudaErrorStreamCaptureUnsupported,
       "a kernel that never ran is not captured: its code would have to be loaded");
    OK(cudaMalloc(&p, 16) != cudaSuccess && cudaMallocHost(&p, 16) != cudaSuccess &&
           cudaFree(to) != cudaSuccess && cudaDeviceSynchronize() != cudaSuccess,
       "nothing allocates, frees or waits in a capture");
    GT_OK(cudaStreamEndCapture(stream, &graph));
    GT_OK(cudaGraphDestroy(graph));
    GT_OK(gpu_add(to, from, 4, stream));
    GT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(gpu_add(to, from, 4, stream) == cudaSuccess, "one that ran is");
    GT_OK(cudaStreamEndCapture(stream, &graph));
    GT_OK(cudaGraphDestroy(graph));
    GT_OK(cudaStreamDestroy(stream));
    gt_release_all();
}

int main(void) {
    types();
    capture();
    refusals();
    return tap_done();
}
