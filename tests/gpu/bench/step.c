/* SPDX-License-Identifier: Apache-2.0
 *
 * Images a second of an engine's whole step: upload, forward, loss, backward, Adam; or of
 * inference. Batches differ from step to step. A step's time is the wall clock's, from one to the
 * next; the rate is that of all timed steps with everything waited for. The times of forward and
 * backward are the engine's own: by events on the device.
 *
 * Raw batches, as chex-train sends: stored bytes of the network's size, whole images, made fp32 by
 * the engine. The same bytes as tests/peers/torch_gpu.py uploads.
 */
#include "gpu/bench/engines.h"
#include "input/augment.h"

static const char usage[] =
    "usage: bench-step [--engine cuda@bf16] [--model densenet121] [--size 224] [--batch 256]\n"
    "       [--steps 30] [--warm-up 6] [--seconds 60] [--infer 0] [--input raw] [--json FILE]\n"
    "--warm-up: the engine captures its graphs within the first four. --seconds: ends early, with\n"
    "the steps so far. --infer 1: inference instead of training. --input raw: stored bytes, or\n"
    "pixels where the engine takes none; pixels: fp32.";

enum { BATCHES = 4, MAX_STEPS = 10000 };

struct step_bench {
    struct bench_spec spec;
    struct chex_engine *engine;
    struct chex_net *net;
    int size, n, steps, warm_up;
    bool infer, raw;
    double seconds, set_up_s;
    struct chex_batch batches[BATCHES];
    struct chex_crop *whole; /* n of them; raw only */
    float *grad, *logits;
    double loss;
    int done;
    double rate, ms[MAX_STEPS], forward_ms[MAX_STEPS], backward_ms[MAX_STEPS];
};

/* The engine agrees to raw batches before the first one. */
static enum chex_status agree_on_input(struct step_bench *b, struct chex_error *err) {
    const struct chex_resident_request request = {.stored_px = b->size};
    struct chex_resident_result result = {0};
    if (b->raw)
        CHEX_TRY(chex_engine_make_resident(b->engine, &request, &result, err));
    b->raw = result.raw;
    return CHEX_OK;
}

static void *allocated(size_t count, size_t bytes) {
    void *p = malloc(count * bytes);
    if (!p)
        bench_die("out of memory");
    return p;
}

/* Turns a batch of pixels into one of stored bytes. */
static void make_raw(const struct step_bench *b, struct chex_batch *batch) {
    const size_t count = (size_t)b->n * (size_t)(b->size * b->size);
    uint8_t *stored = allocated(count, 1);
    for (size_t i = 0; i < count; i++)
        stored[i] = (uint8_t)fminf(batch->pixels[i] * 255, 255);
    free((void *)batch->pixels);
    *batch = (struct chex_batch){.n = b->n,
                                 .labels = batch->labels,
                                 .stored_px = b->size,
                                 .crops = b->whole,
                                 .stored = stored,
                                 .stored_count = b->n};
}

static void make_batches(struct step_bench *b) {
    b->whole = allocated((size_t)b->n, sizeof *b->whole);
    for (int i = 0; i < b->n; i++)
        b->whole[i] = chex_augment_centre(b->size, b->size);
    for (int i = 0; i < BATCHES; i++) {
        float *pixels = allocated((size_t)b->n * (size_t)(b->size * b->size), sizeof *pixels);
        int8_t *labels = allocated((size_t)b->n, BENCH_CLASSES);
        bench_batch((uint64_t)i, b->n, b->size, pixels, labels);
        b->batches[i] = (struct chex_batch){b->n, pixels, labels};
        if (b->raw)
            make_raw(b, &b->batches[i]);
    }
}

static enum chex_status one_step(struct step_bench *b, int64_t step, struct chex_error *err) {
    const struct chex_batch *batch = &b->batches[step % BATCHES];
    const struct chex_update adam = bench_adam(step + 1, 1e-4);
    struct chex_pass_result result = {0};
    if (b->infer) { /* as chex-eval: a batch is begun before the one before it is ended */
        float *logits = b->logits + (size_t)(step % 2 * b->n) * BENCH_CLASSES;
        CHEX_TRY(chex_engine_infer_begin(b->engine, batch, logits, err));
        return b->engine->begun_count < CHEX_INFER_BATCHES ? CHEX_OK
                                                           : chex_engine_infer_end(b->engine, err);
    }
    CHEX_TRY(chex_engine_pass(b->engine, batch, b->grad, NULL, NULL, &result, err));
    b->loss = result.loss;
    b->forward_ms[b->done] = result.forward_s * 1e3;
    b->backward_ms[b->done] = result.backward_s * 1e3;
    return chex_engine_update(b->engine, &adam, b->grad, err);
}

/* The CUDA engine's module is in this process: its work is this device's. */
static void wait_for_device(const struct step_bench *b) {
    if (strncmp(b->spec.engine, "cuda", 4) == 0)
        BENCH_CUDA(cudaDeviceSynchronize());
}

static enum chex_status run(struct step_bench *b, struct chex_error *err) {
    for (int i = 0; i < b->warm_up; i++)
        CHEX_TRY(one_step(b, i, err));
    wait_for_device(b);
    const double begin = chex_clock_s();
    double last = begin;
    for (b->done = 0; b->done < b->steps && last - begin < b->seconds; b->done++) {
        CHEX_TRY(one_step(b, b->warm_up + b->done, err));
        const double now = chex_clock_s();
        b->ms[b->done] = (now - last) * 1e3;
        last = now;
    }
    wait_for_device(b);
    b->rate = (double)b->n * b->done / (chex_clock_s() - begin);
    return isfinite(b->loss) ? CHEX_OK
                             : chex_error_set(err, CHEX_E_FAIL, "the loss is %g", b->loss);
}

static void report(struct step_bench *b, const char *json) {
    const struct chex_engine_impl *impl = b->engine->impl;
    const char *precision = chex_precision_names[b->spec.precision];
    const struct bench_time t = bench_summary(b->ms, b->done);
    const double forward_ms = bench_summary(b->forward_ms, b->done).ms;
    const double backward_ms = bench_summary(b->backward_ms, b->done).ms;
    const char *input = b->raw ? "raw" : "pixels";
    const double gb = (double)impl->bytes(b->engine->self) * 1e-9;
    printf("= %s %s:%s %s|batch %d, %d px|%.0f images/s|%.2f ms a step (%.2f to %.2f, %d steps)|"
           "forward %.2f, backward %.2f, rest %.2f ms|%s input, %.1f GB, loss %.4f, set up in %.1f "
           "s\n",
           b->infer ? "infer" : "step", impl->name, impl->variant(b->engine->self), precision, b->n,
           b->size, b->rate, t.ms, t.low, t.high, b->done, forward_ms, backward_ms,
           t.ms - forward_ms - backward_ms, input, gb, b->loss, b->set_up_s);
    FILE *f = bench_json(json);
    if (!f)
        return;
    const struct gpu_device none = {.name = "none"};
    const struct gpu_device device =
        strncmp(b->spec.engine, "cuda", 4) == 0 ? bench_device() : none;
    bench_json_begin(f, b->infer ? "infer" : "step", &device);
    fprintf(f,
            ", \"engine\": \"%s\", \"variant\": \"%s\", \"model\": \"%s\", \"precision\": \"%s\", "
            "\"batch\": %d, \"size_px\": %d, \"steps\": %d, \"images_per_s\": %.2f, \"step_ms\": "
            "%.4f, \"step_ms_low\": %.4f, \"step_ms_high\": %.4f, "
            "\"forward_ms\": %.4f, \"backward_ms\": %.4f, \"input\": \"%s\", \"memory_bytes\": "
            "%.0f, \"loss\": "
            "%.6f, \"set_up_s\": %.2f}\n",
            impl->name, impl->variant(b->engine->self), b->net->model, precision, b->n, b->size,
            b->done, b->rate, t.ms, t.low, t.high, forward_ms, backward_ms, input, gb * 1e9,
            b->loss, b->set_up_s);
    fclose(f);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"--engine", "--model",   "--size",    "--batch",
                                        "--steps",  "--warm-up", "--seconds", "--infer",
                                        "--input",  "--json",    NULL};
    static struct step_bench b;
    struct chex_error err = {0};
    bench_check_options(argc, argv, names, usage);
    b.spec = bench_spec(bench_option(argc, argv, "--engine", "cuda@bf16"));
    b.size = atoi(bench_option(argc, argv, "--size", "224"));
    b.n = atoi(bench_option(argc, argv, "--batch", "256"));
    b.steps = atoi(bench_option(argc, argv, "--steps", "30"));
    b.warm_up = atoi(bench_option(argc, argv, "--warm-up", "6"));
    b.seconds = atof(bench_option(argc, argv, "--seconds", "60"));
    b.infer = atoi(bench_option(argc, argv, "--infer", "0")) != 0;
    const char *input = bench_option(argc, argv, "--input", "raw");
    b.raw = strcmp(input, "raw") == 0;
    if ((!b.raw && strcmp(input, "pixels") != 0) || b.n < 1 || b.steps < 1 || b.steps > MAX_STEPS ||
        b.warm_up < 0 || b.seconds <= 0)
        bench_die(usage);
    enum chex_status st = chex_net_create(bench_option(argc, argv, "--model", "densenet121"),
                                          BENCH_CLASSES, &b.net, &err);
    const double begin = chex_clock_s();
    if (st == CHEX_OK)
        st = bench_engine(&b.spec, b.net, b.size, b.n, !b.infer, &b.engine, &err);
    b.set_up_s = chex_clock_s() - begin;
    if (st == CHEX_OK)
        st = agree_on_input(&b, &err);
    if (st == CHEX_OK) {
        make_batches(&b);
        b.grad = b.infer ? NULL : chex_engine_grad_alloc(b.engine);
        b.logits = allocated((size_t)b.n * BENCH_CLASSES * 2, sizeof *b.logits);
        if (!b.grad && !b.infer)
            bench_die("out of memory");
        st = run(&b, &err);
    }
    if (st != CHEX_OK)
        return bench_failed(b.spec.engine, st, &err);
    report(&b, bench_option(argc, argv, "--json", ""));
    for (int i = 0; i < BATCHES; i++) {
        free((void *)b.batches[i].pixels);
        free((void *)b.batches[i].stored);
        free((void *)b.batches[i].labels);
    }
    free(b.whole);
    free(b.logits);
    if (b.grad)
        chex_engine_grad_free(b.engine, b.grad);
    chex_engine_destroy(b.engine);
    chex_net_destroy(b.net);
    return 0;
}
