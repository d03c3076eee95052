/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a PNG takes to decode by each path: libpng, and each inflate with each unfilter kernel.
 *   decode [--seconds S] [--threads N] FILE...
 * All files are read into memory first. A pass is every file once; passes of the paths take turns
 * for S seconds (3) of each path, and best and median pass are printed. With N > 1 (2) every path
 * runs once more with N threads, each with all files.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "image/image_png.h"
#include "image/inflate.h"
#include "image/unfilter.h"

enum { MAX_PATHS = 32, MAX_PASSES = 4096, MAX_THREADS = 64 };

struct file {
    const char *path;
    uint8_t *bytes;
    size_t size;
};

struct path {
    char name[64];
    struct chex_png_choice choice;
    double pass_ms[MAX_PASSES];
    int passes;
};

static struct file *files;
static int file_count;
static struct path paths[MAX_PATHS];
static int path_count;

static void die(const char *text) {
    fprintf(stderr, "decode: %s\n", text);
    exit(1);
}

static void load(const char *path) {
    struct chex_error err = {0};
    struct chex_image_reader *reader = NULL;
    const uint8_t *data = NULL;
    size_t size = 0;
    if (chex_image_reader_create(&reader, &err) != CHEX_OK ||
        chex_image_read(reader, path, &data, &size, &err) != CHEX_OK)
        die(err.text);
    struct file *f = &files[file_count++];
    *f = (struct file){path, malloc(size), size};
    if (!f->bytes)
        die("out of memory");
    memcpy(f->bytes, data, size);
    chex_image_reader_destroy(reader);
}

static void add_path(enum chex_png_path path, const char *inflate, const char *unfilter) {
    if (path_count == MAX_PATHS)
        return;
    struct path *p = &paths[path_count++];
    p->choice = (struct chex_png_choice){path, inflate, unfilter};
    if (path == CHEX_PNG_LIBPNG)
        snprintf(p->name, sizeof p->name, "libpng");
    else
        snprintf(p->name, sizeof p->name, "%s + %s", inflate, unfilter);
}

static void add_paths(void) {
    add_path(CHEX_PNG_LIBPNG, NULL, NULL);
    for (int i = 0; chex_inflate_name(i); i++)
        for (const struct chex_unfilter *const *u = chex_unfilters; *u; u++)
            if ((*u)->usable())
                add_path(CHEX_PNG_AUTO, chex_inflate_name(i), (*u)->name);
}

struct worker {
    struct chex_image_reader *reader;
    struct chex_image image;
    pthread_t thread;
    uint64_t pixels;
};

static void *one_pass(void *arg) {
    struct worker *w = arg;
    struct chex_error err = {0};
    w->pixels = 0;
    for (int i = 0; i < file_count; i++) {
        const struct file *f = &files[i];
        if (chex_image_decode(w->reader, f->bytes, f->size, f->path, &w->image, &err) != CHEX_OK)
            die(err.text);
        w->pixels += (uint64_t)w->image.width * (uint64_t)w->image.height;
    }
    return NULL;
}

static void run_pass(struct worker *workers, int threads, struct path *p) {
    struct chex_error err = {0};
    for (int t = 0; t < threads; t++)
        if (chex_png_choose(workers[t].reader, &p->choice, &err) != CHEX_OK)
            die(err.text);
    const uint64_t began = chex_clock_ns();
    for (int t = 1; t < threads; t++)
        if (pthread_create(&workers[t].thread, NULL, one_pass, &workers[t]) != 0)
            die("cannot start a thread");
    one_pass(&workers[0]);
    for (int t = 1; t < threads; t++)
        pthread_join(workers[t].thread, NULL);
    if (p->passes < MAX_PASSES)
        p->pass_ms[p->passes++] = (double)(chex_clock_ns() - began) / 1e6;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(int threads) {
    printf("%-24s %7s %12s %12s %9s %9s   %d thread%s\n", "path", "passes", "best ms", "median ms",
           "best/s", "median/s", threads, threads > 1 ? "s" : "");
    for (int i = 0; i < path_count; i++) {
        struct path *p = &paths[i];
        qsort(p->pass_ms, (size_t)p->passes, sizeof p->pass_ms[0], by_value);
        const double best = p->pass_ms[0] / file_count;
        const double median = p->pass_ms[p->passes / 2] / file_count;
        printf("%-24s %7d %12.3f %12.3f %9.0f %9.0f\n", p->name, p->passes, best, median,
               threads * 1e3 / best, threads * 1e3 / median);
        p->passes = 0;
    }
}

static void measure(int threads, double seconds) {
    struct worker workers[MAX_THREADS] = {0};
    struct chex_error err = {0};
    for (int t = 0; t < threads; t++)
        if (chex_image_reader_create(&workers[t].reader, &err) != CHEX_OK)
            die(err.text);
    for (int i = 0; i < path_count; i++) // warm
        run_pass(workers, threads, &paths[i]);
    for (int i = 0; i < path_count; i++)
        paths[i].passes = 0;
    const uint64_t fast = chex_png_fast_count(workers[0].reader) / (uint64_t)(path_count - 1);
    printf("%" PRIu64 " of %d files are for the fast path\n", fast, file_count);
    const uint64_t began = chex_clock_ns();
    do
        for (int i = 0; i < path_count; i++)
            run_pass(workers, threads, &paths[i]);
    while ((double)(chex_clock_ns() - began) < seconds * path_count * 1e9);
    report(threads);
    for (int t = 0; t < threads; t++) {
        chex_image_release(&workers[t].image);
        chex_image_reader_destroy(workers[t].reader);
    }
}

int main(int argc, char **argv) {
    double seconds = 3;
    int threads = 2, at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2)
        if (!strcmp(argv[at], "--seconds"))
            seconds = atof(argv[at + 1]);
        else if (!strcmp(argv[at], "--threads"))
            threads = atoi(argv[at + 1]);
        else
            break;
    if (at >= argc || argv[at][0] == '-' || !(seconds > 0) || threads < 1 ||
        threads > MAX_THREADS) {
        fprintf(stderr, "usage: decode [--seconds S] [--threads N] FILE...\n");
        return 2;
    }
    files = calloc((size_t)(argc - at), sizeof *files);
    if (!files)
        die("out of memory");
    for (; at < argc; at++)
        load(argv[at]);
    add_paths();
    printf("%d files\n", file_count);
    measure(1, seconds);
    if (threads > 1)
        measure(threads, seconds);
    for (int i = 0; i < file_count; i++)
        free(files[i].bytes);
    free(files);
    return 0;
}
