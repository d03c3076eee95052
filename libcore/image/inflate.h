/* SPDX-License-Identifier: Apache-2.0
 *
 * Inflates one zlib stream in memory with a known inflated size, and computes the CRC-32 of PNG
 * chunks. Uses the fastest library that was built in (ISA-L, libdeflate, zlib).
 *
 * The result is yes or no. Yes: the stream is complete, its checksum is right, the size is exactly
 * as expected and no bytes follow. No: there is no reason; the caller lets libpng find it.
 */
#ifndef CHEX_IMAGE_INFLATE_H
#define CHEX_IMAGE_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* State of one library for one thread. It allocates nothing after the first stream. */
struct chex_inflate;

/* Returns the name of library i (from 0, fastest first); NULL after the last. zlib is always built
 * in.
 */
const char *chex_inflate_name(int i);

/* name: a library, or NULL for the fastest. CHEX_E_USAGE: not in this build. */
enum chex_status chex_inflate_create(const char *name, struct chex_inflate **inflate_out,
                                     struct chex_error *err);
void chex_inflate_destroy(struct chex_inflate *inflate); /* NULL allowed */

/* Inflates data (size) to out (out_size). False: refused, and `out` is undefined.
 * - Also refused, because libraries differ here: a preset dictionary, and a stated window smaller
 *   than both 32 KiB and out_size.
 * - Libraries differ in the invalid code tables (incomplete, too many symbols) that they accept. No
 *   compressor writes such tables. An accepted stream always has a correct checksum. */
bool chex_inflate_run(struct chex_inflate *inflate, const uint8_t *data, size_t size, uint8_t *out,
                      size_t out_size);

uint32_t chex_crc32(const uint8_t *data, size_t size);

#endif
