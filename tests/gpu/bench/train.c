/* SPDX-License-Identifier: Apache-2.0
 *
 * A short training with several engines from one start on the same batches, and how far each one's
 * losses are from the first one's. Exit status 1 where they are further than rounding explains.
 *
 * Bounds. The first loss is a forward pass from equal weights: relative 1e-5 in fp32 (sums in
 * another order over 121 layers; the CPU engine is 3e-8 from the reference), 2e-3 in 16 bits (it is
 * 2e-4 away in bf16, and rounding is random). Later losses drift apart as rounding turns single
 * ReLUs and Adam divides by the root of tiny second moments: over 60 steps at the usual batch and
 * size the CPU engine's bf16 ends 4 per cent from its fp32; a tenth is allowed.
 */
#include "gpu/bench/engines.h"

static const char usage[] =
    "usage: bench-train [--engines cpu@fp32,cuda:s0@fp32,cuda@bf16] [--model densenet121]\n"
    "       [--size 64] [--batch 16] [--steps 60] [--lr 0.001] [--json FILE]\n"
    "The first engine is what the others are held against.";

enum { MAX_ENGINES = 12, MAX_STEPS = 2000 };

struct training {
    struct chex_net *net;
    int size, n, steps;
    double lr;
    float *pixels;
    int8_t *labels;
    double loss[MAX_ENGINES][MAX_STEPS];
};

static enum chex_status train(struct training *t, const struct bench_spec *spec, double *loss,
                              struct chex_error *err) {
    struct chex_engine *e;
    CHEX_TRY(bench_engine(spec, t->net, t->size, t->n, true, &e, err));
    float *grad = chex_engine_grad_alloc(e);
    enum chex_status st =
        grad ? CHEX_OK : chex_error_set(err, CHEX_E_RESOURCE, "no memory for a gradient");
    for (int i = 0; i < t->steps && st == CHEX_OK; i++) {
        const struct chex_batch batch = {t->n, t->pixels, t->labels};
        const struct chex_update adam = bench_adam(i + 1, t->lr);
        struct chex_pass_result result = {0};
        bench_batch((uint64_t)i, t->n, t->size, t->pixels, t->labels);
        st = chex_engine_pass(e, &batch, grad, NULL, NULL, &result, err);
        if (st == CHEX_OK)
            st = chex_engine_update(e, &adam, grad, err);
        loss[i] = result.loss;
    }
    if (grad)
        chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    return st;
}

static double last_quarter(const struct training *t, const double *loss) {
    const int from = t->steps - (t->steps + 3) / 4;
    double sum = 0;
    for (int i = from; i < t->steps; i++)
        sum += loss[i];
    return sum / (t->steps - from);
}

/* One row; false where the losses are too far from those of engine 0. */
static bool compare(const struct training *t, const char *name, const struct bench_spec *spec,
                    int k) {
    const double *loss = t->loss[k], *want = t->loss[0];
    const bool half = spec->precision == CHEX_BF16 || spec->precision == CHEX_FP16;
    const double first = fabs(loss[0] / want[0] - 1), end = last_quarter(t, loss);
    const double drift = fabs(end / last_quarter(t, want) - 1);
    const bool good = first <= (half ? 2e-3 : 1e-5) && drift <= 0.1; /* false for NaN */
    printf("= train %s|batch %d, %d px, %d steps|loss %.5f to %.5f|first differs by %.1e, end by "
           "%.1e|%s\n",
           name, t->n, t->size, t->steps, loss[0], end, first, drift,
           good ? (k ? "good" : "the measure") : "FAILED");
    return good;
}

static void write_json(const struct training *t, const char *path, const char *name,
                       const double *loss) {
    FILE *f = bench_json(path);
    if (!f)
        return;
    fprintf(
        f,
        "{\"schema\": 1, \"kind\": \"train\", \"engine\": \"%s\", \"model\": \"%s\", \"batch\": "
        "%d, \"size_px\": %d, \"lr\": %g, \"loss\": [",
        name, t->net->model, t->n, t->size, t->lr);
    for (int i = 0; i < t->steps; i++)
        fprintf(f, "%s%.17g", i ? ", " : "", loss[i]);
    fprintf(f, "]}\n");
    fclose(f);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"--engines", "--model", "--size", "--batch",
                                        "--steps",   "--lr",    "--json", NULL};
    static struct training t;
    struct chex_error err = {0};
    char list[512];
    int k = 0, failed = 0, skipped = 0;
    bench_check_options(argc, argv, names, usage);
    snprintf(list, sizeof list, "%s",
             bench_option(argc, argv, "--engines", "cpu@fp32,cuda:s0@fp32,cuda@bf16"));
    t.size = atoi(bench_option(argc, argv, "--size", "64"));
    t.n = atoi(bench_option(argc, argv, "--batch", "16"));
    t.steps = atoi(bench_option(argc, argv, "--steps", "60"));
    t.lr = atof(bench_option(argc, argv, "--lr", "0.001"));
    if (t.n < 1 || t.steps < 1 || t.steps > MAX_STEPS || t.lr <= 0)
        bench_die(usage);
    if (chex_net_create(bench_option(argc, argv, "--model", "densenet121"), BENCH_CLASSES, &t.net,
                        &err) != CHEX_OK)
        bench_die(err.text);
    t.pixels = malloc((size_t)t.n * (size_t)(t.size * t.size) * sizeof *t.pixels);
    t.labels = malloc((size_t)t.n * BENCH_CLASSES);
    if (!t.pixels || !t.labels)
        bench_die("out of memory");
    for (char *save = NULL, *name = strtok_r(list, ",", &save); name && k < MAX_ENGINES;
         name = strtok_r(NULL, ",", &save)) {
        const struct bench_spec spec = bench_spec(name);
        const enum chex_status st = train(&t, &spec, t.loss[k], &err);
        if (st != CHEX_OK) {
            const int code = bench_failed(name, st, &err);
            failed += code != 77 || k == 0; /* without the first there is nothing to compare with */
            skipped += code == 77;
            if (k == 0)
                break;
            continue;
        }
        failed += !compare(&t, name, &spec, k);
        write_json(&t, bench_option(argc, argv, "--json", ""), name, t.loss[k]);
        k++;
    }
    free(t.pixels);
    free(t.labels);
    chex_net_destroy(t.net);
    return failed ? 1 : skipped ? 77 : 0;
}
