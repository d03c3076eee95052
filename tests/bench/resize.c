/* SPDX-License-Identifier: Apache-2.0
 *
 * Milliseconds an image, best and median: plain C and each kernel of this CPU, in turn. Argument:
 * how many turns (default 15).
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "image/resize_private.h"

enum { MAX_TURNS = 1000, MAX_KERNELS = 8 };

static const struct {
    int w, h, side;
} shapes[] = {{1024, 1024, 256}, {1024, 1024, 224}, {1024, 1024, 320}, {1024, 1024, 512},
              {2048, 2048, 256}, {2828, 2320, 256}, {2320, 2828, 256}};

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(int shape, int turns, struct chex_resizer **resizers, int kernels,
                    const uint8_t *src, uint8_t *dst) {
    static double ms[MAX_KERNELS][MAX_TURNS];
    int w = shapes[shape].w, h = shapes[shape].h, side = shapes[shape].side;
    struct chex_error err = {0};
    for (int turn = -1; turn < turns; turn++)
        for (int k = 0; k < kernels; k++) {
            double start = chex_clock_s();
            if (chex_resize(resizers[k], src, w, h, dst, side, side, &err) != CHEX_OK) {
                fprintf(stderr, "%s\n", err.text);
                exit(1);
            }
            if (turn >= 0)
                ms[k][turn] = (chex_clock_s() - start) * 1e3;
        }
    printf("%4d x %4d to %3d", w, h, side);
    for (int k = 0; k < kernels; k++) {
        qsort(ms[k], (size_t)turns, sizeof(double), ascending);
        printf("  %8.4f %8.4f", ms[k][0], ms[k][turns / 2]);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    int turns = argc > 1 ? atoi(argv[1]) : 15, kernels = 0;
    if (turns < 1 || turns > MAX_TURNS) {
        fprintf(stderr, "usage: bench-resize [TURNS], 1 to %d\n", MAX_TURNS);
        return 2;
    }
    size_t bytes = (size_t)2828 * 2828;
    uint8_t *src = malloc(bytes), *dst = malloc((size_t)512 * 512);
    struct chex_resizer *resizers[MAX_KERNELS];
    const struct chex_resize_kernel *kernel = NULL;
    if (!src || !dst)
        return 9;
    for (size_t i = 0; i < bytes; i++)
        src[i] = (uint8_t)(i * 2654435761u >> 13);
    printf("best and median of %d, ms", turns);
    do {
        if (chex_resizer_create_with(kernel, &resizers[kernels], NULL) != CHEX_OK)
            return 9;
        printf("  %s", kernel ? kernel->name : "plain");
        kernel = chex_resize_kernel(kernels++);
    } while (kernel && kernels < MAX_KERNELS);
    printf("\n");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        measure((int)i, turns, resizers, kernels, src, dst);
    for (int k = 0; k < kernels; k++)
        chex_resizer_destroy(resizers[k]);
    free(src);
    free(dst);
    return 0;
}
