/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of conv.h with each variant of the cpu engine that this machine runs, and what the
 * engine refuses.
 */
#include "conv.h"
#include "engine/cpu/cpu_engine.h"

#if defined(__x86_64__)
#define VARIANTS "amx, avx512bf16, avx512, avx2, generic"
#else
#define VARIANTS "one of generic"
#endif

static void refusals(void) {
    struct chex_error err = {0};
    struct chex_net *net = build(dense);
    struct chex_engine *e = NULL;
    struct chex_engine_config config = {net, 32, 2, CHEX_FP16, 1, true, NULL};
    OK_STATUS(chex_engine_create("cpu", &config, &e, &err), CHEX_E_USAGE, err, "fp16");
    config.precision = CHEX_FP32;
    OK_STATUS(chex_engine_create("cpu:sse", &config, &e, &err), CHEX_E_USAGE, err, VARIANTS);
    config.training = false;
    e = test_engine("cpu", &config, NULL);
    float *state = test_floats(net->state_count), *pixels = test_floats(32 * 32);
    struct chex_pass_result result;
    int8_t labels[CLASSES] = {0};
    struct chex_batch batch = {1, pixels, labels};
    OK_STATUS(chex_engine_pass(e, &batch, state, NULL, NULL, &result, &err), CHEX_E_FAIL, err,
              "inference");
    OK_STATUS(chex_engine_get(e, CHEX_STATE_MOMENT1, state, &err), CHEX_E_FAIL, err, "optimiser");
    char text[128];
    OK(e->impl->probe(text, sizeof text, &err) == CHEX_OK && strstr(text, " of "), "probe: %s",
       text);
    chex_engine_destroy(e);
    free(pixels);
    free(state);
    chex_net_destroy(net);
}

/* A weight that is not a number must reach the loss: no ReLU or maximum may hide it. */
static void not_a_number(void) {
    struct chex_net *net = build(dense);
    const struct chex_engine_config config = {net, 32, 2, CHEX_BF16, 1, true, NULL};
    float *state = test_floats(net->state_count), *pixels = test_floats(2 * 32 * 32);
    int8_t labels[2 * CLASSES] = {0};
    fill_state(net, state);
    state[3] = NAN;
    struct chex_engine *e = test_engine("cpu", &config, state);
    const struct chex_batch batch = {2, pixels, labels};
    float *grad = test_grad(e);
    OK(isnan(test_pass(e, &batch, grad, NULL).loss),
       "a NaN in the stem's weight makes the loss NaN");
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    free(pixels);
    free(state);
    chex_net_destroy(net);
}

/* Whether the machine runs it; if not, the text must say so. */
static bool runs(const char *spec) {
    struct chex_error err = {0};
    struct chex_net *net = build(dense);
    struct chex_engine *e = NULL;
    struct chex_engine_config config = {net, 32, 1, CHEX_FP32, 1, false, NULL};
    enum chex_status st = chex_engine_create(spec, &config, &e, &err);
    chex_engine_destroy(e);
    chex_net_destroy(net);
    bool ours = strcmp(spec, "cpu:generic") == 0;
    if (st == CHEX_OK || ours) {
        OK(st == CHEX_OK, "%s runs here", spec);
        return st == CHEX_OK;
    }
#if defined(__x86_64__)
    OK(st == CHEX_E_ENV && strstr(err.text, spec), "skipped: %s", err.text);
#else
    OK(st == CHEX_E_USAGE, "skipped: %s", err.text);
#endif
    return false;
}

/* With an argument, such as cpu:amx: that variant alone. */
int main(int argc, char **argv) {
    static const char *const specs[] = {"cpu:generic", "cpu:avx2", "cpu:avx512", "cpu:avx512bf16",
                                        "cpu:amx"};
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        const char *spec = specs[i];
        if (argc == 2 && strcmp(argv[1], spec) != 0)
            continue;
        /* The fp32 kernels of all are one source: a slow build takes the first for the next two. */
        if (!runs(spec) || (TAP_SLOW_BUILD && (i == 1 || i == 2)))
            continue;
        struct bounds fp32 = strcmp(spec, "cpu:amx") == 0 ? three_products : plain_fp32;
        for (int strict = 0; strict < 2; strict++) {
            enum chex_precision precision = strict ? CHEX_FP32_STRICT : CHEX_FP32;
            struct bounds most = strict ? plain_fp32 : fp32;
            check(chex_engine_create, spec, dense, "dense", 52, 1, precision, most);
            if (!TAP_SLOW_BUILD) {
                check(chex_engine_create, spec, dense, "dense", 32, 3, precision, most);
                check(chex_engine_create, spec, dense, "dense", 75, 2, precision, most);
                check(chex_engine_create, spec, residuals, "residual", 32, 3, precision, most);
            }
            check(chex_engine_create, spec, residuals, "residual", 53, 2, precision, most);
            check(chex_engine_create, spec, uneven, "uneven", 53, 2, precision, most);
        }
        check(chex_engine_create, spec, dense, "dense", 53, 2, CHEX_FP32, fp32);
        check(chex_engine_create, spec, dense, "dense", 53, 3, CHEX_BF16, plain_bf16);
        check(chex_engine_create, spec, residuals, "residual", 53, 3, CHEX_BF16, plain_bf16);
        check(chex_engine_create, spec, uneven, "uneven", 53, 2, CHEX_BF16, plain_bf16);
    }
    char why[128];
    OK(chex_engine_usual_precision("cpu:generic") == CHEX_FP32 &&
           chex_engine_usual_precision("ref") == CHEX_FP32,
       "where no precision is asked for, fp32");
    OK((chex_engine_usual_precision("cpu") == CHEX_BF16) == chex_cpu_tiles_allowed(why, sizeof why),
       "and bf16 with tiles");
    refusals();
    not_a_number();
    return tap_done();
}
