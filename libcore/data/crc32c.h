/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32C (Castagnoli), as TFRecord files carry it.
 */
#ifndef CHEX_DATA_CRC32C_H
#define CHEX_DATA_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* By ISA-L where it is built in (its own choice of instructions), else by table. */
uint32_t chex_crc32c(const void *data, size_t bytes);

/* As TFRecords and TensorBoard's files hold it: the CRC turned right by 15 bits, plus a constant,
 * so that the CRC of data that holds a CRC is no special value. */
uint32_t chex_crc32c_masked(const void *data, size_t bytes);

/* The definition, by table: what the other form is tested against. */
uint32_t chex_crc32c_table(const void *data, size_t bytes);

#endif
