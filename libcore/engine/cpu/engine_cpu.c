/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry points of the cpu engine: variants, create and destroy, state in and out, one pass.
 *
 * Precision.
 *   fp32-strict  fp32 storage and fp32 fused multiply-add.
 *   fp32         As fp32-strict, but with AMX a product is the sum of three bf16 products (split
 *                operands), and without AMX 3x3 convolutions use Winograd's algorithm.
 *   bf16         Feature maps and their gradients are stored as bf16. The operands of products
 *                (normalised inputs, output gradients, weights) are rounded to bf16. Products and
 *                sums are fp32, or done by the processor's bf16 dot product.
 * The stem and the head are fp32 in all of them.
 *
 * Mean error of dot products of 1152 random values, relative to the mean magnitude: plain fp32
 * 5e-7, Winograd 1e-6, split operands 4e-6, bf16 2e-3 (tests/op/pairs_cpu.c,
 * tests/op/winograd_cpu.c).
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu_features.h"
#include "engine/cpu/cpu_engine.h"
#include "engine/engines.h"

/* Best first. */
static const struct cpu_kernels *const variants[] = {
#if defined(__x86_64__)
    &chex_cpu_kernels_amx,     &chex_cpu_kernels_avx512bf16,
    &chex_cpu_kernels_avx512,  &chex_cpu_kernels_avx2,
#endif
    &chex_cpu_kernels_generic,
};
enum { VARIANTS = CHEX_COUNT(variants), WHY = 128 };

static bool runs_here(const struct cpu_kernels *k, char why_out[WHY]) {
    snprintf(why_out, WHY, "this machine's processor has no %s, or CHEX_CPU holds it back",
             k->name);
#if defined(__x86_64__)
    if (k == &chex_cpu_kernels_amx)
        return chex_cpu_tiles_allowed(why_out, WHY);
    if (k == &chex_cpu_kernels_avx512bf16)
        return chex_cpu_has(CHEX_ISA_AVX512BF16);
    if (k == &chex_cpu_kernels_avx512)
        return chex_cpu_has(CHEX_ISA_AVX512);
    if (k == &chex_cpu_kernels_avx2)
        return chex_cpu_has(CHEX_ISA_AVX2);
#endif
    return k == &chex_cpu_kernels_generic;
}

/* Whether a variant may be chosen without being named. Variants with tiles serve bf16 and fp32.
 * Other variants with bf16 dot products serve bf16 on AMD processors only: on Intel's they are
 * slower than fp32 (kernels_avx512bf16.c). */
static bool is_default(const struct cpu_kernels *k, enum chex_precision precision) {
    if (!k->dot2)
        return true;
    if (k->dot2->three_products)
        return precision != CHEX_FP32_STRICT;
#if defined(__x86_64__)
    return precision == CHEX_BF16 && __builtin_cpu_is("amd");
#else
    return precision == CHEX_BF16;
#endif
}

static enum chex_status choose(const char *variant, enum chex_precision precision,
                               const struct cpu_kernels **kernels_out, struct chex_error *err) {
    char why[WHY], names[64] = "";
    for (size_t i = 0; i < VARIANTS; i++) {
        const struct cpu_kernels *k = variants[i];
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", k->name);
        if (variant ? strcmp(variant, k->name) != 0 : !is_default(k, precision))
            continue;
        if (runs_here(k, why)) {
            *kernels_out = k;
            return CHEX_OK;
        }
        if (variant)
            return chex_error_set(err, CHEX_E_ENV, "engine cpu:%s: %s", variant, why);
    }
    return chex_error_set(err, CHEX_E_USAGE, "engine cpu:%s: unknown variant, expected one of %s",
                          variant ? variant : "", names);
}

static enum chex_status cpu_probe(char *text_out, size_t size, struct chex_error *err) {
    const struct cpu_kernels *k = NULL, *bf16 = NULL;
    CHEX_TRY(choose(NULL, CHEX_FP32, &k, err));
    CHEX_TRY(choose(NULL, CHEX_BF16, &bf16, err));
    bool same = bf16 == k;
    snprintf(text_out, size, "%s%s%s%s, %d of %ld cores", k->name,
             same ? "" : " (bf16: ", same ? "" : bf16->name, same ? "" : ")", chex_cpu_count(),
             sysconf(_SC_NPROCESSORS_ONLN));
    return CHEX_OK;
}

static void cpu_destroy(void *self) {
    struct cpu_engine *e = self;
    chex_pool_destroy(e->pool);
    for (size_t i = 0; i < e->owned_count; i++)
        chex_alloc_unmap(e->owned[i].p, e->owned[i].bytes);
    free(e->owned);
    free(e);
}

/* Sets the fields on which the memory layout depends. */
static void init_fields(struct cpu_engine *e, const struct cpu_kernels *kernels,
                        const struct chex_engine_config *config) {
    e->net = config->net;
    e->config = *config;
    e->k = kernels;
    e->bf16 = config->precision == CHEX_BF16;
    e->elem_bytes = e->bf16 ? 2 : 4;
    e->split = config->precision == CHEX_FP32 && kernels->dot2 && kernels->dot2->three_products;
    e->dot2 = e->bf16 || e->split ? kernels->dot2 : NULL;
    e->operand_bytes = e->dot2 ? 2 : 4;
}

enum chex_status chex_cpu_create(const struct cpu_kernels *kernels,
                                 const struct chex_engine_config *config, void **self_out,
                                 struct chex_error *err) {
    struct cpu_engine *e = *self_out = chex_alloc_zeroed(1, sizeof *e);
    if (!e)
        return chex_error_memory(err, "cpu engine");
    init_fields(e, kernels, config);
    CHEX_TRY(chex_pool_create(config->threads, &e->pool, err));
    return chex_cpu_lay_out(e, err);
}

static enum chex_status cpu_check(const char *variant, enum chex_precision precision,
                                  struct chex_error *err) {
    const struct cpu_kernels *kernels = NULL;
    if (precision == CHEX_FP16)
        return chex_error_set(err, CHEX_E_USAGE,
                              "engine cpu: precision fp16 needs a GPU (its range is too small for "
                              "gradients without loss scaling): use bf16 or fp32");
    return choose(variant, precision, &kernels, err);
}

static enum chex_status cpu_create(const struct chex_engine_config *config, void **self_out,
                                   struct chex_error *err) {
    const struct cpu_kernels *kernels = NULL;
    CHEX_TRY(choose(config->variant, config->precision, &kernels, err));
    return chex_cpu_create(kernels, config, self_out, err);
}

static float *part_of(struct cpu_engine *e, enum chex_state_part part) {
    return (float *[]){e->param, e->moment[0], e->moment[1], e->ema}[part];
}

static enum chex_status cpu_set(void *self, enum chex_state_part part, const float *state,
                                struct chex_error *err) {
    (void)err;
    struct cpu_engine *e = self;
    chex_cpu_from_rows(e->net, part_of(e, part), state);
    if (part == CHEX_STATE_PARAMS)
        chex_cpu_pack(e);
    return CHEX_OK;
}

static enum chex_status cpu_get(void *self, enum chex_state_part part, float *state_out,
                                struct chex_error *err) {
    (void)err;
    struct cpu_engine *e = self;
    chex_cpu_to_rows(e->net, state_out, part_of(e, part));
    return CHEX_OK;
}

static enum chex_status cpu_infer(void *self, const struct chex_batch *batch, float *logits_out,
                                  struct chex_error *err) {
    struct cpu_engine *e = self;
    CHEX_TRY(chex_cpu_forward(e, batch, false, err));
    memcpy(logits_out, e->logit, (size_t)batch->n * (size_t)e->net->classes * sizeof *logits_out);
    return CHEX_OK;
}

static enum chex_status cpu_pass(void *self, const struct chex_batch *batch, float *grad_out,
                                 chex_grad_ready_fn ready, void *ready_arg,
                                 struct chex_pass_result *result_out, struct chex_error *err) {
    struct cpu_engine *e = self;
    double start = chex_clock_s();
    CHEX_TRY(chex_cpu_forward(e, batch, true, err));
    double loss = chex_loss_mean(&e->config.loss, e->logit, batch->labels, batch->n,
                                 e->net->classes, e->logit);
    double middle = chex_clock_s();
    CHEX_TRY(chex_cpu_backward(e, batch, grad_out, ready, ready_arg, err));
    *result_out = (struct chex_pass_result){loss, middle - start, chex_clock_s() - middle};
    return CHEX_OK;
}

static enum chex_status cpu_update(void *self, const struct chex_update *update, const float *grad,
                                   struct chex_error *err) {
    (void)err;
    struct cpu_engine *e = self;
    chex_cpu_update(e, update, grad);
    return CHEX_OK;
}

static enum chex_status cpu_grad_norms(void *self, struct chex_grad_norms *out,
                                       struct chex_error *err) {
    (void)err;
    struct cpu_engine *e = self;
    chex_clip_take_norms(&e->clip, out);
    return CHEX_OK;
}

static enum chex_status cpu_grad_get(void *self, const float *grad, float *out,
                                     struct chex_error *err) {
    (void)err;
    struct cpu_engine *e = self;
    chex_cpu_to_rows(e->net, out, grad);
    return CHEX_OK;
}

static const char *cpu_variant(void *self) { return ((struct cpu_engine *)self)->k->name; }
static uint64_t cpu_bytes(void *self) { return ((struct cpu_engine *)self)->bytes; }

/* Builds a second engine with that batch and drops it. Memory that is mapped but never written
 * costs address space only. */
static uint64_t cpu_bytes_with_batch(void *self, int batch) {
    const struct cpu_engine *e = self;
    struct cpu_engine *other = chex_alloc_zeroed(1, sizeof *other);
    if (!other)
        return UINT64_MAX;
    init_fields(other, e->k, &e->config);
    other->config.batch = batch;
    const bool fits = chex_cpu_lay_out(other, NULL) == CHEX_OK;
    const uint64_t bytes = fits ? other->bytes : UINT64_MAX;
    cpu_destroy(other);
    return bytes;
}

static void cpu_op_times(void *self, double *forward_s, double *backward_s) {
    const struct cpu_engine *e = self;
    for (int i = 0; i < e->net->op_count; i++) {
        forward_s[i] = e->ops[i].forward_s;
        backward_s[i] = e->ops[i].backward_s;
    }
}

static enum chex_precision cpu_usual_precision(const char *variant) {
    const struct cpu_kernels *k = NULL;
    bool tiles =
        choose(variant, CHEX_BF16, &k, NULL) == CHEX_OK && k->dot2 && k->dot2->three_products;
    return tiles ? CHEX_BF16 : CHEX_FP32;
}

static const struct chex_engine_maps maps = {chex_cpu_class_maps, chex_cpu_features};
static const struct chex_engine_timing timing = {cpu_op_times, chex_cpu_product_shares};
static const struct chex_engine_capacity capacity = {cpu_bytes_with_batch, chex_cpu_limits};
static const struct chex_engine_hardware hardware = {.usual_precision = cpu_usual_precision};

const struct chex_engine_impl chex_engine_cpu = {
    .name = "cpu",
    .summary = "vector kernels on the processor's cores (amx, avx512, avx2, generic)",
    .probe = cpu_probe,
    .check = cpu_check,
    .create = cpu_create,
    .destroy = cpu_destroy,
    .variant = cpu_variant,
    .bytes = cpu_bytes,
    .set = cpu_set,
    .get = cpu_get,
    .grad_get = cpu_grad_get,
    .infer = cpu_infer,
    .pass = cpu_pass,
    .update = cpu_update,
    .grad_norms = cpu_grad_norms,
    .maps = &maps,
    .timing = &timing,
    .capacity = &capacity,
    .hardware = &hardware,
};
