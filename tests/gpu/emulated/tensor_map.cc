/* SPDX-License-Identifier: Apache-2.0
 *
 * cuTensorMapEncodeTiled for two dimensions. It refuses what the driver's manual says it refuses.
 */
#include "tensor_map.h"

#include <cstdlib>
#include <cstring>

#include "include/cuda_runtime_api.h"

namespace {

CUresult encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *data,
                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                const cuuint32_t *steps, CUtensorMapInterleave interleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    const uint32_t bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
    const uint64_t most = (uint64_t)1 << 32;
    if ((uintptr_t)out % 64 || rank != 2 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        (uintptr_t)data % 16 || strides[0] % 16 || strides[0] >= (uint64_t)1 << 40)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 2; i++)
        if (sizes[i] < 1 || sizes[i] > most || box[i] < 1 || box[i] > 256 || steps[i] != 1)
            return CUDA_ERROR_INVALID_VALUE;
    if (strides[0] < sizes[0] * bytes || box[0] * bytes % 16 ||
        (swizzle && box[0] * bytes > 16u << swizzle))
        return CUDA_ERROR_INVALID_VALUE;
    const emulated::tensor_map map = {emulated::TENSOR_MAP_MAGIC,
                                      static_cast<char *>(data),
                                      sizes[0],
                                      sizes[1],
                                      strides[0],
                                      bytes,
                                      box[0],
                                      box[1],
                                      (uint32_t)swizzle};
    memset(out, 0, sizeof *out);
    memcpy(out, &map, sizeof map);
    return CUDA_SUCCESS;
}

} // namespace

extern "C" cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned, unsigned long long,
                                 enum cudaDriverEntryPointQueryResult *result) {
    const char *capability = getenv("EMULATED_GPU");
    const bool found =
        strcmp(symbol, "cuTensorMapEncodeTiled") == 0 && (!capability || atof(capability) >= 9.0);
    const auto entry = &encode;
    *function = nullptr;
    if (found)
        memcpy(function, &entry, sizeof entry);
    *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
