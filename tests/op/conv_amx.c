/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of AMX, with the emulation of tiles in place of the instructions, through the whole
 * comparison with the ref engine; any processor with AVX-512 and its BF16 runs it. One that has the
 * instructions must give the emulation's bits.
 */
#if !defined(__x86_64__)
#include "tap.h"

int main(void) { SKIP_ALL("the kernels of AMX are x86's"); }
#else
#include "conv.h"
#include "engine/cpu/cpu_engine.h"
#include "engine/engines.h"

extern const struct cpu_kernels chex_cpu_kernels_amx_emulated;

static enum chex_status create_emulated(const struct chex_engine_config *config, void **self_out,
                                        struct chex_error *err) {
    return chex_cpu_create(&chex_cpu_kernels_amx_emulated, config, self_out, err);
}

static enum chex_status create(const char *spec, const struct chex_engine_config *config,
                               struct chex_engine **engine_out, struct chex_error *err) {
    static struct chex_engine_impl impl;
    (void)spec;
    impl = chex_engine_cpu;
    impl.create = create_emulated;
    return chex_engine_make(&impl, config, engine_out, err);
}

static const char spec[] = "cpu:amx-emulated";

/* Whether this thread's tiles are in another state than that of release. */
static bool tiles_in_use(void) {
    enum { IN_USE = 1, TILES = 3 << 17 };
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(IN_USE));
    return low & TILES;
}

/* Logits, loss, gradients, and parameters after an update. */
static void instructions(void (*fill)(struct chex_net *net), const char *name, int size, int n,
                         enum chex_precision precision) {
    struct chex_net *net = build(fill);
    struct outcome emulated, real;
    run(create, spec, net, size, n, 1, precision, &emulated);
    for (int threads = 1; threads <= 2; threads++) {
        run(chex_engine_create, "cpu:amx", net, size, n, threads, precision, &real);
        OK(same(net, &emulated, &real, n) &&
               memcmp(&emulated.result.loss, &real.result.loss, sizeof real.result.loss) == 0,
           "cpu:amx %s %d px n %d %s: %d threads give the emulation's bits", name, size, n,
           chex_precision_names[precision], threads);
        OK(!tiles_in_use(), "and leave no tile in use");
        release(&real);
    }
    release(&emulated);
    chex_net_destroy(net);
}

static void against_instructions(void) {
    char why[128];
    if (!chex_cpu_tiles_allowed(why, sizeof why)) {
        printf("# skipped: cpu:amx itself: %s\n", why);
        return;
    }
    instructions(dense, "dense", 53, 1, CHEX_BF16);
    instructions(dense, "dense", 32, 2, CHEX_FP32);
    instructions(residuals, "residual", 33, 2, CHEX_BF16);
    instructions(residuals, "residual", 32, 1, CHEX_FP32);
    instructions(uneven, "uneven", 32, 1, CHEX_FP32);
}

/* With the argument "instructions": those alone. */
int main(int argc, char **argv) {
    if (!__builtin_cpu_supports("avx512bf16"))
        SKIP_ALL("this machine's processor has no avx512bf16");
    against_instructions();
    if (argc == 2 && strcmp(argv[1], "instructions") == 0)
        return tap_done();
    check(create, spec, dense, "dense", 53, 3, CHEX_BF16, plain_bf16);
    check(create, spec, residuals, "residual", 53, 3, CHEX_BF16, plain_bf16);
    check(create, spec, dense, "dense", 32, 3, CHEX_FP32, three_products);
    /* Among more images some value is so near 0 that the rounding opens or closes its ReLU. */
    check(create, spec, residuals, "residual", 53, 1, CHEX_FP32, three_products);
    check(create, spec, uneven, "uneven", 32, 2, CHEX_BF16, plain_bf16);
    check(create, spec, uneven, "uneven", 32, 2, CHEX_FP32, three_products);
#if !TAP_SLOW_BUILD
    check(create, spec, dense, "dense", 52, 1, CHEX_BF16, plain_bf16);
    check(create, spec, dense, "dense", 75, 2, CHEX_BF16, plain_bf16);
    check(create, spec, residuals, "residual", 32, 3, CHEX_BF16, plain_bf16);
    check(create, spec, residuals, "residual", 97, 2, CHEX_BF16, plain_bf16);
    check(create, spec, dense, "dense", 75, 2, CHEX_FP32, three_products);
    check(create, spec, dense, "dense", 53, 1, CHEX_FP32_STRICT, plain_fp32);
#endif
    return tap_done();
}
#endif
