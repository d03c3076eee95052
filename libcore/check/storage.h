/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how fast a file system writes and reads. Writes include an fsync. Reads bypass the page
 * cache if the file system allows it.
 */
#ifndef CHEX_CHECK_STORAGE_H
#define CHEX_CHECK_STORAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Opens a new file without a name in `dir` for writing, so that a process that is killed leaves
 * nothing. Returns -1 and sets errno on error. */
int chex_storage_open_nameless(const char *dir);

struct chex_write_rate {
    double bytes_per_s;               /* one stream with its fsync, median of several */
    double sync_s;                    /* small write with fdatasync, median */
    double bytes_spread, sync_spread; /* chex_spread; 0: written once */
};

/* Writes streams of up to `bytes` incompressible bytes to a file in `dir`, for about `seconds`.
 * - The file has no name (O_TMPFILE, or an immediate unlink), so nothing remains, even if this
 * process is killed.
 * - CHEX_E_RESOURCE: full disk or quota. CHEX_E_NODE: I/O error. CHEX_E_ENV: any other error. */
enum chex_status chex_storage_write(const char *dir, uint64_t bytes, double seconds,
                                    struct chex_write_rate *out, struct chex_error *err);

struct chex_read_rate {
    double bytes_per_s;
    uint64_t bytes;
    bool cached; /* O_DIRECT is not supported; the cached pages of the file were dropped first */
};

/* Reads the file from its start, for at most `seconds`, with four threads and blocks of 4 MiB.
 * CHEX_E_NODE: I/O error. CHEX_E_ENV: any other error. */
enum chex_status chex_storage_read(const char *path, double seconds, struct chex_read_rate *out,
                                   struct chex_error *err);

/* Asks the kernel to drop the cached pages of the file. Best effort. */
void chex_storage_forget(const char *path);

#endif
