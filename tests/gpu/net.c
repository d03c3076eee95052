/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole networks on the CUDA engine against the ref engine, stage by stage; twice in a row with
 * threads in another order (EMULATED_ORDER). graphs.c has the captured graphs.
 */
#include <cuda_runtime_api.h> /* CHEX_GPU_EMULATED */

#include "op/net.h"

static void same_bits(const char *spec, const struct setting *s, const char *name,
                      const char *value, const char *what) {
    struct chex_net *net = small_net(s->model, CLASSES);
    float *state = make_state(net);
    struct outcome one, other;
    run(spec, s, net, state, 1, &one);
    setenv(name, value, 1);
    run(spec, s, net, state, 1, &other);
    unsetenv(name);
    OK(same(net, &one, &other, s->n), "%s %s %s: the same bits %s", spec, s->model,
       chex_precision_names[s->precision], what);
    release(&one);
    release(&other);
    free(state);
    chex_net_destroy(net);
}

#ifdef CHEX_GPU_EMULATED /* with the operations of the whole networks */
#define DENSENET "densenet_tiny"
#define RESNET SMALL_RESNET
#else
#define DENSENET "densenet121"
#define RESNET "resnet50"
#endif

int main(int argc, char **argv) {
    if (argc == 6) { /* one comparison: spec model size n precision(0: bf16, 1: fp32, 3: fp16) */
        struct setting s = {argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[4]),
                            (enum chex_precision)atoi(argv[5])};
        against_ref(argv[1], &s);
        return tap_done();
    }
    /* With fewer or smaller images the last maps have so few values that their statistics, and all
     * gradients, hang on single roundings. */
    static const struct setting dense = {DENSENET, 64, 3, 3, CHEX_FP32};
    static const struct setting dense_half = {DENSENET, 64, 3, 3, CHEX_BF16};
    static const struct setting uneven_half = {"densenet_tiny48", 64, 3, 3, CHEX_BF16};
    static const struct setting small_half = {DENSENET, 32, 2, 3, CHEX_FP16};
    static const struct setting residual = {RESNET, 33, 2, 2, CHEX_FP32};
#if TAP_SLOW_BUILD
    printf("# slow build: one network only\n");
    against_ref("cuda:s0", &residual);
#else
    against_ref("cuda:s0", &dense);
    against_ref("cuda:s0", &residual);
    against_ref("cuda:s4", &dense_half);
    against_ref("cuda:s4", &uneven_half);
    same_bits("cuda:s4", &small_half, "EMULATED_ORDER", "7",
              "whatever the order of threads and blocks");
#endif
    return tap_done();
}
