/* SPDX-License-Identifier: Apache-2.0
 *
 * A model of a training step on five devices, made of counts: for each operation the bytes that
 * must move (gpu/floors.h: every map read and written once by the fused kernels) and the products,
 * at the device's bandwidth and tensor-core rate. The larger of the two times counts. Launches,
 * halos, weights, sums of weight gradients and idle multiprocessors are not in it: a floor, no
 * forecast.
 *
 * Checks what does not depend on a device; prints milliseconds for each kind of operation.
 */
#include "gpu/devices.h"
#include "gpu/floors.h"
#include "tap.h"

enum { MAX_BUFFERS = 512, IMAGES = 256 };

enum kind { CONV_1X1, CONV_3X3, CONV_OTHER, REST, KINDS };
static const char *const kind_names[KINDS] = {"1x1", "3x3", "7x7 and strided", "pools, adds, head"};

static enum kind kind_of(const struct chex_op *op) {
    if (op->kind != CHEX_OP_CONV)
        return REST;
    if (op->stride != 1)
        return CONV_OTHER;
    return op->kernel == 1 ? CONV_1X1 : op->kernel == 3 ? CONV_3X3 : CONV_OTHER;
}

/* Milliseconds of an operation for IMAGES images. */
static double time_ms(const struct test_device *d, struct floor_cost c) {
    return 1e3 * IMAGES * fmax(c.bytes / d->bytes_per_s, c.flop / (d->flop_per_s * d->mma_share));
}

struct totals {
    double ms[KINDS][2]; /* forward, backward */
    double step_ms, bytes, flop;
};

static struct totals totals_of(const struct floor_net *f, const struct test_device *d) {
    struct totals t = {0};
    for (int i = 0; i < f->net->op_count; i++) {
        const struct floor_cost c[2] = {floor_forward(f, i), floor_backward(f, i)};
        for (int k = 0; k < 2; k++) {
            const double ms = time_ms(d, c[k]);
            t.ms[kind_of(&f->net->ops[i])][k] += ms;
            t.step_ms += ms;
            t.bytes += c[k].bytes;
            t.flop += c[k].flop;
        }
    }
    return t;
}

static void print(const char *model, int size, const struct test_device *d,
                  const struct totals *t) {
    printf("# %-11s %4d px %s:", model, size, d->gpu.name);
    for (int k = 0; k < KINDS; k++)
        printf(" %s %.2f + %.2f ms,", kind_names[k], t->ms[k][0], t->ms[k][1]);
    printf(" step %.1f ms, %.1fk images/s\n", t->step_ms, IMAGES / t->step_ms);
}

static void model(const char *name, int size) {
    struct chex_net *net;
    int hw[MAX_BUFFERS];
    BAIL_UNLESS(chex_net_create(name, 14, &net, NULL) == CHEX_OK &&
                    chex_net_shapes(net, size, hw, NULL) == CHEX_OK,
                "network");
    const struct floor_net f = {net, hw, size, 2, 4};
    struct totals t = {0};
    const struct test_device *any = NULL;
    for (int i = 0; i < TEST_DEVICES; i++) {
        const struct test_device *d = &test_devices[i];
        if (!(d->bytes_per_s > 0))
            continue;
        t = totals_of(&f, d);
        print(name, size, d, &t);
        any = d;
    }
    double macs = 0;
    for (int i = 0; i < net->op_count; i++)
        macs += chex_op_macs(net, i, size);
    const double image = chex_op_macs(net, 0, size); /* no gradient of the image */
    OK(fabs(t.flop / (6 * macs - 2 * image) - 1) < 1e-9,
       "%s, %d px: forward and backward are three products for each layer except the first: %.1f "
       "GFLOP",
       name, size, t.flop * 1e-9);
    BAIL_UNLESS(chex_net_shapes(net, 224, hw, NULL) == CHEX_OK, "shapes");
    const struct floor_net usual = {net, hw, 224, 2, 4};
    const double area = (double)(size * size) / (224.0 * 224.0);
    OK(fabs(t.bytes / totals_of(&usual, any).bytes / area - 1) < 0.01,
       "%s, %d px: bytes grow as the area: %.1f MB an image", name, size, t.bytes * 1e-6);
    chex_net_destroy(net);
}

/* The model's rule on its own: the slower of memory and products. */
static void rule(void) {
    const struct test_device d = {.bytes_per_s = 1e12, .flop_per_s = 1e14, .mma_share = 0.5};
    const struct floor_cost memory = {1e9, 1e9}, products = {1, 1e12};
    OK(fabs(time_ms(&d, memory) - IMAGES) < 1e-9, "memory limits where bytes take longer");
    OK(fabs(time_ms(&d, products) - 20.0 * IMAGES) < 1e-9, "products limit where they take longer");
}

int main(void) {
    rule();
    model("densenet121", 224);
    model("densenet121", 320);
    model("densenet121", 1024);
    model("resnet50", 224);
    return tap_done();
}
