/* SPDX-License-Identifier: Apache-2.0
 *
 * The algebra of the GPU engine's backward (engine/cuda/host/gpu.h), in double and on whole
 * networks: every reader of a channel adds A dU to the buffer's gradient at once, its B and C to
 * the buffer's two vectors when its sums are known, and the writer takes up g + B x + C. Against
 * differences of the loss along random directions, and against the ref engine's plain backward.
 */
#include "engine/lifetimes.h"
#include "op/net.h"

struct walk {
    const struct chex_net *net;
    int n, size, hw[256];
    const float *pixels;
    const int8_t *labels;
    double *w, *grad;        /* state_count, row-major */
    double *x[256], *g[256]; /* (n, hw, hw, channels) */
    double *mean[256], *inv[256], *bsum[256], *csum[256];
    int *won[512]; /* MAXPOOL: the pixel of the image that won */
    bool add[512], side_add[512];
    double pooled[8 * 2048], logits[8 * CLASSES], dlogits[8 * CLASSES];
};

static size_t pixels_of(const struct walk *k, int buffer) {
    return (size_t)k->n * (size_t)(k->hw[buffer] * k->hw[buffer]);
}

static double *take(size_t count) { return test_alloc(count, sizeof(double)); }

static void open_walk(struct walk *k, const struct chex_net *net, const struct setting *s,
                      const float *state, const float *pixels, const int8_t *labels) {
    struct chex_error err = {0};
    *k = (struct walk){.net = net, .n = s->n, .size = s->size, .pixels = pixels, .labels = labels};
    BAIL_UNLESS(net->buffer_count <= 256 && net->op_count <= 512 && s->n <= 8, "too large");
    BAIL_UNLESS(chex_net_shapes(net, s->size, k->hw, &err) == CHEX_OK, "%s", err.text);
    BAIL_UNLESS(chex_gradient_adds(net, k->add, k->side_add, &err) == CHEX_OK, "%s", err.text);
    k->w = take(net->state_count);
    k->grad = take(net->state_count);
    for (size_t i = 0; i < net->state_count; i++)
        k->w[i] = (double)state[i];
    for (int b = 0; b < net->buffer_count; b++) {
        const size_t channels = (size_t)net->buffers[b].channels;
        k->x[b] = take(pixels_of(k, b) * channels);
        k->g[b] = take(pixels_of(k, b) * channels);
        k->mean[b] = take(channels);
        k->inv[b] = take(channels);
        k->bsum[b] = take(channels);
        k->csum[b] = take(channels);
    }
    for (int i = 0; i < net->op_count; i++)
        if (net->ops[i].kind == CHEX_OP_MAXPOOL)
            k->won[i] = test_alloc(pixels_of(k, net->ops[i].out) * (size_t)net->ops[i].out_channels,
                                   sizeof(int));
}

static void close_walk(struct walk *k) {
    for (int b = 0; b < k->net->buffer_count; b++) {
        double *all[] = {k->x[b], k->g[b], k->mean[b], k->inv[b], k->bsum[b], k->csum[b]};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            free(all[i]);
    }
    for (int i = 0; i < k->net->op_count; i++)
        free(k->won[i]);
    free(k->w);
    free(k->grad);
}

/* ---- values ---- */

struct norm {
    const double *mean, *inv, *gamma, *beta;
};

static struct norm norm_of(const struct walk *k, int bn) {
    if (bn < 0)
        return (struct norm){0};
    const struct chex_bn *b = &k->net->bns[bn];
    return (struct norm){k->mean[b->buffer], k->inv[b->buffer],
                         k->w + k->net->params[b->weight].offset,
                         k->w + k->net->params[b->bias].offset};
}

static double normed(struct norm n, size_t c, double x) {
    return n.mean ? n.gamma[c] * (x - n.mean[c]) * n.inv[c] + n.beta[c] : x;
}

static double activated(struct norm n, size_t c, double x) {
    const double y = normed(n, c, x);
    return n.mean && y < 0 ? 0 : y;
}

/* relu(bn(in)) of an op as a map of its own; the image's three channels. */
static double *input_of(const struct walk *k, const struct chex_op *op, int *hw_out) {
    const size_t c_in = (size_t)op->in_channels;
    if (op->in == CHEX_NET_IMAGE) {
        const size_t count = (size_t)k->n * (size_t)(k->size * k->size);
        double *a = take(count * c_in);
        for (size_t i = 0; i < count * c_in; i++)
            a[i] = ((double)k->pixels[i / 3] - (double)k->net->mean[i % 3]) /
                   (double)k->net->std[i % 3];
        *hw_out = k->size;
        return a;
    }
    const size_t pitch = (size_t)k->net->buffers[op->in].channels, count = pixels_of(k, op->in);
    const struct norm n = norm_of(k, op->in_bn);
    double *a = take(count * c_in);
    for (size_t p = 0; p < count; p++)
        for (size_t c = 0; c < c_in; c++)
            a[p * c_in + c] = activated(n, c, k->x[op->in][p * pitch + c]);
    *hw_out = k->hw[op->in];
    return a;
}

/* Pairs of an output pixel and an input pixel under one tap of the window, one after the other. */
struct taps {
    int n, in_hw, out_hw, kernel, stride, pad;
    long next;
    size_t out, in; /* the pair */
    size_t tap;
};

static struct taps taps_of(const struct walk *k, const struct chex_op *op) {
    return (struct taps){.n = k->n,
                         .in_hw = op->in == CHEX_NET_IMAGE ? k->size : k->hw[op->in],
                         .out_hw = k->hw[op->out],
                         .kernel = op->kernel,
                         .stride = op->stride,
                         .pad = op->pad};
}

static bool next_pair(struct taps *t) {
    const int count = t->kernel * t->kernel, hw = t->out_hw;
    while (t->next < (long)t->n * hw * hw * count) {
        const long pixel = t->next / count;
        const int tap = (int)(t->next++ % count), image = (int)(pixel / (hw * hw));
        const int y = (int)(pixel / hw % hw) * t->stride - t->pad + tap / t->kernel;
        const int x = (int)(pixel % hw) * t->stride - t->pad + tap % t->kernel;
        t->out = (size_t)pixel;
        t->in = (size_t)((image * t->in_hw + y) * t->in_hw + x);
        t->tap = (size_t)tap;
        if (y >= 0 && y < t->in_hw && x >= 0 && x < t->in_hw)
            return true;
    }
    return false;
}

/* ---- forward ---- */

static void statistics(struct walk *k, const struct chex_op *op) {
    const int b = op->out;
    const size_t pitch = (size_t)k->net->buffers[b].channels, count = pixels_of(k, b);
    for (size_t c = (size_t)op->out_first; c < (size_t)(op->out_first + op->out_channels); c++) {
        double sum = 0, squares = 0;
        for (size_t p = 0; p < count; p++)
            sum += k->x[b][p * pitch + c];
        for (size_t p = 0; p < count; p++) {
            const double d = k->x[b][p * pitch + c] - sum / (double)count;
            squares += d * d;
        }
        k->mean[b][c] = sum / (double)count;
        k->inv[b][c] = 1 / sqrt(squares / (double)count + (double)k->net->bn_eps);
    }
}

/* The op's slice of its output, zeros. */
static double *clear_output(struct walk *k, const struct chex_op *op) {
    const size_t pitch = (size_t)k->net->buffers[op->out].channels;
    double *out = k->x[op->out] + op->out_first;
    for (size_t p = 0; p < pixels_of(k, op->out); p++)
        memset(out + p * pitch, 0, (size_t)op->out_channels * sizeof *out);
    return out;
}

static void forward_conv(struct walk *k, const struct chex_op *op) {
    int hw;
    const size_t pitch = (size_t)k->net->buffers[op->out].channels, c_in = (size_t)op->in_channels;
    const size_t taps = (size_t)(op->kernel * op->kernel);
    const double *w = k->w + k->net->params[op->weight].offset;
    double *a = input_of(k, op, &hw), *out = clear_output(k, op);
    for (struct taps t = taps_of(k, op); next_pair(&t);)
        for (size_t o = 0; o < (size_t)op->out_channels; o++) {
            double sum = 0;
            for (size_t c = 0; c < c_in; c++)
                sum += a[t.in * c_in + c] * w[(o * c_in + c) * taps + t.tap];
            out[t.out * pitch + o] += sum;
        }
    free(a);
}

static void forward_pool(struct walk *k, int index) {
    const struct chex_op *op = &k->net->ops[index];
    const size_t channels = (size_t)op->out_channels;
    const size_t pitch = (size_t)k->net->buffers[op->out].channels;
    const double share = 1.0 / (op->kernel * op->kernel); /* AVGPOOL */
    int hw, *won = k->won[index];
    double *a = input_of(k, op, &hw), *out = clear_output(k, op);
    for (size_t i = 0; won && i < pixels_of(k, op->out) * channels; i++)
        won[i] = -1;
    for (struct taps t = taps_of(k, op); next_pair(&t);)
        for (size_t c = 0; c < channels; c++) {
            double *to = &out[t.out * pitch + c];
            const double value = a[t.in * channels + c];
            if (!won) {
                *to += share * value;
            } else if (won[t.out * channels + c] < 0 || value > *to) {
                won[t.out * channels + c] = (int)t.in;
                *to = value;
            }
        }
    free(a);
}

static void forward_residual_add(struct walk *k, const struct chex_op *op) {
    const size_t channels = (size_t)op->out_channels;
    const struct norm n = norm_of(k, op->in_bn), side = norm_of(k, op->side_bn);
    for (size_t i = 0; i < pixels_of(k, op->out) * channels; i++) {
        const size_t c = i % channels;
        const double y = normed(n, c, k->x[op->in][i]) + normed(side, c, k->x[op->side_in][i]);
        k->x[op->out][i] = y < 0 ? 0 : y;
    }
}

static double forward_head(struct walk *k, const struct chex_op *op) {
    int hw;
    double *a = input_of(k, op, &hw), loss = 0;
    const size_t features = (size_t)op->in_channels, area = (size_t)(hw * hw);
    const double *w = k->w + k->net->params[op->weight].offset;
    const double *bias = k->w + k->net->params[op->bias].offset;
    const double values = (double)k->n * k->net->classes;
    for (size_t i = 0; i < (size_t)k->n; i++) {
        double *pooled = k->pooled + i * features;
        memset(pooled, 0, features * sizeof *pooled);
        for (size_t p = 0; p < area; p++)
            for (size_t c = 0; c < features; c++)
                pooled[c] += a[(i * area + p) * features + c] / (double)area;
        for (size_t o = 0; o < (size_t)k->net->classes; o++) {
            const size_t at = i * (size_t)k->net->classes + o;
            double z = bias[o];
            for (size_t c = 0; c < features; c++)
                z += w[o * features + c] * pooled[c];
            k->logits[at] = z;
            k->dlogits[at] = 0;
            if (k->labels[at] < 0)
                continue;
            const double y = k->labels[at] > 0;
            loss += ((z > 0 ? z : 0) - z * y + log1p(exp(-fabs(z)))) / values;
            k->dlogits[at] = (1 / (1 + exp(-z)) - y) / values;
        }
    }
    free(a);
    return loss;
}

static double forward(struct walk *k) {
    double loss = 0;
    for (int i = 0; i < k->net->op_count; i++) {
        const struct chex_op *op = &k->net->ops[i];
        switch (op->kind) {
        case CHEX_OP_CONV: forward_conv(k, op); break;
        case CHEX_OP_MAXPOOL:
        case CHEX_OP_AVGPOOL: forward_pool(k, i); break;
        case CHEX_OP_RESIDUAL_ADD: forward_residual_add(k, op); break;
        case CHEX_OP_HEAD: loss = forward_head(k, op); break;
        }
        if (op->kind != CHEX_OP_HEAD)
            statistics(k, op);
    }
    return loss;
}

/* ---- backward ---- */

/* The op's output gradient, packed: g + B x + C. */
static double *taken(const struct walk *k, const struct chex_op *op) {
    const int b = op->out;
    const size_t pitch = (size_t)k->net->buffers[b].channels, channels = (size_t)op->out_channels;
    const size_t first = (size_t)op->out_first;
    double *d = take(pixels_of(k, b) * channels);
    for (size_t p = 0; p < pixels_of(k, b); p++)
        for (size_t c = 0; c < channels; c++)
            d[p * channels + c] = k->g[b][p * pitch + first + c] +
                                  k->bsum[b][first + c] * k->x[b][p * pitch + first + c] +
                                  k->csum[b][first + c];
    return d;
}

/* du: gradient after the mask, packed (c channels). Everything a reader leaves. */
static void leave(struct walk *k, int buffer, int bn, bool add, const double *du, size_t channels) {
    const struct norm n = norm_of(k, bn);
    const size_t pitch = (size_t)k->net->buffers[buffer].channels, count = pixels_of(k, buffer);
    for (size_t c = 0; c < channels; c++) {
        const double a = n.mean ? n.gamma[c] * n.inv[c] : 1;
        double s1 = 0, s2 = 0;
        for (size_t p = 0; p < count; p++) {
            double *g = &k->g[buffer][p * pitch + c];
            const double d = du[p * channels + c];
            *g = (add ? *g : 0) + a * d;
            s1 += d;
            if (n.mean)
                s2 += d * (k->x[buffer][p * pitch + c] - n.mean[c]) * n.inv[c];
        }
        if (!n.mean)
            continue;
        const double m = (double)count;
        k->bsum[buffer][c] -= a * s2 * n.inv[c] / m;
        k->csum[buffer][c] -= a * (s1 / m - n.mean[c] * n.inv[c] * s2 / m);
        k->grad[k->net->params[k->net->bns[bn].weight].offset + c] = s2;
        k->grad[k->net->params[k->net->bns[bn].bias].offset + c] = s1;
    }
}

/* da: gradient of relu(bn(in)), packed; the mask, then leave. */
static void leave_input(struct walk *k, int index, double *da) {
    const struct chex_op *op = &k->net->ops[index];
    const struct norm n = norm_of(k, op->in_bn);
    const size_t pitch = (size_t)k->net->buffers[op->in].channels;
    const size_t channels = (size_t)op->in_channels;
    for (size_t i = 0; n.mean && i < pixels_of(k, op->in) * channels; i++) {
        const size_t c = i % channels;
        if (!(normed(n, c, k->x[op->in][i / channels * pitch + c]) > 0))
            da[i] = 0;
    }
    leave(k, op->in, op->in_bn, k->add[index], da, channels);
}

static void backward_conv(struct walk *k, int index) {
    const struct chex_op *op = &k->net->ops[index];
    int hw;
    const size_t offset = k->net->params[op->weight].offset;
    double *a = input_of(k, op, &hw), *d = taken(k, op);
    double *da = take((size_t)k->n * (size_t)(hw * hw) * (size_t)op->in_channels);
    const size_t c_in = (size_t)op->in_channels, c_out = (size_t)op->out_channels;
    const size_t taps = (size_t)(op->kernel * op->kernel);
    for (struct taps t = taps_of(k, op); next_pair(&t);)
        for (size_t o = 0; o < c_out; o++)
            for (size_t c = 0; c < c_in; c++) {
                const double dout = d[t.out * c_out + o];
                const size_t at = offset + (o * c_in + c) * taps + t.tap;
                da[t.in * c_in + c] += dout * k->w[at];
                k->grad[at] += dout * a[t.in * c_in + c];
            }
    if (op->in != CHEX_NET_IMAGE)
        leave_input(k, index, da);
    free(a);
    free(d);
    free(da);
}

static void backward_pool(struct walk *k, int index) {
    const struct chex_op *op = &k->net->ops[index];
    const size_t channels = (size_t)op->out_channels, count = pixels_of(k, op->out);
    double *d = taken(k, op), *da = take(pixels_of(k, op->in) * channels);
    const double share = 1.0 / (op->kernel * op->kernel);
    if (op->kind == CHEX_OP_AVGPOOL)
        for (struct taps t = taps_of(k, op); next_pair(&t);)
            for (size_t c = 0; c < channels; c++)
                da[t.in * channels + c] += share * d[t.out * channels + c];
    else
        for (size_t i = 0; i < count * channels; i++)
            da[(size_t)k->won[index][i] * channels + i % channels] += d[i];
    leave_input(k, index, da);
    free(d);
    free(da);
}

static void backward_residual_add(struct walk *k, int index) {
    const struct chex_op *op = &k->net->ops[index];
    const size_t channels = (size_t)op->out_channels;
    double *d = taken(k, op);
    for (size_t i = 0; i < pixels_of(k, op->out) * channels; i++)
        d[i] = k->x[op->out][i] > 0 ? d[i] : 0;
    leave(k, op->in, op->in_bn, k->add[index], d, channels);
    leave(k, op->side_in, op->side_bn, k->side_add[index], d, channels);
    free(d);
}

static void backward_head(struct walk *k, int index) {
    const struct chex_op *op = &k->net->ops[index];
    const size_t features = (size_t)op->in_channels, classes = (size_t)k->net->classes;
    const size_t area = (size_t)(k->hw[op->in] * k->hw[op->in]);
    const size_t at = k->net->params[op->weight].offset, bias = k->net->params[op->bias].offset;
    double *da = take(pixels_of(k, op->in) * features);
    for (size_t i = 0; i < (size_t)k->n; i++)
        for (size_t o = 0; o < classes; o++) {
            const double d = k->dlogits[i * classes + o];
            k->grad[bias + o] += d;
            for (size_t c = 0; c < features; c++) {
                k->grad[at + o * features + c] += d * k->pooled[i * features + c];
                for (size_t p = 0; p < area; p++)
                    da[(i * area + p) * features + c] +=
                        d * k->w[at + o * features + c] / (double)area;
            }
        }
    leave_input(k, index, da);
    free(da);
}

static void backward(struct walk *k) {
    memset(k->grad, 0, k->net->state_count * sizeof *k->grad);
    for (int b = 0; b < k->net->buffer_count; b++) {
        memset(k->bsum[b], 0, (size_t)k->net->buffers[b].channels * sizeof(double));
        memset(k->csum[b], 0, (size_t)k->net->buffers[b].channels * sizeof(double));
    }
    for (int i = k->net->op_count - 1; i >= 0; i--)
        switch (k->net->ops[i].kind) {
        case CHEX_OP_CONV: backward_conv(k, i); break;
        case CHEX_OP_MAXPOOL:
        case CHEX_OP_AVGPOOL: backward_pool(k, i); break;
        case CHEX_OP_RESIDUAL_ADD: backward_residual_add(k, i); break;
        case CHEX_OP_HEAD: backward_head(k, i); break;
        }
}

/* ---- what is asked of it ---- */

/* The slope of the loss from both sides, along directions in which it is steep: the gradient, each
 * element times a random factor between 0 and 2. The step moves the loss by some 1e-7, so that few
 * ReLUs and maxima change over, and double's 16 digits leave eight of the difference. */
static void differences(struct walk *k, const char *what) {
    const size_t count = k->net->param_count;
    double *w = take(count), worst = 0;
    memcpy(w, k->w, count * sizeof *w);
    for (uint64_t which = 0; which < 2; which++) {
        double slope = 0, sides[2];
        for (int pass = 0; pass < 3; pass++) { /* 0: the slope; 1, 2: its two sides */
            for (size_t i = 0; i < count; i++) {
                const struct chex_rng4 r = chex_rng(SEED, CHEX_RNG_TEST, 100 + which, (uint32_t)i);
                const double d = k->grad[i] * 2 * (double)chex_rng_unit(r.v[0]);
                slope += pass == 0 ? k->grad[i] * d : 0;
                if (pass > 0)
                    k->w[i] = w[i] + (pass == 1 ? d : -d) * 1e-7 / slope;
            }
            if (pass > 0)
                sides[pass - 1] = forward(k);
        }
        const double off = fabs((sides[0] - sides[1]) / 2e-7 - 1);
        worst = off > worst ? off : worst;
    }
    memcpy(k->w, w, count * sizeof *w);
    free(w);
    OK(worst < 1e-5, "%s: slopes along 2 directions within %.1e of the differences", what, worst);
}

static void check(const struct setting *s) {
    struct chex_net *net = small_net(s->model, CLASSES);
    struct outcome ref;
    float *state = make_state(net);
    const struct chex_batch batch = make_batch(s);
    struct walk *k = test_alloc(1, sizeof *k);
    open_walk(k, net, s, state, batch.pixels, batch.labels);
    const double loss = forward(k);
    backward(k);
    run("ref", s, net, state, 2, &ref);
    float *grad = test_floats(net->param_count);
    for (size_t i = 0; i < net->param_count; i++)
        grad[i] = (float)k->grad[i];
    const double c = cosine(grad, ref.grad, net->param_count);
    /* ref stores fp32: one ReLU that rounding opens moves gradients by some 1e-3. */
    OK(fabs(loss - ref.result.loss) < 1e-6 * loss && c > 0.9999,
       "%s %d px: loss as ref's, gradients' cosine with its %.9f", s->model, s->size, c);
    differences(k, s->model);
    free(grad);
    release(&ref);
    close_walk(k);
    free(k);
    free_batch(&batch);
    free(state);
    chex_net_destroy(net);
}

int main(void) {
    check(&(struct setting){"densenet_tiny", 64, 2, 2, CHEX_FP32});
#if !TAP_SLOW_BUILD
    check(&(struct setting){"resnet50", 33, 2, 2, CHEX_FP32});
#endif
    return tap_done();
}
