/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts grey images to the network's input: three normalised channels, padded with zeros to 4 or
 * 8 so that a pixel is one vector. One thread writes one pixel. (grey - mean) / std is computed in
 * fp32 and rounded to the map's type.
 */
#include "engine/cuda/kernels/vector.cuh"

namespace {

struct affine {
    float mean[3], std[3];
};

template <class T, int V>
__global__ void __launch_bounds__(256)
    image_kernel(const float *grey, affine by, T *out, int64_t pitch, int64_t pixels) {
    gpu_begin();
    const int64_t p = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels)
        return;
    const float x = grey[p];
    float v[V] = {};
#pragma unroll
    for (int c = 0; c < 3; c++)
        v[c] = __fdiv_rn(__fsub_rn(x, by.mean[c]), by.std[c]);
    gpu_write_run<V>(out + p * pitch, v);
}

template <int V>
cudaError_t image(const float *grey, const affine &by, const gpu_map &out, cudaStream_t stream) {
    const int64_t pixels = gpu_map_pixels(&out);
    return gpu_with_type(out.type, [&](auto t) {
        using T = decltype(t);
        return CHEX_LAUNCH((image_kernel<T, V>), dim3((unsigned)((pixels + 255) / 256)), dim3(256),
                           0, stream, grey, by, static_cast<T *>(out.data), out.pitch, pixels);
    });
}

} // namespace

extern "C" cudaError_t gpu_image(const float *grey, const float mean[3], const float std[3],
                                 const struct gpu_map *out, cudaStream_t stream) {
    affine by;
    for (int c = 0; c < 3; c++) {
        by.mean[c] = mean[c];
        by.std[c] = std[c];
    }
    switch (out->channels) {
    case 4: return image<4>(grey, by, *out, stream);
    case 8: return image<8>(grey, by, *out, stream);
    }
    return cudaErrorInvalidValue;
}
