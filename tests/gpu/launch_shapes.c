/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of every convolution, of the stem, the pools and the head, of both networks, on a
 * device of each target, from 1 to 1,024 images of 224 to 1,024 px: grids, threads and shared
 * memory are within the limits of the device. Nothing runs: the emulated device hands each launch
 * over.
 *
 * Prints, for each device and shape of input, how the own forward convolutions of DenseNet-121 fill
 * it, weighted by products: the share of multiprocessors that have a block in every round, and the
 * occupancy that shared memory and threads allow (registers are not known here). A model, not a
 * measurement.
 */
#include <math.h>

#include "engine/cuda/host/gpu.h"
#include "model/net.h"
#include "tap.h"

enum { MAX_BUFFERS = 512, STATIC_BYTES = 128, BLOCK_BYTES = 1024 };

/* Limits: CUDA C++ programming guide, table "technical specifications per compute capability"; the
 * numbers of multiprocessors: NVIDIA's data sheets. */
struct target {
    struct gpu_device device;
    unsigned threads; /* of a multiprocessor */
};
static const struct target targets[] = {
    {{.name = "T4", .capability = 75, .sms = 40, .shared_max = 65536}, 1024},
    {{.name = "A100", .capability = 80, .sms = 108, .shared_max = 166912}, 2048},
    {{.name = "A40", .capability = 86, .sms = 84, .shared_max = 101376}, 1536},
    {{.name = "L40S", .capability = 89, .sms = 142, .shared_max = 101376}, 1536},
    {{.name = "H100, H200", .capability = 90, .sms = 132, .shared_max = 232448}, 2048},
    {{.name = "B200", .capability = 100, .sms = 148, .shared_max = 232448}, 2048},
    {{.name = "RTX PRO 6000", .capability = 120, .sms = 188, .shared_max = 101376}, 1536},
};
static const int batches[] = {1, 16, 64, 256, 1024}, sizes[] = {224, 320, 1024};

static const struct gpu_conv_algo *const algos[] = {&gpu_conv_algo_1x1, &gpu_conv_algo_3x3,
                                                    &gpu_conv_algo_plain};

/* Only whether pointers are NULL, and their alignment, mean something here. */
static _Alignas(256) char somewhere[256];
static float *const vector = (float *)(void *)somewhere;

/* What one device and shape of input saw. */
struct tally {
    const struct target *target;
    int launches, bad, refused;
    char first[128];                     /* of those that are bad or refused */
    const char *name;                    /* of the operation */
    double macs, used, occupied, weight; /* macs: of the launch, or 0 */
};

/* Blocks of a launch that fit on one multiprocessor; the shared memory of one is 1 KiB more than a
 * block may have, and each block takes 1 KiB of it. */
static unsigned fitting(const struct target *t, size_t shared, unsigned threads) {
    const size_t each = shared + STATIC_BYTES + BLOCK_BYTES;
    const size_t by_shared = (t->device.shared_max + BLOCK_BYTES) / each;
    const size_t by_threads = t->threads / threads;
    return (unsigned)(by_shared < by_threads ? by_shared : by_threads);
}

static void note(struct tally *y, const char *what, double value) {
    if (!y->bad++ && !y->refused)
        snprintf(y->first, sizeof y->first, "%s: %s %.0f", y->name, what, value);
}

static void watch(const struct emulated_launch *l, void *arg) {
    struct tally *y = arg;
    const struct target *t = y->target;
    const double blocks = (double)l->grid[0] * l->grid[1] * l->grid[2];
    const unsigned threads = l->block[0] * l->block[1] * l->block[2];
    y->launches++;
    if (l->shared_bytes + STATIC_BYTES > t->device.shared_max)
        note(y, "shared memory", (double)l->shared_bytes);
    if (l->grid[0] > 0x7fffffff || l->grid[1] > 65535 || l->grid[2] > 65535)
        note(y, "blocks", blocks);
    if (!threads || threads > 1024 || l->block[2] > 64)
        note(y, "threads", threads);
    const unsigned fit = fitting(t, l->shared_bytes, threads ? threads : 1);
    if (!fit) {
        note(y, "no block fits with shared memory", (double)l->shared_bytes);
        return;
    }
    const double slots = (double)t->device.sms * fit;
    const double used =
        blocks <= slots ? fmin(1, blocks / t->device.sms) : blocks / (ceil(blocks / slots) * slots);
    y->used += y->macs * used;
    y->occupied += y->macs * fit * threads / t->threads;
    y->weight += y->macs;
}

static void expect(struct tally *y, cudaError_t e) {
    if (e != cudaSuccess && !y->refused++ && !y->bad)
        snprintf(y->first, sizeof y->first, "%s: %s", y->name, cudaGetErrorString(e));
}

static struct gpu_map map(int n, int hw, int channels, int pitch) {
    return (struct gpu_map){.data = somewhere,
                            .type = GPU_BF16,
                            .n = n,
                            .hw = hw,
                            .channels = channels,
                            .pitch = pitch};
}

/* An operation and the maps that it reads and writes. */
struct layer {
    const struct chex_net *net;
    const struct chex_op *op;
    int n, size;
    struct gpu_map in, out;
    struct gpu_norm norm;
    struct gpu_stats stats;
    struct gpu_sums sums;
    struct gpu_deferred_grad out_g;
};

static struct layer layer_of(const struct chex_net *net, int op, const int *hw, int n, int size) {
    struct layer l = {.net = net, .op = &net->ops[op], .n = n, .size = size};
    const struct chex_op *o = l.op;
    l.in = o->in == CHEX_NET_IMAGE
               ? map(n, size, 8, 8)
               : map(n, hw[o->in], o->in_channels, net->buffers[o->in].channels);
    if (o->out >= 0)
        l.out = map(n, hw[o->out], o->out_channels, net->buffers[o->out].channels);
    if (o->in_bn >= 0)
        l.norm = (struct gpu_norm){vector, vector, vector, vector, true};
    l.stats = (struct gpu_stats){.partial = vector,
                                 .ticket = (unsigned *)(void *)somewhere,
                                 .mean = vector,
                                 .var = vector,
                                 .inv = vector,
                                 .eps = 1e-5f};
    l.sums = (struct gpu_sums){.partial = o->in_bn < 0 ? NULL : vector,
                               .ticket = (unsigned *)(void *)somewhere,
                               .dgamma = vector,
                               .dbeta = vector,
                               .bsum = vector,
                               .csum = vector};
    l.out_g = (struct gpu_deferred_grad){.g = l.out, .x = l.out, .bsum = vector, .csum = vector};
    return l;
}

static struct gpu_conv_forward forward_of(const struct layer *l) {
    return (struct gpu_conv_forward){.in = l->in,
                                     .norm = l->norm,
                                     .window = {l->op->kernel, l->op->stride, l->op->pad},
                                     .weight = somewhere,
                                     .out = l->out,
                                     .stats = l->stats};
}

/* The first algorithm that fits, as stage s4 chooses; forward, then backward. */
static void convolution(struct tally *y, const struct gpu_device *d, const struct layer *l) {
    const struct gpu_conv_forward f = forward_of(l);
    struct gpu_conv_backward b = {.in = l->in,
                                  .norm = l->norm,
                                  .window = f.window,
                                  .weight = somewhere,
                                  .weight_t = somewhere,
                                  .sums = l->sums,
                                  .dweight = vector};
    b.out = l->out_g;
    if (l->op->in != CHEX_NET_IMAGE)
        b.in_g = l->in;
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++)
        if (algos[i]->fits(d, &f, NULL)) {
            y->macs = algos[i] == &gpu_conv_algo_plain
                          ? 0
                          : chex_op_macs(l->net, (int)(l->op - l->net->ops), l->size);
            expect(y, algos[i]->forward(d, NULL, &f, somewhere, NULL));
            break;
        }
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++)
        if (algos[i]->fits(d, NULL, &b)) {
            y->macs = 0;
            expect(y, algos[i]->backward(d, NULL, &b, somewhere, NULL));
            break;
        }
    y->macs = 0;
}

static void stem(struct tally *y, const struct gpu_device *d, const struct layer *l) {
    static const float mean[3] = {0.5f, 0.5f, 0.5f}, std[3] = {0.2f, 0.2f, 0.2f};
    if (d->capability < 80) /* tensor cores with bf16 */
        return;
    expect(y, gpu_stem_forward(d, vector, l->n, l->size, somewhere, &l->out, &l->stats, NULL));
    expect(y, gpu_stem_backward(d, vector, l->n, l->size, &l->out_g, mean, std, vector, somewhere,
                                NULL));
}

static void pool(struct tally *y, const struct layer *l) {
    const struct chex_op *o = l->op;
    const struct gpu_window window = {o->kernel, o->stride, o->pad};
    uint8_t *arg = (uint8_t *)somewhere;
    if (o->kind == CHEX_OP_MAXPOOL) {
        expect(y, gpu_maxpool_forward(&l->in, &l->norm, window, &l->out, arg, &l->stats, NULL));
        expect(y, gpu_maxpool_backward(&l->out_g, arg, window, &l->in, &l->norm, &l->in, false,
                                       &l->sums, NULL));
    } else {
        expect(y, gpu_avgpool_forward(&l->in, &l->norm, o->kernel, &l->out, &l->stats, NULL));
        expect(y, gpu_avgpool_backward(&l->out_g, o->kernel, &l->in, &l->norm, &l->in, false,
                                       &l->sums, NULL));
    }
}

static void head(struct tally *y, const struct layer *l) {
    expect(y, gpu_head_forward(&l->in, &l->norm, vector, vector, 14, vector, vector, NULL));
    expect(y, gpu_head_backward(&l->in, &l->norm, vector, 14, vector, vector, vector, vector,
                                vector, &l->in, false, &l->sums, NULL));
}

static void operations(struct tally *y, const struct gpu_device *d, const struct chex_net *net,
                       int n, int size) {
    int hw[MAX_BUFFERS];
    BAIL_UNLESS(chex_net_shapes(net, size, hw, NULL) == CHEX_OK, "shapes");
    for (int i = 0; i < net->op_count; i++) {
        const struct layer l = layer_of(net, i, hw, n, size);
        y->name = l.op->name;
        switch (l.op->kind) {
        case CHEX_OP_CONV: convolution(y, d, &l); break;
        case CHEX_OP_MAXPOOL:
        case CHEX_OP_AVGPOOL: pool(y, &l); break;
        case CHEX_OP_HEAD: head(y, &l); break;
        default: break;
        }
        if (l.op->in == CHEX_NET_IMAGE)
            stem(y, d, &l);
    }
}

static void model(const char *name) {
    struct chex_net *net;
    BAIL_UNLESS(chex_net_create(name, 14, &net, NULL) == CHEX_OK, "network");
    for (size_t t = 0; t < sizeof targets / sizeof *targets; t++) {
        struct tally all = {.target = &targets[t]};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
                struct tally y = {.target = &targets[t]};
                emulated_watch_launches(watch, &y);
                operations(&y, &targets[t].device, net, batches[b], sizes[s]);
                emulated_watch_launches(NULL, NULL);
                all.launches += y.launches;
                all.bad += y.bad + y.refused;
                if (!all.first[0])
                    memcpy(all.first, y.first, sizeof all.first);
                if (y.weight > 0 && strcmp(name, "densenet121") == 0)
                    printf("# %-12s %4d images of %4d px: %3.0f %% of the multiprocessors, "
                           "occupancy %2.0f %%\n",
                           targets[t].device.name, batches[b], sizes[s], 100 * y.used / y.weight,
                           100 * y.occupied / y.weight);
            }
        OK(all.launches > 1000 && !all.bad, "%s on %s: %d launches are within its limits%s%s", name,
           targets[t].device.name, all.launches, all.bad ? "; " : "", all.first);
    }
    chex_net_destroy(net);
}

/* Launches that were chosen for a device with more shared memory. */
static void chosen_for_another(void) {
    struct chex_net *net;
    struct tally y = {.target = &targets[3]};
    BAIL_UNLESS(chex_net_create("densenet121", 14, &net, NULL) == CHEX_OK, "network");
    emulated_watch_launches(watch, &y);
    operations(&y, &targets[4].device, net, 16, 224);
    emulated_watch_launches(NULL, NULL);
    OK(y.bad > 0 && strstr(y.first, "shared memory"),
       "launches for an H100 are over the limits of an L40S: %d, first %s", y.bad, y.first);
    chex_net_destroy(net);
}

/* The share of the multiprocessors that an s5 forward of this layer uses in every round; the least
 * of DenseNet-121's 1x1 convolutions. */
static void one_by_one_sm90(int images) {
    int hw[MAX_BUFFERS], count = 0;
    struct chex_net *net;
    struct tally all = {.target = &targets[4]};
    double least = 1;
    BAIL_UNLESS(chex_net_create("densenet121", 14, &net, NULL) == CHEX_OK &&
                    chex_net_shapes(net, 224, hw, NULL) == CHEX_OK,
                "network");
    for (int i = 0; i < net->op_count; i++) {
        struct tally y = {.target = all.target, .name = net->ops[i].name, .macs = 1};
        if (net->ops[i].kind != CHEX_OP_CONV || net->ops[i].kernel != 1)
            continue;
        const struct layer l = layer_of(net, i, hw, images, 224);
        const struct gpu_conv_forward f = forward_of(&l);
        emulated_watch_launches(watch, &y);
        if (gpu_conv_algo_1x1_sm90.fits(&y.target->device, &f, NULL))
            expect(&y,
                   gpu_conv_algo_1x1_sm90.forward(&y.target->device, NULL, &f, somewhere, NULL));
        emulated_watch_launches(NULL, NULL);
        all.bad += y.bad + y.refused + (y.launches != 1);
        if (!all.first[0])
            memcpy(all.first, y.first, sizeof all.first);
        least = y.used < least ? y.used : least;
        count++;
    }
    OK(count == 61 && !all.bad && least > 0.95,
       "s5, %d images: each 1x1 convolution of %d uses %.0f %% of the multiprocessors or more%s%s",
       images, count, 100 * least, all.bad ? "; " : "", all.first);
    chex_net_destroy(net);
}

int main(void) {
    chosen_for_another();
    one_by_one_sm90(256);
    model("densenet121");
    model("resnet50");
    return tap_done();
}
