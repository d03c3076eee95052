/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts what each kernel of a training step asks of memory and of the tensor cores, on the
 * emulated device. --help says more.
 */
#include <getopt.h>
#include <inttypes.h>

#include "base/alloc.h"
#include "engine/cuda/host/cuda_engine.h"
#include "engine/cuda/host/cuda_module.h"
#include "gpu/devices.h"
#include "gpu/emulated/counts.h"
#include "op/net.h"

static const char usage[] =
    "usage: gpu-counts [--model densenet121] [--size 224] [--variant s4] [--type bf16|fp16]\n"
    "                  [--op TEXT] [--sites 0]\n"
    "                  [--sms 2] [--batch 4] | [--device NAME] [--batch 256]\n"
    "Counts, for each kernel of a training step, bytes, sectors, bank conflicts and instructions, "
    "on\n"
    "an emulated device.\n"
    "--sms: with so many multiprocessors. EMULATED_GPU=8.0: of another capability.\n"
    "--device: with the multiprocessors, shared memory and capability of a device. Of each launch "
    "two\n"
    "neighbouring blocks run and stand for all.\n"
    "--op: only operations whose name has this text, without the optimiser.\n"
    "--sites K: the K places in the code with most bank conflicts (of a sample). addr2line -Cie\n"
    "gpu-counts ADDRESS names the line.";

/* Labels of counts: 2 * op for forward, + 1 for backward; then: */
enum { COUNTS_LOSS = 10000, COUNTS_UPDATE };

struct options {
    const char *model, *variant, *op, *device;
    int size, sms, batch, sites;
    enum chex_precision precision;
};

static const char *label_name(const struct chex_net *net, int label) {
    return label == COUNTS_LOSS     ? "loss"
           : label == COUNTS_UPDATE ? "update"
                                    : net->ops[label / 2].name;
}
static const char *direction_of(int label) {
    return label >= COUNTS_LOSS ? "" : label % 2 ? "backward" : "forward";
}

/* ---- the step ---- */

static bool wanted(const struct options *o, const char *name) {
    return !o->op || strstr(name, o->op);
}

static void try(enum chex_status st, const struct chex_error *err) {
    if (st == CHEX_OK)
        return;
    fprintf(stderr, "gpu-counts: %s\n", err->text);
    exit(1);
}

static struct cuda_engine *engine_of(const struct options *o, const struct chex_net *net) {
    struct chex_error err = {0};
    void *self = NULL;
    float *state = make_state(net);
    struct chex_engine_config config =
        test_config(net, &(struct setting){o->model, o->size, o->batch, o->batch, o->precision});
    config.variant = o->variant;
    try(chexnet_engine_cuda.create(&config, &self, &err), &err);
    try(chexnet_engine_cuda.set(self, CHEX_STATE_PARAMS, state, &err), &err);
    free(state);
    return self;
}

static void put_batch(const struct options *o, const struct cuda_slot *slot) {
    const struct setting s = {o->model, o->size, o->batch, 0, o->precision};
    const struct chex_batch batch = make_batch(&s);
    const size_t pixels = (size_t)s.n * (size_t)s.size * (size_t)s.size;
    BAIL_UNLESS(
        !cudaMemcpy(slot->pixels, batch.pixels, pixels * sizeof(float), cudaMemcpyHostToDevice) &&
            !cudaMemcpy(slot->labels, batch.labels, (size_t)s.n * CLASSES, cudaMemcpyHostToDevice),
        "upload");
    free_batch(&batch);
}

static void step(const struct options *o, struct cuda_engine *e, float *grad) {
    struct chex_error err = {0};
    const struct chex_net *net = e->net;
    const struct cuda_slot *slot = &e->slots[0];
    const int n = o->batch;
    emulated_counts_clear();
    for (int i = 0; i < net->op_count; i++) {
        emulated_counts_label(2 * i);
        if (wanted(o, net->ops[i].name))
            try(chex_cuda_forward_op(e, i, slot, n, true, &err), &err);
    }
    emulated_counts_label(COUNTS_LOSS);
    BAIL_UNLESS(o->op || (!gpu_report(e->jobs, net->bn_count, n, grad, e->stream) &&
                          !gpu_loss(e->logits, slot->labels, n, net->classes, &e->loss_terms,
                                    e->type == GPU_F16 ? &e->loss_scale->scale : NULL, e->loss,
                                    e->dlogits, e->stream)),
                "loss");
    BAIL_UNLESS(!cudaMemsetAsync(e->shared_sums, 0, e->shared_sums_bytes, e->stream), "memset");
    for (int i = net->op_count - 1; i >= 0; i--) {
        emulated_counts_label(2 * i + 1);
        if (wanted(o, net->ops[i].name))
            try(chex_cuda_backward_op(e, i, slot, n, grad, &err), &err);
    }
    try(chex_cuda_join(e, &err), &err);
    emulated_counts_label(COUNTS_UPDATE);
    const struct chex_update update = {
        .optim = CHEX_SGD, .lr = 0.1, .momentum = 0.9, .grad_scale = 1, .step = 1};
    if (!o->op)
        try(chex_cuda_update(e, &update, grad, &err), &err);
}

/* ---- results ---- */

static double megabytes(uint64_t bytes) { return (double)bytes * 1e-6; }
static uint64_t wavefronts(const struct emulated_counts *c, bool least) {
    uint64_t sum = 0;
    for (int a = EMULATED_SHARED_LOAD; a < EMULATED_ACCESSES; a++)
        sum += least ? c->sum.of[a].least : c->sum.of[a].units;
    return sum;
}

static void print(const struct chex_net *net) {
    size_t count;
    const struct emulated_counts *const all = emulated_counts_all(&count);
    printf("%-58s %6s %9s %9s %9s %10s %9s\n", "kernel", "blocks", "DRAM MB", "L2 MB", "mma k",
           "wavefr. k", "conflicts");
    for (size_t i = 0; i < count; i++) {
        const struct emulated_counts *c = &all[i];
        const uint64_t waves = wavefronts(c, false), least = wavefronts(c, true);
        printf("%s %s\n  %-56s %6" PRIu64 " %9.3f %9.3f %9.2f %10.2f %7.1f %%\n",
               label_name(net, c->label), direction_of(c->label), emulated_kernel_name(c->kernel),
               c->blocks, megabytes(c->sum.dram_load_bytes + c->sum.dram_store_bytes),
               megabytes(c->sum.l2_load_bytes + c->sum.l2_store_bytes),
               (double)(c->sum.mma + c->sum.wgmma) * 1e-3, (double)waves * 1e-3,
               waves ? 100.0 * (double)(waves - least) / (double)waves : 0.0);
    }
}

static uint64_t conflicts_of(const struct emulated_site *s) {
    return s->access < EMULATED_SHARED_LOAD ? 0 : s->traffic.units - s->traffic.least;
}
static int by_conflicts(const void *a, const void *b) {
    const uint64_t x = conflicts_of(a), y = conflicts_of(b);
    return x < y ? 1 : x > y ? -1 : 0;
}

extern const char __executable_start[];

static void print_sites(int most) {
    size_t count;
    const struct emulated_site *const all = emulated_counts_sites(&count);
    struct emulated_site *sorted = chex_alloc_zeroed(count ? count : 1, sizeof *sorted);
    BAIL_UNLESS(sorted, "out of memory");
    memcpy(sorted, all, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_conflicts);
    for (size_t i = 0; i < count && i < (size_t)most && conflicts_of(&sorted[i]); i++)
        printf("0x%zx %-13s %10" PRIu64 " wavefronts, %10" PRIu64 " without conflicts: %s\n",
               (size_t)((const char *)sorted[i].code - __executable_start) - 1,
               emulated_access_names[sorted[i].access], sorted[i].traffic.units,
               sorted[i].traffic.least, emulated_kernel_name(sorted[i].kernel));
    free(sorted);
}

/* ---- the command line ---- */

static int number(const char *text) {
    const int v = atoi(text);
    if (v < 1) {
        fprintf(stderr, "gpu-counts: '%s' is not a positive number\n%s\n", text, usage);
        exit(2);
    }
    return v;
}

static struct options read_options(int argc, char **argv) {
    static const struct option names[] = {{"model", 1, 0, 'm'},
                                          {"size", 1, 0, 's'},
                                          {"sms", 1, 0, 'p'},
                                          {"batch", 1, 0, 'n'},
                                          {"variant", 1, 0, 'v'},
                                          {"type", 1, 0, 't'},
                                          {"op", 1, 0, 'o'},
                                          {"sites", 1, 0, 'k'},
                                          {"device", 1, 0, 'd'},
                                          {"help", 0, 0, 'h'},
                                          {0}};
    struct options o = {
        .model = "densenet121", .variant = "s4", .size = 224, .sms = 2, .precision = CHEX_BF16};
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (c) {
        case 'm': o.model = optarg; break;
        case 's': o.size = number(optarg); break;
        case 'p': o.sms = number(optarg); break;
        case 'n': o.batch = number(optarg); break;
        case 'v': o.variant = optarg; break;
        case 't': o.precision = strcmp(optarg, "fp16") == 0 ? CHEX_FP16 : CHEX_BF16; break;
        case 'o': o.op = optarg; break;
        case 'k': o.sites = number(optarg); break;
        case 'd': o.device = optarg; break;
        case 'h': puts(usage); exit(0);
        default: fprintf(stderr, "%s\n", usage); exit(2);
        }
    if (!o.batch)
        o.batch = o.device ? 256 : 4;
    return o;
}

/* Counts a step on an emulated device of o->sms multiprocessors. */
static void run_step(const struct options *o, const struct chex_net *net) {
    char text[16];
    snprintf(text, sizeof text, "%d", o->sms);
    setenv("EMULATED_SMS", text, 1);
    struct cuda_engine *e = engine_of(o, net);
    if (!o->device)
        put_batch(o, &e->slots[0]);
    float *grad = chex_cuda_grad_alloc(e);
    BAIL_UNLESS(grad, "out of memory");
    step(o, e, grad);
    chex_cuda_grad_free(e, grad);
    chexnet_engine_cuda.destroy(e);
}

/* The memory of a large batch is never touched, except by the blocks of the samples. */
static void be_device(const struct gpu_device *d) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d", d->capability / 10, d->capability % 10);
    setenv("EMULATED_GPU", text, 1);
    setenv("EMULATED_BYTES", "1000000000000", 1);
    setenv("EMULATED_FILL", "0", 1);
    emulated_counts_sample(1);
}

static const struct gpu_device *device_named(const char *name) {
    for (int i = 0; i < TEST_DEVICES; i++)
        if (strcmp(name, test_devices[i].name) == 0)
            return &test_devices[i];
    fprintf(stderr, "gpu-counts: no device '%s' in tests/gpu/devices.h\n", name);
    exit(2);
}

int main(int argc, char **argv) {
    struct options o = read_options(argc, argv);
    const struct gpu_device *d = o.device ? device_named(o.device) : NULL;
    struct chex_net *net = small_net(o.model, CLASSES);
    if (d) {
        be_device(d);
        o.sms = d->sms;
    }
    run_step(&o, net);
    print(net);
    if (o.sites)
        print_sites(o.sites);
    chex_net_destroy(net);
    return 0;
}
