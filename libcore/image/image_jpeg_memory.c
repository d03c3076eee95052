/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory manager of image_jpeg_memory.h.
 *
 * libjpeg allocates objects of two lifetimes. Here both end with the image, and all objects are
 * freed together. Invariants that libjpeg-turbo relies on:
 * - blocks are aligned for vector loads;
 * - rows of samples are padded, so that a vector store beyond the last sample changes nothing else;
 * - rows of a whole-image array with pre_zero are zero at the first access.
 */
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>
#include <string.h>

#include "image/image_jpeg_memory.h"

enum { ALIGN = 64, CHUNK_BYTES = 64 << 10, SMALL_BYTES = 4 << 10 };

struct jvirt_barray_control {
    JBLOCKARRAY rows;
    JDIMENSION row_count, row_blocks;
    JDIMENSION zeroed; /* rows [0, zeroed) have been set to 0 */
    boolean pre_zero;
};

static size_t round_up(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

_Noreturn static void fail(j_common_ptr jpeg) {
    jpeg->err->msg_code = JERR_OUT_OF_MEMORY;
    jpeg->err->msg_parm.i[0] = 0;
    jpeg->err->error_exit(jpeg);
    __builtin_unreachable();
}

static void *alloc_block(j_common_ptr jpeg, size_t bytes) {
    struct chex_jpeg_memory *m = jpeg->client_data;
    if (bytes > CHEX_JPEG_MAX_BYTES - m->bytes || m->block_count == CHEX_JPEG_MEMORY_BLOCKS) {
        m->over_limit = true;
        fail(jpeg);
    }
    uint8_t *block = chex_image_block_alloc(m->reader, bytes + ALIGN);
    if (!block)
        fail(jpeg);
    m->blocks[m->block_count++] = block;
    m->bytes += bytes;
    return block + (ALIGN - (uintptr_t)block % ALIGN) % ALIGN;
}

static void *alloc(j_common_ptr jpeg, int pool, size_t bytes) {
    struct chex_jpeg_memory *m = jpeg->client_data;
    (void)pool;
    bytes = round_up(bytes);
    if (bytes > SMALL_BYTES)
        return alloc_block(jpeg, bytes);
    if (bytes > m->chunk_left) {
        m->chunk = alloc_block(jpeg, CHUNK_BYTES);
        m->chunk_left = CHUNK_BYTES;
    }
    uint8_t *object = m->chunk;
    m->chunk += bytes;
    m->chunk_left -= bytes;
    return object;
}

/* Allocates `rows` rows in one block, and the array of pointers to them. Sides are below 2^16 and
 * elements at most 128 bytes, so 64-bit sizes cannot overflow. alloc() refuses sizes over the
 * limit. */
static void **alloc_rows(j_common_ptr jpeg, int pool, size_t row_bytes, JDIMENSION rows) {
    void **array = alloc(jpeg, pool, rows * sizeof *array);
    row_bytes = round_up(row_bytes);
    uint8_t *data = alloc(jpeg, pool, row_bytes * rows);
    for (JDIMENSION y = 0; y < rows; y++)
        array[y] = data + y * row_bytes;
    return array;
}

static JSAMPARRAY alloc_sarray(j_common_ptr jpeg, int pool, JDIMENSION samples, JDIMENSION rows) {
    return (JSAMPARRAY)alloc_rows(jpeg, pool, samples * sizeof(JSAMPLE), rows);
}

static JBLOCKARRAY alloc_barray(j_common_ptr jpeg, int pool, JDIMENSION blocks, JDIMENSION rows) {
    return (JBLOCKARRAY)alloc_rows(jpeg, pool, blocks * sizeof(JBLOCK), rows);
}

/* Allocates the coefficients of a whole image, for progressive files. All rows stay in memory;
 * there is no backing store on disk. */
static jvirt_barray_ptr request_barray(j_common_ptr jpeg, int pool, boolean pre_zero,
                                       JDIMENSION blocks, JDIMENSION rows, JDIMENSION max_access) {
    struct jvirt_barray_control *array = alloc(jpeg, pool, sizeof *array);
    (void)max_access;
    *array = (struct jvirt_barray_control){alloc_barray(jpeg, pool, blocks, rows), rows, blocks, 0,
                                           pre_zero};
    return array;
}

static void realize_arrays(j_common_ptr jpeg) { (void)jpeg; }

static JBLOCKARRAY access_barray(j_common_ptr jpeg, jvirt_barray_ptr array, JDIMENSION first,
                                 JDIMENSION rows, boolean writable) {
    (void)writable;
    if (rows > array->row_count || first > array->row_count - rows)
        ERREXIT(jpeg, JERR_BAD_VIRTUAL_ACCESS);
    for (; array->pre_zero && array->zeroed < first + rows; array->zeroed++)
        memset(array->rows[array->zeroed], 0, array->row_blocks * sizeof(JBLOCK));
    return array->rows + first;
}

static void free_pool(j_common_ptr jpeg, int pool) { (void)jpeg, (void)pool; }

void chex_jpeg_memory_attach(struct chex_jpeg_memory *memory, struct jpeg_decompress_struct *jpeg) {
    struct jpeg_memory_mgr *mgr = jpeg->mem;
    jpeg->client_data = memory;
    /* Not replaced: the functions for whole-image sample arrays, which only colour quantisation
     * uses, and self_destruct, which frees the objects that were allocated before this call. */
    mgr->alloc_small = alloc;
    mgr->alloc_large = alloc;
    mgr->alloc_sarray = alloc_sarray;
    mgr->alloc_barray = alloc_barray;
    mgr->request_virt_barray = request_barray;
    mgr->realize_virt_arrays = realize_arrays;
    mgr->access_virt_barray = access_barray;
    mgr->free_pool = free_pool;
}

void chex_jpeg_memory_release(struct chex_jpeg_memory *memory) {
    for (int i = 0; i < memory->block_count; i++)
        chex_image_block_free(memory->reader, memory->blocks[i]);
    *memory = (struct chex_jpeg_memory){.reader = memory->reader};
}
