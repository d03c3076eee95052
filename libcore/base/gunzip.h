/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a gzip file as a stream of blocks. Every checksum and length is checked. Several gzip
 * members in a row form one stream; zeros after the last member are padding.
 */
#ifndef CHEX_BASE_GUNZIP_H
#define CHEX_BASE_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct chex_gunzip;

/* Reads fd from offset 0 with pread. The caller keeps fd open and closes it. `portable`: use zlib
 * even if ISA-L is built in (for tests; both give the same bytes and errors). */
enum chex_status chex_gunzip_open(int fd, bool portable, struct chex_gunzip **gz_out,
                                  struct chex_error *err);
void chex_gunzip_close(struct chex_gunzip *gz); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_gunzip, chex_gunzip_close)

/* Returns the next block, valid until the next call; 0 bytes at the end of the stream. CHEX_E_DATA:
 * the text gives the fault and its byte in the file, without the file name. Bytes before a fault
 * are returned first. */
enum chex_status chex_gunzip_read(struct chex_gunzip *gz, const uint8_t **data_out,
                                  size_t *bytes_out, struct chex_error *err);

#endif
