/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32C by ISA-L, or by a table: one byte a step.
 */
#include "ingest/crc32c.h"

#include <limits.h>
#include <pthread.h>

#if CHEXNET_HAVE_ISAL
#include <isa-l.h>
#endif

/* The polynomial 0x1EDC6F41 with its bits in reverse order. */
static const uint32_t POLYNOMIAL = 0x82F63B78u;

static uint32_t table[256]; /* the CRC of each byte */

static void fill_table(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;
        for (int i = 0; i < 8; i++)
            c = c >> 1 ^ (c & 1 ? POLYNOMIAL : 0);
        table[b] = c;
    }
}

uint32_t chex_crc32c_table(const void *data, size_t bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *p = data;
    uint32_t c = UINT32_MAX;
    pthread_once(&once, fill_table);
    for (; bytes; p++, bytes--)
        c = c >> 8 ^ table[(c ^ *p) & 255];
    return ~c;
}

uint32_t chex_crc32c(const void *data, size_t bytes) {
#if CHEXNET_HAVE_ISAL
    /* ISA-L's length is an int. It does not complement the start and end value; we do. */
    if (bytes <= INT_MAX)
        return ~crc32_iscsi((unsigned char *)(uintptr_t)data, (int)bytes, UINT32_MAX);
#endif
    return chex_crc32c_table(data, bytes);
}

uint32_t chex_crc32c_masked(const void *data, size_t bytes) {
    uint32_t c = chex_crc32c(data, bytes);
    return (c >> 15 | c << 17) + 0xA282EAD8u;
}
