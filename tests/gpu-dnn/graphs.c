/* SPDX-License-Identifier: Apache-2.0
 *
 * The graphs of DenseNet-121's and ResNet-50's convolutions are offered engines by cuDNN's search,
 * for devices known by their properties alone (tests/data/gpu, written from data sheets); no GPU
 * takes part. One generated kernel is compiled as well: without a driver its plan gets as far as
 * loading the code. That an engine is offered says nothing about its numbers or its speed.
 *
 * By default: every 40th shape of each kind, odd sizes and fp16 on one device. With
 * CHEX_TEST_ALL_GRAPHS=1: everything, which takes minutes.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fs.h"
#include "gpu-dnn/recorded.h"
#include "model/net.h"
#include "tap.h"

static const char *const devices[] = {"a100-80", "l40s-89", "h200-90", "b200-100"};
enum { DEVICES = (int)(sizeof devices / sizeof *devices) };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct dnn_target recorded(const char *device) {
    struct chex_error err = {0};
    struct dnn_target target = {0};
    char *path = chex_fs_format(TEST_DATA "/gpu/cudnn-%s.json", device), *json = NULL;
    BAIL_UNLESS(path && chex_fs_read(path, 1 << 16, &json, NULL, &err) == CHEX_OK, "%s", err.text);
    BAIL_UNLESS(recorded_target(json, &target, &err) == CHEX_OK, "%s", err.text);
    free(json);
    free(path);
    return target;
}

/* The maps of one convolution; cuDNN's search asks for no memory. */
struct conv {
    const char *name;
    struct gpu_map in, out;
    struct gpu_window window;
    bool image;
};

static struct conv conv_of(const struct chex_net *net, int op, const int *hw, int size, int n,
                           enum gpu_type type) {
    const struct chex_op *o = &net->ops[op];
    const bool image = o->in == CHEX_NET_IMAGE;
    return (struct conv){
        .name = o->name,
        .in = {NULL, type, n, image ? size : hw[o->in], image ? 8 : o->in_channels,
               image ? 8 : net->buffers[o->in].channels},
        .out = {NULL, type, n, hw[o->out], o->out_channels, net->buffers[o->out].channels},
        .window = {o->kernel, o->stride, o->pad},
        .image = image,
    };
}

/* ---- the graphs, and to which convolutions each belongs ---- */

static bool all(const struct conv *c) { return c->window.kernel > 0; }
static bool has_in_g(const struct conv *c) { return !c->image; }
/* A 1x1 convolution with a stride is not a matrix product. */
static bool is_product(const struct conv *c) {
    return c->window.kernel == 1 && c->window.stride == 1 && c->in.type != GPU_F32;
}

static void forward(struct dnn_graph *g, const struct conv *c) {
    dnn_forward(g, &c->in, c->window, &c->out);
}
static void dgrad(struct dnn_graph *g, const struct conv *c) {
    dnn_dgrad(g, &c->in, c->window, &c->out);
}
static void wgrad(struct dnn_graph *g, const struct conv *c) {
    dnn_wgrad(g, &c->in, c->window, &c->out);
}
static void wgrad_product(struct dnn_graph *g, const struct conv *c) {
    dnn_wgrad_product(g, &c->in, &c->out);
}

static const struct kind {
    const char *name;
    bool (*of)(const struct conv *c);
    void (*build)(struct dnn_graph *g, const struct conv *c);
} kinds[] = {
    {"forward", all, forward},
    {"dgrad", has_in_g, dgrad},
    {"wgrad", all, wgrad},
    {"wgrad as a product", is_product, wgrad_product},
};
enum { KINDS = (int)(sizeof kinds / sizeof *kinds), PRODUCT = KINDS - 1 };

struct tally {
    int asked, offered, configurations;
    char first[CHEX_ERROR_TEXT_BYTES]; /* that was not offered one */
};

static void ask(const struct kind *kind, const struct conv *c, const struct dnn_target *target,
                bool strict, struct tally *t) {
    struct dnn_graph g;
    struct chex_error err = {0};
    int found = 0;
    kind->build(&g, c);
    const enum chex_status status = dnn_graph_search(&g, target, strict, &found, &err);
    t->asked++;
    t->offered += found > 0;
    t->configurations += found;
    if (found == 0 && !t->first[0])
        snprintf(t->first, sizeof t->first, "%s: %.400s", c->name,
                 status == CHEX_OK ? "no engine" : err.text);
    dnn_graph_release(&g);
}

/* A precompiled engine gives a plan; a generated one is compiled and then not loaded. */
static void compile(const struct kind *kind, const struct conv *c, const struct dnn_target *target,
                    const char *device) {
    struct dnn_graph g;
    struct dnn_plan plan = {0};
    struct chex_error err = {0};
    kind->build(&g, c);
    const enum chex_status status = dnn_graph_plan(&g, target, false, NULL, &plan, &err);
    OK(status == CHEX_OK || strstr(err.text, "cuLibraryLoadData"), "%s, %s: %s: %s", device,
       c->name, kind->name, status == CHEX_OK ? "has a plan" : "compiles, and is not loaded");
    if (status != CHEX_OK)
        printf("# %s\n", err.text);
    dnn_plan_release(&plan);
    dnn_graph_release(&g);
}

/* Convolutions that differ in nothing that a graph can see are asked about once. */
static bool seen(const struct chex_net *net, const int *hw, int op) {
    const struct chex_op *o = &net->ops[op];
    for (int i = 0; i < op; i++) {
        const struct chex_op *p = &net->ops[i];
        if (p->kind == CHEX_OP_CONV && p->in >= 0 && o->in >= 0 && hw[p->in] == hw[o->in] &&
            p->in_channels == o->in_channels && p->out_channels == o->out_channels &&
            p->kernel == o->kernel && p->stride == o->stride &&
            net->buffers[p->in].channels == net->buffers[o->in].channels &&
            net->buffers[p->out].channels == net->buffers[o->out].channels &&
            (p->in_bn == CHEX_NET_NONE) == (o->in_bn == CHEX_NET_NONE))
            return true;
    }
    return false;
}

static void network(const struct chex_net *net, const struct dnn_target *target, const char *device,
                    int size, int n, enum gpu_type type, int every) {
    static const char *const types[] = {"f32", "bf16", "f16"};
    int hw[256];
    struct chex_error err = {0};
    BAIL_UNLESS(net->buffer_count <= 256 && chex_net_shapes(net, size, hw, &err) == CHEX_OK, "%s",
                err.text);
    for (int k = 0; k < (type == GPU_F32 ? PRODUCT : KINDS); k++) {
        struct tally t = {0};
        const double start = now();
        int shapes = 0;
        for (int op = 0; op < net->op_count; op++) {
            if (net->ops[op].kind != CHEX_OP_CONV || seen(net, hw, op))
                continue;
            const struct conv c = conv_of(net, op, hw, size, n, type);
            if (kinds[k].of(&c) && shapes++ % every == 0)
                ask(&kinds[k], &c, target, type == GPU_F32, &t);
        }
        OK(t.asked > 0 && t.offered == t.asked,
           "%s, %s, %s, %d px, n %d: %s: %d of %d graphs asked about (of %d) have engines, %d "
           "configurations, %.1f s",
           device, net->model, types[type], size, n, kinds[k].name, t.offered, t.asked, shapes,
           t.configurations, now() - start);
        if (t.first[0])
            printf("# %s\n", t.first);
        fflush(stdout);
    }
}

/* The first 1x1 convolution's weight gradient is a generated kernel; all: every kind of it. */
static void compiles(const struct chex_net *net, const struct dnn_target *target,
                     const char *device, bool everything) {
    int hw[256];
    struct chex_error err = {0};
    BAIL_UNLESS(chex_net_shapes(net, 224, hw, &err) == CHEX_OK, "%s", err.text);
    for (int op = 0; op < net->op_count; op++) {
        if (net->ops[op].kind != CHEX_OP_CONV)
            continue;
        const struct conv c = conv_of(net, op, hw, 224, 256, GPU_BF16);
        if (!is_product(&c))
            continue;
        for (int k = everything ? 0 : PRODUCT; k < KINDS; k++)
            compile(&kinds[k], &c, target, device);
        return;
    }
}

/* cuDNN offers generated kernels only where it can open the driver's library; the toolkit's stub,
 * every call of which fails, does. */
static void open_driver(void) {
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
        return;
    if (!dlopen(CUDA_STUB, RTLD_NOW | RTLD_GLOBAL))
        SKIP_ALL("no libcuda.so.1, and no stub of it: %s", dlerror());
}

int main(void) {
    struct chex_net *net = NULL, *resnet = NULL;
    struct chex_error err = {0};
    const char *const all = getenv("CHEX_TEST_ALL_GRAPHS");
    const int every = all ? 1 : 40;
    open_driver();
    BAIL_UNLESS(chex_net_create("densenet121", 14, &net, &err) == CHEX_OK, "%s", err.text);
    BAIL_UNLESS(chex_net_create("resnet50", 14, &resnet, &err) == CHEX_OK, "%s", err.text);
    for (int d = 0; d < DEVICES; d++) {
        if (all && strcmp(all, "1") != 0 && strcmp(all, devices[d]) != 0)
            continue;
        struct dnn_target target = recorded(devices[d]);
        network(net, &target, devices[d], 224, 256, GPU_BF16, every);
        network(net, &target, devices[d], 224, 256, GPU_F32, every);
        if (all || strstr(devices[d], "h200"))
            network(net, &target, devices[d], 75, 3, GPU_BF16, every);
        if (all || strstr(devices[d], "h200"))
            network(resnet, &target, devices[d], 224, 64, GPU_BF16, all ? 1 : 20);
        if (all || strstr(devices[d], "a100"))
            network(net, &target, devices[d], 224, 256, GPU_F16, every);
        if (all || strstr(devices[d], "h200"))
            compiles(net, &target, devices[d], all);
        dnn_target_close(&target);
    }
    chex_net_destroy(resnet);
    chex_net_destroy(net);
    return tap_done();
}
