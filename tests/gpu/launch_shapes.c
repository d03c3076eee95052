/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of every kernel of four networks, on a device of each target, from 1 to 1,024 images
 * of 224 to 1,024 px: grids, threads and shared memory are within the limits of the device. Nothing
 * runs: the emulated device hands each launch over.
 */
#include "gpu/devices.h"
#include "gpu/layers.h"
#include "tap.h"

enum { STORED_PX = 1024 };

static const int batches[] = {1, 16, 64, 256, 1024}, sizes[] = {224, 320, 1024};

/* What one device and shape of input saw. */
struct tally {
    const struct gpu_device *target;
    int launches, bad, refused;
    char first[128];  /* of those that are bad or refused */
    const char *name; /* of the operation */
};

static void note(struct tally *y, const char *what, double value) {
    if (!y->bad++ && !y->refused)
        snprintf(y->first, sizeof y->first, "%s: %s %.0f", y->name, what, value);
}

static void watch(const struct emulated_launch *l, void *arg) {
    struct tally *y = arg;
    const double blocks = (double)l->grid[0] * l->grid[1] * l->grid[2];
    const unsigned threads = l->block[0] * l->block[1] * l->block[2];
    y->launches++;
    if (l->shared_bytes + TEST_STATIC_BYTES > y->target->shared_max)
        note(y, "shared memory", (double)l->shared_bytes);
    if (l->grid[0] > 0x7fffffff || l->grid[1] > 65535 || l->grid[2] > 65535)
        note(y, "blocks", blocks);
    if (!threads || threads > 1024 || l->block[2] > 64)
        note(y, "threads", threads);
}

static void expect(struct tally *y, cudaError_t e) {
    if (e != cudaSuccess && !y->refused++ && !y->bad)
        snprintf(y->first, sizeof y->first, "%s: %s", y->name, cudaGetErrorString(e));
}

/* The first algorithm that fits, as stage s4 chooses, and those of stage s5; forward, then
 * backward.
 */
static void convolution(struct tally *y, const struct gpu_device *d, const struct layer *l) {
    static const struct gpu_conv_algo *const algos[] = {
        &gpu_conv_algo_1x1_sm90, &gpu_conv_algo_1x1_backward_sm90,
        &gpu_conv_algo_3x3_sm90, &gpu_conv_algo_1x1,
        &gpu_conv_algo_3x3,      &gpu_conv_algo_plain};
    enum { S5_ALGOS = 3 };
    const struct gpu_conv_forward f = {.in = l->in,
                                       .norm = l->norm,
                                       .window = {l->op->kernel, l->op->stride, l->op->pad},
                                       .weight = somewhere,
                                       .out = l->out,
                                       .stats = l->stats};
    struct gpu_conv_backward b = backward_of(l);
    bool forward = false, backward = false; /* stage s4 has chosen */
    for (size_t i = 0; i < sizeof algos / sizeof *algos; i++) {
        const bool s5 = i < S5_ALGOS;
        if (!forward && algos[i]->fits(d, &f, NULL)) {
            expect(y, algos[i]->forward(d, NULL, &f, somewhere, NULL));
            forward = !s5;
        }
        if (!backward && algos[i]->fits(d, NULL, &b)) {
            expect(y, algos[i]->backward(d, NULL, &b, somewhere, NULL));
            backward = !s5;
        }
    }
}

static void stem(struct tally *y, const struct gpu_device *d, const struct layer *l) {
    static const float mean[3] = {0.5f, 0.5f, 0.5f}, std[3] = {0.2f, 0.2f, 0.2f};
    if (d->capability < 80) /* tensor cores with bf16 */
        return;
    expect(y, gpu_stem_forward(d, vector, l->n, l->size, somewhere, &l->out, &l->stats, NULL));
    expect(y, gpu_stem_backward(d, vector, l->n, l->size, &l->out_g, mean, std, vector, somewhere,
                                NULL));
}

/* The kernels around a convolution that does not fuse its norms. */
static void norms(struct tally *y, const struct layer *l) {
    const struct chex_op *o = l->op;
    if (o->in != CHEX_NET_IMAGE && o->in_bn >= 0) {
        expect(y, gpu_activate(&l->in, &l->norm, &l->in, NULL));
        expect(y, gpu_mask(&l->in, &l->in, &l->norm, &l->in, true, &l->sums, NULL));
    }
    expect(y, gpu_stats_of(&l->out, &l->stats, NULL));
    expect(y, gpu_finish_grad(&l->out_g, &l->out, NULL));
}

static void residual_add(struct tally *y, const struct layer *l) {
    const struct gpu_norm norm = {vector, vector, vector, vector, false}, none = {0};
    struct gpu_sums sums = l->sums;
    sums.partial = vector;
    const struct gpu_norm *side = l->op->side_bn >= 0 ? &norm : &none;
    expect(y, gpu_residual_add_forward(&l->in, &norm, &l->out, side, &l->out, NULL));
    expect(y, gpu_residual_add_backward(&l->out_g, &l->out, &l->in, &norm, &l->in, false, &sums,
                                        &l->out, side, &l->out, true, &sums, NULL));
}

static void input(struct tally *y, const struct gpu_device *d, const struct layer *l) {
    const struct gpu_map image = map(GPU_BF16, l->n, l->size, 8, 8);
    expect(y, gpu_image(vector, vector, vector, &image, NULL));
    if (gpu_augment_shared(STORED_PX, l->size) > d->shared_max) /* the engine then takes pixels */
        return;
    expect(y, gpu_augment((const uint8_t *)somewhere, (const struct gpu_crop *)(void *)somewhere,
                          l->n, STORED_PX, l->size, true, vector, vector, NULL));
}

/* Loss, optimiser, copies of the weights, batch statistics. */
static void rest(struct tally *y, const struct gpu_device *d, const struct chex_net *net, int n) {
    const struct gpu_loss_terms terms = {.factors = (const struct gpu_loss_factors *)(void *)vector,
                                         .focused = true};
    struct gpu_update u = {.params = (const struct gpu_param *)(void *)somewhere,
                           .param_total = net->param_total,
                           .param_count = net->param_count,
                           .state_count = net->state_count,
                           .step = (const struct gpu_step *)(void *)somewhere,
                           .loss_scale = (struct gpu_loss_scale *)(void *)somewhere,
                           .clip = (struct gpu_clip *)(void *)somewhere,
                           .w = vector,
                           .m = vector,
                           .v = vector,
                           .ema = vector,
                           .g = vector,
                           .norms = vector,
                           .type = d->capability < 80 ? GPU_F16 : GPU_BF16,
                           .copies = somewhere,
                           .copies_t = somewhere};
    expect(y, gpu_loss(vector, (const int8_t *)somewhere, n, net->classes, &terms, vector,
                       (double *)(void *)somewhere, vector, NULL));
    expect(y, gpu_update_state(&u, NULL));
    expect(y, gpu_pack(&u, NULL));
    expect(y, gpu_unpad(vector, (size_t)64 * 49, 8, 3, vector, NULL));
    expect(y, gpu_widen(u.type, somewhere, net->state_count, vector, NULL));
    expect(y, gpu_add(vector, vector, net->state_count, NULL));
    expect(y, gpu_running_inv(vector, 2048, 1e-5f, vector, NULL));
    expect(y, gpu_report((const struct gpu_report_job *)(void *)somewhere, net->bn_count, n, vector,
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
        const struct layer l = layer_of(net, i, hw, GPU_BF16, n, size);
        y->name = l.op->name;
        switch (l.op->kind) {
        case CHEX_OP_CONV:
            convolution(y, d, &l);
            norms(y, &l);
            break;
        case CHEX_OP_RESIDUAL_ADD: residual_add(y, &l); break;
        case CHEX_OP_MAXPOOL:
        case CHEX_OP_AVGPOOL: pool(y, &l); break;
        case CHEX_OP_HEAD: head(y, &l); break;
        }
        if (l.op->in == CHEX_NET_IMAGE) {
            if (l.op->out_channels == 64) /* the only stem of stem.cu */
                stem(y, d, &l);
            input(y, d, &l);
        }
    }
    y->name = "the rest of the step";
    rest(y, d, net, n);
}

static void model(const char *name) {
    struct chex_net *net;
    BAIL_UNLESS(chex_net_create(name, 14, &net, NULL) == CHEX_OK, "network");
    for (int t = 0; t < TEST_DEVICES; t++) {
        struct tally all = {.target = &test_devices[t]};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
                struct tally y = {.target = &test_devices[t]};
                emulated_watch_launches(watch, &y);
                operations(&y, &test_devices[t], net, batches[b], sizes[s]);
                emulated_watch_launches(NULL, NULL);
                all.launches += y.launches;
                all.bad += y.bad + y.refused;
                if (!all.first[0])
                    memcpy(all.first, y.first, sizeof all.first);
            }
        OK(all.launches > 1000 && !all.bad, "%s on %s: %d launches are within its limits%s%s", name,
           test_devices[t].name, all.launches, all.bad ? "; " : "", all.first);
    }
    chex_net_destroy(net);
}

/* Launches that were chosen for a device with more shared memory. */
static void chosen_for_another(void) {
    struct chex_net *net;
    struct tally y = {.target = &test_devices[3]};
    BAIL_UNLESS(chex_net_create("densenet121", 14, &net, NULL) == CHEX_OK, "network");
    emulated_watch_launches(watch, &y);
    operations(&y, &test_devices[4], net, 16, 224);
    emulated_watch_launches(NULL, NULL);
    OK(y.bad > 0 && strstr(y.first, "shared memory"),
       "launches for an H100 are over the limits of an L40S: %d, first %s", y.bad, y.first);
    chex_net_destroy(net);
}

int main(void) {
    chosen_for_another();
    model("densenet121");
    model("densenet161");
    model("resnet18");
    model("resnet50");
    return tap_done();
}
