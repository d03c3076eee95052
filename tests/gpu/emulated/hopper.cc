/* SPDX-License-Identifier: Apache-2.0
 *
 * Barriers in shared memory and bulk copies of capability 9.0, as the PTX ISA defines them.
 *
 * A load is kept when it is issued, and made when no thread of the cluster can go on, in an order
 * that EMULATED_ORDER chooses (fibers.cc); with a number some are made earlier, at waits. A store
 * reads shared memory when its thread waits for that, and writes when it waits for all of it or
 * ends. What the ISA leaves undefined ends the program with a line.
 */
#include <cstdlib>
#include <deque>
#include <map>
#include <vector>

#include "counts.h"
#include "fibers.h"
#include "include/cuda_runtime.h"
#include "include/hopper.h"
#include "races.h"
#include "tensor_map.h"

namespace emulated {
namespace {

/* ---- barriers ---- */

/* The 64 bits of a barrier. Memory that nobody wrote is all ones: not one. */
struct barrier_bits {
    unsigned expected, pending; /* arrivals: of a phase, still to come */
    int bytes;                  /* still to come; less than 0: came before they were expected */
    unsigned parity;            /* of the phase in progress */
};
enum : uint64_t { ARRIVALS = 0xfffff, BYTES = 0x1fffff, VALID = 1 };
enum { BYTES_MOST = (1 << 20) - 1 };

uint64_t encoded(const barrier_bits &b) {
    return b.expected | (uint64_t)b.pending << 20 | ((uint64_t)b.bytes & BYTES) << 40 |
           (uint64_t)b.parity << 61 | VALID << 62;
}
barrier_bits decoded(const uint64_t *at) {
    const uint64_t v = *at;
    if (v >> 62 != VALID)
        stop("a barrier that is not initialised");
    const int bytes = (int)(v >> 40 & BYTES);
    return barrier_bits{(unsigned)(v & ARRIVALS), (unsigned)(v >> 20 & ARRIVALS),
                        bytes > BYTES_MOST ? bytes - (int)BYTES - 1 : bytes,
                        (unsigned)(v >> 61 & 1)};
}

/* What the 64 bits do not say. */
struct barrier_facts {
    unsigned phase;
    int by; /* the thread that initialised it */
    bool fenced;
};
std::map<const uint64_t *, barrier_facts> facts;
std::map<int, std::pair<const uint64_t *, unsigned>> waiting; /* threads, with their parities */

void check_place(const uint64_t *b) {
    if (block_of_shared(b) < 0)
        stop("a barrier outside dynamic shared memory");
    if ((uintptr_t)b % 8)
        stop("a barrier of an unaligned address");
}

/* Begins the next phase if this one is complete. */
void keep(uint64_t *at, barrier_bits b) {
    if (b.bytes > BYTES_MOST || b.bytes < -BYTES_MOST)
        stop("a barrier of more than 2^20 - 1 bytes");
    const bool complete = b.pending == 0 && b.bytes == 0;
    if (complete) {
        b.parity ^= 1;
        b.pending = b.expected;
        facts[at].phase++;
    }
    *at = encoded(b);
    if (!complete)
        return;
    if (emulated_race_phase)
        emulated_race_phase(at);
    wake(at);
}

void arrive(uint64_t *at, unsigned bytes) {
    check_place(at);
    barrier_bits b = decoded(at);
    if (emulated_race_arrive)
        emulated_race_arrive(at);
    if (b.pending == 0)
        stop("more arrivals at a barrier than its phase has");
    b.pending--;
    b.bytes += (int)bytes;
    keep(at, b);
}

/* ---- copies ---- */

/* Up to 16 bytes, which a swizzle keeps together; from NULL: zeros. */
struct piece {
    char *to;
    const char *from;
    unsigned bytes;
};
struct load {
    unsigned block; /* that it goes to */
    std::vector<piece> pieces;
    uint64_t *barrier;
    unsigned phase;
    int bytes;
};
std::deque<load> loads;

struct store {
    std::vector<piece> pieces;
    std::vector<std::vector<char>> data; /* of the pieces, when shared memory was read */
    int group;
};
std::map<int, std::vector<store>> stores; /* of threads */
std::map<int, int> groups;                /* committed so far */

/* EMULATED_ORDER: a number chooses the order of loads; forward, backward: so are they made. */
struct order {
    bool forward = true, random = false;
    unsigned seed = 1;
    order() {
        const char *text = getenv("EMULATED_ORDER");
        forward = text && strcmp(text, "forward") == 0;
        random = text && atoi(text) != 0;
        seed = random ? (unsigned)atoi(text) : 1;
    }
    unsigned next() {
        seed = seed * 1664525u + 1013904223u;
        return seed >> 8;
    }
};
order order_of_loads;

void finish(size_t i) {
    const load l = loads[i];
    loads.erase(loads.begin() + (std::ptrdiff_t)i);
    const auto f = facts.find(l.barrier);
    if (f == facts.end() || f->second.phase != l.phase)
        stop("a bulk copy came in another phase of its barrier than it was issued in: a phase "
             "that did not expect its bytes is over");
    for (const piece &p : l.pieces)
        if (p.from)
            memcpy(p.to, p.from, p.bytes);
        else
            memset(p.to, 0, p.bytes);
    barrier_bits b = decoded(l.barrier);
    b.bytes -= l.bytes;
    keep(l.barrier, b);
}

bool is_aligned(const void *p, size_t to) { return (uintptr_t)p % to == 0; }

void check_device(const void *from, size_t bytes) {
    if (!is_device(from) || !is_device(static_cast<const char *>(from) + bytes - 1))
        stop("a bulk copy of what is not in the device's memory");
}

/* Issues a load whose pieces are in the calling block, to each block of the mask. */
void issue(void *to, std::vector<piece> pieces, unsigned bytes, uint64_t *b, unsigned mask) {
    const unsigned mine = cluster_block();
    check_place(b);
    if (block_of_shared(to) != (int)mine || block_of_shared(b) != (int)mine)
        stop("a bulk load with an address of another block");
    if (shared_after(to) < bytes)
        stop("a bulk load past the end of shared memory");
    if (!mask)
        mask = 1u << mine;
    if (mask >> cluster_blocks())
        stop("a bulk load to a block that the cluster does not have");
    for (const piece &p : pieces)
        if (p.from && emulated_count_bulk_load)
            emulated_count_bulk_load(p.from, p.bytes);
    for (unsigned r = 0; r < cluster_blocks(); r++) {
        if (!(mask >> r & 1))
            continue;
        if (block_has_ended(r))
            stop("a bulk load to a block that has ended");
        load l{r, pieces, static_cast<uint64_t *>(in_block(b, r)), 0, (int)bytes};
        decoded(l.barrier);
        if (!facts[l.barrier].fenced)
            stop("a bulk load with a barrier that no gpu_barrier_init_fence has shown it");
        l.phase = facts[l.barrier].phase;
        for (piece &p : l.pieces) {
            p.to = static_cast<char *>(in_block(p.to, r));
            if (p.from && emulated_race_async_load)
                emulated_race_async_load(p.from, p.bytes, l.barrier);
            if (emulated_race_async_write)
                emulated_race_async_write(p.to, p.bytes, l.barrier);
        }
        loads.push_back(std::move(l));
    }
}

tensor_map map_at(const CUtensorMap *at) {
    tensor_map m;
    memcpy(&m, at, sizeof m);
    if (!is_aligned(at, 64) || m.magic != TENSOR_MAP_MAGIC)
        stop("a tensor map that is none");
    return m;
}

/* The box in 16-byte pieces: shared memory, global memory (NULL outside), bytes of it in the map.
 */
template <class F> void each_piece(const tensor_map &m, char *shared, int column, int row, F fn) {
    const size_t align = m.swizzle ? (size_t)128 << m.swizzle : 128;
    if (!is_aligned(shared, align))
        stop("a box that is not aligned in shared memory");
    const uint64_t line = (uint64_t)m.box_columns * m.element_bytes;
    if ((int)cluster_block() != block_of_shared(shared) || shared_after(shared) < line * m.box_rows)
        stop("a box past the end of shared memory");
    const int64_t width = (int64_t)m.columns * m.element_bytes;
    for (uint32_t r = 0; r < m.box_rows; r++)
        for (uint64_t at = 0; at < line; at += 16) {
            const int64_t y = (int64_t)row + r, x = (int64_t)column * m.element_bytes + (int64_t)at;
            const bool inside = y >= 0 && y < (int64_t)m.rows && x + 16 > 0 && x < width;
            /* Pieces that the edge of the map cuts: per element. */
            for (uint64_t b = 0; b < 16;) {
                const int64_t now = x + (int64_t)b;
                const bool whole = inside && x >= 0 && x + 16 <= width;
                const uint64_t step = whole || !inside ? 16 : m.element_bytes;
                char *const global = inside && now >= 0 && now < width
                                         ? m.data + y * (int64_t)m.stride + now
                                         : nullptr;
                fn(shared + swizzled(m.swizzle, r * line + at) + b, global, (unsigned)step);
                b += step;
            }
        }
}

} // namespace

void forget_copies() {
    loads.clear();
    stores.clear();
    groups.clear();
    facts.clear();
    waiting.clear();
}

bool complete_a_copy() {
    if (loads.empty())
        return false;
    finish(order_of_loads.random    ? order_of_loads.next() % loads.size()
           : order_of_loads.forward ? 0
                                    : loads.size() - 1);
    return true;
}

void explain_barriers() {
    std::map<std::pair<const uint64_t *, unsigned>, int> threads;
    for (const auto &w : waiting)
        threads[w.second]++;
    for (const auto &t : threads) {
        const barrier_bits b = decoded(t.first.first);
        fprintf(stderr,
                "emulated: %d threads wait for parity %u of a barrier in block %d of the cluster: "
                "parity %u is in progress; %u of %u arrivals and %d bytes are missing\n",
                t.second, t.first.second, block_of_shared(t.first.first), b.parity, b.pending,
                b.expected, b.bytes);
    }
}

void check_thread_end() {
    std::vector<store> &mine = stores[thread_of_cluster()];
    for (const store &s : mine)
        if (s.data.empty())
            stop("a thread ends with bulk stores that have not read shared memory");
    groups[thread_of_cluster()]++;
    bulk_wait(0, false);
}

void check_block_end(unsigned block) {
    for (const load &l : loads)
        if (l.block == block)
            stop("a block ends while bulk loads to it are on their way");
}

void barrier_init(uint64_t *b, unsigned arrivals) {
    check_place(b);
    if (block_of_shared(b) != (int)cluster_block())
        stop("a barrier of another block is initialised");
    if (arrivals < 1 || arrivals > ARRIVALS)
        stop("a barrier with a wrong number of arrivals");
    if (facts.count(b))
        stop("a barrier is initialised twice");
    facts[b] = barrier_facts{0, thread_of_cluster(), false};
    *b = encoded(barrier_bits{arrivals, arrivals, 0, 0});
    if (emulated_race_barrier)
        emulated_race_barrier(b);
}

void barrier_init_fence() {
    for (auto &f : facts)
        f.second.fenced |= f.second.by == thread_of_cluster();
}

void barrier_arrive(uint64_t *b) { arrive(b, 0); }

void barrier_arrive_in(uint64_t *b, unsigned block) {
    uint64_t *const there = static_cast<uint64_t *>(in_block(b, block));
    if (block_has_ended(block))
        stop("an arrival in a block that has ended");
    decoded(there);
    if (block != cluster_block() && !facts[there].fenced)
        stop("an arrival in a block whose gpu_barrier_init_fence is missing");
    arrive(there, 0);
}

void barrier_expect(uint64_t *b, unsigned bytes) {
    if (bytes > BYTES_MOST)
        stop("a barrier of more than 2^20 - 1 bytes");
    arrive(b, bytes);
}

void barrier_wait(uint64_t *b, unsigned parity) {
    check_place(b);
    if (block_of_shared(b) != (int)cluster_block())
        stop("a wait for a barrier of another block");
    if (parity > 1)
        stop("a parity that is neither 0 nor 1");
    if (order_of_loads.random && order_of_loads.next() % 4 == 0)
        complete_a_copy();
    while (decoded(b).parity == parity) {
        waiting[thread_of_cluster()] = {b, parity};
        sleep_on(b);
    }
    waiting.erase(thread_of_cluster());
    if (emulated_race_waited)
        emulated_race_waited(b);
}

void bulk_load(void *to, const void *from, unsigned bytes, uint64_t *b, unsigned mask) {
    if (!is_aligned(to, 16) || !is_aligned(from, 16) || bytes == 0 || bytes % 16)
        stop("a bulk load of an unaligned address or size");
    check_device(from, bytes);
    issue(to, {{static_cast<char *>(to), static_cast<const char *>(from), bytes}}, bytes, b, mask);
}

void tile_load(void *to, const CUtensorMap *map, int column, int row, uint64_t *b, unsigned mask) {
    const tensor_map m = map_at(map);
    std::vector<piece> pieces;
    each_piece(m, static_cast<char *>(to), column, row,
               [&](char *shared, const char *global, unsigned bytes) {
                   if (global)
                       check_device(global, bytes);
                   pieces.push_back({shared, global, bytes});
               });
    issue(to, pieces, m.box_columns * m.box_rows * m.element_bytes, b, mask);
}

void tile_store(const CUtensorMap *map, int column, int row, const void *from) {
    store s{{}, {}, groups[thread_of_cluster()]};
    char *const shared = static_cast<char *>(const_cast<void *>(from));
    each_piece(map_at(map), shared, column, row, [&](const char *at, char *global, unsigned bytes) {
        if (!global)
            return;
        check_device(global, bytes);
        if (emulated_race_async_read)
            emulated_race_async_read(at, bytes, nullptr);
        if (emulated_race_write)
            emulated_race_write(global, bytes);
        s.pieces.push_back({global, at, bytes});
    });
    stores[thread_of_cluster()].push_back(std::move(s));
}

void bulk_commit() { groups[thread_of_cluster()]++; }

void bulk_wait(int pending_allowed, bool read_only) {
    std::vector<store> &mine = stores[thread_of_cluster()];
    const int group = groups[thread_of_cluster()];
    for (size_t i = 0; i < mine.size();) {
        store &s = mine[i];
        if (s.group >= group - pending_allowed) {
            i++;
            continue;
        }
        for (size_t k = s.data.size(); k < s.pieces.size(); k++) {
            const piece &p = s.pieces[k];
            s.data.push_back(std::vector<char>(p.from, p.from + p.bytes));
            if (emulated_race_async_read_done)
                emulated_race_async_read_done(p.from, p.bytes, nullptr);
        }
        if (read_only && !s.pieces.empty()) {
            i++;
            continue;
        }
        for (size_t k = 0; k < s.pieces.size(); k++)
            memcpy(s.pieces[k].to, s.data[k].data(), s.pieces[k].bytes);
        mine.erase(mine.begin() + (std::ptrdiff_t)i);
    }
}

void async_fence() {
    if (emulated_race_async_fence)
        emulated_race_async_fence();
}

void *cluster_shared(void *shared, unsigned block) {
    void *const there = in_block(shared, block);
    if (block_has_ended(block))
        stop("shared memory of a block that has ended");
    return there;
}

} // namespace emulated
