/* SPDX-License-Identifier: Apache-2.0
 *
 * What the measurements of whole engines share: an engine by "cuda:s4@bf16", and batches in which
 * there is something to learn.
 */
#ifndef CHEX_TESTS_GPU_ENGINES_H
#define CHEX_TESTS_GPU_ENGINES_H

#include <unistd.h>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/kernel_choices.h"
#include "gpu/bench/bench.h"

enum { BENCH_CLASSES = 14 };

/* "cuda:s4@bf16" as engine and precision; exits where the spelling is wrong. */
struct bench_spec {
    char engine[32];
    enum chex_precision precision;
};
static inline struct bench_spec bench_spec(const char *text) {
    struct bench_spec s = {.precision = CHEX_FP32};
    const char *at = strchr(text, '@');
    snprintf(s.engine, sizeof s.engine, "%.*s", (int)(at ? at - text : (int)strlen(text)), text);
    for (int i = 0; at && chex_precision_names[i]; i++)
        if (strcmp(chex_precision_names[i], at + 1) == 0) {
            s.precision = (enum chex_precision)i;
            return s;
        }
    if (at)
        bench_die("precision: expected bf16, fp32, fp32-strict or fp16 after the @");
    return s;
}

static inline enum chex_status bench_engine(const struct bench_spec *s, const struct chex_net *net,
                                            int size, int batch, bool training,
                                            struct chex_engine **engine_out,
                                            struct chex_error *err) {
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    const struct chex_engine_config config = {.net = net,
                                              .image_size = size,
                                              .batch = batch,
                                              .precision = s->precision,
                                              .threads = cpus > 0 ? (int)cpus : 1,
                                              .training = training};
    CHEX_TRY(chex_engine_create(s->engine, &config, engine_out, err));
    CHEX_TRY(chex_kernel_measure(*engine_out, err));
    float *state = malloc(net->state_count * sizeof *state);
    if (!state)
        bench_die("out of memory");
    chex_net_init_state(net, 7, 1, state);
    const enum chex_status st = chex_engine_set(*engine_out, CHEX_STATE_PARAMS, state, err);
    free(state);
    return st;
}

/* Batch number `number`: noise, and for each finding (three in ten) a bright spot at its place. */
static inline void bench_batch(uint64_t number, int n, int size, float *pixels, int8_t *labels) {
    for (int i = 0; i < n; i++) {
        const uint64_t image = number * 4096 + (uint64_t)i;
        float *p = pixels + (size_t)i * (size_t)(size * size);
        for (int k = 0; k < size * size; k += 4) {
            const struct chex_rng4 r = chex_rng(11, CHEX_RNG_PHANTOM, image, (uint32_t)k);
            for (int j = 0; j < 4 && k + j < size * size; j++)
                p[k + j] = 0.3f + 0.2f * chex_rng_unit(r.v[j]);
        }
        for (int c = 0; c < BENCH_CLASSES; c++) {
            int8_t *label = &labels[i * BENCH_CLASSES + c];
            *label = chex_rng_unit(chex_rng(12, CHEX_RNG_PHANTOM, image, (uint32_t)c).v[0]) < 0.3f;
            const int x = (2 * (c % 4) + 1) * size / 8, y = (2 * (c / 4) + 1) * size / 8;
            for (int dy = -size / 16; *label && dy <= size / 16; dy++)
                for (int dx = -size / 16; dx <= size / 16; dx++)
                    p[(y + dy) * size + x + dx] += 0.4f;
        }
    }
}

static inline struct chex_update bench_adam(int64_t step, double lr) {
    return (struct chex_update){.optim = CHEX_ADAM,
                                .lr = lr,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .step = step,
                                .grad_scale = 1};
}

/* Exit status for a call that failed: 77 where this machine cannot, as the text says. */
static inline int bench_failed(const char *what, enum chex_status st,
                               const struct chex_error *err) {
    const bool cannot = st == CHEX_E_ENV || st == CHEX_E_RESOURCE; /* memory, for one */
    printf("%s: %s: %s\n", cannot ? "skipped" : "FAILED", what, err->text);
    return cannot ? 77 : 1;
}

#endif
