/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector loads and stores: a run is V consecutive channels of a pixel. Runs are loaded and stored
 * in the map's type and converted to float for arithmetic. Addresses are aligned to the run's size,
 * at most to 16 bytes.
 */
#ifndef CHEX_ENGINE_CUDA_KERNELS_VECTOR_CUH
#define CHEX_ENGINE_CUDA_KERNELS_VECTOR_CUH

#include "engine/cuda/kernels/device.cuh"

template <class T, int V> struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) gpu_run {
    uint32_t word[sizeof(T) * V / 4];
};

template <int V, class T> __device__ __forceinline__ gpu_run<T, V> gpu_load_run(const T *from) {
    return *reinterpret_cast<const gpu_run<T, V> *>(from);
}

template <class T, int V>
__device__ __forceinline__ void gpu_store_run(T *to, const gpu_run<T, V> &run) {
    *reinterpret_cast<gpu_run<T, V> *>(to) = run;
}

template <class T, int V>
__device__ __forceinline__ void gpu_unpack_run(float *out, const gpu_run<T, V> &run) {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < V; i++)
            out[i] = __uint_as_float(run.word[i]);
    } else {
#pragma unroll
        for (int i = 0; i < V / 2; i++) {
            const float2 pair = gpu_unpack2<T>(run.word[i]);
            out[2 * i] = pair.x;
            out[2 * i + 1] = pair.y;
        }
    }
}

/* Rounds to T. */
template <class T, int V> __device__ __forceinline__ gpu_run<T, V> gpu_pack_run(const float v[V]) {
    gpu_run<T, V> run;
    if constexpr (sizeof(T) == 4) {
#pragma unroll
        for (int i = 0; i < V; i++)
            run.word[i] = __float_as_uint(v[i]);
    } else {
#pragma unroll
        for (int i = 0; i < V / 2; i++)
            run.word[i] = gpu_pack2<T>(v[2 * i], v[2 * i + 1]);
    }
    return run;
}

/* Load and convert, or convert and store, in one call. */
template <int V, class T>
__device__ __forceinline__ void gpu_read_run(float out[V], const T *from) {
    gpu_unpack_run(out, gpu_load_run<V>(from));
}
template <int V, class T> __device__ __forceinline__ void gpu_write_run(T *to, const float v[V]) {
    gpu_store_run(to, gpu_pack_run<T, V>(v));
}

/* Calls fn with a value of the C++ type of `type`. */
template <class F> static cudaError_t gpu_with_type(enum gpu_type type, F fn) {
    switch (type) {
    case GPU_F32: return fn(float());
    case GPU_BF16: return fn(gpu_bf16());
    case GPU_F16: return fn(gpu_f16());
    }
    return cudaErrorInvalidValue;
}
/* The same for a kernel of the 16-bit types only. */
template <class F> static cudaError_t gpu_with_16_bits(enum gpu_type type, F fn) {
    return type == GPU_BF16  ? fn(gpu_bf16())
           : type == GPU_F16 ? fn(gpu_f16())
                             : cudaErrorInvalidValue;
}

#endif
