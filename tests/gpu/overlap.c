/* SPDX-License-Identifier: Apache-2.0
 *
 * Inference with two batches in flight: the bits are those of one batch after the other, and a
 * batch is uploaded while the one before it is computed. That order is forced, not timed: a host
 * function holds the stream of the kernels until the upload of the second batch is complete.
 */
#include <stdatomic.h>

#include "base/clock.h"
#include "engine/cuda/host/cuda_engine.h"
#include "engine/cuda/host/cuda_module.h"
#include "engine/engines.h"
#include "gpu/gpu_test.h"
#include "op/net.h"

enum { BATCHES = 5, IMAGES = 2, SIZE = 32 };

static float pixels[BATCHES][IMAGES * SIZE * SIZE];
static int8_t labels[IMAGES * CLASSES];

/* The last batch is short. */
static struct chex_batch batch_of(int i) {
    return (struct chex_batch){i == BATCHES - 1 ? 1 : IMAGES, pixels[i], NULL};
}

static void make_input(void) {
    for (int i = 0; i < BATCHES; i++) {
        const struct setting s = {"densenet_tiny", SIZE, IMAGES, IMAGES, CHEX_FP32};
        fill_batch(&s, pixels[i], labels);
        for (int k = 0; k < IMAGES * SIZE * SIZE; k++)
            pixels[i][k] *= 1.0f - 0.05f * (float)i;
    }
}

/* An engine of this program's own copy of the code, not of the module: the test waits for its
 * streams and events. */
static struct chex_engine *engine_of(const char *variant, const struct chex_net *net,
                                     enum chex_precision precision) {
    struct chex_error err = {0};
    struct chex_engine *e = test_alloc(1, sizeof *e);
    float *state = make_state(net);
    e->impl = variant ? &chexnet_engine_cuda : &chex_engine_cpu;
    e->config = test_config(net, &(struct setting){net->model, SIZE, IMAGES, IMAGES, precision});
    e->config.training = false;
    e->config.variant = variant;
    BAIL_UNLESS(e->impl->create(&e->config, &e->self, &err) == CHEX_OK, "%s", err.text);
    test_set(e, CHEX_STATE_PARAMS, state);
    free(state);
    return e;
}

static void one_by_one(struct chex_engine *e, float logits[BATCHES][IMAGES * CLASSES]) {
    for (int i = 0; i < BATCHES; i++) {
        const struct chex_batch b = batch_of(i);
        test_infer(e, &b, logits[i]);
    }
}

static void in_flight(struct chex_engine *e, float logits[BATCHES][IMAGES * CLASSES]) {
    struct chex_error err = {0};
    for (int i = 0; i < BATCHES; i++) {
        /* The memory of a batch is free when begin returns. */
        float copy[IMAGES * SIZE * SIZE];
        struct chex_batch b = batch_of(i);
        memcpy(copy, b.pixels, sizeof copy);
        b.pixels = copy;
        BAIL_UNLESS(chex_engine_infer_begin(e, &b, logits[i], &err) == CHEX_OK, "%s", err.text);
        memset(copy, 0, sizeof copy);
        if (i)
            BAIL_UNLESS(chex_engine_infer_end(e, &err) == CHEX_OK, "%s", err.text);
    }
    BAIL_UNLESS(chex_engine_infer_end(e, &err) == CHEX_OK, "%s", err.text);
}

static void same_bits(const char *variant, const struct chex_net *net,
                      enum chex_precision precision) {
    static float alone[BATCHES][IMAGES * CLASSES], together[BATCHES][IMAGES * CLASSES];
    struct chex_engine *e = engine_of(variant, net, precision);
    setenv("EMULATED_SPIN", "refused", 1);
    one_by_one(e, alone);
    in_flight(e, together);
    unsetenv("EMULATED_SPIN");
    OK(memcmp(alone, together, sizeof alone) == 0,
       "%s: two batches in flight give the bits of one after the other, and no wait spins",
       variant ? variant : "cpu");
    chex_engine_destroy(e);
}

static void refusals(const char *variant, const struct chex_net *net) {
    float logits[3][IMAGES * CLASSES];
    struct chex_error err = {0};
    struct chex_engine *e = engine_of(variant, net, CHEX_FP32);
    const struct chex_batch b = batch_of(0), large = {IMAGES + 1, pixels[0], NULL};
    OK_STATUS(chex_engine_infer_end(e, &err), CHEX_E_FAIL, err, "no batch is begun");
    BAIL_UNLESS(chex_engine_infer_begin(e, &b, logits[0], &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(chex_engine_infer_begin(e, &large, logits[1], &err), CHEX_E_FAIL, err, "3 images");
    BAIL_UNLESS(chex_engine_infer_begin(e, &b, logits[1], &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(chex_engine_infer_begin(e, &b, logits[2], &err), CHEX_E_FAIL, err,
              "2 batches are begun");
    chex_engine_infer_end(e, &err);
    chex_engine_infer_end(e, &err);
    OK(memcmp(logits[0], logits[1], sizeof logits[0]) == 0, "%s: what was begun is ended",
       variant ? variant : "cpu");
    chex_engine_destroy(e);
}

/* ---- the order of events ---- */

static atomic_bool open_gate, waited_in_vain;

static void hold(void *arg) {
    (void)arg;
    const double begin = chex_clock_s();
    while (!atomic_load(&open_gate) && !atomic_load(&waited_in_vain))
        if (chex_clock_s() - begin > tap_wait_s())
            atomic_store(&waited_in_vain, true);
}

static void order(const struct chex_net *net) {
    static float alone[BATCHES][IMAGES * CLASSES], logits[2][IMAGES * CLASSES];
    struct chex_error err = {0};
    struct chex_engine *e = engine_of("s0", net, CHEX_FP32);
    const struct cuda_engine *own = e->self;
    one_by_one(e, alone);
    GT_OK(cudaLaunchHostFunc(own->stream, hold, NULL));
    for (int i = 0; i < 2; i++) {
        const struct chex_batch b = batch_of(i);
        BAIL_UNLESS(chex_engine_infer_begin(e, &b, logits[i], &err) == CHEX_OK, "%s", err.text);
    }
    const struct cuda_slot *second = &own->slots[own->slot], *first = &own->slots[1 - own->slot];
    GT_OK(cudaEventSynchronize(second->uploaded));
    OK(!atomic_load(&waited_in_vain) && cudaEventQuery(first->consumed) == cudaErrorNotReady,
       "the second batch is uploaded before the first one is computed");
    atomic_store(&open_gate, true);
    for (int i = 0; i < 2; i++)
        BAIL_UNLESS(chex_engine_infer_end(e, &err) == CHEX_OK, "%s", err.text);
    OK(memcmp(logits, alone, sizeof logits) == 0, "the logits are those of one after the other");
    chex_engine_destroy(e);
}

int main(void) {
    struct chex_net *net = small_net("densenet_tiny", CLASSES);
    setenv("EMULATED_STREAMS", "late", 1);
    make_input();
    order(net);
    same_bits("s0", net, CHEX_FP32);
    same_bits(NULL, net, CHEX_FP32);
    refusals("s0", net);
    refusals(NULL, net);
#ifndef CHEX_GPU_EMULATED /* the order is the host's: the stage does not matter to it */
    same_bits("s4", net, CHEX_BF16);
#endif
    chex_net_destroy(net);
    return tap_done();
}
