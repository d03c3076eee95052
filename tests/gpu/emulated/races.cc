/* SPDX-License-Identifier: Apache-2.0
 *
 * Data races in kernels, whatever the order in which the emulation happens to run threads and
 * blocks. Kernels are compiled with -fsanitize=thread for its calls before every load and store
 * alone: the functions that it calls are these, not the sanitizer's.
 *
 * Two accesses to the same two bytes, one of them a store, are a race unless something orders them:
 *   - one thread made both;
 *   - a __syncthreads lies between, for threads of a block;
 *   - a __syncwarp lies between, for lanes of a warp (shuffles and matrix products order nothing);
 *   - the second block has taken, as the last of them, a ticket that the first one gave back before
 *     (atomicInc), and no thread of the first had stored to global memory since its last
 *     __threadfence: for blocks of a launch, in global memory.
 * cp.async stores from its issue until its thread has waited for it.
 *
 * An access to global memory before gpu_begin is a race with the kernel ahead.
 *
 * Kept for each two bytes: the last store, the last load and whether others loaded in the same
 * interval. The first race ends the program with both places.
 */
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "races.h"

extern "C" char __data_start, _end; /* of the program: its static shared memory */

namespace {

using emulated::race_here;

struct event {
    uint32_t block, barriers, warp_syncs;
    int thread;
    const void *at; /* the code */
};

/* Loads are those since the last store. */
struct cell {
    uintptr_t key; /* the address / 2 */
    uint32_t launch;
    bool copying; /* by the thread of `store` */
    bool stored, loaded, has_other, has_far;
    event store, load;
    event other; /* the last load by another thread of that block */
    event far;   /* the last load by another block */
};

/* What more memory than this has in one launch takes each other's place: races may be missed. */
constexpr size_t CELLS = (size_t)1 << 21;

cell *cells() {
    static cell *const all =
        static_cast<cell *>(mmap(nullptr, CELLS * sizeof(cell), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    return all;
}

bool is_static(const void *p) { return p >= &__data_start && p < &_end; }
bool is_shared(const void *p) {
    const unsigned char *c = static_cast<const unsigned char *>(p);
    return is_static(p) || (c >= race_here.shared && c < race_here.shared + race_here.shared_bytes);
}

/* ---- blocks and tickets ---- */

struct tickets {
    uint32_t launch;
    std::map<const void *, std::vector<uint32_t>> given; /* by these blocks */
    std::map<uint32_t, std::vector<const void *>>
        deferred_grad;          /* by this block, after all that gave */
    std::vector<bool> unfenced; /* threads of the block that runs */
    uint32_t block;
};
tickets all;

void now() {
    if (all.launch != race_here.launch) {
        all.given.clear();
        all.deferred_grad.clear();
        all.launch = race_here.launch;
    }
    if (all.block != race_here.block) {
        all.unfenced.assign(1024, false);
        all.block = race_here.block;
    }
}

/* Whether all that `block` did comes before what this block does now. */
bool is_before(uint32_t block) {
    const auto mine = all.deferred_grad.find(race_here.block);
    if (mine == all.deferred_grad.end())
        return false;
    for (const void *ticket : mine->second) {
        const std::vector<uint32_t> &gave = all.given[ticket];
        if (std::find(gave.begin(), gave.end(), block) != gave.end())
            return true;
    }
    return false;
}

/* ---- the rule ---- */

event this_event(const void *at) {
    return event{race_here.block, race_here.barriers, race_here.warp_syncs[race_here.thread / 32],
                 race_here.thread, at};
}

bool is_ordered(const event &before, const event &after) {
    if (before.block != after.block)
        return is_before(before.block);
    return before.thread == after.thread || before.barriers != after.barriers ||
           (before.thread / 32 == after.thread / 32 && before.warp_syncs != after.warp_syncs);
}

const char *code_name(const void *at) {
    static char text[2][512];
    static int turn;
    Dl_info info;
    char *out = text[turn ^= 1];
    if (dladdr(at, &info) && info.dli_fname)
        snprintf(out, sizeof text[0], "%s (%s+0x%zx)", info.dli_sname ? info.dli_sname : "?",
                 info.dli_fname, (size_t)((const char *)at - (const char *)info.dli_fbase));
    else
        snprintf(out, sizeof text[0], "%p", at);
    return out;
}

[[noreturn]] void race(const char *what, const void *p, const event &a, const event &b) {
    fflush(stdout);
    fprintf(
        stderr,
        "emulated: race: %s, in %s memory, %p:\n  block %u, thread %d, after %u barriers and %u "
        "warp's: %s\n  block %u, thread %d, after %u barriers and %u warp's: %s\n",
        what, is_shared(p) ? "shared" : "global", p, a.block, a.thread, a.barriers, a.warp_syncs,
        code_name(a.at), b.block, b.thread, b.barriers, b.warp_syncs, code_name(b.at));
    abort();
}

cell &cell_of(uintptr_t key, bool shared) {
    cell &c = cells()[key & (CELLS - 1)];
    const bool mine = c.key == key && c.launch == race_here.launch;
    /* A block's shared memory is its own. */
    const uint32_t block = c.stored ? c.store.block : c.load.block;
    if (!mine || (shared && block != race_here.block)) {
        c = cell{};
        c.key = key;
        c.launch = race_here.launch;
    }
    return c;
}

void check_store(const cell &c, const void *p, const event &e) {
    if (c.stored && !is_ordered(c.store, e))
        race(c.copying ? "an access while a copy is on its way" : "an access beside a store", p,
             c.store, e);
    if (c.stored && c.copying)
        race("an access to what a copy brings, before it was waited for", p, c.store, e);
}

void load(cell &c, const void *p, const event &e) {
    check_store(c, p, e);
    if (c.loaded && c.load.block != e.block) {
        c.far = c.load;
        c.has_far = true;
        c.has_other = false;
    } else if (c.loaded && c.load.thread != e.thread) {
        c.other = c.load;
        c.has_other = true;
    }
    c.load = e;
    c.loaded = true;
}

void store(cell &c, const void *p, const event &e, bool copying) {
    check_store(c, p, e);
    if (c.loaded && !is_ordered(c.load, e))
        race("a store beside a load", p, c.load, e);
    if (c.has_other && !is_ordered(c.other, e))
        race("a store beside a load", p, c.other, e);
    if (c.has_far && !is_ordered(c.far, e))
        race("a store beside a load", p, c.far, e);
    c.store = e;
    c.stored = true;
    c.copying = copying;
    c.loaded = c.has_other = c.has_far = false;
}

bool is_watched(const void *p) {
    const char *c = static_cast<const char *>(p);
    return race_here.on && (c < race_here.stack || c >= race_here.stack_end);
}

/* A kernel's parameters, which it may read at once, are not in the device's memory. */
void check_begun(bool shared, const void *p, const event &e) {
    if (!shared && !race_here.begun && emulated::is_device(p))
        race("an access before gpu_begin", p, e, e);
}

void loads(const void *p, size_t bytes, const void *at) {
    if (!is_watched(p))
        return;
    now();
    const bool shared = is_shared(p);
    const event e = this_event(at);
    check_begun(shared, p, e);
    const uintptr_t from = (uintptr_t)p / 2, end = ((uintptr_t)p + bytes + 1) / 2;
    for (uintptr_t key = from; key < end; key++)
        load(cell_of(key, shared), p, e);
}

void stores(const void *p, size_t bytes, const void *at, bool copying = false) {
    if (!is_watched(p))
        return;
    now();
    const bool shared = is_shared(p);
    const event e = this_event(at);
    check_begun(shared, p, e);
    if (!shared)
        all.unfenced[(size_t)race_here.thread] = true;
    const uintptr_t from = (uintptr_t)p / 2, end = ((uintptr_t)p + bytes + 1) / 2;
    for (uintptr_t key = from; key < end; key++)
        store(cell_of(key, shared), p, e, copying);
}

} // namespace

extern "C" {

void emulated_race_read(const void *p, size_t bytes) {
    loads(p, bytes, __builtin_return_address(0));
}
void emulated_race_copy(const void *to, const void *from, size_t bytes, bool on) {
    const void *at = __builtin_return_address(0);
    if (on)
        loads(from, bytes, at);
    stores(to, bytes, at, true);
}
void emulated_race_copied(const void *to, size_t bytes) {
    const event e = this_event(__builtin_return_address(0));
    for (uintptr_t key = (uintptr_t)to / 2; key < ((uintptr_t)to + bytes) / 2; key++) {
        cell &c = cell_of(key, true);
        c.copying = false; /* its own check passes */
        store(c, to, e, false);
    }
}
void emulated_race_fence(void) {
    now();
    all.unfenced[(size_t)race_here.thread] = false;
}
void emulated_race_atomic(const void *p, bool last) {
    now();
    const event e = this_event(__builtin_return_address(0));
    for (int t = 0; t < 1024; t++)
        if (all.unfenced[(size_t)t])
            race("a ticket given back before a fence after the stores", p,
                 event{e.block, e.barriers, e.warp_syncs, t, e.at}, e);
    if (last)
        all.deferred_grad[race_here.block].push_back(p);
    all.given[p].push_back(race_here.block);
}

/* What -fsanitize=thread calls. */
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
#define RACE_ACCESS(bytes)                                                                         \
    void __tsan_read##bytes(void *p) { loads(p, bytes, __builtin_return_address(0)); }             \
    void __tsan_write##bytes(void *p) { stores(p, bytes, __builtin_return_address(0)); }           \
    void __tsan_unaligned_read##bytes(void *p) { loads(p, bytes, __builtin_return_address(0)); }   \
    void __tsan_unaligned_write##bytes(void *p) { stores(p, bytes, __builtin_return_address(0)); } \
    void __tsan_volatile_read##bytes(void *p) { loads(p, bytes, __builtin_return_address(0)); }    \
    void __tsan_volatile_write##bytes(void *p) { stores(p, bytes, __builtin_return_address(0)); }
RACE_ACCESS(1)
RACE_ACCESS(2)
RACE_ACCESS(4)
RACE_ACCESS(8)
RACE_ACCESS(16)
void __tsan_read_range(void *p, size_t n) { loads(p, n, __builtin_return_address(0)); }
void __tsan_write_range(void *p, size_t n) { stores(p, n, __builtin_return_address(0)); }
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}

} /* extern "C" */
