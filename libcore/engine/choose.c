/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of engine and precision. The rule: --engine auto uses CUDA if a GPU was allotted, else
 * the CPU. An allotted GPU that cannot be used is an error, never a silent run on the CPU.
 */
#include "engine/choose.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

/* "SLURM_GPUS_ON_NODE, CUDA_VISIBLE_DEVICES 0,1" */
static void describe(const struct chex_gpu_view *view, char *buf, size_t size) {
    static const char cuda[] = "CUDA_VISIBLE_DEVICES";
    const bool named = strcmp(view->source, cuda) == 0;
    snprintf(buf, size, "%s%s%s%s%s", view->source, view->visible[0] && !named ? ", " : "",
             view->visible[0] && !named ? cuda : "", view->visible[0] ? " " : "", view->visible);
}

/* One remedy for all causes: only the user knows whether the CPU is acceptable. */
static enum chex_status refuse(const struct chex_gpu_view *view, const struct chex_error *why,
                               struct chex_error *err) {
    char where[CHEX_VISIBLE_BYTES + 80];
    describe(view, where, sizeof where);
    return chex_error_set(
        err, why->status,
        "a GPU was allotted (%s) but cannot be used: %s; pass --engine cpu to use "
        "the CPU, or ask Slurm for no GPU",
        where, why->text);
}

enum chex_status chex_choose_engine(const char *asked, const struct chex_gpu_view *view,
                                    const char **spec_out, struct chex_error *err) {
    char text[CHEX_VISIBLE_BYTES + 80] = "";
    const bool automatic = strcmp(asked, "auto") == 0;
    const struct chex_engine_impl *impl;
    const char *variant;
    const bool wants_cuda = strncmp(asked, "cuda", 4) == 0 && (asked[4] == ':' || !asked[4]);
    if (automatic && !view->allotted) {
        chex_info("engine cpu: no GPU was allotted or asked for");
        *spec_out = "cpu";
        return CHEX_OK;
    }
    const char *spec = automatic ? "cuda" : asked;
    CHEX_TRY(chex_engine_find(spec, &variant, &impl, err));
    if (automatic || wants_cuda) {
        struct chex_error why = {0};
        enum chex_status st = chex_engine_load(spec, &impl, &why);
        if (st == CHEX_OK)
            st = impl->probe(text, sizeof text, &why);
        if (st != CHEX_OK && view->allotted)
            return refuse(view, &why, err);
        if (st != CHEX_OK)
            return chex_error_set(err, st, "--engine %s: %s; pass --engine cpu to use the CPU",
                                  asked, why.text);
    }
    if (automatic)
        chex_info("engine cuda: %s", text);
    if (!automatic && !wants_cuda && view->allotted) {
        describe(view, text, sizeof text);
        chex_info("engine %s by request, though a GPU was allotted (%s)", asked, text);
    }
    *spec_out = spec;
    return CHEX_OK;
}

enum chex_status chex_choose_precision(struct chex_group *group, const char *spec, bool asked,
                                       enum chex_precision *precision, struct chex_error *err) {
    struct choice {
        int32_t asked, precision;
    };
    const struct choice mine = {asked,
                                (int32_t)(asked ? *precision : chex_engine_usual_precision(spec))};
    CHEX_TRY(chex_group_exchange(group, "precision", &mine, sizeof mine, err));
    const struct choice *all = group->all;
    bool any_asked = false, same = true;
    for (int r = 0; r < group->size; r++) {
        any_asked = any_asked || all[r].asked;
        same = same && all[r].precision == all[0].precision && all[r].asked == all[0].asked;
    }
    if (any_asked && !same)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--precision is not the same on all ranks: give all ranks the same "
                              "options");
    *precision = same ? (enum chex_precision)mine.precision : CHEX_FP32;
    if (!same)
        chex_info("precision fp32: the nodes' processors differ in their default precision");
    return CHEX_OK;
}
