/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the text of a table (labels, predictions, published figures), plain or gzip-compressed.
 */
#ifndef CHEX_LABEL_TABLE_FILE_H
#define CHEX_LABEL_TABLE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Reads a whole file as text and adds a NUL. Unpacks gzip. The caller frees *text_out.
 * - limit: bytes of the file and of its text.
 * - CHEX_E_DATA: cannot be opened, larger than `limit`, damaged gzip, a zip file, UTF-16. */
enum chex_status chex_table_read(const char *path, uint64_t limit, char **text_out,
                                 size_t *size_out, struct chex_error *err);

#endif
