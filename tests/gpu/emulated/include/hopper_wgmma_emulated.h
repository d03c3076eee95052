/* SPDX-License-Identifier: Apache-2.0
 *
 * The instructions of engine/cuda/kernels/hopper_wgmma.cuh on emulated warps; wgmma.cc has what
 * they do.
 */
#ifndef CHEX_TESTS_EMULATED_HOPPER_WGMMA_H
#define CHEX_TESTS_EMULATED_HOPPER_WGMMA_H

namespace emulated {

/* What a lane comes with. */
struct wgmma_call {
    int n;
    uint64_t a, b; /* descriptors */
    bool a_t, b_t, accumulate;
    float *d;                    /* n / 2 */
    const uint32_t *a_registers; /* 4; NULL: a is in shared memory */
    float2 (*unpack)(uint32_t);
};
void wgmma(const wgmma_call &call);
void wgmma_fence();
void wgmma_commit();
void wgmma_wait(int groups_left);
uint64_t wgmma_matrix(const void *shared, unsigned leading, unsigned stride, int swizzle);
void set_registers(int count, bool more);

} // namespace emulated

static inline void gpu_wgmma_fence() { emulated::wgmma_fence(); }
static inline void gpu_wgmma_commit() { emulated::wgmma_commit(); }
template <int N> inline void gpu_wgmma_wait() { emulated::wgmma_wait(N); }

static inline uint64_t gpu_matrix(const void *shared, unsigned leading, unsigned stride,
                                  int swizzle) {
    return emulated::wgmma_matrix(shared, leading, stride, swizzle);
}

template <class T, int N, bool A_T, bool B_T>
inline void gpu_wgmma(float *d, uint64_t a, uint64_t b, bool accumulate) {
    static_assert(N == 32 || N == 64 || N == 128, "see the declaration");
    emulated::wgmma({N, a, b, A_T, B_T, accumulate, d, nullptr, gpu_unpack2<T>});
}
template <class T, int N, bool B_T>
inline void gpu_wgmma_a(float *d, const uint32_t a[4], uint64_t b, bool accumulate) {
    static_assert(N == 32 || N == 64 || N == 128, "see the declaration");
    emulated::wgmma({N, 0, b, false, B_T, accumulate, d, a, gpu_unpack2<T>});
}

template <int N> inline void gpu_registers_more() {
    static_assert(N % 8 == 0 && N >= 24 && N <= 240, "see the declaration");
    emulated::set_registers(N, true);
}
template <int N> inline void gpu_registers_fewer() {
    static_assert(N % 8 == 0 && N >= 24 && N <= 240, "see the declaration");
    emulated::set_registers(N, false);
}

#endif
