/* SPDX-License-Identifier: Apache-2.0
 *
 * Which kernel computes each convolution. The engine is made with a fixed choice: the first
 * algorithm of the stage that supports the convolution, in the variant that it guesses
 * (cuda_buffers.c). Here are the other candidates, and the two ways to choose among them:
 *   - set: as a text says, which another engine gave. A resumed run gets those of its checkpoint, a
 *     rank those of rank 0.
 *   - measure: by the times on this device (cuda_measure.c).
 *
 * Convolutions of the same key (direction, shape, type, pitches, norms) share one choice, so it is
 * measured once and a text names it once. What a measurement found is kept in the device cache: one
 * file for all convolutions of a network on one kind of device with one driver and one build.
 *
 * cuDNN and the plain kernels are fallbacks. They are used where no own kernel fits, and are not
 * compared: a cuDNN plan may take seconds to make.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/cuda/host/cuda_engine.h"
#include "engine/cuda/host/device_cache.h"
#include "engine/kernel_choices.h"

enum { KEY_BYTES = 160, LINE_BYTES = KEY_BYTES + CUDA_CANDIDATE_BYTES };

/* One direction of a convolution. */
struct direction {
    int op;
    bool backward;
};

static struct cuda_kernel *in_use(const struct cuda_engine *e, struct direction d) {
    return &e->ops[d.op].kernel[d.backward];
}

/* ---- candidates ---- */

int chex_cuda_candidates(const struct cuda_engine *e, int op, bool backward,
                         struct cuda_kernel out[CUDA_CANDIDATES]) {
    const struct gpu_conv_algo *algos[CUDA_ALGO_NAMES];
    const int of_stage = chex_cuda_stage_algos(e, algos);
    struct cuda_conv c;
    int count = 0;
    chex_cuda_conv(e, op, backward, e->w, &c);
    c.forward.variant = c.backward.variant = 0;
    for (int i = 0; i < of_stage; i++) {
        int variants[GPU_VARIANTS] = {0}, n = 1;
        if (algos[i]->fallback || !algos[i]->fits(&e->device, c.f, c.b))
            continue;
        if (algos[i]->variants)
            n = algos[i]->variants(&e->device, c.f, c.b, variants);
        for (int v = 0; v < n && count < CUDA_CANDIDATES; v++)
            out[count++] = (struct cuda_kernel){.algo = algos[i], .variant = variants[v]};
    }
    if (count == 0) {
        out[count] = e->ops[op].kernel[backward];
        out[count++].variant = 0;
    }
    return count;
}

void chex_cuda_candidate_text(const struct cuda_kernel *c, bool backward,
                              char out[CUDA_CANDIDATE_BYTES]) {
    char variant[GPU_VARIANT_BYTES] = "";
    if (c->variant)
        c->algo->variant_name(backward, c->variant, variant);
    snprintf(out, CUDA_CANDIDATE_BYTES, "%.24s%s%s", c->algo->name, variant[0] ? " " : "", variant);
}

static size_t workspace_of(const struct cuda_engine *e, struct direction d,
                           const struct cuda_kernel *k) {
    struct cuda_conv c;
    chex_cuda_conv(e, d.op, d.backward, e->w, &c);
    c.forward.variant = c.backward.variant = k->variant;
    return k->algo->workspace(&e->device, k->state, c.f, c.b);
}

size_t chex_cuda_candidates_bytes(const struct cuda_engine *e, int op, bool backward) {
    const struct direction d = {op, backward};
    struct cuda_kernel all[CUDA_CANDIDATES];
    size_t most = 0;
    if (!in_use(e, d)->algo)
        return 0;
    const int count = chex_cuda_candidates(e, op, backward, all);
    for (int i = 0; i < count; i++) {
        const size_t bytes = workspace_of(e, d, &all[i]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

size_t chex_cuda_choice_bytes(const struct cuda_engine *e, int op, bool backward) {
    const struct direction d = {op, backward};
    return in_use(e, d)->algo ? workspace_of(e, d, in_use(e, d)) : 0;
}

/* The state of the algorithm stays: candidates other than the one in use have none. */
static void use(struct cuda_engine *e, struct direction d, const struct cuda_kernel *k) {
    in_use(e, d)->algo = k->algo;
    in_use(e, d)->variant = k->variant;
    if (d.backward)
        e->ops[d.op].backward_bytes = workspace_of(e, d, k);
}

/* ---- keys ---- */

static void key_of(const struct cuda_engine *e, struct direction d, char out[KEY_BYTES]) {
    static const char *const types[] = {"fp32", "bf16", "fp16"};
    struct cuda_conv c;
    chex_cuda_conv(e, d.op, d.backward, e->w, &c);
    const struct gpu_conv_forward *f = &c.forward;
    const struct gpu_conv_backward *b = &c.backward;
    const struct gpu_map *in = d.backward ? &b->in : &f->in;
    const struct gpu_map *to = d.backward ? &b->out.g : &f->out;
    const struct gpu_window w = d.backward ? b->window : f->window;
    const bool norm = d.backward ? b->norm.mean : f->norm.mean;
    snprintf(out, KEY_BYTES, "%s %dx%d/%d %d>%d %s, %d x %d x %d, pitch %lld>%lld%s%s%s%s",
             d.backward ? "backward" : "forward", w.kernel, w.kernel, w.stride, in->channels,
             to->channels, types[in->type], in->n, in->hw, in->hw, (long long)in->pitch,
             (long long)to->pitch, norm ? ", norm" : "", f->stats.partial ? ", statistics" : "",
             b->out.bsum ? ", deferred" : "", b->add ? ", added" : "");
}

/* Different keys of the engine, in the order of operations, each with the first direction that has
 * it. */
struct keys {
    int count;
    struct direction *first;
    char (*text)[KEY_BYTES];
    int *of; /* key of forward and backward of each operation; -1: it has no algorithm */
};

static void keys_release(struct keys *k) { CHEX_FREE(k->first, k->text, k->of); }

static void add_key(struct keys *k, const struct cuda_engine *e, struct direction d) {
    int *at = &k->of[2 * d.op + d.backward];
    *at = -1;
    if (!in_use(e, d)->algo)
        return;
    key_of(e, d, k->text[k->count]);
    for (*at = 0; strcmp(k->text[*at], k->text[k->count]) != 0;)
        ++*at;
    if (*at == k->count)
        k->first[k->count++] = d;
}

/* The caller calls keys_release(), on failure too. */
static enum chex_status keys_make(const struct cuda_engine *e, struct keys *k,
                                  struct chex_error *err) {
    const size_t most = 2 * (size_t)e->net->op_count;
    *k = (struct keys){.first = chex_alloc_zeroed(most, sizeof *k->first),
                       .text = chex_alloc_zeroed(most + 1, sizeof *k->text),
                       .of = chex_alloc_zeroed(most, sizeof *k->of)};
    if (!k->first || !k->text || !k->of)
        return chex_error_memory(err, "choices of kernels");
    for (int i = 0; i < e->net->op_count; i++)
        for (int backward = 0; backward < 2; backward++)
            add_key(k, e, (struct direction){i, backward});
    return CHEX_OK;
}

/* Uses a candidate for all convolutions of a key. */
static void use_for_key(struct cuda_engine *e, const struct keys *k, int key,
                        const struct cuda_kernel *c) {
    for (int i = 0; i < e->net->op_count; i++)
        for (int backward = 0; backward < 2; backward++)
            if (k->of[2 * i + backward] == key)
                use(e, (struct direction){i, backward}, c);
}

/* ---- texts ---- */

static void device_line(const struct cuda_engine *e, FILE *out) {
    fprintf(out, "device %s, capability %d.%d, %d multiprocessors\n", e->device.name,
            e->device.capability / 10, e->device.capability % 10, e->device.sms);
}

/* The choices of the keys for which `wanted` is set; NULL: of all. The caller frees it. */
static char *text_of(const struct cuda_engine *e, const struct keys *k, const bool *wanted) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    device_line(e, out);
    for (int i = 0; i < k->count; i++) {
        char choice[CUDA_CANDIDATE_BYTES];
        chex_cuda_candidate_text(in_use(e, k->first[i]), k->first[i].backward, choice);
        if (!wanted || wanted[i])
            fprintf(out, "%s: %s\n", k->text[i], choice);
    }
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* The choice that a text has for a key; false: it has none. */
static bool find_choice(const char *text, const char *key, char out[CUDA_CANDIDATE_BYTES]) {
    const size_t n = strlen(key);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (strncmp(line, key, n) != 0 || strncmp(line + n, ": ", 2) != 0)
            continue;
        snprintf(out, CUDA_CANDIDATE_BYTES, "%.*s", (int)strcspn(line + n + 2, "\n"), line + n + 2);
        return true;
    }
    return false;
}

/* Index of the candidate with this text; -1: there is none. */
static int find_candidate(const struct cuda_kernel *all, int count, bool backward,
                          const char *choice) {
    char text[CUDA_CANDIDATE_BYTES];
    for (int i = 0; i < count; i++) {
        chex_cuda_candidate_text(&all[i], backward, text);
        if (strcmp(text, choice) == 0)
            return i;
    }
    return -1;
}

/* Uses what the text says. `used`: set for the keys that it names, if their kernels exist. Returns
 * how many do not; `missing` gets the first of them. */
static int use_text(struct cuda_engine *e, const struct keys *k, const char *text, bool *used,
                    char missing[LINE_BYTES]) {
    struct cuda_kernel all[CUDA_CANDIDATES];
    char choice[CUDA_CANDIDATE_BYTES];
    int unknown = 0;
    for (int i = 0; i < k->count; i++) {
        const struct direction d = k->first[i];
        if (!find_choice(text, k->text[i], choice))
            continue;
        const int count = chex_cuda_candidates(e, d.op, d.backward, all);
        const int found = find_candidate(all, count, d.backward, choice);
        used[i] = found >= 0;
        if (found >= 0)
            use_for_key(e, k, i, &all[found]);
        else if (unknown++ == 0)
            snprintf(missing, LINE_BYTES, "%s: %s", k->text[i], choice);
    }
    return unknown;
}

enum chex_status chex_cuda_choices_get(void *self, char **text_out, struct chex_error *err) {
    CHEX_AUTO(keys_release) struct keys k;
    CHEX_TRY(keys_make(self, &k, err));
    *text_out = text_of(self, &k, NULL);
    return *text_out ? CHEX_OK : chex_error_memory(err, "choices of kernels");
}

enum chex_status chex_cuda_choices_set(void *self, const char *text, struct chex_error *err) {
    struct cuda_engine *e = self;
    CHEX_AUTO(keys_release) struct keys k;
    char missing[LINE_BYTES];
    CHEX_TRY(keys_make(e, &k, err));
    CHEX_AUTO_FREE bool *used = chex_alloc_zeroed((size_t)k.count + 1, sizeof *used);
    if (!used)
        return chex_error_memory(err, "choices of kernels");
    const int unknown = use_text(e, &k, text, used, missing);
    if (unknown)
        chex_warn("cuda: %d of %d choices of kernels do not exist here (the first: %s): the fixed "
                  "choice is used instead, and sums are made in another order",
                  unknown, k.count, missing);
    return CHEX_OK;
}

/* ---- measurement ---- */

/* The key of the cache. A newer driver or build may make other kernels the fastest. */
static char *cache_key(const struct cuda_engine *e, const struct keys *k) {
    int driver = 0, runtime = 0;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    device_line(e, out);
    fprintf(out, "driver %d, CUDA %d, code for %d, chexnet %s, kernels %d, stage %s\n", driver,
            runtime, gpu_code_target(), CHEXNET_VERSION, GPU_VARIANTS_VERSION, e->variant);
    for (int i = 0; i < k->count; i++)
        fprintf(out, "%s\n", k->text[i]);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* What became of the keys. */
struct tally {
    int chosen;   /* with more than one candidate */
    int cached;   /* of these, found in the cache */
    int measured; /* and measured now */
    int left;     /* not measured, because the time was over */
    int changed;  /* another kernel than the fixed one */
};

static enum chex_status measure_key(struct cuda_engine *e, const struct keys *k, int key,
                                    bool *measured, struct chex_error *err) {
    const struct direction d = k->first[key];
    struct cuda_kernel all[CUDA_CANDIDATES];
    const int count = chex_cuda_candidates(e, d.op, d.backward, all);
    int best = 0;
    CHEX_TRY(chex_cuda_measure(e, d.op, d.backward, all, count, &best, err));
    use_for_key(e, k, key, &all[best]);
    *measured = true;
    return CHEX_OK;
}

/* Whether backward of the key runs at all: it ends at the first operation that is trained. */
static bool runs(const struct cuda_engine *e, struct direction d) {
    return !d.backward || d.op >= e->first_trained;
}

/* Measures the keys that are not `known` yet, until the time is over. */
static enum chex_status measure_keys(struct cuda_engine *e, const struct keys *k, double limit_s,
                                     bool *known, struct tally *t, struct chex_error *err) {
    const double end_s = chex_clock_s() + limit_s;
    struct cuda_kernel all[CUDA_CANDIDATES];
    bool begun = false;
    for (int i = 0; i < k->count; i++) {
        const struct direction d = k->first[i];
        if (!runs(e, d) || chex_cuda_candidates(e, d.op, d.backward, all) < 2)
            continue;
        t->chosen++;
        t->cached += known[i];
        if (!known[i] && chex_clock_s() >= end_s) {
            t->left++;
        } else if (!known[i]) {
            if (!begun)
                CHEX_TRY(chex_cuda_measure_begin(e, err));
            begun = true;
            CHEX_TRY(measure_key(e, k, i, &known[i], err));
            t->measured++;
        }
        const struct cuda_kernel *now = in_use(e, d);
        t->changed += now->algo != all[0].algo || now->variant != all[0].variant;
    }
    return begun ? chex_cuda_state_clear(e, err) : CHEX_OK;
}

static void log_tally(const struct tally *t, double limit_s, double seconds, const char *folder) {
    char left[128] = "";
    if (t->left)
        snprintf(left, sizeof left,
                 "; %d not measured in %g s (CHEX_CUDA_MEASURE): these keep the fixed choice",
                 t->left, limit_s);
    chex_info("cuda: kernels of %d convolution%s: %d measured in %.2f s, %d from the cache%s%s%s; "
              "%d differ%s from the fixed choice%s",
              t->chosen, chex_text_s((uint64_t)t->chosen), t->measured, seconds, t->cached,
              folder ? " (" : "", folder ? folder : "", folder ? ")" : "", t->changed,
              t->changed == 1 ? "s" : "", left);
}

/* Takes what the cache has, measures the rest and stores all of it. */
static enum chex_status measure_with_cache(struct cuda_engine *e, const struct keys *k,
                                           double limit_s, const char *key, bool *known,
                                           struct chex_error *err) {
    CHEX_AUTO_FREE char *folder = gpu_cache_folder();
    char missing[LINE_BYTES];
    const double began_s = chex_clock_s();
    struct tally t = {0};
    size_t size = 0;
    CHEX_AUTO_FREE char *cached = gpu_cache_get(folder, GPU_CACHE_CHOICES, key, &size);
    if (cached)
        use_text(e, k, cached, known, missing);
    CHEX_TRY(measure_keys(e, k, limit_s, known, &t, err));
    CHEX_AUTO_FREE char *text = t.measured ? text_of(e, k, known) : NULL;
    if (text)
        gpu_cache_put(folder, GPU_CACHE_CHOICES, key, text, strlen(text));
    log_tally(&t, limit_s, chex_clock_s() - began_s, folder);
    return CHEX_OK;
}

enum chex_status chex_cuda_choices_measure(void *self, double limit_s, struct chex_error *err) {
    struct cuda_engine *e = self;
    CHEX_AUTO(keys_release) struct keys k;
    CHEX_TRY(keys_make(e, &k, err));
    CHEX_AUTO_FREE char *key = cache_key(e, &k);
    CHEX_AUTO_FREE bool *known = chex_alloc_zeroed((size_t)k.count + 1, sizeof *known);
    return key && known ? measure_with_cache(e, &k, limit_s, key, known, err)
                        : chex_error_memory(err, "choices of kernels");
}
