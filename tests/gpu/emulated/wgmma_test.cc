/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated wgmma against plain sums, for every layout of its matrices; and errors that the
 * emulation must find, each in a small kernel. Those that are races only where races.cc is linked
 * in.
 */
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/cuda/kernels/hopper.cuh"

#include "races.h"
#include "tap.h"

enum { K = 32, ROWS = 64, MATRIX_BYTES = 1 << 15 };

/* ---- layouts ---- */

struct form {
    bool transposed;
    int swizzle;
};
static const struct form forms[] = {{false, 0}, {false, 32}, {false, 64}, {false, 128},
                                    {true, 0},  {true, 32},  {true, 64},  {true, 128}};

/* Byte of element (i, k) of a matrix of `rows` by K. */
static int byte_of(struct form f, int rows, int i, int k) {
    const int w = f.swizzle;
    if (f.transposed) {
        if (!w)
            return i / 8 * K * 16 + k * 16 + i % 8 * 2;
        const int unit = i % (w / 2) / 8, line = k * w / 128;
        return i / (w / 2) * K * w + k * w + (unit ^ (line & (w / 16 - 1))) * 16 + i % 8 * 2;
    }
    if (!w)
        return k / 8 * rows * 16 + i * 16 + k % 8 * 2;
    const int unit = k % (w / 2) / 8, line = i * w / 128;
    return k / (w / 2) * rows * w + i * w + (unit ^ (line & (w / 16 - 1))) * 16 + k % 8 * 2;
}
static __device__ uint64_t descriptor(struct form f, const void *shared, int rows) {
    const unsigned w = (unsigned)f.swizzle, n = (unsigned)rows;
    if (f.transposed)
        return w ? gpu_matrix(shared, K * w, 8 * w, f.swizzle) : gpu_matrix(shared, 128, K * 16, 0);
    return w ? gpu_matrix(shared, 0, 8 * w, f.swizzle) : gpu_matrix(shared, n * 16, 128, 0);
}
/* d = a b of K = 32 in two products. a, b: images of shared memory; steps: bytes from k = 0 to 16.
 */
template <class T, int N, bool A_T, bool B_T>
static __global__ void product(const uint4 *a, const uint4 *b, struct form of_a, struct form of_b,
                               int a_step, int b_step, bool registers, float *to) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED_1024(shared);
    const int thread = (int)threadIdx.x, lane = thread % 32, warp = thread / 32;
    uint4 *const mine_a = (uint4 *)shared, *const mine_b = (uint4 *)(shared + MATRIX_BYTES);
    for (int i = thread; i < MATRIX_BYTES / 16; i += 128) {
        mine_a[i] = a[i];
        mine_b[i] = b[i];
    }
    gpu_async_fence();
    __syncthreads();
    float d[N / 2];
    for (int i = 0; i < N / 2; i++)
        d[i] = 1000.0f;
    uint32_t fragment[2][4];
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 4; i++) { /* k-major, no swizzle */
            const int row = warp * 16 + lane / 4 + i % 2 * 8, k = s * 16 + lane % 4 * 2 + i / 2 * 8;
            fragment[s][i] = *(const uint32_t *)(shared + k / 8 * ROWS * 16 + row * 16 + k % 8 * 2);
        }
    gpu_wgmma_fence();
    for (int s = 0; s < 2; s++) {
        const uint64_t at = gpu_matrix_at(descriptor(of_b, mine_b, N), s * b_step);
        if (registers)
            gpu_wgmma_a<T, N, B_T>(d, fragment[s], at, s > 0);
        else
            gpu_wgmma<T, N, A_T, B_T>(d, gpu_matrix_at(descriptor(of_a, mine_a, ROWS), s * a_step),
                                      at, s > 0);
    }
    gpu_wgmma_commit();
    gpu_wgmma_wait<0>();
    for (int i = 0; i < N / 2; i++)
        to[(warp * 16 + lane / 4 + i % 4 / 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}

static int value_a(int i, int k) { return (i * 7 + k * 3) % 11 - 5; }
static int value_b(int j, int k) { return (j * 5 + k * 13) % 9 - 4; }

template <class T> static uint4 *image(struct form f, int rows, int (*value)(int, int)) {
    std::vector<unsigned char> bytes(MATRIX_BYTES);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < K; k++) {
            const uint32_t v = gpu_pack2<T>((float)value(i, k), 0);
            memcpy(&bytes[(size_t)byte_of(f, rows, i, k)], &v, 2);
        }
    void *to = nullptr;
    BAIL_UNLESS(!cudaMalloc(&to, MATRIX_BYTES) &&
                    !cudaMemcpy(to, bytes.data(), MATRIX_BYTES, cudaMemcpyHostToDevice),
                "cudaMalloc");
    return (uint4 *)to;
}

template <class T, int N, bool A_T, bool B_T>
static void check_product(struct form of_a, struct form of_b, bool registers) {
    uint4 *const a = image<T>(of_a, ROWS, value_a), *const b = image<T>(of_b, N, value_b);
    std::vector<float> got(ROWS * N);
    void *to = nullptr;
    BAIL_UNLESS(!cudaMalloc(&to, ROWS * N * 4), "cudaMalloc");
    BAIL_UNLESS(!CHEX_LAUNCH((product<T, N, A_T, B_T>), 1, 128, 2 * MATRIX_BYTES, nullptr, a, b,
                             of_a, of_b, byte_of(of_a, ROWS, 0, 16), byte_of(of_b, N, 0, 16),
                             registers, (float *)to) &&
                    !cudaMemcpy(got.data(), to, ROWS * N * 4, cudaMemcpyDeviceToHost),
                "launch");
    int wrong = 0;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < N; j++) {
            int want = 0;
            for (int k = 0; k < K; k++)
                want += value_a(i, k) * value_b(j, k);
            wrong += got[(size_t)(i * N + j)] != (float)want;
        }
    OK(wrong == 0, "64x%dx16: a %s, swizzle %d; b %s, swizzle %d: %d wrong", N,
       registers         ? "in registers"
       : of_a.transposed ? "transposed"
                         : "k-major",
       of_a.swizzle, of_b.transposed ? "transposed" : "k-major", of_b.swizzle, wrong);
    cudaFree(a);
    cudaFree(b);
    cudaFree(to);
}

static void check_products(void) {
    for (int i = 0; i < 4; i++) {
        check_product<gpu_bf16, 64, false, false>(forms[i], forms[i], false);
        check_product<gpu_bf16, 128, true, true>(forms[4 + i], forms[4 + i], false);
        check_product<gpu_f16, 96, false, true>(forms[3 - i], forms[4 + i], false);
        check_product<gpu_f16, 32, true, false>(forms[4 + i], forms[3 - i], false);
    }
    check_product<gpu_bf16, 256, false, true>(forms[0], forms[4], true);
    check_product<gpu_f16, 32, false, false>(forms[0], forms[3], true);
}

/* ---- planted errors ---- */

enum plant {
    NONE,
    NO_FENCE,
    NO_WAIT,
    D_WRITTEN,
    D_READ,
    A_WRITTEN,
    LANES_DIFFER,
    WARPS_DIFFER,
    OUTSIDE,
    NO_BARRIER, /* from here on: races */
    NO_ASYNC_FENCE,
    REFILLED,
    REFILLED_BESIDE,
    PLANTS
};
static const struct {
    const char *name, *words;
} plants[PLANTS] = {
    {"no error", ""},
    {"registers are used without a fence", "without a gpu_wgmma_fence"},
    {"a thread does not wait for its products", "did not wait for"},
    {"d is written before the wait", "registers d of a product were written"},
    {"d is read before the wait: it is NaN", "NaN"},
    {"a is written before the wait", "registers a of a product were written"},
    {"lanes have different matrices", "different operands"},
    {"warps have different matrices", "different products"},
    {"a matrix ends outside of shared memory", "outside of the block's shared memory"},
    {"no barrier between the stores and the product", "an access beside a store"},
    {"no gpu_async_fence between the stores and the product", "without a gpu_async_fence"},
    {"a matrix is refilled while wgmma still reads it",
     "a store to what an async operation still reads"},
    {"a matrix is refilled without a barrier after the wait", "race: a store"},
};

static __global__ void planted(enum plant plant, float *to) {
    gpu_begin();
    CHEX_DYNAMIC_SHARED_1024(shared);
    const int thread = (int)threadIdx.x;
    uint32_t *const words = (uint32_t *)shared;
    for (int i = thread; i < 96 * 8; i += 128) /* a: 64 x 16, b: 32 x 16 */
        words[i] = gpu_pack2<gpu_bf16>(1, 2);
    if (plant != NO_ASYNC_FENCE)
        gpu_async_fence();
    if (plant != NO_BARRIER)
        __syncthreads();
    float d[16] = {0};
    uint32_t a[4] = {0};
    uint64_t left = gpu_matrix(shared, 64 * 16, 128, 0);
    uint64_t right = gpu_matrix(shared + 64 * 32, 32 * 16, 128, 0);
    if ((plant == LANES_DIFFER && thread % 32 == 7) || (plant == WARPS_DIFFER && thread / 32 == 2))
        left = gpu_matrix_at(left, 16);
    if (plant == OUTSIDE)
        right = gpu_matrix_at(right, 1024 - 16);
    if (plant != NO_FENCE)
        gpu_wgmma_fence();
    gpu_wgmma<gpu_bf16, 32>(d, left, right, true);
    gpu_wgmma_a<gpu_bf16, 32>(d, a, right, true);
    gpu_wgmma_commit();
    if (plant == D_WRITTEN)
        d[3] = 1;
    if (plant == A_WRITTEN)
        a[1] = 1;
    if (plant == REFILLED)
        words[thread] = 0;
    float early = 0;
    if (plant == D_READ)
        early = d[5];
    if (plant == NO_WAIT)
        return;
    gpu_wgmma_wait<0>();
    if (plant == REFILLED_BESIDE)
        words[(thread + 64) % 128] = 0;
    __syncthreads();
    words[thread] = 0;
    to[thread] = d[0] + early;
}

/* What a run of the kernel says before it ends, and how it ends. */
static std::string run(enum plant plant, int *status_out) {
    int fd[2];
    std::string said;
    char buf[512];
    fflush(stdout);
    BAIL_UNLESS(pipe(fd) == 0, "pipe");
    const pid_t pid = fork();
    BAIL_UNLESS(pid >= 0, "fork");
    if (pid == 0) {
        void *to = nullptr;
        float result[128];
        dup2(fd[1], 2);
        if (cudaMalloc(&to, sizeof result) ||
            CHEX_LAUNCH(planted, 1, 128, 96 * 32, nullptr, plant, (float *)to) ||
            cudaMemcpy(result, to, sizeof result, cudaMemcpyDeviceToHost))
            _exit(1);
        if (std::isnan(result[0])) {
            fprintf(stderr, "NaN\n");
            abort();
        }
        _exit(0);
    }
    close(fd[1]);
    for (ssize_t n; (n = read(fd[0], buf, sizeof buf)) > 0;)
        said.append(buf, (size_t)n);
    close(fd[0]);
    waitpid(pid, status_out, 0);
    return said;
}

int main(void) {
    check_products();
    for (int i = 0; i < (emulated_race_read ? PLANTS : NO_BARRIER); i++) {
        int status = -1;
        const std::string said = run((enum plant)i, &status);
        const bool found = WIFSIGNALED(status) && said.find(plants[i].words) != std::string::npos;
        OK(i == NONE ? status == 0 : found, "%s%s%.70s", plants[i].name, i ? ": found: " : "",
           said.c_str());
    }
    return tap_done();
}
