/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes numbers with units. Each parser accepts the whole string or fails.
 */
#ifndef CHEX_BASE_UNITS_H
#define CHEX_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All return false and leave *out unchanged for empty text, trailing text or a value out of range.
 */
bool chex_parse_i64(const char *text, int64_t *out);
bool chex_parse_u64(const char *text, uint64_t *out);
bool chex_parse_f64(const char *text, double *out); /* finite, decimal point, no locale */

/* "64K", "1.5G", "4096": K M G T are powers of 1024; an optional final B or iB. */
bool chex_parse_bytes(const char *text, uint64_t *out_bytes);

/* "500ms", "60s", "30m", "2h", "1d": the unit is required. */
bool chex_parse_duration(const char *text, uint64_t *out_ms);

/* Short forms for people: "1.5 GiB", "2.3 s", "3m20s". buf is returned. */
const char *chex_format_bytes(char *buf, size_t size, uint64_t bytes);
const char *chex_format_duration(char *buf, size_t size, double seconds);

#endif
