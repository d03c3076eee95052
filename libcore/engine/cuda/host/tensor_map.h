/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps: what the bulk tensor copies of capability 9.0 (kernels/hopper_copy.cuh) know of a
 * matrix in device memory, and of the boxes in which they copy it. A kernel gets a map by value, in
 * a __grid_constant__ parameter.
 */
#ifndef CHEX_ENGINE_CUDA_HOST_TENSOR_MAP_H
#define CHEX_ENGINE_CUDA_HOST_TENSOR_MAP_H

#include <cuda.h>

#include "engine/cuda/host/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix in device memory; data and 16-bit rows are aligned to 16 bytes. */
struct gpu_tensor {
    void *data;
    enum gpu_type type;
    int64_t rows;
    int columns;
    int64_t pitch; /* elements between rows */
};

/* The pixels of a slice as rows, its channels as columns. */
static inline struct gpu_tensor gpu_tensor_of(const struct gpu_map *m) {
    struct gpu_tensor t = {m->data, m->type, gpu_map_pixels(m), m->channels, m->pitch};
    return t;
}

/* Order of a box in shared memory. Its rows follow each other. Within a row, 16-byte unit u of row
 * r is at unit u ^ (r & 7) with a swizzle of 128 bytes, u ^ (r >> 1 & 3) with 64, u ^ (r >> 2 & 1)
 * with 32. */
enum gpu_swizzle { GPU_SWIZZLE_NONE, GPU_SWIZZLE_32, GPU_SWIZZLE_64, GPU_SWIZZLE_128 };

/* Fills *out. Places of a box outside the matrix are read as zero and not written.
 *   - box_columns: with a swizzle exactly as many as it has bytes; else a multiple of 16 bytes.
 *   - box_columns and box_rows: at most 256.
 * Returns cudaErrorNotSupported if the driver has no tensor maps, cudaErrorInvalidValue if it
 * refuses this one. */
cudaError_t gpu_tensor_map(CUtensorMap *out, const struct gpu_tensor *tensor, int box_columns,
                           int box_rows, enum gpu_swizzle swizzle);

#ifdef __cplusplus
}
#endif
#endif
