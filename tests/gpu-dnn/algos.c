/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's algorithm against the plain one, on the same maps: slices with channels around them, with
 * and without norm, deferred gradient and addition. Here cuDNN is the interpreter of
 * interpreted.cc, on a device the library itself; there CHEX_TEST_RECORD=FILE keeps the device's
 * properties as cuDNN reports them, for tests/data/gpu.
 *
 * Bounds, relative in L2. Both round the same fp32 values, but cuDNN's algorithm rounds dv once
 * more before it is multiplied, and 16-bit weight gradients once. One rounding to bf16 is 1.7e-3
 * (fp16: 2.1e-4), so the bound is 2.5e-3 (4e-4), with the sums over them. fp32: 1e-5.
 */
#include "base/fs.h"
#include "engine/cuda/cudnn/dnn_graph.h"
#include "gpu/gpu_test.h"

struct shape {
    struct gpu_window window;
    int in, out, n, hw;
    bool norm, relu, deferred_grad, add, image;
    int spare; /* images that it is prepared for besides, with NaN in them */
};

static const struct shape shapes[] = {
    {{1, 1, 0}, 64, 128, 2, 7, true, true, true, true, false, 0},
    {{1, 1, 0}, 96, 32, 3, 3, false, false, false, true, false, 0},
    {{1, 1, 0}, 32, 64, 1, 1, true, false, true, false, false, 0},
    {{1, 1, 0}, 64, 32, 1, 10, false, false, true, false, false, 0},
    {{3, 1, 1}, 64, 32, 2, 7, true, true, true, false, false, 0},
    {{3, 1, 1}, 32, 64, 1, 10, false, false, false, true, false, 0},
    {{3, 1, 1}, 32, 32, 3, 1, true, true, false, true, false, 0},
    {{1, 2, 0}, 64, 32, 2, 7, true, true, true, true, false, 0},
    {{3, 2, 1}, 32, 64, 1, 10, true, true, true, false, false, 0},
    {{7, 2, 3}, 8, 64, 1, 13, false, false, true, false, true, 0},
    {{1, 1, 0}, 64, 32, 1, 7, true, true, true, true, false, 2},
    {{1, 1, 0}, 64, 32, 2, 3, false, false, false, true, false, 1},
    {{3, 1, 1}, 64, 32, 1, 7, true, true, true, true, false, 2},
    {{3, 1, 1}, 32, 32, 2, 3, false, false, false, false, false, 1},
};

enum { FIRST = 32, BEHIND = 64 };
static struct gpu_device device;
static const struct gpu_conv_algo *const algo = &gpu_conv_algo_dnn;

static int out_hw(const struct shape *s) {
    return (s->hw + 2 * s->window.pad - s->window.kernel) / s->window.stride + 1;
}

static float *vector(size_t count, uint64_t seed, float mean, float sigma) {
    float *p = malloc(count * sizeof *p);
    BAIL_UNLESS(p, "out of memory");
    for (size_t i = 0; i < count; i++)
        p[i] = mean + sigma * gt_normal(seed, i);
    return p;
}
static void *uploaded(float *host, size_t count) {
    void *p = gt_upload(host, count * sizeof *host);
    free(host);
    return p;
}

/* ---- what an algorithm reads, made once a shape, and what it writes ---- */

struct inputs {
    struct gt_buffer in, g, x;
    struct gpu_norm norm;
    void *weight, *weight_t, *bsum, *csum;
};

struct outputs {
    struct gt_buffer out, in_g;
    float *mean, *var, *inv, *dgamma, *dbeta, *bsum, *csum, *dweight; /* device */
};

static size_t weights(const struct shape *s) {
    return (size_t)s->out * (size_t)(s->window.kernel * s->window.kernel) * (size_t)s->in;
}

static void upload_weights(const struct shape *s, enum gpu_type type, struct inputs *v) {
    const int taps = s->window.kernel * s->window.kernel;
    float *w = vector(weights(s), 5, 0, 1 / sqrtf((float)(s->in * taps)));
    float *t = vector(weights(s), 5, 0, 0);
    for (int o = 0; o < s->out; o++)
        for (int k = 0; k < taps; k++)
            for (int i = 0; i < s->in; i++) {
                float *at = &w[((size_t)o * (size_t)taps + (size_t)k) * (size_t)s->in + (size_t)i];
                *at = gt_rounded(type, *at);
                t[((size_t)i * (size_t)taps + (size_t)(taps - 1 - k)) * (size_t)s->out +
                  (size_t)o] = *at;
            }
    v->weight = gt_upload_as(type, w, weights(s));
    v->weight_t = gt_upload_as(type, t, weights(s));
    free(w);
    free(t);
}

static int in_pitch(const struct shape *s) { return s->image ? s->in : FIRST + s->in + BEHIND; }
static int first_in(const struct shape *s) { return s->image ? 0 : FIRST; }

/* A buffer with room for the spare images, all of whose bytes are set. */
static struct gt_buffer buffer(const struct shape *s, enum gpu_type type, int hw, int pitch,
                               uint64_t seed, float mean, float sigma) {
    struct gt_buffer b = gt_buffer(type, s->n + s->spare, hw, pitch, seed, mean, sigma);
    const size_t used = (size_t)s->n * (size_t)(hw * hw) * (size_t)pitch;
    GT_OK(cudaMemset((char *)b.device + used * gpu_type_bytes(type), 0xff,
                     (b.count - used) * gpu_type_bytes(type)));
    b.n = s->n;
    b.count = used;
    return b;
}

static struct inputs make_inputs(const struct shape *s, enum gpu_type type) {
    const size_t c = (size_t)s->in, k = (size_t)s->out;
    struct inputs v = {
        .in = buffer(s, type, s->hw, in_pitch(s), 1, 0.5f, 1),
        .g = buffer(s, type, out_hw(s), FIRST + s->out + BEHIND, 2, 0, 0.1f),
        .x = buffer(s, type, out_hw(s), FIRST + s->out + BEHIND, 3, 1, 1),
        .bsum = uploaded(vector(k, 10, 0, 0.02f), k),
        .csum = uploaded(vector(k, 11, 0.01f, 0.02f), k),
    };
    upload_weights(s, type, &v);
    if (s->norm)
        v.norm = (struct gpu_norm){.mean = uploaded(vector(c, 6, 0.5f, 0.1f), c),
                                   .inv = uploaded(vector(c, 7, 1, 0.1f), c),
                                   .gamma = uploaded(vector(c, 8, 1, 0.3f), c),
                                   .beta = uploaded(vector(c, 9, 0.1f, 0.3f), c),
                                   .relu = s->relu};
    return v;
}

static struct outputs make_outputs(const struct shape *s, enum gpu_type type) {
    const size_t c = (size_t)s->in, k = (size_t)s->out;
    struct outputs o = {
        .out = buffer(s, type, out_hw(s), FIRST + s->out + BEHIND, 20, 3, 1),
        .in_g = buffer(s, type, s->hw, in_pitch(s), 21, 0, 0.1f),
        .mean = gt_alloc(k * 4),
        .var = gt_alloc(k * 4),
        .inv = gt_alloc(k * 4),
        .dgamma = gt_alloc(c * 4),
        .dbeta = gt_alloc(c * 4),
        .bsum = uploaded(vector(c, 22, 0, 1e-3f), c),
        .csum = uploaded(vector(c, 23, 0, 1e-3f), c),
        .dweight = gt_alloc(weights(s) * 4),
    };
    return o;
}

/* ---- one algorithm, forward and backward ---- */

static struct gpu_conv_forward forward_of(const struct shape *s, const struct inputs *v,
                                          const struct outputs *o) {
    return (struct gpu_conv_forward){
        .in = gt_slice(&v->in, first_in(s), s->in),
        .norm = v->norm,
        .window = s->window,
        .weight = v->weight,
        .out = gt_slice(&o->out, FIRST, s->out),
        .stats = {.partial = gt_alloc((size_t)GPU_MAX_BLOCKS * 2 * (size_t)s->out * 4),
                  .ticket = gt_zeros(GPU_TICKETS * sizeof(unsigned)),
                  .mean = o->mean,
                  .var = o->var,
                  .inv = o->inv,
                  .eps = 1e-5f},
    };
}

static struct gpu_conv_backward backward_of(const struct shape *s, const struct inputs *v,
                                            const struct outputs *o) {
    struct gpu_conv_backward b = {
        .out = {.g = gt_slice(&v->g, FIRST, s->out), .x = gt_slice(&v->x, FIRST, s->out)},
        .in = gt_slice(&v->in, first_in(s), s->in),
        .norm = v->norm,
        .window = s->window,
        .weight = v->weight,
        .weight_t = v->weight_t,
        .in_g = gt_slice(&o->in_g, first_in(s), s->in),
        .add = s->add,
        .dweight = o->dweight,
    };
    if (s->deferred_grad) {
        b.out.bsum = v->bsum;
        b.out.csum = v->csum;
    }
    if (s->image)
        b.in_g.data = NULL;
    if (s->norm)
        b.sums =
            (struct gpu_sums){.partial = gt_alloc((size_t)GPU_MAX_BLOCKS * 2 * (size_t)s->in * 4),
                              .ticket = gt_zeros(GPU_TICKETS * sizeof(unsigned)),
                              .dgamma = o->dgamma,
                              .dbeta = o->dbeta,
                              .bsum = o->bsum,
                              .csum = o->csum};
    return b;
}

/* false: the algorithm does not take this convolution. */
static bool go(const struct gpu_conv_algo *a, const struct gpu_conv_forward *f,
               const struct gpu_conv_backward *b, int spare) {
    struct chex_error err = {0};
    void *state = NULL;
    struct gpu_conv_forward most_f = f ? *f : (struct gpu_conv_forward){0};
    struct gpu_conv_backward most_b = b ? *b : (struct gpu_conv_backward){0};
    const struct gpu_conv_forward *mf = f ? &most_f : NULL;
    const struct gpu_conv_backward *mb = b ? &most_b : NULL;
    most_f.in.n += spare;
    most_f.out.n += spare;
    most_b.in.n += spare;
    most_b.in_g.n += spare;
    most_b.out.g.n += spare;
    most_b.out.x.n += spare;
    if (!a->fits(&device, mf, mb))
        return false;
    if (a->prepare)
        BAIL_UNLESS(a->prepare(&device, mf, mb, &state, &err) == CHEX_OK, "%s: %s", a->name,
                    err.text);
    void *scratch = gt_alloc(a->workspace(&device, state, mf, mb));
    GT_OK(f ? a->forward(&device, state, f, scratch, NULL)
            : a->backward(&device, state, b, scratch, NULL));
    GT_OK(cudaDeviceSynchronize());
    if (a->release)
        a->release(state);
    return true;
}

/* ---- comparison ---- */

static double distance(const float *a, const float *b, size_t n) {
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        s += (double)b[i] * (double)b[i];
    }
    return s > 0 ? sqrt(d / s) : sqrt(d);
}

static double vectors(const float *a_device, const float *b_device, size_t n) {
    float *a = gt_floats(a_device, n), *b = gt_floats(b_device, n);
    const double d = distance(a, b, n);
    free(a);
    free(b);
    return d;
}

/* Of the slices; a change outside of them is infinite. */
static double maps(const struct gt_buffer *a_buffer, const struct gt_buffer *b_buffer, int first,
                   int channels) {
    float *a = gt_download_as(a_buffer->type, a_buffer->device, a_buffer->count);
    float *b = gt_download_as(b_buffer->type, b_buffer->device, b_buffer->count);
    bool kept = true;
    for (size_t i = 0; i < a_buffer->count; i++) {
        const int c = (int)(i % (size_t)a_buffer->pitch);
        if (c < first || c >= first + channels) {
            kept = kept && a[i] == a_buffer->host[i];
            a[i] = b[i] = 0;
        }
    }
    const double d = distance(a, b, a_buffer->count);
    free(a);
    free(b);
    return kept ? d : INFINITY;
}

/* Of the second moments: a variance of few values may be all rounding. */
static double variances(const struct outputs *a, const struct outputs *b, size_t n) {
    float *av = gt_floats(a->var, n), *am = gt_floats(a->mean, n);
    float *bv = gt_floats(b->var, n), *bm = gt_floats(b->mean, n);
    for (size_t i = 0; i < n; i++) {
        av[i] += am[i] * am[i];
        bv[i] += bm[i] * bm[i];
    }
    const double d = distance(av, bv, n);
    free(av);
    free(am);
    free(bv);
    free(bm);
    return d;
}

static double bound(enum gpu_type type) {
    return type == GPU_F32 ? 1e-5 : type == GPU_BF16 ? 2.5e-3 : 4e-4;
}

static void free_hosts(struct inputs *v, struct outputs *o, int count) {
    free(v->in.host);
    free(v->g.host);
    free(v->x.host);
    for (int i = 0; i < count; i++) {
        free(o[i].out.host);
        free(o[i].in_g.host);
    }
}

static void compare(const struct shape *s, enum gpu_type type) {
    const size_t c = (size_t)s->in, k = (size_t)s->out;
    char name[128];
    struct inputs v = make_inputs(s, type);
    struct outputs o[2] = {make_outputs(s, type), make_outputs(s, type)};
    snprintf(name, sizeof name, "%s %s %dx%d/%d %d>%d n %d of %d hw %d%s%s%s%s", algo->name,
             gt_type_names[type], s->window.kernel, s->window.kernel, s->window.stride, s->in,
             s->out, s->n, s->n + s->spare, s->hw, s->norm ? " norm" : "", s->relu ? " relu" : "",
             s->deferred_grad ? " taken" : "", s->add ? " add" : "");
    struct gpu_conv_forward f[2] = {forward_of(s, &v, &o[0]), forward_of(s, &v, &o[1])};
    struct gpu_conv_backward b[2] = {backward_of(s, &v, &o[0]), backward_of(s, &v, &o[1])};
    BAIL_UNLESS(go(algo, &f[0], NULL, s->spare) && go(algo, NULL, &b[0], s->spare), "%s", name);
    BAIL_UNLESS(go(&gpu_conv_algo_plain, &f[1], NULL, 0) &&
                    go(&gpu_conv_algo_plain, NULL, &b[1], 0),
                "plain");
    const double e = bound(type), y = maps(&o[0].out, &o[1].out, FIRST, s->out);
    const double mean = vectors(o[0].mean, o[1].mean, k), var = variances(&o[0], &o[1], k);
    OK(y <= e && mean <= 0.1 * e + 1e-5 && var <= e + 1e-5, "%s: out %.1e mean %.1e variance %.1e",
       name, y, mean, var);
    const double g = s->image ? 0 : maps(&o[0].in_g, &o[1].in_g, FIRST, s->in);
    const double w = vectors(o[0].dweight, o[1].dweight, weights(s));
    OK(g <= 1.5 * e && w <= 1.5 * e, "%s: in_g %.1e dweight %.1e", name, g, w);
    if (s->norm) {
        const double dg = vectors(o[0].dgamma, o[1].dgamma, c);
        const double db = vectors(o[0].dbeta, o[1].dbeta, c);
        const double bs = vectors(o[0].bsum, o[1].bsum, c), cs = vectors(o[0].csum, o[1].csum, c);
        OK(dg <= e && db <= e && bs <= e && cs <= e,
           "%s: dgamma %.1e dbeta %.1e bsum %.1e csum %.1e", name, dg, db, bs, cs);
    }
    free_hosts(&v, o, 2);
    gt_release_all();
}

/* ---- a whole convolution in a graph: replayed, it reads what is there then ---- */

static void captured(void) {
    const struct shape *s = &shapes[0];
    struct inputs v = make_inputs(s, GPU_BF16);
    struct outputs o[2] = {make_outputs(s, GPU_BF16), make_outputs(s, GPU_BF16)};
    struct gpu_conv_forward f[2] = {forward_of(s, &v, &o[0]), forward_of(s, &v, &o[1])};
    struct chex_error err = {0};
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *state = NULL;
    BAIL_UNLESS(algo->prepare(&device, &f[0], NULL, &state, &err) == CHEX_OK, "%s", err.text);
    void *scratch = gt_alloc(algo->workspace(&device, state, &f[0], NULL));
    GT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    GT_OK(algo->forward(&device, state, &f[0], scratch, stream)); /* loads what no capture may */
    GT_OK(cudaStreamSynchronize(stream));
    GT_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    GT_OK(algo->forward(&device, state, &f[0], scratch, stream));
    GT_OK(cudaStreamEndCapture(stream, &graph));
    GT_OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 2; i++) { /* the second launch starts from the first one's sums */
        GT_OK(cudaGraphLaunch(exec, stream));
        GT_OK(cudaStreamSynchronize(stream));
    }
    BAIL_UNLESS(go(algo, &f[1], NULL, 0), "%s", algo->name);
    OK(maps(&o[0].out, &o[1].out, FIRST, s->out) == 0 &&
           vectors(o[0].var, o[1].var, (size_t)s->out) == 0,
       "%s: a captured forward pass gives the same bits at its second launch", algo->name);
    algo->release(state);
    GT_OK(cudaGraphExecDestroy(exec));
    GT_OK(cudaGraphDestroy(graph));
    GT_OK(cudaStreamDestroy(stream));
    free_hosts(&v, o, 2);
    gt_release_all();
}

/* Prepared for training, run for inference. */
static void without_statistics(void) {
    const struct shape *s = &shapes[0];
    struct inputs v = make_inputs(s, GPU_BF16);
    struct outputs o[2] = {make_outputs(s, GPU_BF16), make_outputs(s, GPU_BF16)};
    struct gpu_conv_forward f[2] = {forward_of(s, &v, &o[0]), forward_of(s, &v, &o[1])};
    struct chex_error err = {0};
    void *state = NULL;
    BAIL_UNLESS(algo->prepare(&device, &f[0], NULL, &state, &err) == CHEX_OK, "%s", err.text);
    void *scratch = gt_alloc(algo->workspace(&device, state, &f[0], NULL));
    f[0].stats = (struct gpu_stats){0};
    GT_OK(algo->forward(&device, state, &f[0], scratch, NULL));
    GT_OK(cudaDeviceSynchronize());
    algo->release(state);
    BAIL_UNLESS(go(algo, &f[1], NULL, 0), "%s", algo->name);
    float *mean = gt_floats(o[0].mean, (size_t)s->out);
    OK(maps(&o[0].out, &o[1].out, FIRST, s->out) == 0 && isnan(mean[0]),
       "%s: without statistics the same result, and none written", algo->name);
    free(mean);
    free_hosts(&v, o, 2);
    gt_release_all();
}

static void refusals(void) {
    struct shape s = shapes[0];
    struct inputs v = make_inputs(&s, GPU_BF16);
    struct outputs o = make_outputs(&s, GPU_BF16);
    struct gpu_conv_forward f = forward_of(&s, &v, &o);
    struct chex_error err = {0};
    void *state = NULL;
    struct gpu_device old = device;
    old.capability = 75;
    OK(!gpu_conv_algo_dnn.fits(&old, &f, NULL), "capability 7.5 has no bf16");
    f.in.n = f.out.n = 1 << 20;
    OK_STATUS(gpu_conv_algo_dnn.prepare(&device, &f, NULL, &state, &err), CHEX_E_ENV, err,
              "2^31 - 1");
    free_hosts(&v, &o, 1);
    gt_release_all();
}

static void record(const char *path) {
    struct chex_error err = {0};
    const struct dnn_target *target = NULL;
    char *json = NULL;
    const bool kept = dnn_target_borrow(&device, &target, &err) == CHEX_OK &&
                      dnn_target_record(target, &json, &err) == CHEX_OK &&
                      chex_fs_write(path, json, strlen(json), &err) == CHEX_OK;
    OK(kept, "the device's properties are in %s %s", path, err.text);
    free(json);
    if (target)
        dnn_target_settle(target);
    dnn_target_drop(target);
}

int main(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        SKIP_ALL("no device");
    setenv("CHEX_CACHE_DIR", "", 1);
    int major = 0, minor = 0;
    GT_OK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    GT_OK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    GT_OK(cudaDeviceGetAttribute(&device.sms, cudaDevAttrMultiProcessorCount, 0));
    device.capability = 10 * major + minor;
    device.shared_max = 100 << 10;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int type = GPU_F32; type <= GPU_F16; type++)
            compare(&shapes[i], (enum gpu_type)type);
    captured();
    without_statistics();
    refusals();
    if (getenv("CHEX_TEST_RECORD"))
        record(getenv("CHEX_TEST_RECORD"));
    return tap_done();
}
