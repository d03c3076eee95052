/* SPDX-License-Identifier: Apache-2.0
 *
 * Raw batches: stored rows are uploaded as bytes, and the device crops and augments them. Bytes
 * need a quarter of the transfer of fp32 pixels.
 *
 * Resident rows. If all rows of this process fit in the free device memory, each row is uploaded
 * once, with the first batch that contains it, to its final place. Later batches upload only crops
 * and row numbers.
 *
 * This memory is not part of the arena. It is allocated at set-up, when the size of stored rows is
 * known. If the rows do not fit, they are uploaded batch by batch; this is not an error.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/units.h"
#include "engine/cuda/host/cuda_engine.h"
#include "input/augment.h"

/* Additional free memory that resident rows must leave, bytes. A guess: not measured. */
enum { ROWS_RESERVE = 1 << 30 };

static size_t slot_bytes(int batch, size_t row_bytes) {
    const size_t n = (size_t)batch;
    return cuda_padded(n * row_bytes) + cuda_padded(n * sizeof(struct gpu_crop)) +
           cuda_padded(n * sizeof(float));
}

size_t chex_cuda_slots_bytes(const struct cuda_engine *e, int batch) {
    return e->raw.staging ? CUDA_SLOTS * slot_bytes(batch, e->raw.row_bytes) : 0;
}

bool chex_cuda_takes_raw(void *self, int stored_px) {
    const struct cuda_engine *e = self;
    return gpu_augment_shared(stored_px, e->config.image_size) <= e->device.shared_max;
}

/* ---- set-up ---- */

static enum chex_status alloc_slots(struct cuda_engine *e, struct chex_error *err) {
    const size_t n = (size_t)e->config.batch, each = slot_bytes(e->config.batch, e->raw.row_bytes);
    CHEX_CUDA(cudaMalloc((void **)&e->raw.staging, CUDA_SLOTS * each));
    e->raw.bytes += CUDA_SLOTS * each;
    for (int i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *s = &e->slots[i];
        char *at = e->raw.staging + (size_t)i * each;
        s->stored = (uint8_t *)at;
        s->crops = (struct gpu_crop *)(at + cuda_padded(n * e->raw.row_bytes));
        s->shifts = (float *)((char *)s->crops + cuda_padded(n * sizeof *s->crops));
        CHEX_CUDA(cudaMallocHost((void **)&s->stored_host, n * e->raw.row_bytes));
        CHEX_CUDA(cudaMallocHost((void **)&s->crops_host, n * sizeof *s->crops_host));
    }
    return CHEX_OK;
}

/* Allocates the memory for resident rows. False: out of memory; another process may have taken it.
 */
static bool alloc_rows(struct cuda_engine *e, const struct chex_resident_request *make_resident) {
    const size_t rows = make_resident->end - make_resident->first;
    e->raw.uploaded = chex_alloc_zeroed(rows, sizeof *e->raw.uploaded);
    if (!e->raw.uploaded)
        return false;
    if (cudaMalloc((void **)&e->raw.resident, rows * e->raw.row_bytes) != cudaSuccess) {
        cudaGetLastError(); /* clear the error, or a later launch reports it */
        return false;
    }
    e->raw.bytes += rows * e->raw.row_bytes;
    e->raw.first = make_resident->first;
    e->raw.end = make_resident->end;
    return true;
}

static size_t subtract_or_zero(size_t from, size_t bytes) {
    return from > bytes ? from - bytes : 0;
}

/* Makes the rows of this process resident if they fit; writes the decision to out. */
static void resident_rows(struct cuda_engine *e, const struct chex_resident_request *make_resident,
                          size_t free_bytes, struct chex_resident_result *out) {
    const size_t rows = make_resident->end - make_resident->first,
                 left = subtract_or_zero(free_bytes, ROWS_RESERVE);
    char need[32], left_text[32];
    chex_format_bytes(need, sizeof need, rows * e->raw.row_bytes);
    chex_format_bytes(left_text, sizeof left_text, left);
    out->resident = rows <= left / e->raw.row_bytes && alloc_rows(e, make_resident);
    snprintf(out->why, sizeof out->why,
             out->resident
                 ? "%s of rows stay in GPU memory from their first batch on: they fit the %s "
                   "that is left"
                 : "%s of rows are uploaded batch by batch: %s of GPU memory is left for them",
             need, left_text);
}

enum chex_status chex_cuda_make_resident(void *self,
                                         const struct chex_resident_request *make_resident,
                                         struct chex_resident_result *out, struct chex_error *err) {
    struct cuda_engine *e = self;
    const size_t row_bytes = (size_t)make_resident->stored_px * (size_t)make_resident->stored_px;
    const size_t slots = CUDA_SLOTS * slot_bytes(e->config.batch, row_bytes);
    size_t free_bytes, total_bytes;
    if (e->raw.staging)
        return chex_error_set(err, CHEX_E_FAIL, "engine cuda: prepared for raw batches twice");
    *out = (struct chex_resident_result){.raw = false};
    CHEX_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    const size_t left = subtract_or_zero(free_bytes, slots + cuda_reserve_bytes(e));
    if (!left) {
        snprintf(out->why, sizeof out->why,
                 "images are augmented on the CPU: no GPU memory is left for stored rows");
        return CHEX_OK;
    }
    e->raw.row_bytes = row_bytes;
    e->raw.stored_px = make_resident->stored_px;
    CHEX_TRY(alloc_slots(e, err));
    out->raw = true;
    if (make_resident->end > make_resident->first)
        resident_rows(e, make_resident, left, out);
    return CHEX_OK;
}

void chex_cuda_input_release(struct cuda_engine *e) {
    for (int i = 0; i < CUDA_SLOTS; i++) {
        cudaFreeHost(e->slots[i].stored_host);
        cudaFreeHost(e->slots[i].crops_host);
    }
    cudaFree(e->raw.staging);
    cudaFree(e->raw.resident);
    free(e->raw.uploaded);
}

/* ---- batches ---- */

static enum chex_status check_raw(const struct cuda_engine *e, const struct chex_batch *b,
                                  struct chex_error *err) {
    const size_t row_bytes = (size_t)b->stored_px * (size_t)b->stored_px;
    if (!e->raw.staging || row_bytes > e->raw.row_bytes)
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine cuda: raw batch: rows of %d px (expected %d px)",
                              b->stored_px, e->raw.stored_px);
    if (b->rows && (!e->raw.resident || b->stored_px != e->raw.stored_px))
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine cuda: raw batch: row numbers, but rows are not resident");
    if (b->stored_count < 0 || b->stored_count > b->n || (!b->rows && b->stored_count != b->n))
        return chex_error_set(err, CHEX_E_FAIL,
                              "engine cuda: raw batch: %d stored rows for %d images",
                              b->stored_count, b->n);
    for (int i = 0; b->rows && i < b->n; i++)
        if (b->rows[i] < e->raw.first || b->rows[i] >= e->raw.end)
            return chex_error_set(err, CHEX_E_FAIL,
                                  "engine cuda: raw batch: row %zu is out of range (%zu to %zu)",
                                  b->rows[i], e->raw.first, e->raw.end);
    return CHEX_OK;
}

/* Uploads the rows of the batch to their final places; one copy for each run of consecutive rows.
 */
static enum chex_status send_to_places(struct cuda_engine *e, const struct cuda_slot *s,
                                       const struct chex_batch *b, struct chex_error *err) {
    const size_t bytes = e->raw.row_bytes;
    for (int k = 0, run; k < b->stored_count; k += run) {
        const size_t row = b->rows[b->places[k]] - e->raw.first;
        for (run = 1; k + run < b->stored_count; run++)
            if (b->rows[b->places[k + run]] - e->raw.first != row + (size_t)run)
                break;
        CHEX_CUDA(cudaMemcpyAsync(e->raw.resident + row * bytes, s->stored_host + (size_t)k * bytes,
                                  (size_t)run * bytes, cudaMemcpyHostToDevice, e->uploads));
        memset(e->raw.uploaded + row, true, (size_t)run * sizeof *e->raw.uploaded);
    }
    return CHEX_OK;
}

static enum chex_status make_crops(const struct cuda_engine *e, struct cuda_slot *s,
                                   const struct chex_batch *b, struct chex_error *err) {
    const size_t bytes = (size_t)b->stored_px * (size_t)b->stored_px;
    s->contrast = false;
    for (int i = 0; i < b->n; i++) {
        const size_t at = b->rows ? b->rows[i] - e->raw.first : (size_t)i;
        if (b->rows && !e->raw.uploaded[at])
            return chex_error_set(err, CHEX_E_FAIL,
                                  "engine cuda: raw batch: row %zu was never uploaded", b->rows[i]);
        s->crops_host[i] = gpu_crop_of(&b->crops[i], at * bytes);
        s->contrast = s->contrast || s->crops_host[i].contrast;
    }
    return CHEX_OK;
}

enum chex_status chex_cuda_send_raw(struct cuda_engine *e, struct cuda_slot *s,
                                    const struct chex_batch *b, struct chex_error *err) {
    CHEX_TRY(check_raw(e, b, err));
    const size_t bytes = (size_t)b->stored_count * (size_t)b->stored_px * (size_t)b->stored_px;
    if (bytes)
        memcpy(s->stored_host, b->stored, bytes);
    if (b->rows)
        CHEX_TRY(send_to_places(e, s, b, err));
    else
        CHEX_CUDA(
            cudaMemcpyAsync(s->stored, s->stored_host, bytes, cudaMemcpyHostToDevice, e->uploads));
    CHEX_TRY(make_crops(e, s, b, err));
    CHEX_CUDA(cudaMemcpyAsync(s->crops, s->crops_host, (size_t)b->n * sizeof *s->crops,
                              cudaMemcpyHostToDevice, e->uploads));
    return CHEX_OK;
}

enum chex_status chex_cuda_make_pixels(struct cuda_engine *e, const struct cuda_slot *s,
                                       const struct chex_batch *b, struct chex_error *err) {
    CHEX_CUDA(gpu_augment(b->rows ? e->raw.resident : s->stored, s->crops, b->n, b->stored_px,
                          e->config.image_size, s->contrast, s->shifts, s->pixels, e->stream));
    return CHEX_OK;
}
