/* SPDX-License-Identifier: Apache-2.0
 *
 * Asynchronous products of warpgroups, as the PTX ISA defines wgmma: what hopper_wgmma.cuh promises
 * and forbids. A product reads its matrices, by the bit fields of their descriptors, when the warp
 * waits for it: as late as it may. Until then its registers d hold NaN. These end the program with
 * a line:
 *   - lanes, or warps of a warpgroup, that come with different products or setmaxnreg;
 *   - a product without a gpu_wgmma_fence since the last gpu_wgmma_wait;
 *   - registers d or a that were written before the wait;
 *   - a matrix that is not in the block's dynamic shared memory;
 *   - a thread that ends before its products;
 *   - products or setmaxnreg that not all four warps of a warpgroup call;
 *   - setmaxnreg for registers that the block never gets.
 * What other threads do to the matrices meanwhile is for races.cc: each warp of the group counts as
 * one that reads all of A and B.
 */
#include <map>
#include <memory>
#include <vector>

#include "engine/cuda/kernels/device.cuh"

#include "fibers.h"
#include "include/hopper_wgmma_emulated.h"
#include "races.h"

namespace emulated {

namespace {

constexpr uint32_t POISON = 0x7fbadbad; /* a NaN */

/* The registers d of a warp that products are under way to: what they hold, row by row. */
struct accumulator {
    float *lanes[32];
    int n;
    std::vector<float> values; /* 16 x n */
    int products;              /* under way */
};

struct product {
    wgmma_call call; /* of lane 0 */
    uint32_t a[32][4];
    const uint32_t *a_registers[32];
    std::shared_ptr<accumulator> d;
    int group, warp;
    const void *at; /* the code */
};

struct warp_state {
    std::vector<product> products;
    int group = 0;
    bool fenced = false;
    std::vector<uint64_t> issued; /* what every warp of the group must issue alike */
    int registers = 0;            /* of a thread, once setmaxnreg was called */
};
/* Warps of the blocks that run, by block and warp. */
std::map<std::pair<uint32_t, int>, warp_state> warps;
std::map<std::pair<uint32_t, int>, int> waits_for_registers;

int warp_number() { return race_here.thread / 32; }
warp_state &mine() { return warps[{race_here.block, warp_number()}]; }

/* ---- matrices ---- */

/* Byte in the block's shared memory of element (i, k): row or column i of the matrix, and k. */
size_t byte_of(uint64_t matrix, bool transposed, int i, int k) {
    const size_t start = (matrix & 0x3fff) << 4, leading = (matrix >> 16 & 0x3fff) << 4,
                 stride = (matrix >> 32 & 0x3fff) << 4;
    static const size_t widths[] = {0, 128, 64, 32};
    const size_t width = widths[matrix >> 62], row = (size_t)i, depth = (size_t)k;
    size_t at = start;
    if (transposed && width) {
        const size_t rows = width / 2;
        at += row % rows * 2 + row / rows * leading + depth % 8 * width + depth / 8 * stride;
    } else if (transposed) {
        at += row % 8 * 2 + row / 8 * stride + depth % 8 * 16 + depth / 8 * leading;
    } else if (width) {
        at += row % 8 * width + row / 8 * stride + depth * 2;
    } else {
        at += row % 8 * 16 + row / 8 * stride + depth / 8 * leading + depth % 8 * 2;
    }
    return width ? at ^ (at >> 7 & (width / 16 - 1)) << 4 : at;
}

uint16_t *element(uint64_t matrix, bool transposed, int i, int k) {
    const size_t at = byte_of(matrix, transposed, i, k);
    if (at + 2 > shared_after(dynamic_shared_1024()))
        stop("wgmma reads outside of the block's shared memory");
    return reinterpret_cast<uint16_t *>(dynamic_shared_1024() + at);
}

void check_matrix(uint64_t matrix) {
    if (matrix & 0x3fffc000c000c000ull)
        stop("wgmma: bits of a descriptor that must be zero");
}

/* 16-byte rows of a matrix of `count` rows or columns by 16. */
template <class F> void each_row(uint64_t matrix, bool transposed, int count, F f) {
    for (int i = 0; i < count; i += transposed ? 8 : 1)
        for (int k = 0; k < 16; k += transposed ? 1 : 8)
            f(element(matrix, transposed, i, k));
}

template <class F> void each_row_of(const product &p, F f) {
    if (!p.call.a_registers)
        each_row(p.call.a, p.call.a_t, 64, f);
    each_row(p.call.b, p.call.b_t, p.call.n, f);
}

/* ---- registers ---- */

/* f(register of the lane, row of 16, column), for each register. */
template <class F> void each_register(int n, int lane, F f) {
    for (int i = 0; i < n / 2; i++)
        f(i, lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
}

bool is_poison(float v) { return __float_as_uint(v) == POISON; }

void check_untouched(const product &p) {
    for (int l = 0; l < 32; l++) {
        for (int i = 0; i < p.d->n / 2; i++)
            if (!is_poison(p.d->lanes[l][i]))
                stop("registers d of a product were written before its wait");
        if (p.call.a_registers && memcmp(p.a[l], p.a_registers[l], sizeof p.a[l]) != 0)
            stop("registers a of a product were written before its wait");
    }
}

/* The accumulator of the lanes' registers: that of products under way, or a new one. */
std::shared_ptr<accumulator> accumulator_of(const warp_state &w,
                                            const wgmma_call *const calls[32]) {
    const int n = calls[0]->n;
    std::shared_ptr<accumulator> found;
    for (const product &p : w.products)
        for (int l = 0; l < 32; l++) {
            float *const from = p.d->lanes[l];
            if (calls[l]->d + n / 2 <= from || from + p.d->n / 2 <= calls[l]->d)
                continue;
            if (calls[l]->d != from || p.d->n != n)
                stop("wgmma into registers of another product that is under way");
            found = p.d;
        }
    if (found)
        return found;
    found = std::make_shared<accumulator>();
    found->n = n;
    found->products = 0;
    found->values.resize((size_t)(16 * n));
    for (int l = 0; l < 32; l++) {
        float *const d = found->lanes[l] = calls[l]->d;
        each_register(n, l, [&](int i, int row, int column) {
            found->values[(size_t)(row * n + column)] = d[i];
            d[i] = __uint_as_float(POISON);
        });
    }
    return found;
}

/* ---- a product ---- */

void read_a(const product &p, float a[16][16]) {
    for (int l = 0; l < 32 && p.call.a_registers; l++)
        for (int i = 0; i < 4; i++) {
            const float2 v = p.call.unpack(p.a[l][i]);
            const int row = l / 4 + i % 2 * 8, k = l % 4 * 2 + i / 2 * 8;
            a[row][k] = v.x;
            a[row][k + 1] = v.y;
        }
    const int first = p.warp % 4 * 16;
    for (int i = 0; i < 16 && !p.call.a_registers; i++)
        for (int k = 0; k < 16; k++)
            a[i][k] = p.call.unpack(*element(p.call.a, p.call.a_t, first + i, k)).x;
}

void multiply(const product &p) {
    const int n = p.call.n;
    float a[16][16];
    std::vector<float> b((size_t)(16 * n));
    read_a(p, a);
    for (int j = 0; j < n; j++)
        for (int k = 0; k < 16; k++)
            b[(size_t)(k * n + j)] = p.call.unpack(*element(p.call.b, p.call.b_t, j, k)).x;
    float *const d = p.d->values.data();
    if (!p.call.accumulate)
        std::fill(p.d->values.begin(), p.d->values.end(), 0.0f);
    if (mma_truncates) {
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < n; j++)
                d[i * n + j] = mma_truncated(d[i * n + j], a[i], &b[(size_t)j], n);
        return;
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < n; j++)
                d[i * n + j] += a[i][k] * b[(size_t)(k * n + j)];
}

void complete(product &p) {
    check_untouched(p);
    multiply(p);
    if (emulated_race_async_read_done)
        each_row_of(p, [&](const void *row) { emulated_race_async_read_done(row, 16, p.at); });
    if (--p.d->products)
        return;
    for (int l = 0; l < 32; l++)
        each_register(p.d->n, l, [&](int i, int row, int column) {
            p.d->lanes[l][i] = p.d->values[(size_t)(row * p.d->n + column)];
        });
}

/* The warps of a warpgroup issue the same products. */
void issue_alike(warp_state &w, uint64_t what) {
    w.issued.push_back(what);
    const size_t at = w.issued.size() - 1;
    const int first = warp_number() / 4 * 4;
    for (int i = first; i < first + 4; i++) {
        const auto other = warps.find({race_here.block, i});
        if (other == warps.end() || other->second.issued.size() <= at)
            continue;
        if (other->second.issued[at] != w.issued[at])
            stop("warps of a warpgroup issue different products or setmaxnreg");
    }
}

void issue(const void *const in[32], void *const[32], unsigned present, int) {
    const wgmma_call *calls[32];
    if (present != 0xffffffffu)
        stop("wgmma without all 32 lanes");
    warp_state &w = mine();
    for (int l = 0; l < 32; l++) {
        calls[l] = static_cast<const wgmma_call *>(in[l]);
        if (calls[l]->a != calls[0]->a || calls[l]->b != calls[0]->b ||
            calls[l]->accumulate != calls[0]->accumulate)
            stop("lanes of a warp come with different operands of wgmma");
    }
    const wgmma_call &c = *calls[0];
    if (!w.fenced)
        stop("wgmma without a gpu_wgmma_fence after the last wait");
    check_matrix(c.a);
    check_matrix(c.b);
    issue_alike(w, (c.a * 31 + c.b) * 31 + (uint64_t)c.n * 8 + (c.a_t ? 4 : 0) + (c.b_t ? 2 : 0) +
                       (c.accumulate ? 1 : 0));
    product p = {};
    p.call = c;
    for (int l = 0; l < 32 && c.a_registers; l++) {
        memcpy(p.a[l], calls[l]->a_registers, sizeof p.a[l]);
        p.a_registers[l] = calls[l]->a_registers;
    }
    p.d = accumulator_of(w, calls);
    p.d->products++;
    p.group = w.group;
    p.warp = warp_number();
    p.at = __builtin_return_address(0);
    if (emulated_race_async_read)
        each_row_of(p, [&](const void *row) { emulated_race_async_read(row, 16, p.at); });
    w.products.push_back(p);
}

/* What was read was read for all lanes: they have met. */
void note_wait() {
    int lanes[32];
    for (int l = 0; l < 32; l++)
        lanes[l] = thread_of_cluster() - now->lane + l;
    race_here.warp_syncs[warp_number()]++;
    if (emulated_race_sync)
        emulated_race_sync(lanes, 32);
}

void fence(const void *const[32], void *const[32], unsigned, int) { mine().fenced = true; }
void commit(const void *const[32], void *const[32], unsigned, int) { mine().group++; }
void wait(const void *const[32], void *const[32], unsigned, int arg) {
    warp_state &w = mine();
    const int left = arg & 0xff;
    std::vector<product> kept;
    for (product &p : w.products) {
        if (p.group >= w.group - left)
            kept.push_back(p);
        else
            complete(p);
    }
    w.products.swap(kept);
    w.fenced = false;
    note_wait();
}

enum { ALL = -1, ISSUE = 1 << 12, FENCE = 2 << 12, COMMIT = 3 << 12, WAIT = 4 << 12 };

} // namespace

void wgmma(const wgmma_call &call) {
    warp(EMULATED_MATRIX, ISSUE + call.n * 8 + call.a_t * 4 + call.b_t * 2 + !call.a_registers,
         0xffffffffu, &call, nullptr, issue);
}
void wgmma_fence() { warp(EMULATED_MATRIX, FENCE, 0xffffffffu, nullptr, nullptr, fence); }
void wgmma_commit() { warp(EMULATED_MATRIX, COMMIT, 0xffffffffu, nullptr, nullptr, commit); }
void wgmma_wait(int left) {
    warp(EMULATED_MATRIX, WAIT + left, 0xffffffffu, nullptr, nullptr, wait);
}

void check_products_end() {
    const auto w = warps.find({race_here.block, warp_number()});
    if (w == warps.end())
        return;
    if (!w->second.products.empty())
        stop("a thread ends with products that it did not wait for");
}

void check_warpgroups_end() {
    if (warps.empty())
        return;
    const int count = (threads_of_block() + 31) / 32;
    for (int i = 0; i < (count + 3) / 4 * 4; i++) {
        const auto w = warps.find({race_here.block, i}),
                   first = warps.find({race_here.block, i / 4 * 4});
        if ((w == warps.end() ? 0 : w->second.issued.size()) !=
            (first == warps.end() ? 0 : first->second.issued.size()))
            stop("not all four warps of a warpgroup have called its products or setmaxnreg");
    }
}

void forget_products() { warps.clear(); }

uint64_t wgmma_matrix(const void *shared, unsigned leading, unsigned stride, int swizzle) {
    const ptrdiff_t at = static_cast<const unsigned char *>(shared) - dynamic_shared_1024();
    if (at < 0 || at >= 1 << 18 || (size_t)at >= shared_after(dynamic_shared_1024()))
        stop("gpu_matrix: not in the block's dynamic shared memory");
    if (at % 16 || leading % 16 || stride % 16 || leading >= 1 << 18 || stride >= 1 << 18)
        stop("gpu_matrix: address and offsets must be multiples of 16 below 2^18");
    if (swizzle != 0 && swizzle != 32 && swizzle != 64 && swizzle != 128)
        stop("gpu_matrix: the swizzle must be 0, 32, 64 or 128");
    const uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return (uint64_t)at >> 4 | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           mode << 62;
}

/* With __launch_bounds__ a block's warps get equal shares of the multiprocessor's 65,536 registers,
 * in units of 256 a warp: so many of a thread. setmaxnreg moves them between the warps. */
static int launch_registers() {
    const int most = 65536 / ((threads_of_block() + 31) / 32) / 256 * 8;
    return most < 255 ? most : 255;
}
static int registers_of(int warp) {
    const auto w = warps.find({race_here.block, warp});
    return w == warps.end() || !w->second.registers ? launch_registers() : w->second.registers;
}
/* Registers a thread that are left for this warp, of those that the block began with. */
static int registers_left() {
    int left = 0;
    for (int i = 0; i < (threads_of_block() + 31) / 32; i++)
        left += launch_registers() - (i == warp_number() ? 0 : registers_of(i));
    return left;
}

static void change_registers(const void *const[32], void *const[32], unsigned, int arg) {
    const int count = arg >> 1 & 0xff, before = registers_of(warp_number());
    if (arg & 1 ? count < before : count > before)
        stop("setmaxnreg: more to fewer registers, or fewer to more");
    issue_alike(mine(), (uint64_t)arg);
    if (arg & 1)
        return;
    mine().registers = count;
    wake(&warps);
}

void set_registers(int count, bool more) {
    warp(EMULATED_MATRIX, 5 << 12 | count << 1 | (more ? 1 : 0), 0xffffffffu, nullptr, nullptr,
         change_registers);
    while (more && registers_left() < count) {
        waits_for_registers[{race_here.block, warp_number()}] = count;
        sleep_on(&warps);
    }
    if (more) {
        mine().registers = count;
        waits_for_registers.erase({race_here.block, warp_number()});
    }
}

void explain_registers() {
    for (const auto &w : waits_for_registers)
        fprintf(stderr, "emulated: warp %d waits for %d registers a thread (setmaxnreg)\n",
                w.first.second, w.second);
}

} // namespace emulated
