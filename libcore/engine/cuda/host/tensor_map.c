/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps by the driver's encoder. It is looked up in the driver that the runtime has loaded,
 * so the module still loads on machines without one.
 */
#include "engine/cuda/host/tensor_map.h"

#include <stdatomic.h>
#include <string.h>

enum { LEAST_CUDA = 12000 }; /* cuTensorMapEncodeTiled's first version */

typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                              const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                              const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static encode_fn find_encoder(void) {
    static _Atomic(encode_fn) found;
    encode_fn f = atomic_load(&found);
    enum cudaDriverEntryPointQueryResult result;
    void *entry = NULL;
    if (!f &&
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, LEAST_CUDA,
                                         cudaEnableDefault, &result) == cudaSuccess &&
        result == cudaDriverEntryPointSuccess) {
        memcpy(&f, &entry, sizeof f); /* C has no cast from a data pointer */
        atomic_store(&found, f);
    }
    return f;
}

static CUtensorMapDataType type_of(enum gpu_type type) {
    return type == GPU_F32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
           : type == GPU_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                             : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

cudaError_t gpu_tensor_map(CUtensorMap *out, const struct gpu_tensor *tensor, int box_columns,
                           int box_rows, enum gpu_swizzle swizzle) {
    static const CUtensorMapSwizzle swizzles[] = {
        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_64B,
        CU_TENSOR_MAP_SWIZZLE_128B};
    const cuuint64_t sizes[2] = {(cuuint64_t)tensor->columns, (cuuint64_t)tensor->rows};
    const cuuint64_t strides[1] = {(cuuint64_t)tensor->pitch * gpu_type_bytes(tensor->type)};
    const cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows};
    const cuuint32_t steps[2] = {1, 1};
    const encode_fn encode = find_encoder();
    if (!encode)
        return cudaErrorNotSupported;
    return encode(out, type_of(tensor->type), 2, tensor->data, sizes, strides, box, steps,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzles[swizzle],
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorInvalidValue;
}
