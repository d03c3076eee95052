/* SPDX-License-Identifier: Apache-2.0
 *
 * The instructions of engine/cuda/kernels/device.cuh on emulated warps. Fragment layouts: PTX ISA,
 * "Matrix fragments for mma.m16n8k16" and "ldmatrix".
 */
#ifndef CHEX_TESTS_EMULATED_INSTRUCTIONS_H
#define CHEX_TESTS_EMULATED_INSTRUCTIONS_H

#define gpu_begin() emulated::begin_kernel(__func__)

namespace emulated {

/* arg: matrices, + 8 where transposed. Lane l gets elements (row l / 4, columns 2 (l % 4), + 1) of
 * each matrix. */
EMULATED_UNSEEN inline void ldmatrix_apply(const void *const in[32], void *const out[32],
                                           unsigned present, int arg) {
    if (present != 0xffffffffu) {
        fprintf(stderr, "emulated: ldmatrix without all 32 lanes\n");
        abort();
    }
    const int count = arg & 7;
    for (int m = 0; m < count; m++) {
        const uint16_t *rows[8];
        for (int r = 0; r < 8; r++) {
            rows[r] = *static_cast<const uint16_t *const *>(in[8 * m + r]);
            if ((uintptr_t)rows[r] % 16) {
                fprintf(stderr, "emulated: ldmatrix of an unaligned row\n");
                abort();
            }
        }
        for (int l = 0; l < 32; l++) {
            const int r = l / 4, c = 2 * (l % 4);
            uint32_t lo, hi;
            if (arg & 8) {
                lo = rows[c][r];
                hi = rows[c + 1][r];
            } else {
                lo = rows[r][c];
                hi = rows[r][c + 1];
            }
            static_cast<uint32_t *>(out[l])[m] = lo | hi << 16;
        }
    }
}

/* EMULATED_MMA=truncate: sums as tensor cores are known to make them ("Numerical behavior of NVIDIA
 * tensor cores", Fasi, Higham, Mikaitis and Pranesh 2021): products exact, all terms cut off at one
 * bit below the last of the largest, and the sum towards zero. Unset: one fp32 rounding a term. */
extern bool mma_truncates;
inline float mma_truncated(float d, const float *a, const float *b, int stride) {
    float term[17], largest = fabsf(d);
    term[16] = d;
    for (int k = 0; k < 16; k++) {
        term[k] = a[k] * b[k * stride]; /* exact: at most 22 bits */
        largest = fabsf(term[k]) > largest ? fabsf(term[k]) : largest;
    }
    bool finite = largest <= 3.4e38f;
    for (int k = 0; k < 17; k++)
        finite = finite && term[k] == term[k];
    if (!finite || largest == 0) {
        for (int k = 0; k < 16; k++)
            d += term[k];
        return d;
    }
    const int last = ilogbf(largest) - 24; /* 2^last: what is kept of a term */
    int64_t sum = 0;
    for (int k = 0; k < 17; k++)
        sum += (int64_t)ldexp((double)term[k], -last);
    int more = 0;
    while ((sum < 0 ? -sum : sum) >> more >= 1 << 24)
        more++;
    return (float)ldexp((double)(sum < 0 ? -(-sum >> more) : sum >> more), last + more);
}

struct mma_in {
    uint32_t a[4], b[2];
    float d[4];
};

template <class T>
EMULATED_UNSEEN void mma_apply(const void *const in[32], void *const out[32], unsigned present,
                               int) {
    if (present != 0xffffffffu) {
        fprintf(stderr, "emulated: mma without all 32 lanes\n");
        abort();
    }
    float a[16][16], b[16][8], d[16][8];
    for (int l = 0; l < 32; l++) {
        const mma_in *f = static_cast<const mma_in *>(in[l]);
        const int r = l / 4, c = 2 * (l % 4);
        for (int k = 0; k < 4; k++) {
            const float2 v = gpu_unpack2<T>(f->a[k]);
            a[r + 8 * (k & 1)][c + 8 * (k >> 1)] = v.x;
            a[r + 8 * (k & 1)][c + 8 * (k >> 1) + 1] = v.y;
        }
        for (int k = 0; k < 2; k++) {
            const float2 v = gpu_unpack2<T>(f->b[k]);
            b[c + 8 * k][r] = v.x;
            b[c + 8 * k + 1][r] = v.y;
        }
        for (int k = 0; k < 4; k++)
            d[r + 8 * (k >> 1)][c + (k & 1)] = f->d[k];
    }
    if (mma_truncates)
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++)
                d[i][j] = mma_truncated(d[i][j], a[i], &b[0][j], 8);
    for (int k = 0; k < 16 && !mma_truncates; k++)
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++)
                d[i][j] += a[i][k] * b[k][j];
    for (int l = 0; l < 32; l++) {
        const int r = l / 4, c = 2 * (l % 4);
        for (int k = 0; k < 4; k++)
            static_cast<float *>(out[l])[k] = d[r + 8 * (k >> 1)][c + (k & 1)];
    }
}

inline void ldmatrix(uint32_t *out, const void *row, int arg) {
    if (now->lane < 8 * (arg & 7))
        note_read(row, 16);
    warp(EMULATED_MATRIX, arg, 0xffffffffu, &row, out, ldmatrix_apply);
}

} // namespace emulated

static inline void gpu_ldmatrix_x4(uint32_t out[4], const void *row) {
    emulated::ldmatrix(out, row, 4);
}
static inline void gpu_ldmatrix_x4_trans(uint32_t out[4], const void *row) {
    emulated::ldmatrix(out, row, 4 + 8);
}
static inline void gpu_ldmatrix_x2(uint32_t out[2], const void *row) {
    emulated::ldmatrix(out, row, 2);
}
static inline void gpu_ldmatrix_x2_trans(uint32_t out[2], const void *row) {
    emulated::ldmatrix(out, row, 2 + 8);
}

template <class T> inline void gpu_mma_16816(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    emulated::mma_in in;
    memcpy(in.a, a, sizeof in.a);
    memcpy(in.b, b, sizeof in.b);
    memcpy(in.d, d, sizeof in.d);
    emulated::warp(EMULATED_MATRIX, 16, 0xffffffffu, &in, d, emulated::mma_apply<T>);
}

template <class T> inline uint32_t gpu_pack2_relu(float x, float y) {
    return gpu_pack2<T>(gpu_relu(x), gpu_relu(y));
}

static inline int gpu_fresh(int v) { return v; }
template <class T> inline T *gpu_fresh(T *global) { return global; }
static inline unsigned char *gpu_resident(unsigned char *shared) { return shared; }

/* Of two zeros -0 only where both are. */
static inline float gpu_greater(float x, float y) {
    if (x != x || y != y)
        return __uint_as_float(0x7fffffffu);
    if (x == y)
        return __uint_as_float(__float_as_uint(x) & __float_as_uint(y));
    return x > y ? x : y;
}

static inline void gpu_copy16(void *shared, const void *global, bool on) {
    emulated::copy_later(shared, global, 16, on);
}
static inline void gpu_copy_commit() { emulated::copy_commit(); }
template <int N> inline void gpu_copy_wait() { emulated::copy_wait(N); }

#endif
