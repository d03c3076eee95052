/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs that print tables of simulations share.
 */
#ifndef CHEX_TESTS_BENCH_BENCH_H
#define CHEX_TESTS_BENCH_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static inline void check(enum chex_status st, const struct chex_error *err) {
    if (st == CHEX_OK)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

/* The number after `name` on the command line; `usual` without it. */
static inline uint32_t option(int argc, char **argv, const char *name, uint32_t usual) {
    for (int i = 1; i + 1 < argc; i += 2)
        if (strcmp(argv[i], name) == 0)
            return (uint32_t)strtoul(argv[i + 1], NULL, 10);
    return usual;
}

#endif
