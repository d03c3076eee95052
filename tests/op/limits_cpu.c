/* SPDX-License-Identifier: Apache-2.0
 *
 * The measured limits of each variant that this machine runs: that they are there, and of an order
 * that no processor misses. How good they are only a quiet machine can tell.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "tap.h"

static void check(const char *spec, enum chex_precision precision, int threads) {
    struct chex_error err = {0};
    struct chex_net *net = NULL;
    struct chex_engine *e = NULL;
    struct chex_engine_limits l = {0, 0};
    BAIL_UNLESS(chex_net_create("densenet_tiny", 14, &net, &err) == CHEX_OK, "%s", err.text);
    const struct chex_engine_config config = {
        .net = net, .image_size = 32, .batch = 1, .precision = precision, .threads = threads};
    enum chex_status st = chex_engine_create(spec, &config, &e, &err);
    if (st == CHEX_E_ENV) {
        printf("# %s\n", err.text);
    } else {
        BAIL_UNLESS(st == CHEX_OK, "%s", err.text);
        double start = chex_clock_s();
        st = e->impl->capacity->limits(e->self, UINT64_MAX, &l, &err);
        OK(st == CHEX_OK && l.flop_per_s > 1e7 && l.flop_per_s < 1e15 && l.bytes_per_s > 1e7 &&
               l.bytes_per_s < 1e14,
           "%s, %s, %d threads: %.1f GFLOP/s, %.1f GB/s, in %.2f s", spec,
           chex_precision_names[precision], threads, l.flop_per_s * 1e-9, l.bytes_per_s * 1e-9,
           chex_clock_s() - start);
    }
    if (st == CHEX_OK && strcmp(spec, "cpu:generic") == 0) {
        st = e->impl->capacity->limits(e->self, 1 << 20, &l, &err);
        OK(st == CHEX_OK && l.flop_per_s > 0 && l.bytes_per_s == 0,
           "no rate of memory where its arrays may not be taken");
    }
    chex_engine_destroy(e);
    chex_net_destroy(net);
}

int main(void) {
    static const char *const specs[] = {"cpu:amx", "cpu:avx512bf16", "cpu:avx512", "cpu:avx2",
                                        "cpu:generic"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        check(specs[i], CHEX_BF16, 2);
        check(specs[i], CHEX_FP32, 1);
    }
    return tap_done();
}
