/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole networks: the cpu engine against the ref engine, and against itself with other numbers of
 * threads and other variants.
 */
#include "op/net.h"

static void threads_agree(const struct setting *s) {
    struct chex_net *net = small_net(s->model, CLASSES);
    float *state = make_state(net);
    struct outcome one, more;
    run("cpu", s, net, state, 1, &one);
    for (int threads = 2; threads <= 3; threads++) {
        struct setting larger = *s;
        larger.batch = s->batch + threads; /* room for more images changes nothing either */
        run("cpu", &larger, net, state, threads, &more);
        OK(same(net, &one, &more, s->n), "%s %d px %s: %d threads give the bits of 1", s->model,
           s->size, chex_precision_names[s->precision], threads);
        release(&more);
    }
    if (s->precision != CHEX_BF16) {
        run("cpu:generic", s, net, state, 2, &more);
        double c = cosine(more.grad, one.grad, net->param_count);
        OK(c > 0.9999, "%s: generic agrees, cosine %.7f", s->model, c);
        release(&more);
    }
    release(&one);
    free(state);
    chex_net_destroy(net);
}

int main(int argc, char **argv) {
    if (argc == 5) { /* one comparison: model size n precision(0: bf16, 1: fp32) */
        struct setting s = {argv[1], atoi(argv[2]), atoi(argv[3]), atoi(argv[3]),
                            (enum chex_precision)atoi(argv[4])};
        against_ref("cpu", &s);
        return tap_done();
    }
#if TAP_SLOW_BUILD
    printf("# slow build: threads only; the op tests compare with ref in every build\n");
#else
    against_ref("cpu", &(struct setting){"densenet_tiny", 32, 12, 13, CHEX_FP32_STRICT});
    against_ref("cpu", &(struct setting){"densenet_tiny", 75, 3, 3, CHEX_FP32_STRICT});
    against_ref("cpu", &(struct setting){"resnet50", 75, 3, 3, CHEX_FP32_STRICT});
    against_ref("cpu", &(struct setting){"densenet_tiny", 64, 3, 3, CHEX_BF16});
    against_ref("cpu", &(struct setting){"resnet50", 64, 3, 3, CHEX_BF16});
    against_ref("cpu", &(struct setting){"resnet18", 64, 3, 3, CHEX_FP32});
    against_ref("cpu", &(struct setting){"densenet161", 64, 3, 3, CHEX_FP32});
#endif
    threads_agree(&(struct setting){"densenet_tiny", 45, 3, 3, CHEX_BF16});
    threads_agree(&(struct setting){"densenet_tiny48", 45, 3, 3, CHEX_BF16});
    threads_agree(&(struct setting){"resnet50", 33, 3, 3, CHEX_FP32});
    return tap_done();
}
