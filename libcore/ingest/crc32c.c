/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32C by ISA-L or by table. The table version uses slicing-by-8 (Kounavis and Berry, "A
 * Systematic Approach to Building High Performance Software-Based CRC Generators", 2005): 8 bytes
 * per step.
 */
#include "ingest/crc32c.h"

#include <limits.h>
#include <pthread.h>

#if CHEXNET_HAVE_ISAL
#include <isa-l.h>
#endif

/* The polynomial 0x1EDC6F41 with its bits in reverse order. */
static const uint32_t POLYNOMIAL = 0x82F63B78u;

/* tables[k][b] is the CRC of byte b followed by k zero bytes. */
static uint32_t tables[8][256];

static void fill_tables(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t c = b;
        for (int i = 0; i < 8; i++)
            c = c >> 1 ^ (c & 1 ? POLYNOMIAL : 0);
        tables[0][b] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 255];
}

uint32_t chex_crc32c_table(const void *data, size_t bytes) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const uint8_t *p = data;
    uint32_t c = UINT32_MAX;
    pthread_once(&once, fill_tables);
    for (; bytes >= 8; p += 8, bytes -= 8)
        c = tables[7][(c ^ p[0]) & 255] ^ tables[6][(c >> 8 ^ p[1]) & 255] ^
            tables[5][(c >> 16 ^ p[2]) & 255] ^ tables[4][c >> 24 ^ p[3]] ^ tables[3][p[4]] ^
            tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
    for (; bytes; p++, bytes--)
        c = c >> 8 ^ tables[0][(c ^ *p) & 255];
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
