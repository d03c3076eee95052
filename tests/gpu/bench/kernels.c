/* SPDX-License-Identifier: Apache-2.0
 *
 * Times every kernel of every layer of a network, each way that fits, against the least bytes and
 * products (engine/cost.h) at the rates that this device has (gpu/bench/ceilings.h). Each is
 * replayed as a graph over copies of its data that together are several times the L2 cache, so that
 * what one layer leaves there helps no other layer.
 */
#include "base/clock.h"
#include "engine/cost.h"
#include "engine/lifetimes.h"
#include "gpu/bench/bench.h"
#include "gpu/bench/ceilings.h"

extern const struct gpu_conv_algo *const gpu_conv_algos[]; /* ways.c */

static const char usage[] =
    "usage: bench-kernels [--model densenet121] [--size 224] [--batch 256] [--type bf16]\n"
    "       [--ways plain,1x1,...] [--every 1] [--from 0] [--reps 10] [--seconds 600]\n"
    "       [--memory-gib 0] [--json FILE]\n"
    "--ways: only these (default: all; 'other' means everything that is no convolution).\n"
    "--every K: every K-th operation. --from K: none before the K-th. --seconds: no new kernel\n"
    "after that. --memory-gib: take so much of the device; 0: half of what is free.\n"
    "Exit status: 0; 3 where all were tried and some failed; 1 where one ended the rest, which "
    "the\n"
    "last line \"# now: op K\" names.";

enum { MAX_COPIES = 16, MAX_BUFFERS = 512, MAX_OPS = 512 };

struct bench {
    struct gpu_device device;
    struct bench_arena arena;
    struct ceilings ceilings;
    const struct chex_net *net;
    int hw[MAX_BUFFERS];
    struct chex_op_cost costs[MAX_OPS];
    bool add[MAX_OPS], side_add[MAX_OPS]; /* chex_gradient_adds */
    int size, n, reps, every;
    enum gpu_type type;
    const char *algos;
    double until_s;
    FILE *json;
    float *ones;       /* more than any map's channels, around 1 */
    float *vectors;    /* results that are not read */
    unsigned *ticket;  /* zeros */
    double stem_ms[2]; /* forward and backward; 0: not timed */
    int failed;
    double sum_ms, sum_floor_ms; /* of the fastest way of each */
};

/* One operation in one direction, on each copy of its data. */
struct work {
    struct bench *bench;
    const struct chex_op *op;
    int index;
    bool backward;
    int copies;
    const struct gpu_conv_algo *algo; /* NULL: no convolution */
    void *state, *workspace;
    struct gpu_conv_forward f[MAX_COPIES];
    struct gpu_conv_backward b[MAX_COPIES];
    struct gpu_map side[MAX_COPIES], side_g[MAX_COPIES];
    struct gpu_sums side_sums[MAX_COPIES];
    uint8_t *arg[MAX_COPIES];
    float *head[4]; /* weight, pooled, dlogits, dpooled */
};

enum { VECTOR_FLOATS = 1 << 16 };

static struct gpu_map take_map(struct bench *b, int hw, int channels, int pitch) {
    return (struct gpu_map){.data = bench_take(&b->arena, (double)b->n * hw * hw * pitch *
                                                              (double)gpu_type_bytes(b->type)),
                            .type = b->type,
                            .n = b->n,
                            .hw = hw,
                            .channels = channels,
                            .pitch = pitch};
}
static struct gpu_map buffer_map(struct bench *b, int buffer, int channels) {
    return take_map(b, b->hw[buffer], channels, b->net->buffers[buffer].channels);
}

static struct gpu_norm norm_of(const struct bench *b, int bn, bool relu) {
    if (bn < 0)
        return (struct gpu_norm){0};
    return (struct gpu_norm){
        .mean = b->ones, .inv = b->ones, .gamma = b->ones, .beta = b->ones, .relu = relu};
}
static bool is_normed(const struct chex_net *net, int buffer) {
    for (int i = 0; i < net->bn_count; i++)
        if (net->bns[i].buffer == buffer)
            return true;
    return false;
}
static struct gpu_stats stats_of(struct bench *b, const struct chex_op *op) {
    if (op->out < 0 || !is_normed(b->net, op->out))
        return (struct gpu_stats){0};
    float *partial = bench_take(&b->arena, 8.0 * GPU_MAX_BLOCKS * op->out_channels);
    return (struct gpu_stats){.partial = partial,
                              .ticket = b->ticket,
                              .mean = b->vectors,
                              .var = b->vectors + VECTOR_FLOATS,
                              .inv = b->vectors + 2 * VECTOR_FLOATS,
                              .eps = 1e-5f};
}
static struct gpu_sums sums_of(struct bench *b, int bn, int channels, int side) {
    if (bn < 0)
        return (struct gpu_sums){0};
    float *partial = bench_take(&b->arena, 8.0 * GPU_MAX_BLOCKS * channels);
    float *v = b->vectors + 4 * side * VECTOR_FLOATS;
    return (struct gpu_sums){.partial = partial,
                             .ticket = b->ticket + side * GPU_TICKETS,
                             .dgamma = v,
                             .dbeta = v + VECTOR_FLOATS,
                             .bsum = v + 2 * VECTOR_FLOATS,
                             .csum = v + 3 * VECTOR_FLOATS};
}

/* ---- the data of one operation ---- */

static struct gpu_map input_map(struct bench *b, const struct chex_op *op) {
    return op->in == CHEX_NET_IMAGE ? take_map(b, b->size, 8, 8)
                                    : buffer_map(b, op->in, op->in_channels);
}
static size_t weight_count(const struct bench *b, const struct chex_op *op) {
    const int in = op->in == CHEX_NET_IMAGE ? 8 : op->in_channels;
    (void)b;
    return (size_t)op->out_channels * (size_t)in * (size_t)(op->kernel * op->kernel);
}

static void place_forward(struct work *w, int copy) {
    struct bench *b = w->bench;
    struct gpu_conv_forward *f = &w->f[copy];
    f->in = input_map(b, w->op);
    f->norm = norm_of(b, w->op->in_bn, w->op->kind != CHEX_OP_RESIDUAL_ADD);
    f->window = (struct gpu_window){w->op->kernel, w->op->stride, w->op->pad};
    if (w->op->out >= 0)
        f->out = buffer_map(b, w->op->out, w->op->out_channels);
    f->stats = stats_of(b, w->op);
}

static void place_backward(struct work *w, int copy) {
    struct bench *b = w->bench;
    struct gpu_conv_backward *k = &w->b[copy];
    const struct chex_op *op = w->op;
    k->in = input_map(b, op);
    k->norm = norm_of(b, op->in_bn, op->kind != CHEX_OP_RESIDUAL_ADD);
    k->window = (struct gpu_window){op->kernel, op->stride, op->pad};
    if (op->out >= 0) {
        k->out.g = buffer_map(b, op->out, op->out_channels);
        k->out.x = buffer_map(b, op->out, op->out_channels);
        if (is_normed(b->net, op->out)) {
            k->out.bsum = b->vectors + 2 * VECTOR_FLOATS;
            k->out.csum = b->vectors + 3 * VECTOR_FLOATS;
        }
    }
    if (op->in != CHEX_NET_IMAGE) {
        k->in_g = input_map(b, op);
        k->add = b->add[w->index];
        k->sums = sums_of(b, op->in_bn, op->in_channels, 0);
    }
}

/* What copies need not have of their own. */
static void place_shared(struct work *w) {
    struct bench *b = w->bench;
    const struct chex_op *op = w->op;
    if (op->kind == CHEX_OP_CONV) {
        const double bytes = (double)weight_count(b, op) * (double)gpu_type_bytes(b->type);
        void *weight = bench_take(&b->arena, bytes), *turned = bench_take(&b->arena, bytes);
        float *dweight = bench_take(&b->arena, (double)weight_count(b, op) * 4);
        for (int i = 0; i < w->copies; i++) {
            w->f[i].weight = w->b[i].weight = weight;
            w->b[i].weight_t = turned;
            w->b[i].dweight = dweight;
        }
    } else if (op->kind == CHEX_OP_HEAD) {
        const int columns[4] = {b->net->classes * op->in_channels, b->n * op->in_channels,
                                b->n * b->net->classes, b->n * op->in_channels};
        for (int i = 0; i < 4; i++)
            w->head[i] = bench_take(&b->arena, 4.0 * columns[i]);
    }
}

static void place_copy(struct work *w, int copy) {
    struct bench *b = w->bench;
    const struct chex_op *op = w->op;
    if (w->backward)
        place_backward(w, copy);
    else
        place_forward(w, copy);
    if (op->kind == CHEX_OP_MAXPOOL)
        w->arg[copy] = bench_take(&b->arena, (double)b->n * b->hw[op->out] * b->hw[op->out] *
                                                 op->out_channels);
    if (op->kind == CHEX_OP_RESIDUAL_ADD) {
        w->side[copy] = buffer_map(b, op->side_in, b->net->buffers[op->side_in].channels);
        if (w->backward) {
            w->side_g[copy] = buffer_map(b, op->side_in, b->net->buffers[op->side_in].channels);
            w->side_sums[copy] = sums_of(b, op->side_bn, op->in_channels, 1);
        }
    }
}

/* As many copies as it takes to be four times the L2 cache, or as fit: 0, the operation does not.
 */
static void place(struct work *w) {
    struct bench *b = w->bench;
    const size_t begin = b->arena.at;
    w->copies = 0;
    place_copy(w, 0);
    const size_t one = b->arena.at - begin;
    const bool fits = !b->arena.full;
    b->arena.at = begin;
    b->arena.full = false;
    if (!fits || one == 0)
        return;
    size_t wanted = 4 * b->device.l2_bytes / one + 2;
    /* A quarter stays free for weights and workspace. */
    const size_t room = (b->arena.bytes - begin) / 4 * 3 / one;
    wanted = wanted < room ? wanted : room;
    wanted = wanted < MAX_COPIES ? wanted : MAX_COPIES;
    for (w->copies = 0; w->copies < (int)(wanted ? wanted : 1); w->copies++)
        place_copy(w, w->copies);
    place_shared(w);
    if (b->arena.full)
        w->copies = 0;
}

/* ---- launches ---- */

static cudaError_t launch_conv(const void *arg, int copy, cudaStream_t stream) {
    const struct work *w = arg;
    const struct gpu_device *d = &w->bench->device;
    return w->backward ? w->algo->backward(d, w->state, &w->b[copy], w->workspace, stream)
                       : w->algo->forward(d, w->state, &w->f[copy], w->workspace, stream);
}

static cudaError_t launch_forward(const struct work *w, int copy, cudaStream_t stream) {
    const struct gpu_conv_forward *f = &w->f[copy];
    const struct bench *b = w->bench;
    const struct gpu_norm side_norm = norm_of(b, w->op->side_bn, false);
    switch (w->op->kind) {
    case CHEX_OP_MAXPOOL:
        return gpu_maxpool_forward(&f->in, &f->norm, f->window, &f->out, w->arg[copy], &f->stats,
                                   stream);
    case CHEX_OP_AVGPOOL:
        return gpu_avgpool_forward(&f->in, &f->norm, w->op->kernel, &f->out, &f->stats, stream);
    case CHEX_OP_RESIDUAL_ADD:
        return gpu_residual_add_forward(&f->in, &f->norm, &w->side[copy], &side_norm, &f->out,
                                        stream);
    case CHEX_OP_HEAD:
        return gpu_head_forward(&f->in, &f->norm, w->head[0], b->ones, b->net->classes, w->head[1],
                                w->head[2], stream);
    default: return cudaErrorInvalidValue;
    }
}

static cudaError_t launch_backward(const struct work *w, int copy, cudaStream_t stream) {
    const struct gpu_conv_backward *k = &w->b[copy];
    struct bench *b = w->bench;
    const struct chex_op *op = w->op;
    const struct gpu_norm side_norm = norm_of(b, op->side_bn, false);
    switch (op->kind) {
    case CHEX_OP_MAXPOOL:
        return gpu_maxpool_backward(&k->out, w->arg[copy], k->window, &k->in, &k->norm, &k->in_g,
                                    k->add, &k->sums, stream);
    case CHEX_OP_AVGPOOL:
        return gpu_avgpool_backward(&k->out, op->kernel, &k->in, &k->norm, &k->in_g, k->add,
                                    &k->sums, stream);
    case CHEX_OP_RESIDUAL_ADD:
        return gpu_residual_add_backward(&k->out, &k->out.x, &k->in, &k->norm, &k->in_g, k->add,
                                         &k->sums, &w->side[copy], &side_norm, &w->side_g[copy],
                                         b->side_add[w->index], &w->side_sums[copy], stream);
    case CHEX_OP_HEAD:
        return gpu_head_backward(&k->in, &k->norm, w->head[0], b->net->classes, w->head[1],
                                 w->head[2], w->head[3], b->vectors, b->vectors, &k->in_g, k->add,
                                 &k->sums, stream);
    default: return cudaErrorInvalidValue;
    }
}
static cudaError_t launch_other(const void *arg, int copy, cudaStream_t stream) {
    const struct work *w = arg;
    return w->backward ? launch_backward(w, copy, stream) : launch_forward(w, copy, stream);
}

/* ---- one line of the result ---- */

static const char *const kind_names[] = {"conv", "maxpool", "avgpool", "join", "head"};

/* A lower bound in milliseconds: the larger of memory's and arithmetic's. */
static double floor_ms(const struct bench *b, struct chex_work c) {
    const double memory = b->ceilings.copy_gb_s > 0 ? c.bytes / b->ceilings.copy_gb_s * 1e-6 : 0;
    const double product =
        b->ceilings.gemm_tflop_s > 0 ? c.flop / b->ceilings.gemm_tflop_s * 1e-9 : 0;
    return memory > product ? memory : product;
}
static struct chex_work work_of(const struct bench *b, int op, bool backward) {
    return backward ? b->costs[op].backward : b->costs[op].forward;
}

static void report(const struct work *w, const char *algo, struct bench_time t) {
    struct bench *b = w->bench;
    const struct chex_work c = work_of(b, w->index, w->backward);
    const char *direction = w->backward ? "backward" : "forward";
    const double least = floor_ms(b, c), gb = c.bytes * 1e-9, tflop = c.flop * 1e-12;
    const int channels = w->op->in_channels, out = w->op->out_channels;
    if (t.error != cudaSuccess) {
        printf("%-44s %-8s %-9s FAILED: %s\n", w->op->name, direction, algo,
               cudaGetErrorString(t.error));
        b->failed++;
        return;
    }
    printf("%-44s %-8s %-9s %4d>%-4d hw %3d %9.4f ms (%.4f to %.4f) %7.0f GB/s %6.1f TFLOP/s %5.1f "
           "%%\n",
           w->op->name, direction, algo, channels, out,
           w->op->in == CHEX_NET_IMAGE ? b->size : b->hw[w->op->in], t.ms, t.low, t.high,
           gb / t.ms * 1e3, tflop / t.ms * 1e3, 100 * least / t.ms);
    fflush(stdout);
    if (!b->json)
        return;
    bench_json_begin(b->json, "kernel", &b->device);
    fprintf(b->json,
            ", \"model\": \"%s\", \"type\": \"%s\", \"batch\": %d, \"size_px\": %d, \"op\": %d, "
            "\"name\": \"%s\", \"op_kind\": \"%s\", \"direction\": \"%s\", \"way\": \"%s\", "
            "\"in_channels\": %d, \"out_channels\": %d, \"copies\": %d, \"ms\": %.6f, "
            "\"ms_low\": %.6f, \"ms_high\": %.6f, \"floor_bytes\": %.0f, \"flop\": %.0f, "
            "\"floor_ms\": %.6f}\n",
            b->net->model, bench_type_names[b->type], b->n, b->size, w->index, w->op->name,
            kind_names[w->op->kind], direction, algo, channels, out, w->copies, t.ms, t.low, t.high,
            c.bytes, c.flop, least);
    fflush(b->json);
}

/* Said before anything is launched: what ends the program or never ends is known by it. */
static void announce(const struct work *w, const char *algo) {
    printf("# now: op %d %s %s by %s\n", w->index, w->op->name,
           w->backward ? "backward" : "forward", algo);
    fflush(stdout);
}

/* Times w by its way; 0 where it could not. */
static double measure_algo(struct work *w) {
    struct bench *b = w->bench;
    struct chex_error err = {0};
    const struct gpu_conv_forward *f = w->backward ? NULL : &w->f[0];
    const struct gpu_conv_backward *k = w->backward ? &w->b[0] : NULL;
    const size_t begin = b->arena.at;
    double ms = 0;
    announce(w, w->algo->name);
    w->state = NULL;
    if (w->algo->prepare && w->algo->prepare(&b->device, f, k, &w->state, &err) != CHEX_OK) {
        printf("%-44s %-8s %-9s no: %s\n", w->op->name, w->backward ? "backward" : "forward",
               w->algo->name, err.text);
        return 0;
    }
    const size_t room = w->algo->workspace ? w->algo->workspace(&b->device, w->state, f, k) : 0;
    w->workspace = room ? bench_take(&b->arena, (double)room) : NULL;
    if (room && !w->workspace) {
        printf("%-44s %-9s no: its workspace of %.1f MB does not fit\n", w->op->name, w->algo->name,
               (double)room * 1e-6);
    } else {
        const struct bench_time t = bench_time(launch_conv, w, w->copies, b->reps);
        report(w, w->algo->name, t);
        ms = t.error == cudaSuccess ? t.ms : 0;
    }
    if (w->algo->release)
        w->algo->release(w->state);
    b->arena.at = begin;
    b->arena.full = false;
    return ms;
}

/* Times the operation each way; the fastest counts towards the sum. */
static void measure(struct bench *b, int index, bool backward) {
    static struct work w;
    double best = index == 0 ? b->stem_ms[backward] : 0;
    const size_t begin = b->arena.at;
    w = (struct work){.bench = b, .op = &b->net->ops[index], .index = index, .backward = backward};
    place(&w);
    if (!w.copies) {
        printf("%-44s does not fit into the memory\n", w.op->name);
    } else if (w.op->kind != CHEX_OP_CONV) {
        if (bench_listed(b->algos, "other")) {
            announce(&w, "other");
            const struct bench_time t = bench_time(launch_other, &w, w.copies, b->reps);
            report(&w, "other", t);
            best = t.error == cudaSuccess ? t.ms : 0;
        }
    } else {
        for (size_t i = 0; gpu_conv_algos[i]; i++) {
            w.algo = gpu_conv_algos[i];
            if (!bench_listed(b->algos, w.algo->name) || chex_clock_s() > b->until_s ||
                !w.algo->fits(&b->device, backward ? NULL : &w.f[0], backward ? &w.b[0] : NULL))
                continue;
            const double ms = measure_algo(&w);
            best = ms > 0 && (best == 0 || ms < best) ? ms : best;
        }
    }
    b->arena.at = begin;
    b->arena.full = false;
    if (best > 0) {
        b->sum_ms += best;
        b->sum_floor_ms += floor_ms(b, work_of(b, index, backward));
    }
}

/* ---- the stem's own kernels, which take the place of the image and the first convolution ---- */

struct stem_work {
    struct bench *bench;
    int copies;
    float *grey[MAX_COPIES];
    struct gpu_map out[MAX_COPIES], g[MAX_COPIES];
    struct gpu_stats stats;
    void *folded, *workspace;
    float *dweight, *weight;
    bool backward;
};

static cudaError_t launch_stem(const void *arg, int copy, cudaStream_t stream) {
    const struct stem_work *w = arg;
    const struct bench *b = w->bench;
    const struct gpu_deferred_grad deferred_grad = {.g = w->g[copy],
                                                    .x = w->out[copy],
                                                    .bsum = b->vectors + 2 * VECTOR_FLOATS,
                                                    .csum = b->vectors + 3 * VECTOR_FLOATS};
    if (w->backward)
        return gpu_stem_backward(&b->device, w->grey[copy], b->n, b->size, &deferred_grad,
                                 b->net->mean, b->net->std, w->dweight, w->workspace, stream);
    return gpu_stem_forward(&b->device, w->grey[copy], b->n, b->size, w->folded, &w->out[copy],
                            &w->stats, stream);
}

static void measure_stem(struct bench *b, bool backward) {
    static struct stem_work w;
    const struct chex_op *op = &b->net->ops[0];
    const size_t begin = b->arena.at;
    w = (struct stem_work){.bench = b, .backward = backward};
    w.stats = stats_of(b, op);
    w.folded = bench_take(&b->arena, (double)gpu_stem_folded_bytes());
    w.weight = bench_take(&b->arena, 4.0 * 64 * 7 * 7 * 3);
    w.dweight = bench_take(&b->arena, 4.0 * 64 * 7 * 7 * 3);
    w.workspace = bench_take(&b->arena, (double)gpu_stem_workspace(&b->device, b->n, b->size) + 1);
    for (w.copies = 0; w.copies < 2; w.copies++) {
        w.grey[w.copies] = bench_take(&b->arena, 4.0 * b->n * b->size * b->size);
        w.out[w.copies] = buffer_map(b, op->out, op->out_channels);
        w.g[w.copies] = buffer_map(b, op->out, op->out_channels);
    }
    if (b->arena.full) {
        printf("%-44s does not fit into the memory\n", "stem");
    } else {
        struct work line = {.bench = b, .op = op, .backward = backward, .copies = w.copies};
        announce(&line, "stem");
        BENCH_CUDA(gpu_stem_fold(w.weight, b->net->mean, b->net->std, b->type, w.folded, NULL));
        BENCH_CUDA(cudaDeviceSynchronize());
        const struct bench_time t = bench_time(launch_stem, &w, w.copies, b->reps);
        report(&line, "stem", t);
        b->stem_ms[backward] = t.error == cudaSuccess ? t.ms : 0;
    }
    b->arena.at = begin;
    b->arena.full = false;
}

/* ---- the whole ---- */

static void set_up(struct bench *b, double gib) {
    b->device = bench_device();
    const double bytes = gib > 0 ? gib * (1 << 30) : (double)b->device.free_bytes / 2;
    b->arena = bench_arena((size_t)bytes, b->type);
    printf("# now: the rates of copies and of large products\n");
    fflush(stdout);
    b->ceilings = ceilings_of(&b->device, &b->arena, b->type, b->reps);
    bench_fill(&b->arena, b->type);
    float *ones = malloc(VECTOR_FLOATS * sizeof *ones);
    if (!ones)
        bench_die("out of memory");
    for (int i = 0; i < VECTOR_FLOATS; i++)
        ones[i] = 0.5f + chex_rng_unit(chex_rng(2, CHEX_RNG_TEST, (uint64_t)i, 0).v[0]);
    b->ones = bench_take(&b->arena, 4.0 * VECTOR_FLOATS);
    b->vectors = bench_take(&b->arena, 4.0 * 8 * VECTOR_FLOATS);
    b->ticket = bench_take(&b->arena, 4.0 * 2 * GPU_TICKETS);
    if (b->arena.full)
        bench_die("the memory is too small");
    BENCH_CUDA(cudaMemcpy(b->ones, ones, VECTOR_FLOATS * sizeof *ones, cudaMemcpyHostToDevice));
    BENCH_CUDA(cudaMemset(b->vectors, 0, 8 * VECTOR_FLOATS * sizeof(float)));
    BENCH_CUDA(cudaMemset(b->ticket, 0, 2 * GPU_TICKETS * sizeof(unsigned)));
    free(ones);
}

static void finish(const struct bench *b, int done, int all) {
    printf("= ceilings %s|copy %.0f GB/s|gemm %.0f TFLOP/s (%s)|%s\n", bench_type_names[b->type],
           b->ceilings.copy_gb_s, b->ceilings.gemm_tflop_s, b->ceilings.gemm_by, b->device.name);
    printf("= kernels %s, fastest ways, %d of %d operations|%.3f ms forward and backward|floor "
           "%.3f ms|%.1f %%|batch %d, %d px\n",
           bench_type_names[b->type], done, all, b->sum_ms, b->sum_floor_ms,
           b->sum_ms > 0 ? 100 * b->sum_floor_ms / b->sum_ms : 0, b->n, b->size);
    if (!b->json)
        return;
    bench_json_begin(b->json, "kernels", &b->device);
    fprintf(
        b->json,
        ", \"model\": \"%s\", \"type\": \"%s\", \"batch\": %d, \"size_px\": %d, "
        "\"copy_gb_per_s\": %.1f, \"gemm_tflop_per_s\": %.1f, \"gemm_by\": \"%s\", \"ops\": %d, "
        "\"ms\": %.4f, \"floor_ms\": %.4f}\n",
        b->net->model, bench_type_names[b->type], b->n, b->size, b->ceilings.copy_gb_s,
        b->ceilings.gemm_tflop_s, b->ceilings.gemm_by, done, b->sum_ms, b->sum_floor_ms);
    fclose(b->json);
}

static enum gpu_type type_named(const char *name) {
    for (int i = 0; i < 3; i++)
        if (strcmp(bench_type_names[i], name) == 0)
            return (enum gpu_type)i;
    bench_die(usage);
    return GPU_F32;
}

int main(int argc, char **argv) {
    static const char *const names[] = {"--model",   "--size",       "--batch", "--type",
                                        "--ways",    "--every",      "--from",  "--reps",
                                        "--seconds", "--memory-gib", "--json",  NULL};
    static struct bench b;
    struct chex_net *net;
    struct chex_error err = {0};
    bench_check_options(argc, argv, names, usage);
    b.size = atoi(bench_option(argc, argv, "--size", "224"));
    b.n = atoi(bench_option(argc, argv, "--batch", "256"));
    b.every = atoi(bench_option(argc, argv, "--every", "1"));
    b.reps = atoi(bench_option(argc, argv, "--reps", "10"));
    b.type = type_named(bench_option(argc, argv, "--type", "bf16"));
    b.algos = bench_option(argc, argv, "--ways", "");
    if (b.n < 1 || b.every < 1 || b.reps < 1 || b.reps > BENCH_MAX_REPS)
        bench_die(usage);
    if (chex_net_create(bench_option(argc, argv, "--model", "densenet121"), 14, &net, &err) !=
            CHEX_OK ||
        net->op_count > MAX_OPS || chex_net_shapes(net, b.size, b.hw, &err) != CHEX_OK ||
        chex_gradient_adds(net, b.add, b.side_add, &err) != CHEX_OK)
        bench_die(err.text);
    const struct chex_cost_shape shape = {b.size, b.n, (int)gpu_type_bytes(b.type), true};
    if (chex_net_cost(net, &shape, b.costs, &err) != CHEX_OK)
        bench_die(err.text);
    b.net = net;
    b.until_s = chex_clock_s() + atof(bench_option(argc, argv, "--seconds", "600"));
    set_up(&b, atof(bench_option(argc, argv, "--memory-gib", "0")));
    b.json = bench_json(bench_option(argc, argv, "--json", ""));
    const int from = atoi(bench_option(argc, argv, "--from", "0"));
    int done = 0;
    if (from == 0 && b.type != GPU_F32 && b.device.capability >= 80 &&
        bench_listed(b.algos, "stem"))
        for (int backward = 0; backward < 2; backward++)
            measure_stem(&b, backward);
    const int first = (from + b.every - 1) / b.every * b.every;
    for (int i = first; i < net->op_count && chex_clock_s() < b.until_s; i += b.every, done++)
        for (int backward = 0; backward < 2; backward++)
            measure(&b, i, backward);
    finish(&b, done, net->op_count);
    chex_net_destroy(net);
    BENCH_CUDA(cudaFree(b.arena.base));
    return b.failed ? 3 : 0;
}
