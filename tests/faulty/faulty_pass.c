/* SPDX-License-Identifier: Apache-2.0
 *
 * A device with a silent fault, for tests: chex-train-faulty is chex-train in which one rank flips
 * a bit of some gradients. The linker replaces chex_engine_pass (--wrap), so the installed programs
 * contain no injector and no variable can make them compute wrong numbers.
 *
 * FAULTY_PASS=RANK:PASS     that rank is wrong in its pass number PASS, counted from 1
 * FAULTY_PASS=RANK:PASS-    and in all later ones
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum chex_status __real_chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                         float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                         struct chex_pass_result *result_out,
                                         struct chex_error *err);
enum chex_status __wrap_chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                         float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                         struct chex_pass_result *result_out,
                                         struct chex_error *err);

static long own_rank(void) {
    static const char *const names[] = {"PMIX_RANK", "SLURM_PROCID"};
    for (int i = 0; i < 2; i++)
        if (getenv(names[i]))
            return strtol(getenv(names[i]), NULL, 10);
    return 0;
}

static bool is_faulty(long pass) {
    const char *text = getenv("FAULTY_PASS");
    long rank, first;
    char later = 0;
    if (!text || sscanf(text, "%ld:%ld%c", &rank, &first, &later) < 2 || rank != own_rank())
        return false;
    return later == '-' ? pass >= first : pass == first;
}

/* Flips the lowest bit of the mantissa of the second weight, before anything else sees it. */
enum chex_status __wrap_chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                         float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                         struct chex_pass_result *result_out,
                                         struct chex_error *err) {
    static long pass;
    uint32_t bits;
    if (!is_faulty(++pass))
        return __real_chex_engine_pass(e, batch, grad_out, ready, ready_arg, result_out, err);
    CHEX_TRY(__real_chex_engine_pass(e, batch, grad_out, NULL, NULL, result_out, err));
    memcpy(&bits, &grad_out[1], sizeof bits);
    bits ^= 1;
    memcpy(&grad_out[1], &bits, sizeof bits);
    if (ready)
        ready(ready_arg, 0, e->config.net->state_count);
    return CHEX_OK;
}
