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
 * Of kernels that use barriers in shared memory, barriers of some warps, clusters or the async
 * proxy more is kept: vector clocks (Fidge, Mattern). Each thread counts its synchronisations, and
 * knows for each other thread up to which of them it has heard of it, by a chain of barriers of any
 * kind. Then two accesses are also ordered if the second thread has heard of the first access. The
 * same for fences of the async proxy: a store comes to the async proxy if a fence lies on the
 * chain.
 *   - A bulk load stores from its issue until a thread has waited for its phase; what was there
 *     before must be known to the thread that issues it.
 *   - An async read (wgmma, bulk stores) reads from its issue until a thread has waited for it.
 *   - An arrival at another block's barrier has the scope of its own block: a thread that waits for
 *     it then knows of loads, and of fenced stores to the arriving block's own shared memory (a
 *     buffer is free), but of no other stores.
 *   - gpu_async_fence is for shared memory: no bulk load reads what its kernel stored to global
 *     memory.
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
#include <memory>
#include <set>
#include <vector>

#include "races.h"

extern "C" char __data_start, _end; /* of the program: its static shared memory */

namespace {

using emulated::race_here;

struct event {
    uint32_t block, barriers, warp_syncs;
    int thread;
    const void *at; /* the code */
    uint32_t time;  /* synchronisations of the thread so far; of a barrier: complete phases */
    int who;        /* thread of the cluster, or barrier; see struct clocks */
};

/* Loads are those since the last store. */
struct cell {
    uintptr_t key; /* the address / 2 */
    uint32_t launch, cluster;
    bool copying; /* by the thread of `store` */
    bool stored, loaded, has_other, has_far;
    uint16_t reading;  /* async reads that are not done */
    event store, load; /* store: of a bulk load its barrier's */
    event since;       /* the last async read */
    event other;       /* the last load by another thread of that block */
    event far;         /* the last load by another block */
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
/* The block of the cluster whose dynamic shared memory it is, or -1. */
int rank_of(const void *p) {
    const unsigned char *c = static_cast<const unsigned char *>(p);
    for (int r = 0; r < race_here.blocks; r++)
        if (c >= race_here.shared[r] && c < race_here.shared[r] + race_here.shared_bytes)
            return r;
    return -1;
}
bool is_shared(const void *p) { return is_static(p) || rank_of(p) >= 0; }

/* ---- blocks and tickets ---- */

struct tickets {
    uint32_t launch;
    std::map<const void *, std::vector<uint32_t>> given; /* by these blocks */
    std::map<uint32_t, std::vector<const void *>>
        deferred_grad;                              /* by this block, after all that gave */
    std::map<uint32_t, std::vector<bool>> unfenced; /* threads of blocks */
    std::vector<bool> *mine;                        /* of the block that runs */
    uint32_t block;
};
tickets all;

void now() {
    if (all.launch != race_here.launch) {
        all.given.clear();
        all.deferred_grad.clear();
        all.unfenced.clear();
        all.launch = race_here.launch;
    }
    if (all.block != race_here.block) {
        all.mine = &all.unfenced[race_here.block];
        all.mine->resize(1024, false);
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

/* ---- clocks ---- */

/* What a thread has heard of: of each thread and barrier the time; of the stores of each thread the
 * time up to which they are visible, and up to which they have come to the async proxy. */
struct knowledge {
    std::vector<uint32_t> seen, stored, fenced;
};
typedef std::shared_ptr<const knowledge> known;

void merge(std::vector<uint32_t> &into, const std::vector<uint32_t> &from) {
    if (into.size() < from.size())
        into.resize(from.size());
    for (size_t i = 0; i < from.size(); i++)
        into[i] = std::max(into[i], from[i]);
}
void merge(knowledge &into, const knowledge &from) {
    merge(into.seen, from.seen);
    merge(into.stored, from.stored);
    merge(into.fenced, from.fenced);
}
uint32_t at(const std::vector<uint32_t> &v, int who) {
    return (size_t)who < v.size() ? v[(size_t)who] : 0;
}

struct barrier_clock {
    int who;
    uint32_t phase;
    knowledge arrived;
    known complete;              /* when the last phase was */
    std::map<known, known> wait; /* what a thread knows before a wait for it, and after */
};

/* Of the cluster that runs. Threads have numbers from 0, barriers follow. */
struct clocks {
    uint32_t cluster;
    bool on;
    std::vector<uint32_t> time, fence; /* of threads; fence: stores up to it are fenced */
    std::vector<known> threads;
    std::map<const void *, barrier_clock> barriers;
    /* For each two bytes of a block's dynamic shared memory the last load by each of its warps:
     * time * 32 + lane. 0: none since the last store. */
    std::vector<uint32_t> loads[8];
};
clocks clock_of;

int thread_here() { return race_here.rank * race_here.threads + race_here.thread; }
int warps_of_block() { return (race_here.threads + 31) / 32; }

void turn_on(clocks &c) {
    if (c.on)
        return;
    c.on = true;
    c.threads.assign(c.time.size(), std::make_shared<const knowledge>());
    for (int r = 0; r < race_here.blocks; r++)
        c.loads[r].assign((race_here.shared_bytes + 1) / 2 * (size_t)warps_of_block(), 0);
}
clocks &clocks_now() {
    clocks &c = clock_of;
    if (c.cluster == race_here.first_block)
        return c;
    c.cluster = race_here.first_block;
    c.on = false;
    c.time.assign((size_t)(race_here.blocks * race_here.threads), 1);
    c.fence.assign(c.time.size(), 0);
    c.threads.clear();
    c.barriers.clear();
    if (race_here.blocks > 1)
        turn_on(c);
    return c;
}

/* What others hear of the thread. */
void tell(knowledge &k, const clocks &c, int thread) {
    const size_t i = (size_t)thread;
    if (k.seen.size() < c.time.size())
        k.seen.resize(c.time.size());
    if (k.stored.size() < c.time.size())
        k.stored.resize(c.time.size());
    if (k.fenced.size() < c.time.size())
        k.fenced.resize(c.time.size());
    k.seen[i] = std::max(k.seen[i], c.time[i]);
    k.stored[i] = std::max(k.stored[i], c.time[i]);
    k.fenced[i] = std::max(k.fenced[i], c.fence[i]);
}

/* Whether the thread that runs has heard of the event: a store, or a load or what a copy does. */
bool is_heard(const event &before, bool store) {
    const clocks &c = clocks_now();
    if (!c.on || before.block - race_here.first_block >= (uint32_t)race_here.blocks)
        return false;
    const bool barrier = (size_t)before.who >= c.time.size();
    const knowledge &k = *c.threads[(size_t)thread_here()];
    return at(store && !barrier ? k.stored : k.seen, before.who) >= before.time + barrier;
}
/* Whether the async proxy sees the store, if this thread uses it now. */
bool is_fenced(const event &store) {
    const clocks &c = clocks_now();
    if ((size_t)store.who >= c.time.size())
        return true; /* it came by the async proxy */
    if (!c.on)
        return false;
    const size_t mine = (size_t)thread_here();
    return (store.who == (int)mine ? c.fence[mine] : at(c.threads[mine]->fenced, store.who)) >=
           store.time;
}

/* ---- the rule ---- */

event this_event(const void *at) {
    const int who = thread_here();
    return event{race_here.block,
                 race_here.barriers,
                 race_here.warp_syncs[race_here.thread / 32],
                 race_here.thread,
                 at,
                 clocks_now().time[(size_t)who],
                 who};
}
bool is_of_barrier(const event &e) { return (size_t)e.who >= clock_of.time.size(); }

/* after: of the thread that runs, now. */
bool is_ordered(const event &before, const event &after, bool store = false) {
    if (clock_of.on && is_heard(before, store))
        return true;
    if (before.block != after.block)
        return is_before(before.block);
    if (is_of_barrier(before))
        return false;
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
    /* A cluster's shared memory is its own. */
    if (!mine || (shared && c.cluster != race_here.first_block)) {
        c = cell{};
        c.key = key;
        c.launch = race_here.launch;
        c.cluster = race_here.first_block;
    }
    return c;
}

/* Static shared memory exists once for all blocks of a cluster, which take turns. Those that only
 * use it between two waits do not meet there. */
void check_static(cell &c, const void *p, const event &e, bool loads) {
    if (race_here.blocks == 1 || !is_static(p))
        return;
    if (c.stored && c.store.block != e.block && loads)
        race("static shared memory over a wait for another block or a copy, which the emulated "
             "device cannot run",
             p, c.store, e);
    if ((c.stored && c.store.block != e.block) || (c.loaded && c.load.block != e.block)) {
        const uintptr_t key = c.key;
        c = cell{};
        c.key = key;
        c.launch = race_here.launch;
        c.cluster = race_here.first_block;
    }
}

/* The loads of this cell by the warps of its block, or NULL. */
uint32_t *loads_of(uintptr_t key) {
    clocks &c = clocks_now();
    const int rank = c.on ? rank_of(reinterpret_cast<const void *>(key * 2)) : -1;
    if (rank < 0)
        return nullptr;
    const size_t i = (key * 2 - (uintptr_t)race_here.shared[rank]) / 2;
    return &c.loads[rank][i * (size_t)warps_of_block()];
}
void note_load(uintptr_t key, const event &e) {
    if (uint32_t *const loads = clock_of.on ? loads_of(key) : nullptr)
        if (rank_of(reinterpret_cast<const void *>(key * 2)) == race_here.rank)
            loads[e.thread / 32] = e.time * 32 + (uint32_t)e.thread % 32;
}
/* The memory is stored to: all loads must be known. */
void check_loads(uintptr_t key, const void *p, const event &e) {
    uint32_t *const loads = clock_of.on ? loads_of(key) : nullptr;
    const int rank = loads ? rank_of(p) : -1;
    for (int w = 0; loads && w < warps_of_block(); w++) {
        event before = e;
        if (!loads[w])
            continue;
        before.block = race_here.first_block + (uint32_t)rank;
        before.thread = w * 32 + (int)(loads[w] % 32);
        before.who = rank * race_here.threads + before.thread;
        before.time = loads[w] / 32;
        before.at = nullptr;
        if (before.who != e.who && !is_heard(before, false))
            race("a store beside a load", p, before, e);
        loads[w] = 0;
    }
}

/* visible: it matters that the store is, not only that it was made. */
void check_store(const cell &c, const void *p, const event &e, bool visible = true) {
    if (c.stored && !is_ordered(c.store, e, visible))
        race(c.copying ? "an access while a copy is on its way" : "an access beside a store", p,
             c.store, e);
    if (c.stored && c.copying)
        race("an access to what a copy brings, before it was waited for", p, c.store, e);
}

/* e: of the thread that runs; as: what is kept, e or a barrier's. */
void load(cell &c, const void *p, const event &e, const event &as) {
    check_store(c, p, e);
    if (c.loaded && c.load.block != as.block) {
        c.far = c.load;
        c.has_far = true;
        c.has_other = false;
    } else if (c.loaded && c.load.who != as.who) {
        c.other = c.load;
        c.has_other = true;
    }
    c.load = as;
    c.loaded = true;
}
void load(cell &c, const void *p, const event &e) {
    note_load(c.key, e);
    load(c, p, e, e);
}

void store(cell &c, const void *p, const event &e, bool copying, bool visible = true) {
    check_store(c, p, e, visible);
    if (c.loaded && !is_ordered(c.load, e))
        race("a store beside a load", p, c.load, e);
    if (c.has_other && !is_ordered(c.other, e))
        race("a store beside a load", p, c.other, e);
    if (c.has_far && !is_ordered(c.far, e))
        race("a store beside a load", p, c.far, e);
    check_loads(c.key, p, e);
    if (c.reading)
        race("a store to what an async operation still reads", p, c.since, e);
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
    for (uintptr_t key = from; key < end; key++) {
        cell &c = cell_of(key, shared);
        check_static(c, p, e, true);
        load(c, p, e);
    }
}

void stores(const void *p, size_t bytes, const void *at, bool copying = false) {
    if (!is_watched(p))
        return;
    now();
    const bool shared = is_shared(p);
    const event e = this_event(at);
    check_begun(shared, p, e);
    if (!shared)
        (*all.mine)[(size_t)race_here.thread] = true;
    const uintptr_t from = (uintptr_t)p / 2, end = ((uintptr_t)p + bytes + 1) / 2;
    for (uintptr_t key = from; key < end; key++) {
        cell &c = cell_of(key, shared);
        check_static(c, p, e, false);
        store(c, p, e, copying);
    }
}

/* What a bulk load, or an async read, meets. */
void check_proxy(const cell &c, const void *p, const event &e) {
    if (c.stored && !is_fenced(c.store))
        race("an async access after a store without a gpu_async_fence", p, c.store, e);
}

/* The barrier was initialised, and this thread knows of it. */
barrier_clock &use_barrier(const void *b, const event &e) {
    const uintptr_t from = (uintptr_t)b / 2;
    for (uintptr_t key = from; key < from + 4; key++)
        check_store(cell_of(key, true), b, e);
    return clocks_now().barriers[b];
}

/* What a bulk load does that was issued now: known to those that have waited for its phase. */
event arrival(const void *b, const event &issue) {
    const barrier_clock &clock = use_barrier(b, issue);
    event e = issue;
    e.who = clock.who;
    e.time = clock.phase;
    e.block = race_here.first_block + (uint32_t)rank_of(b);
    return e;
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
void emulated_race_write(const void *p, size_t bytes) {
    stores(p, bytes, __builtin_return_address(0));
}
void emulated_race_fence(void) {
    now();
    (*all.mine)[(size_t)race_here.thread] = false;
}

void emulated_race_sync(const int *threads, int count) {
    clocks &c = clocks_now();
    if (c.on) {
        knowledge all_know;
        std::set<known> merged;
        for (int i = 0; i < count; i++) {
            const known &k = c.threads[(size_t)threads[i]];
            if (merged.insert(k).second)
                merge(all_know, *k);
        }
        for (int i = 0; i < count; i++)
            tell(all_know, c, threads[i]);
        const known k = std::make_shared<const knowledge>(std::move(all_know));
        for (int i = 0; i < count; i++)
            c.threads[(size_t)threads[i]] = k;
    }
    for (int i = 0; i < count; i++)
        c.time[(size_t)threads[i]]++;
}

void emulated_race_barrier(const void *b) {
    clocks &c = clocks_now();
    turn_on(c);
    barrier_clock clock = {};
    clock.who = (int)(c.time.size() + c.barriers.size());
    clock.complete = std::make_shared<const knowledge>();
    c.barriers[b] = clock;
    stores(b, 8, __builtin_return_address(0));
}
void emulated_race_arrive(const void *b) {
    clocks &c = clocks_now();
    const int me = thread_here();
    barrier_clock &clock = use_barrier(b, this_event(__builtin_return_address(0)));
    knowledge k = *c.threads[(size_t)me];
    tell(k, c, me);
    if (rank_of(b) != race_here.rank)
        k.stored.clear();
    merge(clock.arrived, k);
    c.time[(size_t)me]++;
}
void emulated_race_phase(const void *b) {
    barrier_clock &clock = clocks_now().barriers[b];
    knowledge k = clock.arrived;
    k.seen.resize(std::max(k.seen.size(), (size_t)clock.who + 1));
    k.seen[(size_t)clock.who] = ++clock.phase;
    clock.complete = std::make_shared<const knowledge>(std::move(k));
    clock.wait.clear();
}
void emulated_race_waited(const void *b) {
    barrier_clock &clock = use_barrier(b, this_event(__builtin_return_address(0)));
    known &mine = clocks_now().threads[(size_t)thread_here()];
    known &after = clock.wait[mine];
    if (!after) {
        knowledge k = *mine;
        merge(k, *clock.complete);
        after = std::make_shared<const knowledge>(std::move(k));
    }
    mine = after;
}

void emulated_race_async_load(const void *from, size_t bytes, const void *b) {
    const event e = this_event(__builtin_return_address(0)), arrives = arrival(b, e);
    check_begun(false, from, e);
    for (uintptr_t key = (uintptr_t)from / 2; key < ((uintptr_t)from + bytes) / 2; key++) {
        cell &c = cell_of(key, false);
        if (c.stored)
            race("a bulk load of what this kernel stored: no fence here orders global memory for "
                 "the async proxy",
                 from, c.store, e);
        load(c, from, e, arrives);
    }
}
void emulated_race_async_write(const void *to, size_t bytes, const void *b) {
    const event e = this_event(__builtin_return_address(0)), arrives = arrival(b, e);
    for (uintptr_t key = (uintptr_t)to / 2; key < ((uintptr_t)to + bytes) / 2; key++) {
        cell &c = cell_of(key, true);
        /* What a block stored to its own buffer was made there before its thread arrived. */
        const bool own = (int)(c.store.block - race_here.first_block) == rank_of(to);
        check_store(c, to, e, !own);
        check_proxy(c, to, e);
        store(c, to, e, false, !own);
        c.store = arrives;
    }
}
void emulated_race_async_read(const void *from, size_t bytes, const void *at) {
    const event e = this_event(at ? at : __builtin_return_address(0));
    for (uintptr_t key = (uintptr_t)from / 2; key < ((uintptr_t)from + bytes) / 2; key++) {
        cell &c = cell_of(key, true);
        check_store(c, from, e);
        check_proxy(c, from, e);
        c.reading++;
        c.since = e;
    }
}
void emulated_race_async_read_done(const void *from, size_t bytes, const void *at) {
    const event e = this_event(at ? at : __builtin_return_address(0));
    for (uintptr_t key = (uintptr_t)from / 2; key < ((uintptr_t)from + bytes) / 2; key++) {
        cell &c = cell_of(key, true);
        if (c.reading) /* 0: another address was kept in its place */
            c.reading--;
        load(c, from, e);
    }
}
void emulated_race_async_fence(void) {
    clocks &c = clocks_now();
    const size_t me = (size_t)thread_here();
    turn_on(c);
    knowledge k = *c.threads[me];
    merge(k.fenced, k.stored);
    c.threads[me] = std::make_shared<const knowledge>(std::move(k));
    c.fence[me] = c.time[me]++;
}
void emulated_race_atomic(const void *p, bool last) {
    now();
    const event e = this_event(__builtin_return_address(0));
    for (int t = 0; t < 1024; t++)
        if ((*all.mine)[(size_t)t])
            race("a ticket given back before a fence after the stores", p,
                 event{e.block, e.barriers, e.warp_syncs, t, e.at, e.time, e.who}, e);
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
