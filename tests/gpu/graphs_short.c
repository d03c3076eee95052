/* SPDX-License-Identifier: Apache-2.0
 *
 * Captured graphs of batches that are smaller than the engine's: inference with them gives the bits
 * of one without, and their number has a limit.
 */
#include "engine/cuda/host/cuda_engine.h"
#include "gpu/gpu_test.h"
#include "op/net.h"

enum { SIZE = 32, BATCH = 2, CALLS = 7 };

static const struct setting setting = {"densenet_tiny", SIZE, BATCH, BATCH, CHEX_FP32};

static struct chex_engine *engine_of(const struct chex_net *net, const float *state) {
    struct chex_engine_config config = test_config(net, &setting);
    config.training = false;
    return test_engine("cuda:s0", &config, state);
}

static int captured(const struct cuda_engine *e) {
    int count = 0;
    for (int i = 0; i < e->graph_count; i++)
        count += e->graphs[i].exec != NULL;
    return count;
}

/* Batches of 2, then of 1 image, which come three times in each slot. Returns how many graphs there
 * are in the end. */
static int infer(const struct chex_net *net, const float *state, const float *pixels,
                 float (*logits)[BATCH * CLASSES]) {
    struct chex_engine *e = engine_of(net, state);
    for (int i = 0; i < CALLS; i++) {
        const struct chex_batch batch = {i ? 1 : BATCH, pixels + (i % 2 ? SIZE * SIZE : 0), NULL};
        test_infer(e, &batch, logits[i]);
    }
    const int graphs = captured(e->self);
    chex_engine_destroy(e);
    return graphs;
}

static void same_bits(const struct chex_net *net) {
    const struct chex_batch batch = make_batch(&setting);
    float with[CALLS][BATCH * CLASSES] = {{0}}, without[CALLS][BATCH * CLASSES] = {{0}};
    float *state = make_state(net);
    setenv("EMULATED_STREAMS", "late", 1);
    const int graphs = infer(net, state, batch.pixels, with);
    unsetenv("EMULATED_STREAMS");
    setenv("CHEX_CUDA_GRAPHS", "0", 1);
    const int none = infer(net, state, batch.pixels, without);
    unsetenv("CHEX_CUDA_GRAPHS");
    OK(graphs == CUDA_SLOTS && none == 0 && memcmp(with, without, sizeof with) == 0,
       "a short batch that comes again is a graph, with the bits of single launches");
    free(state);
    free_batch(&batch);
}

/* A part that only marks that it has run. */
static enum chex_status mark(struct cuda_engine *e, const struct cuda_graph *what,
                             struct chex_error *err) {
    CHEX_CUDA(cudaMemsetAsync(e->logits, what->n, 1, e->stream));
    return CHEX_OK;
}

/* Runs the part twice; the second time it must be a graph. False: it did not run. */
static bool run_twice(struct cuda_engine *e, int n) {
    struct chex_error err = {0};
    const struct cuda_graph what = {.part = CUDA_PART_INFER, .n = n};
    unsigned char seen = 0;
    for (int i = 0; i < 2; i++) {
        BAIL_UNLESS(chex_cuda_launch(e, &what, mark, &err) == CHEX_OK, "%s", err.text);
        GT_OK(cudaMemsetAsync((char *)e->logits + 1, 0, 1, e->stream));
        GT_OK(cudaMemcpyAsync(&seen, e->logits, 1, cudaMemcpyDeviceToHost, e->stream));
        GT_OK(cudaStreamSynchronize(e->stream));
        if (seen != n)
            return false;
    }
    return true;
}

static bool is_captured(const struct cuda_engine *e, int n) {
    for (int i = 0; i < e->graph_count; i++)
        if (e->graphs[i].n == n && e->graphs[i].exec)
            return true;
    return false;
}

static void limit(const struct chex_net *net) {
    enum { LAST = BATCH + CUDA_GRAPHS };
    struct chex_engine *e = engine_of(net, NULL);
    struct cuda_engine *own = e->self;
    bool ran = run_twice(own, BATCH);
    for (int n = BATCH + 1; n < LAST; n++)
        ran = ran && run_twice(own, n);
    OK(ran && captured(own) == CUDA_GRAPHS, "%d sizes have graphs", CUDA_GRAPHS);
    ran = run_twice(own, BATCH + 1) && run_twice(own, LAST);
    OK(ran && captured(own) == CUDA_GRAPHS && is_captured(own, LAST) && is_captured(own, BATCH) &&
           is_captured(own, BATCH + 1) && !is_captured(own, BATCH + 2),
       "one more replaces that of the short batch that was used least recently");
    OK(run_twice(own, BATCH + 2) && !is_captured(own, BATCH + 3),
       "a size that was replaced is captured again");
    chex_engine_destroy(e);
}

int main(void) {
    struct chex_net *net = small_net(setting.model, CLASSES);
    limit(net);
    same_bits(net);
    chex_net_destroy(net);
    return tap_done();
}
