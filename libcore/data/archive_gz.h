/* SPDX-License-Identifier: Apache-2.0
 *
 * A gzip file as a stream of blocks: every checksum and length is checked, several gzip members
 * behind each other are one stream, zeros behind the last are padding.
 */
#ifndef CHEX_DATA_ARCHIVE_GZ_H
#define CHEX_DATA_ARCHIVE_GZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct chex_gunzip;

/* Reads fd from offset 0 on with pread; fd stays the caller's and must stay open. `portable`: zlib
 * even where ISA-L is built in (for tests: both give the same bytes and verdicts). */
enum chex_status chex_gunzip_open(int fd, bool portable, struct chex_gunzip **gz_out,
                                  struct chex_error *err);
void chex_gunzip_close(struct chex_gunzip *gz); /* NULL allowed */

/* The next block, valid until the next call; 0 bytes at the end of the whole stream. CHEX_E_DATA
 * says what is wrong and at which byte of the file, without the file's name. Bytes that came before
 * a fault are given before it is. */
enum chex_status chex_gunzip_read(struct chex_gunzip *gz, const uint8_t **data_out,
                                  size_t *bytes_out, struct chex_error *err);

#endif
