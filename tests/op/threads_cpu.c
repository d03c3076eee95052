/* SPDX-License-Identifier: Apache-2.0
 *
 * The cpu engine with as many threads as large nodes have cores: the same bits as one thread, and
 * memory that grows by the scratch of a thread alone.
 */
#include "op/net.h"

static const int counts[] = {64, 128, 192, 256, 1024};
enum { COUNTS = sizeof counts / sizeof counts[0], MOST_MIB_A_THREAD = 8 };

static uint64_t bytes_with(const struct chex_net *net, const struct setting *s, int threads) {
    struct chex_engine_config config = test_config(net, s);
    config.threads = threads;
    struct chex_engine *e = test_engine("cpu", &config, NULL);
    const uint64_t bytes = e->impl->bytes(e->self);
    chex_engine_destroy(e);
    return bytes;
}

static void memory_grows_by_the_scratch(const struct chex_net *net, const struct setting *s) {
    const uint64_t one = bytes_with(net, s, 1), two = bytes_with(net, s, 2), each = two - one;
    printf("# %s, %d px, batch %d, %s: %.2f MiB a thread\n", s->model, s->size, s->batch,
           chex_precision_names[s->precision], (double)each / 1048576);
    OK(two > one && each <= (uint64_t)MOST_MIB_A_THREAD << 20,
       "%s %d px: a thread takes at most %d MiB", s->model, s->size, MOST_MIB_A_THREAD);
    OK(bytes_with(net, s, 1024) == one + 1023 * each, "%s %d px: so does each of 1,024", s->model,
       s->size);
}

int main(void) {
    const struct setting s = {"densenet_tiny", 33, 2, 2, CHEX_FP32};
    struct chex_net *net = small_net(s.model, CLASSES);
    struct outcome one, more;
    float *state = make_state(net);
    run("cpu", &s, net, state, 1, &one);
    for (int i = 0; i < COUNTS; i++) {
        run("cpu", &s, net, state, counts[i], &more);
        OK(same(net, &one, &more, s.n), "%d threads give the bits of 1", counts[i]);
        release(&more);
    }
    release(&one);
    memory_grows_by_the_scratch(net, &s);
    memory_grows_by_the_scratch(net, &(struct setting){"densenet121", 224, 16, 16, CHEX_FP32});
    memory_grows_by_the_scratch(net, &(struct setting){"densenet121", 224, 16, 16, CHEX_BF16});
    memory_grows_by_the_scratch(net, &(struct setting){"densenet121", 512, 2, 2, CHEX_FP32});
    free(state);
    chex_net_destroy(net);
    return tap_done();
}
