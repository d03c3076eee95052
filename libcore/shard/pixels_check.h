/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the pixels of shards with their checksums, on several threads.
 */
#ifndef CHEX_SHARD_PIXELS_CHECK_H
#define CHEX_SHARD_PIXELS_CHECK_H

#include <stddef.h>

#include "base/error.h"
#include "base/progress.h"
#include "shard/shard.h"

/* The damage of one shard's pixels. */
struct chex_pixel_fault {
    size_t rows;      /* number of damaged rows; 0: the pixels are intact */
    size_t first_row; /* the damaged row with the lowest number; `first` is its error */
    struct chex_error first;
};

/* Reads every row of the shards and compares it with its checksum.
 * - shards (count): at least one, none NULL, all with the same image size.
 * - progress (NULL allowed) counts rows; it starts at `done`.
 * - faults_out (count): all zeros before the call. Damaged pixels are reported here and are not a
 *   failure of the function.
 * - CHEX_E_ENV: a file cannot be read. */
enum chex_status chex_pixels_check(struct chex_shard *const *shards, size_t count, int threads,
                                   struct chex_progress *progress, size_t done,
                                   struct chex_pixel_fault *faults_out, struct chex_error *err);

#endif
