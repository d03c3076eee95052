/* SPDX-License-Identifier: Apache-2.0
 *
 * Images a second of every form of the augmentation kernels: stored rows of 256 px to 224 px, fp32.
 *
 *     bench-augment [STORED [SIZE]]
 *
 * Each figure is the best of three runs of a fifth of a second; every thread has its own 64 stored
 * rows and its own ring of 16 outputs.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "input/augment_private.h"

enum { MOST_THREADS = 2, RING = 16, IMAGES = 64, RUNS = 3 };
static const double run_s = 0.2;

struct mode {
    const char *name;
    struct chex_augment_options options;
    bool centre, stream;
};

static const struct mode modes[] = {
    {"crop", {.crop_scale = 0.5, .hflip = 0.5}},
    {"crop, streamed", {.crop_scale = 0.5, .hflip = 0.5}, .stream = true},
    {"antialias", {.crop_scale = 0.5, .hflip = 0.5, .antialias = true}},
    {"antialias, streamed", {.crop_scale = 0.5, .hflip = 0.5, .antialias = true}, .stream = true},
    {"colour", {.crop_scale = 0.5, .hflip = 0.5, .brightness = 0.2, .contrast = 0.2}},
    {"rotate 10", {.crop_scale = 0.5, .hflip = 0.5, .rotate = 10}},
    {"all",
     {.crop_scale = 0.5,
      .hflip = 0.5,
      .rotate = 10,
      .brightness = 0.2,
      .contrast = 0.2,
      .antialias = true}},
    {"centre", .centre = true},
};

struct worker {
    pthread_t thread;
    const struct chex_augment_kernels *kernels;
    const struct mode *mode;
    int stored, size;
    uint8_t *in;
    float *out;
    void *scratch;
    uint64_t done;
};

static atomic_bool stop;

static void *work(void *arg) {
    struct worker *w = arg;
    const size_t pixels = (size_t)w->stored * (size_t)w->stored;
    const size_t outputs = (size_t)w->size * (size_t)w->size;
    uint64_t i = 0;
    for (; !atomic_load_explicit(&stop, memory_order_relaxed); i++) {
        struct chex_crop crop = w->mode->centre
                                    ? chex_augment_centre(w->stored, w->size)
                                    : chex_augment_draw(&w->mode->options, 1, 0, i, w->stored);
        chex_augment_apply_with(w->kernels, w->in + i % IMAGES * pixels, w->stored, &crop, w->size,
                                w->mode->stream, w->out + i % RING * outputs, w->scratch);
    }
    w->done = i;
    return NULL;
}

static double images_per_s(struct worker *workers, int threads) {
    double best = 0;
    for (int run = 0; run < RUNS; run++) {
        double from = chex_clock_s();
        uint64_t done = 0;
        atomic_store(&stop, false);
        for (int i = 0; i < threads; i++)
            if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
                abort();
        while (chex_clock_s() - from < run_s)
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        atomic_store(&stop, true);
        for (int i = 0; i < threads; i++) {
            pthread_join(workers[i].thread, NULL);
            done += workers[i].done;
        }
        double rate = (double)done / (chex_clock_s() - from);
        best = rate > best ? rate : best;
    }
    return best;
}

static void make_worker(struct worker *w, int stored, int size) {
    const size_t pixels = (size_t)stored * (size_t)stored, outputs = (size_t)size * (size_t)size;
    *w =
        (struct worker){.stored = stored,
                        .size = size,
                        .in = chex_alloc_aligned(IMAGES, pixels),
                        .out = chex_alloc_aligned(RING * outputs, sizeof *w->out),
                        .scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(stored, size))};
    if (!w->in || !w->out || !w->scratch)
        abort();
    memset(w->out, 0, RING * outputs * sizeof *w->out);
    for (size_t i = 0; i < IMAGES * pixels; i++)
        w->in[i] = (uint8_t)(i * 2654435761u >> 13);
}

int main(int argc, char **argv) {
    const int stored = argc > 1 ? atoi(argv[1]) : 256, size = argc > 2 ? atoi(argv[2]) : 224;
    if (stored < 1 || size < 1 || size > stored || stored > 4096) {
        fprintf(stderr, "usage: bench-augment [STORED [SIZE]]\n");
        return 2;
    }
    struct worker workers[MOST_THREADS];
    for (int i = 0; i < MOST_THREADS; i++)
        make_worker(&workers[i], stored, size);
    printf("%d px to %d px, images/s; this CPU's kernels: %s\n", stored, size,
           chex_augment_kernels_name());
    printf("%-10s %-20s %10s %10s\n", "kernels", "mode", "1 thread", "2 threads");
    for (int k = 0; chex_augment_all[k]; k++)
        for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
            if (!chex_augment_all[k]->supported() ||
                (modes[m].stream && !chex_augment_all[k]->finish))
                continue;
            for (int i = 0; i < MOST_THREADS; i++) {
                workers[i].kernels = chex_augment_all[k];
                workers[i].mode = &modes[m];
            }
            double one = images_per_s(workers, 1), two = images_per_s(workers, 2);
            printf("%-10s %-20s %10.0f %10.0f\n", chex_augment_all[k]->name, modes[m].name, one,
                   two);
            fflush(stdout);
        }
    for (int i = 0; i < MOST_THREADS; i++) {
        free(workers[i].in);
        free(workers[i].out);
        free(workers[i].scratch);
    }
    return 0;
}
