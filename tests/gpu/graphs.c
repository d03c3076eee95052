/* SPDX-License-Identifier: Apache-2.0
 *
 * Captured graphs of the engine: a training with them gives the bits of one without. A part of a
 * step is captured when its key comes a second time, and batches alternate between two slots, so
 * the third step is the first that launches graphs, and the fifth launches one again.
 */
#include "engine/cuda/host/cuda_engine.h"
#include "gpu/gpu_test.h"
#include "op/net.h"

enum { STEPS = 5 };

struct training {
    double loss[STEPS];
    float *state;
    int graphs; /* parts that were launched as graphs */
};

static struct training train(const char *spec, const struct setting *s,
                             const struct chex_net *net) {
    const struct chex_engine_config config = test_config(net, s);
    struct training t = {.state = make_state(net)};
    const struct chex_batch batch = make_batch(s);
    struct chex_engine *e = test_engine(spec, &config, t.state);
    float *grad = test_grad(e);
    for (int i = 0; i < STEPS; i++) {
        const struct chex_update u = {
            .optim = CHEX_SGD, .lr = 0.01, .momentum = 0.9, .step = i + 1, .grad_scale = 1};
        t.loss[i] = test_pass(e, &batch, grad, NULL).loss;
        test_update(e, &u, grad);
    }
    test_get(e, CHEX_STATE_PARAMS, t.state);
    const struct cuda_engine *own = e->self;
    for (int i = 0; i < own->graph_count; i++)
        t.graphs += own->graphs[i].exec != NULL;
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    free_batch(&batch);
    return t;
}

static struct training train_with(const char *const settings[][2], const char *spec,
                                  const struct setting *s, const struct chex_net *net) {
    test_settings(settings, true);
    const struct training t = train(spec, s, net);
    test_settings(settings, false);
    return t;
}

static bool equal(const struct training *a, const struct training *b, const struct chex_net *net) {
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->state, b->state, net->state_count * sizeof *a->state) == 0;
}

static void with_and_without(const char *spec, const struct setting *s) {
    struct chex_net *net = small_net(s->model, CLASSES);
    /* Streams that are late show a wait that is missing. */
    const char *const single[][2] = {
        {"CHEX_CUDA_GRAPHS", "0"}, {"EMULATED_STREAMS", "late"}, {NULL, NULL}};
    struct training with = train(spec, s, net), without = train_with(single, spec, s, net);
    OK(with.graphs > 4 && without.graphs == 0 && equal(&with, &without, net),
       "%s %s: %d steps give the same bits with %d graphs and without", spec, s->model, STEPS,
       with.graphs);
#ifdef CHEX_GPU_EMULATED
    const char *const plain[][2] = {{"EMULATED_GRAPHS", "0"},     {"CHEX_CUDA_DEPENDENT", "0"},
                                    {"CHEX_CUDA_SIDE", "0"},      {"EMULATED_ORDER", "backward"},
                                    {"EMULATED_SPIN", "refused"}, {NULL, NULL}};
    struct training refused = train_with(plain, spec, s, net);
    OK(refused.graphs == 0 && equal(&refused, &without, net),
       "%s: a driver that refuses graphs gets single launches, without dependent launches and the "
       "second stream, with threads and blocks in reverse order and no wait that spins, the bits "
       "are the same",
       spec);
    free(refused.state);
#endif
    free(with.state);
    free(without.state);
    chex_net_destroy(net);
}

/* A 3x3 convolution of a dense layer over n images of hw pixels; what it computes does not matter.
 */
static struct gpu_conv_forward dense_layer(int n, int hw) {
    const size_t pixels = (size_t)n * (size_t)(hw * hw);
    return (struct gpu_conv_forward){.in = {gt_zeros(pixels * 128 * 2), GPU_BF16, n, hw, 128, 128},
                                     .window = {3, 1, 1},
                                     .weight = gt_zeros((size_t)32 * 128 * 9 * 2),
                                     .out = {gt_zeros(pixels * 32 * 2), GPU_BF16, n, hw, 32, 32}};
}

/* One graph launches a kernel with more shared memory, then with less: it keeps what the first
 * launch was allowed. */
static void shared_memory(void) {
    struct chex_error err = {0};
    struct gpu_device device;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec = NULL;
    BAIL_UNLESS(gpu_device_open(NULL, &device, &err) == CHEX_OK, "%s", err.text);
    device.sms = 1;
    const struct gpu_conv_forward layers[] = {dense_layer(1, 56), dense_layer(1, 28)};
    GT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int captured = 0; captured < 2; captured++) {
        if (captured)
            GT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < 2; i++)
            GT_OK(gpu_conv_algo_3x3.forward(&device, NULL, &layers[i], NULL, stream));
    }
    GT_OK(cudaStreamEndCapture(stream, &graph));
    const cudaError_t made = cudaGraphInstantiate(&exec, graph, 0);
    OK(made == cudaSuccess, "a later launch with less shared memory leaves the limit: %s",
       cudaGetErrorString(made));
    GT_OK(cudaGraphDestroy(graph));
    if (exec) {
        GT_OK(cudaGraphLaunch(exec, stream));
        GT_OK(cudaStreamSynchronize(stream));
        GT_OK(cudaGraphExecDestroy(exec));
    }
    GT_OK(cudaStreamDestroy(stream));
    gt_release_all();
}

/* An engine of the last stage, for training. */
static struct chex_engine *engine_of(const struct chex_net *net, int size) {
    const struct chex_engine_config config =
        test_config(net, &(struct setting){net->model, size, 1, 1, CHEX_BF16});
    return test_engine("cuda:s4", &config, NULL);
}

/* The last segment's gradients are sent when nothing is left to compute beside them. */
static void segments(const struct chex_net *net) {
    enum { SIZE = 224 };
    struct chex_engine *e = engine_of(net, SIZE);
    const struct cuda_engine *own = e->self;
    const int end = own->segment_end[own->segments - 1];
    double all = 0, last = 0;
    for (int i = 0; i < net->op_count; i++) {
        all += chex_op_macs(net, i, SIZE);
        last += i < end ? chex_op_macs(net, i, SIZE) : 0;
    }
    const double mb = (double)net->ops[end].final_from * sizeof(float) * 1e-6;
    OK(last < 0.45 * all && mb < 2.5,
       "the last of %d segments has %.0f %% of the products and %.1f MB of gradients",
       own->segments, 100 * last / all, mb);
    chex_engine_destroy(e);
}

#ifdef CHEX_GPU_EMULATED
/* A kernel that fails as it runs is named by its operation, if CHEX_CUDA_GRAPHS is `sync`. */
static void fault(const struct chex_net *net) {
    struct chex_error err = {0};
    float pixels[32 * 32] = {0}, logits[CLASSES];
    const struct chex_batch batch = {1, pixels, NULL};
    setenv("CHEX_CUDA_GRAPHS", "sync", 1);
    struct chex_engine *e = engine_of(net, 32);
    setenv("EMULATED_FAULT", "150", 1);
    const enum chex_status st = chex_engine_infer(e, &batch, logits, &err);
    OK(st != CHEX_OK && strncmp(err.text, "forward of block", 16) == 0, "%s", err.text);
    chex_engine_destroy(e);
}
#endif

int main(void) {
    shared_memory();
    static const struct setting own = {SMALL_DENSENET, 32, 2, 2, CHEX_BF16};
    struct chex_net *net = small_net("densenet121", CLASSES);
    segments(net);
#if TAP_SLOW_BUILD
    printf("# slow build: no training\n");
    (void)with_and_without;
    (void)own;
#else
    with_and_without("cuda:s4", &own);
    with_and_without("cuda:s5", &own); /* computes as s4 where the capability is not 9.0 */
#endif
#ifdef CHEX_GPU_EMULATED
    fault(net); /* last: what failed stays so */
#endif
    chex_net_destroy(net);
    return tap_done();
}
