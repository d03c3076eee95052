/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32C (Castagnoli), the checksum in TFRecord and TensorBoard files.
 */
#ifndef CHEX_INGEST_CRC32C_H
#define CHEX_INGEST_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Uses ISA-L if chexnet was built with it (it selects the CPU's instructions), else the table. */
uint32_t chex_crc32c(const void *data, size_t bytes);

/* The masked CRC as stored in TFRecord and TensorBoard files: rotated right by 15 bits, plus
 * 0xA282EAD8. The mask avoids special values when data that contains a CRC is checksummed. */
uint32_t chex_crc32c_masked(const void *data, size_t bytes);

/* The table implementation: the reference that tests compare ISA-L with. */
uint32_t chex_crc32c_table(const void *data, size_t bytes);

#endif
