/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast a file system takes and gives bytes: written with an fsync behind them, read past the
 * page cache where it can be done.
 */
#ifndef CHEX_CHECK_STORAGE_H
#define CHEX_CHECK_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct chex_write_rate {
    double bytes_per_s; /* one stream, its fsync included */
    double sync_s;      /* median of small writes with an fdatasync behind each */
};

/* Writes `bytes` bytes that do not compress, or what goes into `seconds`, to a file of `dir` that
 * has no name (or loses it at once, where the file system has no such files): nothing stays, not
 * even when this process is killed. CHEX_E_RESOURCE for a full disk or quota, CHEX_E_NODE for an
 * I/O error, CHEX_E_ENV for all else. */
enum chex_status chex_storage_write(const char *dir, uint64_t bytes, double seconds,
                                    struct chex_write_rate *out, struct chex_error *err);

struct chex_read_rate {
    double bytes_per_s;
    uint64_t bytes;
    bool
        cached; /* the page cache could not be gone past; its pages of the file were let go first */
};

/* Reads the file from its start, by four threads with 4 MiB each, for `seconds` at most.
 * CHEX_E_NODE for an I/O error, CHEX_E_ENV for all else. */
enum chex_status chex_storage_read(const char *path, double seconds, struct chex_read_rate *out,
                                   struct chex_error *err);

/* Lets the page cache forget the file, as far as it does. */
void chex_storage_forget(const char *path);

#endif
