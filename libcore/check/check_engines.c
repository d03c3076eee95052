/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the engines: which engine would run here, and whether the allotted GPUs can be used.
 */
#include <stdio.h>
#include <string.h>

#include "check/checks.h"
#include "engine/engine.h"

/* Whether an engine can run. text_out: its variant, or the reason why not. */
static bool usable(const char *name, char *text_out, size_t size, enum chex_fault *fault_out) {
    const struct chex_engine_impl *engine;
    struct chex_error err = {0};
    *fault_out = CHEX_FAULT_USER;
    if (chex_engine_load(name, &engine, &err) == CHEX_OK &&
        engine->probe(text_out, size, &err) == CHEX_OK)
        return true;
    *fault_out = err.status == CHEX_E_NODE ? CHEX_FAULT_NODE : CHEX_FAULT_USER;
    snprintf(text_out, size, "%s", err.text);
    return false;
}

static void probe_engines(const struct chex_check_context *c, struct chex_check_result *r) {
    int good = 0;
    enum chex_fault fault;
    (void)c;
    chex_check_expect(r, "one that works");
    for (size_t i = 0; chex_engines[i]; i++) {
        char text[CHEX_ERROR_TEXT_BYTES];
        good += usable(chex_engines[i]->name, text, sizeof text, &fault);
        chex_check_found_more(r, "%s%s: %s", i ? "; " : "", chex_engines[i]->name, text);
    }
    if (good == 0)
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_NODE, "no engine can run on this processor");
}
CHEX_CHECK(engines, .name = "engines", .question = "which engines can run on this node?",
           .modes = CHEX_IN_ALL, .fault = CHEX_FAULT_NODE, .probe = probe_engines);

static void probe_auto(const struct chex_check_context *c, struct chex_check_result *r) {
    char cuda[CHEX_ERROR_TEXT_BYTES], cpu[CHEX_ERROR_TEXT_BYTES];
    enum chex_fault fault;
    const bool have_cuda = usable("cuda", cuda, sizeof cuda, &fault),
               have_cpu = usable("cpu", cpu, sizeof cpu, &fault);
    chex_check_expect(r, "%s", c->gpu.allotted ? "cuda, as a GPU was allotted" : "cuda or cpu");
    if (have_cuda)
        chex_check_found(r, "cuda: %s", cuda);
    else if (c->gpu.allotted)
        chex_check_found(r, "none: a GPU was allotted, but %s", cuda);
    else
        chex_check_found(r, "%s, because no GPU was allotted (cuda: %s)", have_cpu ? "cpu" : "ref",
                         cuda);
    if (!have_cuda && c->gpu.allotted)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "pass --engine cpu to use the CPU on purpose; see gpu");
}
CHEX_CHECK(engine_auto, .name = "engine-auto", .question = "which engine does --engine auto take?",
           .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER, .probe = probe_auto);

static void probe_gpu(const struct chex_check_context *c, struct chex_check_result *r) {
    const struct chex_gpu_view *g = &c->gpu;
    char why[CHEX_ERROR_TEXT_BYTES];
    enum chex_fault fault;
    if (!g->allotted) {
        chex_check_expect(r, "none was allotted");
        chex_check_found(r, "none");
        return;
    }
    chex_check_expect(r, "an allotted GPU that can be used");
    chex_check_found(r, "%s, CUDA_VISIBLE_DEVICES %s, %d on the node (%s)",
                     chex_gpu_visibility_names[g->visibility], g->visible[0] ? g->visible : "unset",
                     g->node_count, g->source);
    if (!usable("cuda", why, sizeof why, &fault))
        chex_check_worsen(r, CHEX_FAIL, fault,
                          "pass --engine cpu to use the CPU, or request no GPU: %s", why);
}
CHEX_CHECK(gpu, .name = "gpu", .question = "can the allotted GPUs be used and seen?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe_gpu);
