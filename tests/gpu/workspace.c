/* SPDX-License-Identifier: Apache-2.0
 *
 * The last batch of an epoch has fewer images than the engine took its scratch for: what a way of
 * convolving asks for must not shrink as images are added. For every convolution of both networks,
 * on devices with many and few multiprocessors, with much and little shared memory, in each of its
 * variants. Nothing runs.
 */
#include "gpu/layers.h"
#include "tap.h"

enum { MOST_IMAGES = 80 };

static const struct gpu_device devices[] = {
    {.name = "capability 8.0", .capability = 80, .sms = 108, .shared_max = 166912},
    {.name = "capability 8.6", .capability = 86, .sms = 28, .shared_max = 101376},
    {.name = "capability 9.0", .capability = 90, .sms = 132, .shared_max = 232448},
    {.name = "the emulated one", .capability = 90, .sms = 4, .shared_max = 232448},
};

/* Convolutions whose scratch for some number of images is more than for one image more. */
static int shrinking(const struct chex_net *net, int size, const struct gpu_conv_algo *algo,
                     const struct gpu_device *d, enum gpu_type type, int *asked) {
    int hw[MAX_BUFFERS], bad = 0;
    BAIL_UNLESS(chex_net_shapes(net, size, hw, NULL) == CHEX_OK, "shapes");
    for (int i = 0; i < net->op_count; i++) {
        if (net->ops[i].kind != CHEX_OP_CONV)
            continue;
        struct layer l = layer_of(net, i, hw, type, MOST_IMAGES, size);
        struct gpu_conv_backward b = backward_of(&l);
        int list[GPU_VARIANTS] = {0}, count = algo->fits(d, NULL, &b);
        if (count && algo->variants)
            count = algo->variants(d, NULL, &b, list);
        for (int v = 0; v < count; v++) {
            size_t before = 0;
            bool shrinks = false;
            for (int n = 1; n <= MOST_IMAGES; n += v ? 13 : 1) {
                l = layer_of(net, i, hw, type, n, size);
                b = backward_of(&l);
                b.variant = list[v];
                const size_t bytes = algo->workspace(d, NULL, NULL, &b);
                shrinks = shrinks || bytes < before;
                before = bytes;
            }
            bad += shrinks;
            *asked += 1;
        }
    }
    return bad;
}

int main(void) {
    static const struct gpu_conv_algo *const algos[] = {&gpu_conv_algo_plain, &gpu_conv_algo_1x1,
                                                        &gpu_conv_algo_3x3};
    static const int sizes[] = {32, 75, 224};
    static const char *const models[] = {"densenet121", "resnet50"};
    for (int w = 0; w < 3; w++) {
        for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
            int bad = 0, asked = 0;
            for (int m = 0; m < 2; m++) {
                struct chex_net *net;
                BAIL_UNLESS(chex_net_create(models[m], 14, &net, NULL) == CHEX_OK, "network");
                for (int s = 0; s < 3; s++)
                    bad += shrinking(net, sizes[s], algos[w], &devices[d], GPU_BF16, &asked);
                chex_net_destroy(net);
            }
            OK(!bad && asked,
               "%s on %s: %d of %d variants of convolutions ask for less for more images",
               algos[w]->name, devices[d].name, bad, asked);
        }
    }
    return tap_done();
}
