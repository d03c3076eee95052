/* SPDX-License-Identifier: Apache-2.0
 *
 * Named tensors become the parameters of a network.
 *
 * One input channel. torchxrayvision's networks see one channel, 2048 g - 1024 for a pixel g in
 * [0, 1]. Ours see three channels (g - mean[c]) / std[c]. Let W be a weight of the first
 * convolution. Three weights w[c] = W std[c] b[c] give the same product for every g if
 *     sum b[c] = 2048   and   sum b[c] mean[c] = 1024,
 * because ImageNet's three means differ. Two equations leave one degree of freedom; the b of the
 * smallest norm is taken: b[c] = 2048/3 + d (mean[c] - m), where m is the average of the means. The
 * equations hold for each weight alone, so they also hold where padding replaces some pixels by
 * zero: there, both products are zero. The results are equal up to the rounding of w to fp32.
 */
#include "model/tensor_set.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "model/parameter_names.h"

enum { NAME_BYTES = 2 * CHEX_NET_NAME_BYTES };
static const double xrv_gain = 2048, xrv_offset = -1024;

/* ---- a set ---- */

const struct chex_dtype *chex_dtype_find(const char *name) {
    static const struct chex_dtype types[] = {
        {"F32", CHEX_TENSOR_F32, 4},   {"F16", CHEX_TENSOR_F16, 2},   {"BF16", CHEX_TENSOR_BF16, 2},
        {"F64", CHEX_TENSOR_F64, 8},   {"I64", CHEX_TENSOR_OTHER, 8}, {"I32", CHEX_TENSOR_OTHER, 4},
        {"I16", CHEX_TENSOR_OTHER, 2}, {"I8", CHEX_TENSOR_OTHER, 1},  {"U8", CHEX_TENSOR_OTHER, 1},
        {"BOOL", CHEX_TENSOR_OTHER, 1}};
    for (size_t i = 0; i < CHEX_COUNT(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

enum chex_status chex_tensor_set_begin(struct chex_tensor_set *set, const char *path, void *bytes,
                                       struct chex_error *err) {
    set->bytes = bytes;
    set->path = strdup(path);
    return set->path ? CHEX_OK : chex_error_memory(err, "%s", path);
}

enum chex_status chex_tensor_set_add(struct chex_tensor_set *set, const struct chex_tensor *tensor,
                                     const size_t *strides, struct chex_error *err) {
    char shown[128];
    if (!chex_text_is_printable(tensor->name))
        return chex_error_data(err,
                               "%s: the tensor name '%s' has control characters or is no UTF-8",
                               set->path, chex_text_printable(tensor->name, shown, sizeof shown));
    char *name = strdup(tensor->name);
    if (!name ||
        !chex_alloc_grow(&set->tensors, set->count, &set->capacity, sizeof *set->tensors)) {
        free(name);
        return chex_error_memory(err, "%s", set->path);
    }
    struct chex_tensor *t = &set->tensors[set->count++];
    const struct chex_dtype *dtype = chex_dtype_find(tensor->type_name);
    *t = *tensor;
    t->name = name;
    t->type = dtype ? dtype->type : CHEX_TENSOR_OTHER;
    size_t row = 1;
    for (size_t i = t->rank; i-- > 0; row *= t->dims[i])
        t->strides[i] = strides ? strides[i] : row;
    return CHEX_OK;
}

void chex_tensor_set_release(struct chex_tensor_set *set) {
    for (size_t i = 0; i < set->count; i++)
        free(set->tensors[i].name);
    CHEX_FREE(set->tensors, set->path, set->bytes);
    *set = (struct chex_tensor_set){0};
}

/* ---- values ---- */

static float half_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    uint32_t bits;
    if (exponent == 0) {
        float f = (float)fraction * 0x1p-24f; /* zero and subnormal: exact in fp32 */
        return sign ? -f : f;
    }
    bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | fraction << 13;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Element `at` of the tensor's storage. */
static float value_at(const struct chex_tensor *t, size_t at) {
    float f = 0;
    double d;
    uint16_t raw;
    uint32_t bits;
    switch (t->type) {
    case CHEX_TENSOR_F32: memcpy(&f, t->data + at * sizeof f, sizeof f); break;
    case CHEX_TENSOR_F64:
        memcpy(&d, t->data + at * sizeof d, sizeof d);
        f = (float)d;
        break;
    case CHEX_TENSOR_F16:
        memcpy(&raw, t->data + at * sizeof raw, sizeof raw);
        f = half_to_float(raw);
        break;
    case CHEX_TENSOR_BF16:
        memcpy(&raw, t->data + at * sizeof raw, sizeof raw);
        bits = (uint32_t)raw << 16;
        memcpy(&f, &bits, sizeof f);
        break;
    case CHEX_TENSOR_OTHER: break;
    }
    return f;
}

void chex_tensor_values(const struct chex_tensor *t, float *out) {
    size_t index[CHEX_TENSOR_RANK] = {0}, at = 0, count = 1;
    for (size_t i = 0; i < t->rank; i++)
        count *= t->dims[i];
    for (size_t n = 0; n < count; n++) {
        out[n] = value_at(t, at);
        for (size_t i = t->rank; i-- > 0;) {
            at += t->strides[i];
            if (++index[i] < t->dims[i])
                break;
            at -= index[i] * t->strides[i];
            index[i] = 0;
        }
    }
}

/* ---- tensors and parameters ---- */

static bool same_shape(const struct chex_tensor *t, const struct chex_param *p) {
    bool same = t->rank == (size_t)p->rank;
    for (int i = 0; same && i < p->rank; i++)
        same = t->dims[i] == (size_t)p->dims[i];
    return same;
}

/* Whether `p` is a first convolution, and the tensor is the same with one input channel. */
static bool is_one_channel(const struct chex_tensor *t, const struct chex_param *p) {
    struct chex_param one = *p;
    one.dims[1] = 1;
    return p->kind == CHEX_PARAM_CONV && p->dims[1] == 3 && same_shape(t, &one);
}

static void print_shape(const size_t *dims, size_t rank, char *out, size_t size) {
    size_t at = (size_t)snprintf(out, size, "[");
    for (size_t i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%zu", i ? "," : "", dims[i]);
    if (at < size)
        snprintf(out + at, size - at, "]");
}

static enum chex_status wrong_shape(const char *path, const struct chex_tensor *t,
                                    const struct chex_param *p, struct chex_error *err) {
    char got[96], want[96];
    size_t dims[4];
    for (int i = 0; i < p->rank; i++)
        dims[i] = (size_t)p->dims[i];
    print_shape(t->dims, t->rank, got, sizeof got);
    print_shape(dims, (size_t)p->rank, want, sizeof want);
    return chex_error_data(err, "%s: tensor '%.100s' has shape %s, expected %s", path, t->name, got,
                           want);
}

/* Widens one channel to three; the head of this file explains it. */
static void copy_one_channel(const struct chex_tensor *t, const struct chex_param *p,
                             const struct chex_net *net, float *out) {
    double m = 0, spread = 0, factor[3];
    for (int c = 0; c < 3; c++)
        m += (double)net->mean[c] / 3;
    for (int c = 0; c < 3; c++)
        spread += ((double)net->mean[c] - m) * ((double)net->mean[c] - m);
    const double d = (-xrv_offset - xrv_gain * m) / spread;
    for (int c = 0; c < 3; c++)
        factor[c] = (xrv_gain / 3 + d * ((double)net->mean[c] - m)) * (double)net->std[c];
    const size_t taps = (size_t)p->dims[2] * (size_t)p->dims[3];
    chex_tensor_values(
        t, out); /* (out, 1, k, k) at the start; spread from the end, so nothing is lost */
    for (size_t o = (size_t)p->dims[0]; o-- > 0;)
        for (int c = 2; c >= 0; c--)
            for (size_t k = taps; k-- > 0;)
                out[(o * 3 + (size_t)c) * taps + k] =
                    (float)((double)out[o * taps + k] * factor[c]);
}

static enum chex_status load_tensor(const struct chex_tensor_set *set, const struct chex_tensor *t,
                                    const struct chex_net *net, const struct chex_param *p,
                                    float *state, struct chex_error *err) {
    const bool one_channel = is_one_channel(t, p);
    if (!one_channel && !same_shape(t, p))
        return wrong_shape(set->path, t, p, err);
    if (t->type == CHEX_TENSOR_OTHER)
        return chex_error_data(err, "%s: tensor '%.100s' is %.16s, expected F32, F16, BF16 or F64",
                               set->path, t->name, t->type_name);
    if (one_channel)
        copy_one_channel(t, p, net, state + p->offset);
    else
        chex_tensor_values(t, state + p->offset);
    for (size_t i = 0; i < p->count; i++)
        if (!isfinite(state[p->offset + i]))
            return chex_error_data(err, "%s: tensor '%.100s': element %zu is %g", set->path,
                                   t->name, i, (double)state[p->offset + i]);
    return CHEX_OK;
}

/* What match() found. */
struct match {
    const struct chex_tensor **found; /* (param_total): the tensor of each parameter, or NULL */
    const char *extra; /* name of the first of extra_count tensors that are not parameters */
    size_t extra_count;
    bool deep_head; /* the head has several linear layers */
};

static void release(struct match *m) { free(m->found); }

static int find_param(const struct chex_net *net, const struct chex_tensor *t) {
    char name[NAME_BYTES];
    return chex_parameter_name(t->name, name, sizeof name) ? chex_net_find_param(net, name) : -1;
}

static enum chex_status match(const struct chex_tensor_set *set, const struct chex_net *net,
                              struct match *m, struct chex_error *err) {
    for (size_t i = 0; i < set->count; i++) {
        const struct chex_tensor *t = &set->tensors[i];
        const int at = find_param(net, t);
        if (at >= 0 && m->found[at]) {
            m->deep_head = chex_param_is_head(&net->params[at]);
            if (!m->deep_head)
                return chex_error_data(err, "%s: '%.100s' and '%.100s' are one parameter",
                                       set->path, m->found[at]->name, t->name);
        } else if (at >= 0) {
            m->found[at] = t;
        } else if (!chex_parameter_is_extra(t->name)) {
            m->extra = m->extra ? m->extra : t->name;
            m->extra_count++;
        }
    }
    return CHEX_OK;
}

static bool head_fits(const struct match *m, const struct chex_net *net) {
    bool fits = !m->deep_head;
    for (int i = 0; i < net->param_total; i++)
        if (chex_param_is_head(&net->params[i]))
            fits = fits && m->found[i] && same_shape(m->found[i], &net->params[i]);
    return fits;
}

static enum chex_status load_all(const struct chex_tensor_set *set, const struct chex_net *net,
                                 const struct match *m, bool head, float *state,
                                 struct chex_error *err) {
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        if (chex_param_is_head(p) && !head)
            continue;
        if (!m->found[i])
            return chex_error_data(err, "%s: no tensor '%s' (required by %s)%s%.100s%s", set->path,
                                   p->name, net->model,
                                   m->extra ? "; the file has an unknown tensor '" : "",
                                   m->extra ? m->extra : "", m->extra ? "'" : "");
        CHEX_TRY(load_tensor(set, m->found[i], net, p, state, err));
    }
    return CHEX_OK;
}

enum chex_status chex_tensor_set_load(const struct chex_tensor_set *set, const struct chex_net *net,
                                      float *state, bool *head_loaded_out, struct chex_error *err) {
    CHEX_AUTO(release)
    struct match m = {.found = chex_alloc_zeroed((size_t)net->param_total, sizeof *m.found)};
    CHEX_AUTO_FREE float *fresh = chex_alloc_zeroed(net->state_count, sizeof *fresh);
    if (!m.found || !fresh)
        return chex_error_memory(err, "%s", set->path);
    CHEX_TRY(match(set, net, &m, err));
    const bool head = head_loaded_out && head_fits(&m, net);
    memcpy(fresh, state, net->state_count * sizeof *fresh);
    CHEX_TRY(load_all(set, net, &m, head, fresh, err));
    memcpy(state, fresh, net->state_count * sizeof *fresh);
    if (head_loaded_out)
        *head_loaded_out = head;
    return CHEX_OK;
}

static void warn_of(const struct chex_tensor_set *set, const struct chex_net *net,
                    const struct match *m) {
    if (m->extra_count)
        chex_warn(
            "%s: %zu tensors are not parameters of %s and are ignored (the first is '%.100s')",
            set->path, m->extra_count, net->model, m->extra);
    const struct chex_tensor *t = NULL;
    for (int i = 0; !t && i < net->param_total; i++)
        if (m->found[i] && is_one_channel(m->found[i], &net->params[i]))
            t = m->found[i];
    if (t)
        chex_warn("%s: '%.100s' has one input channel. It is read as torchxrayvision's, which "
                  "scales pixels to -1024 to 1024, and widened to three channels with equal "
                  "results",
                  set->path, t->name);
}

enum chex_status chex_tensor_set_warn(const struct chex_tensor_set *set, const struct chex_net *net,
                                      struct chex_error *err) {
    CHEX_AUTO(release)
    struct match m = {.found = chex_alloc_zeroed((size_t)net->param_total, sizeof *m.found)};
    CHEX_TRY(m.found ? match(set, net, &m, err) : chex_error_memory(err, "%s", set->path));
    warn_of(set, net, &m);
    return CHEX_OK;
}

/* ---- what a set is of ---- */

enum fit { FITS_NOT, FITS_BY_NAME, FITS_BY_SHAPE };

/* Whether the set has all parameters of the network except the head, and all in its shapes. */
static enum fit fit_of(const struct chex_tensor_set *set, const struct chex_net *net) {
    enum { HEAD = 2 };
    if (set->count + HEAD < (size_t)net->param_total)
        return FITS_NOT;
    CHEX_AUTO_FREE enum fit *found = chex_alloc_zeroed((size_t)net->param_total, sizeof *found);
    enum fit fit = found ? FITS_BY_SHAPE : FITS_NOT;
    for (size_t i = 0; found && i < set->count; i++) {
        const struct chex_tensor *t = &set->tensors[i];
        const int at = find_param(net, t);
        const struct chex_param *p = at >= 0 ? &net->params[at] : NULL;
        if (p)
            found[at] = same_shape(t, p) || is_one_channel(t, p) ? FITS_BY_SHAPE : FITS_BY_NAME;
    }
    for (int i = 0; found && i < net->param_total; i++)
        if (!chex_param_is_head(&net->params[i]) && found[i] < fit)
            fit = found[i];
    return fit;
}

const char *chex_tensor_set_model(const struct chex_tensor_set *set) {
    const char *model = NULL;
    enum fit best = FITS_NOT;
    int most = 0;
    for (size_t i = 0; chex_net_names[i]; i++) {
        CHEX_AUTO(chex_net_destroy_at) struct chex_net *net = NULL;
        if (chex_net_create(chex_net_names[i], 1, &net, NULL) != CHEX_OK)
            return NULL;
        const enum fit fit = fit_of(set, net);
        if (fit > best || (fit && fit == best && net->param_total > most)) {
            model = chex_net_names[i];
            most = net->param_total;
            best = fit;
        }
    }
    return model;
}

int chex_tensor_set_outputs(const struct chex_tensor_set *set) {
    const struct chex_tensor *head = NULL;
    for (size_t i = 0; i < set->count; i++) {
        const struct chex_tensor *t = &set->tensors[i];
        char name[NAME_BYTES];
        if (!chex_parameter_name(t->name, name, sizeof name) ||
            (strcmp(name, "classifier.weight") != 0 && strcmp(name, "fc.weight") != 0))
            continue;
        if (head)
            return 0;
        head = t;
    }
    return head && head->rank == 2 && head->dims[0] <= INT32_MAX ? (int)head->dims[0] : 0;
}
