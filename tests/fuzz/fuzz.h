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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An expectation about whatever input: ends the run where it does not hold. */
#define FUZZ_CHECK(condition)                                                                      \
    do                                                                                             \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                       \
            abort();                                                                               \
        }                                                                                          \
    while (0)

#endif
