/* SPDX-License-Identifier: Apache-2.0
 *
 * One file NAME.c here is one libFuzzer target; its seeds are in corpus/NAME. With CHEX_FUZZ=ON
 * (clang) the target is linked to the fuzzer, and tests/fuzz.sh runs it; in every other build it is
 * a unit test that runs the corpus once. A crash that was found becomes a file of the corpus.
 */
#ifndef CHEX_TESTS_FUZZ_H
#define CHEX_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The rest of an input. */
struct input {
    const uint8_t *data;
    size_t size;
};

static inline unsigned take(struct input *in) {
    if (!in->size)
        return 0;
    in->size--;
    return *in->data++;
}

/* A copy of a file with bytes changed as the input says: place (3 bytes, low first) and bits. */
static inline uint8_t *fuzz_flip(const uint8_t *sound, size_t bytes, struct input *in) {
    uint8_t *copy = malloc(bytes);
    for (size_t i = 0; copy && i < bytes; i++)
        copy[i] = sound[i];
    while (copy && in->size) {
        const size_t low = take(in), middle = take(in), high = take(in);
        copy[(low | middle << 8 | high << 16) % bytes] ^= (uint8_t)take(in);
    }
    return copy;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An expectation about whatever input: ends the run where it does not hold. */
#define FUZZ_CHECK(condition)                                                                      \
    do                                                                                             \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    while (0)

/* The path of a file in memory, the same at each call, that holds `head` and then `data`. */
static inline const char *fuzz_file(const void *head, size_t head_size, const void *data,
                                    size_t size) {
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("input", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    FUZZ_CHECK(file >= 0 && ftruncate(file, 0) == 0 &&
               pwrite(file, head, head_size, 0) == (ssize_t)head_size &&
               pwrite(file, data, size, (off_t)head_size) == (ssize_t)size);
    return path;
}

#endif
