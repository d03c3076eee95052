/* SPDX-License-Identifier: Apache-2.0
 *
 * One zlib stream in memory whose inflated size is known beforehand, by the fastest library that
 * was built in (ISA-L, libdeflate, zlib), and the CRC-32 that PNG chunks carry.
 *
 * All or nothing: the answer is yes only for a whole stream with a right checksum, of exactly the
 * size expected, with nothing behind it. Whoever wants to know what was wrong asks another reader.
 */
#ifndef CHEX_DATA_INFLATE_H
#define CHEX_DATA_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The state of one library, for one thread; streams after the first allocate nothing. */
struct chex_inflate;

/* The libraries built in, from 0 on, the fastest first; NULL behind the last. zlib is always one of
 * them. */
const char *chex_inflate_name(int i);

/* NULL is the fastest. A name that is not in the list is CHEX_E_USAGE. */
enum chex_status chex_inflate_create(const char *name, struct chex_inflate **inflate_out,
                                     struct chex_error *err);
void chex_inflate_destroy(struct chex_inflate *inflate); /* NULL allowed */

/* False leaves `out` undefined. A stream is also refused when it has a preset dictionary, or says
 * a window smaller than both 32 KiB and out_size: there the libraries differ in what they take.
 * They also differ in which code tables that no compressor writes (incomplete, too many symbols)
 * they refuse; one that is taken has still passed its checksum. */
bool chex_inflate_run(struct chex_inflate *inflate, const uint8_t *data, size_t size, uint8_t *out,
                      size_t out_size);

uint32_t chex_crc32(const uint8_t *data, size_t size);

#endif
