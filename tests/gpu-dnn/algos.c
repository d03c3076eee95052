/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_dnn against engine/ref (gpu/conv_test.h). Here cuDNN is the interpreter of
 * interpreted.cc, on a device the library itself; there CHEX_TEST_RECORD=FILE keeps the device's
 * properties as cuDNN reports them, for tests/data/gpu.
 */
#include "base/fs.h"
#include "engine/cuda/host/dependent.h"
#include "gpu-dnn/recorded.h"
#include "gpu/conv_test.h"

static const struct ct_algo algo = {&gpu_conv_algo_dnn, ct_finish_sum, true};

static const struct ct_shape shapes[] = {
    {GPU_F32, {1, 1, 0}, 64, 128, 2, 7, true, true, true, true, 4, 0, 0},
    {GPU_F32, {1, 1, 0}, 96, 32, 3, 3, false, false, false, true, 4, 0, 0},
    {GPU_F32, {1, 1, 0}, 32, 64, 1, 1, true, false, true, false, 4, 0, 0},
    {GPU_F32, {1, 1, 0}, 64, 32, 1, 10, false, false, true, false, 4, 0, 0},
    {GPU_F32, {3, 1, 1}, 64, 32, 2, 7, true, true, true, false, 4, 0, 0},
    {GPU_F32, {3, 1, 1}, 32, 64, 1, 10, false, false, false, true, 4, 0, 0},
    {GPU_F32, {3, 1, 1}, 32, 32, 3, 1, true, true, false, true, 4, 0, 0},
    {GPU_F32, {1, 2, 0}, 64, 32, 2, 7, true, true, true, true, 4, 0, 0},
    {GPU_F32, {3, 2, 1}, 32, 64, 1, 10, true, true, true, false, 4, 0, 0},
    {GPU_F32, {7, 2, 3}, 8, 64, 1, 13, false, false, true, false, 4, 0, 0},
    {GPU_F32, {1, 1, 0}, 64, 32, 1, 7, true, true, true, true, 4, 0, 2},
    {GPU_F32, {1, 1, 0}, 64, 32, 2, 3, false, false, false, true, 4, 0, 1},
    {GPU_F32, {3, 1, 1}, 64, 32, 1, 7, true, true, true, true, 4, 0, 2},
    {GPU_F32, {3, 1, 1}, 32, 32, 2, 3, false, false, false, false, 4, 0, 1},
};

/* A convolution in a graph: replayed, it reads what is there then. */
static void captured(void) {
    struct ct_shape s = shapes[0];
    s.type = GPU_BF16;
    struct ct t = ct_make(&algo, &s);
    struct chex_error err = {0};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *state = NULL;
    BAIL_UNLESS(algo.algo->prepare(&t.device, &t.f, NULL, &state, &err) == CHEX_OK, "%s", err.text);
    void *scratch = gt_alloc(algo.algo->workspace(&t.device, state, &t.f, NULL));
    GT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    /* The first run may load code. The emulated device refuses a dependent launch after cuDNN. */
    gpu_dependents_begin(stream);
    const cudaError_t e = algo.algo->forward(&t.device, state, &t.f, scratch, stream);
    gpu_dependents_end();
    OK(e == cudaSuccess, "a kernel after cuDNN's is not launched dependent");
    GT_OK(cudaStreamSynchronize(stream));
    float *first = gt_download_as(s.type, t.out.b.device, t.out.b.count);
    GT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    GT_OK(algo.algo->forward(&t.device, state, &t.f, scratch, stream));
    GT_OK(cudaStreamEndCapture(stream, &graph));
    GT_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) {
        GT_OK(cudaGraphLaunch(exec, stream));
        GT_OK(cudaStreamSynchronize(stream));
    }
    float *second = gt_download_as(s.type, t.out.b.device, t.out.b.count);
    OK(memcmp(first, second, t.out.b.count * sizeof *first) == 0,
       "a captured forward pass gives the same bits at its second launch");
    st_check_stats(&t.out, second, &t.f.stats, "captured");
    algo.algo->release(state);
    GT_OK(cudaGraphExecDestroy(exec));
    GT_OK(cudaGraphDestroy(graph));
    GT_OK(cudaStreamDestroy(stream));
    gt_release_all();
}

static void refusals(void) {
    struct ct_shape s = shapes[0];
    s.type = GPU_BF16;
    struct ct t = ct_make(&algo, &s);
    struct chex_error err = {0};
    void *state = NULL;
    struct gpu_device old = t.device;
    old.capability = 75;
    OK(!gpu_conv_algo_dnn.fits(&old, &t.f, NULL), "capability 7.5 has no bf16");
    t.f.in.n = t.f.out.n = 1 << 20;
    OK_STATUS(gpu_conv_algo_dnn.prepare(&t.device, &t.f, NULL, &state, &err), CHEX_E_ENV, err,
              "2^31 - 1");
    gt_release_all();
}

static void record(const char *path) {
    struct chex_error err = {0};
    const struct dnn_target *target = NULL;
    char *json = NULL;
    const bool kept = dnn_target_borrow(&ct_device, &target, &err) == CHEX_OK &&
                      record_target(target, &json, &err) == CHEX_OK &&
                      chex_fs_write(path, json, strlen(json), &err) == CHEX_OK;
    OK(kept, "the device's properties are in %s %s", path, err.text);
    free(json);
    if (target)
        dnn_target_settle(target);
    dnn_target_drop(target);
}

int main(void) {
    setenv("CHEX_CACHE_DIR", "", 1);
    ct_init(80, 1 << 16);
    for (int type = GPU_F32; type <= GPU_F16; type++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct ct_shape s = shapes[i];
            s.type = (enum gpu_type)type;
            ct_check(&algo, &s);
        }
    captured();
    refusals();
    if (getenv("CHEX_TEST_RECORD"))
        record(getenv("CHEX_TEST_RECORD"));
    return st_done();
}
