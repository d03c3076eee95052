/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of whole engines share: an engine for a setting, and distances of vectors.
 */
#ifndef CHEX_TESTS_OP_ENGINE_TEST_H
#define CHEX_TESTS_OP_ENGINE_TEST_H

#include "base/alloc.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "small_net.h"
#include "tap.h"

enum { CLASSES = 14 };

struct setting {
    const char *model;
    int size, n, batch;
    enum chex_precision precision;
};

/* Zeros, freed by the caller. */
static inline void *test_alloc(size_t count, size_t bytes) {
    void *p = chex_alloc_zeroed(count, bytes);
    BAIL_UNLESS(p, "out of memory");
    return p;
}
static inline float *test_floats(size_t count) { return test_alloc(count, sizeof(float)); }

/* For training, with one thread. */
static inline struct chex_engine_config test_config(const struct chex_net *net,
                                                    const struct setting *s) {
    return (struct chex_engine_config){.net = net,
                                       .image_size = s->size,
                                       .batch = s->batch,
                                       .precision = s->precision,
                                       .threads = 1,
                                       .training = true};
}

/* state: its parameters; NULL: as created. */
static inline struct chex_engine *test_engine(const char *spec, const struct chex_engine_config *c,
                                              const float *state) {
    struct chex_error err = {0};
    struct chex_engine *e = NULL;
    BAIL_UNLESS(chex_engine_create(spec, c, &e, &err) == CHEX_OK &&
                    (!state || chex_engine_set(e, CHEX_STATE_PARAMS, state, &err) == CHEX_OK),
                "%s: %s", spec, err.text);
    return e;
}

static inline float *test_grad(struct chex_engine *e) {
    float *grad = chex_engine_grad_alloc(e);
    BAIL_UNLESS(grad, "out of memory");
    return grad;
}

/* One pass; its gradient as rows if `rows` is not NULL. */
static inline struct chex_pass_result
test_pass(struct chex_engine *e, const struct chex_batch *batch, float *grad, float *rows) {
    struct chex_error err = {0};
    struct chex_pass_result r = {0};
    BAIL_UNLESS(chex_engine_pass(e, batch, grad, NULL, NULL, &r, &err) == CHEX_OK &&
                    (!rows || e->impl->grad_get(e->self, grad, rows, &err) == CHEX_OK),
                "%s", err.text);
    return r;
}
static inline void test_update(struct chex_engine *e, const struct chex_update *u, float *grad) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_engine_update(e, u, grad, &err) == CHEX_OK, "%s", err.text);
}
static inline void test_infer(struct chex_engine *e, const struct chex_batch *batch,
                              float *logits) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_engine_infer(e, batch, logits, &err) == CHEX_OK, "%s", err.text);
}
static inline void test_get(struct chex_engine *e, enum chex_state_part part, float *out) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_engine_get(e, part, out, &err) == CHEX_OK, "%s", err.text);
}
static inline void test_set(struct chex_engine *e, enum chex_state_part part, const float *in) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_engine_set(e, part, in, &err) == CHEX_OK, "%s", err.text);
}

/* Environment variables and their values, until a NULL; off: unset. */
static inline void test_settings(const char *const settings[][2], bool on) {
    for (int i = 0; settings[i][0]; i++)
        if (on)
            setenv(settings[i][0], settings[i][1], 1);
        else
            unsetenv(settings[i][0]);
}

/* |a - b| / |b|; |a - b| if b is 0. */
static inline double rel_l2(const float *a, const float *b, size_t count) {
    double d = 0, r = 0;
    for (size_t i = 0; i < count; i++) {
        d += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        r += (double)b[i] * (double)b[i];
    }
    return r > 0 ? sqrt(d / r) : sqrt(d);
}

#endif
