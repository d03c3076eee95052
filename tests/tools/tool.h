/* SPDX-License-Identifier: Apache-2.0
 *
 * How the programs here end: with the text and the status of the first call that fails.
 */
#ifndef CHEX_TESTS_TOOLS_TOOL_H
#define CHEX_TESTS_TOOLS_TOOL_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

static inline void must(enum chex_status st, const struct chex_error *err) {
    if (st == CHEX_OK)
        return;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, err->text);
    exit((int)st);
}

/* For what has no status of its own. */
static inline void need(bool held, enum chex_status st, const char *what, const char *why) {
    if (held)
        return;
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    exit((int)st);
}

static inline void *take(size_t count, size_t bytes) {
    void *p = chex_alloc_zeroed(count, bytes);
    need(p, CHEX_E_RESOURCE, "memory", "out of memory");
    return p;
}

static inline FILE *open_output(const char *path) {
    FILE *to = fopen(path, "wb");
    need(to, CHEX_E_RESOURCE, path, "cannot write");
    return to;
}
static inline void put(const void *bytes, size_t size, FILE *to) {
    need(fwrite(bytes, 1, size, to) == size, CHEX_E_RESOURCE, "the output", "cannot write");
}
static inline void close_output(FILE *to) {
    need(fclose(to) == 0, CHEX_E_RESOURCE, "the output", "cannot write");
}

#endif
