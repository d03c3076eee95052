/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of threads as fibers: what cuda_runtime.h beside this promises of barriers and warps.
 *
 * The blocks of a cluster run together. A block runs until all of its threads wait; then the next
 * one does. If all threads of the cluster wait, a bulk copy is completed (hopper.cc): copies come
 * as late as they can. Static shared memory exists once, so a value in it does not survive a wait
 * for another block or for a copy; races.cc finds a kernel that needs it to.
 */
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>
#include <vector>

#include "counts.h"
#include "fibers.h"
#include "include/cuda_runtime.h"
#include "races.h"

#if defined(__SANITIZE_ADDRESS__)
#define FIBERS_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBERS_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#endif
#ifndef FIBERS_ASAN
#define FIBERS_ASAN 0
#endif

/* Saves the callee's registers on the stack, leaves its pointer in *from and goes on at `to`. */
extern "C" void emulated_switch(void **from, void *to);
#if defined(__x86_64__)
asm(R"(
.text
.globl emulated_switch
.type emulated_switch, @function
emulated_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size emulated_switch, .-emulated_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl emulated_switch
.type emulated_switch, %function
emulated_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size emulated_switch, .-emulated_switch
)");
#else
#error "emulated CUDA: no fiber switch for this processor"
#endif

namespace emulated {

bool mma_truncates = [] {
    const char *text = getenv("EMULATED_MMA");
    return text && strcmp(text, "truncate") == 0;
}();

thread *now;
block now_block;
race_place race_here;

namespace {

enum state : unsigned char {
    STARTS,
    RUNS,
    AT_BARRIER,
    AT_WARP,
    AT_WARPS,   /* barrier.sync of some warps */
    AT_CLUSTER, /* barrier.cluster */
    SLEEPS,     /* sleep_on */
    ENDED
};

struct copy {
    void *to;
    const void *from;
    int bytes;
    bool on;
    int group;
};

/* A stack, and where on it to go on. */
struct fiber {
    void *stack_pointer;
    const void *stack;
    size_t bytes;
};

/* A thread. It gets a fiber when it starts, which may be that of one that has ended: threads that
 * never wait all run on one. */
struct task {
    thread self;
    fiber *on;
    /* copies that have not been waited for */
    std::vector<copy> copies;
    int group;
    bool begun; /* begin_kernel was called */
    const void *sleeps_on;
    int line; /* of the source, of the barrier that it waits at */
};

/* A barrier of some warps. */
struct warps_barrier {
    int wanted;
    std::vector<int> here;
};
enum { WARPS_BARRIERS = 16, MOST_WARPS = 32 };

/* A block of the cluster that runs. */
struct resident_block {
    block place;
    int ready, waiting, ended; /* threads; ready: to start or to run; waiting: at the barrier */
    int votes, votes_so_far;   /* of the last barrier, of the next one */
    warps_barrier some[WARPS_BARRIERS];
    unsigned char *shared;                         /* aligned to 1024 bytes */
    uint32_t id, barriers, warp_syncs[MOST_WARPS]; /* for race_here while another block runs */
};

/* A warp's operation: what its lanes came with. Lanes are bits. */
struct meeting {
    unsigned lanes, ended, here;
    int kind[32], arg[32];
    unsigned mask[32];
    warp_fn apply;
    const void *in[32];
    void *out[32];
};

constexpr size_t STACK = FIBERS_ASAN ? 512 << 10 : 128 << 10;
/* Stacks whose tops lie at one place of their pages would share few lines of the processor's
 * caches: each begins some lines below where the one before does, in its upper half. */
constexpr size_t STACK_STEP = 17 * 64;

struct scheduler {
    std::deque<fiber> fibers;
    std::vector<fiber *> idle;
    std::vector<task> tasks;
    std::vector<enum state> states;
    std::vector<meeting> meetings;
    std::vector<int> order;
    std::vector<resident_block> blocks; /* of the cluster */
    int threads;                        /* of a block */
    int turn, turn_block;               /* in the order; in this block */
    int at;                             /* the thread that runs, of the cluster */
    int block;                          /* its block */
    int at_cluster;                     /* threads at barrier.cluster */
    uint32_t last_block;                /* counted through the program */
    fiber main;
    bool from_main;
    const std::function<void()> *body;
    size_t shared_bytes;
    const void *code;    /* the kernel */
    bool shared_checked; /* of this launch */
};
/* CHEX_DYNAMIC_SHARED promises 128 bytes of alignment, not more. */
constexpr size_t SHARED_SHIFT = 128, SHARED_ALIGN = 1024;
scheduler s;
std::recursive_mutex one_at_a_time;

enum state &state_of(int i) { return s.states[(size_t)i]; }
task &task_of(int i) { return s.tasks[(size_t)i]; }
resident_block &block_of(int i) { return s.blocks[(size_t)(i / s.threads)]; }

/* Thread i can go on. */
void make_ready(int i) {
    state_of(i) = RUNS;
    block_of(i).ready++;
}
/* The thread that runs cannot. */
void make_wait(enum state state) {
    state_of(s.at) = state;
    block_of(s.at).ready--;
}

/* Blocks take turns: what describes the one that runs is kept while another one does. */
void change_block(int to) {
    if (s.block >= 0) {
        resident_block &r = s.blocks[(size_t)s.block];
        r.barriers = race_here.barriers;
        memcpy(r.warp_syncs, race_here.warp_syncs, sizeof r.warp_syncs);
    }
    const resident_block &r = s.blocks[(size_t)to];
    s.block = to;
    now_block = r.place;
    race_here.block = r.id;
    race_here.rank = to;
    race_here.barriers = r.barriers;
    memcpy(race_here.warp_syncs, r.warp_syncs, sizeof r.warp_syncs);
}

extern "C" void emulated_entry();

fiber *new_fiber() {
    void *stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) {
        fprintf(stderr, "emulated: no memory for stacks\n");
        abort();
    }
    const size_t lower = s.fibers.size() * STACK_STEP % (STACK / 2);
    s.fibers.push_back(fiber{nullptr, stack, STACK - lower});
    return &s.fibers.back();
}

/* One that begins at the entry. */
fiber *take_fiber() {
    fiber *f;
    if (s.idle.empty()) {
        f = new_fiber();
    } else {
        f = s.idle.back();
        s.idle.pop_back();
    }
    char *top = static_cast<char *>(const_cast<void *>(f->stack)) + f->bytes;
#if FIBERS_ASAN
    /* The entry never returns: what it had marked is there still. */
    __asan_unpoison_memory_region(top - 4096, 4096);
#endif
#if defined(__x86_64__)
    void **sp = reinterpret_cast<void **>(top) - 2; /* so that the entry finds it as after a call */
    *sp = reinterpret_cast<void *>(emulated_entry);
    sp -= 6;
    memset(sp, 0, 6 * sizeof *sp);
#else
    void **sp = reinterpret_cast<void **>(top - 160);
    memset(sp, 0, 160);
    sp[11] = reinterpret_cast<void *>(emulated_entry);
#endif
    f->stack_pointer = sp;
    return f;
}

/* Thread i has its turn, on the fiber `on` if it starts now. */
void take_turn(int i, fiber *on) {
    task &t = task_of(i);
    if (state_of(i) == STARTS) {
        state_of(i) = RUNS;
        t.on = on;
        t.copies.clear();
        t.group = 0;
        t.begun = false;
    }
    s.at = i;
    if (i / s.threads != s.block)
        change_block(i / s.threads);
    now = &t.self;
    race_here.thread = i % s.threads;
    race_here.begun = t.begun;
    race_here.stack = static_cast<const char *>(t.on->stack);
    race_here.stack_end = race_here.stack + STACK;
}

void change(fiber *from, fiber *to, bool for_ever) {
#if FIBERS_ASAN
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake, to->stack, to->bytes);
    emulated_switch(&from->stack_pointer, to->stack_pointer);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    (void)for_ever;
    emulated_switch(&from->stack_pointer, to->stack_pointer);
#endif
}

/* Warps of the cluster. */
int warps_of_block() { return (s.threads + 31) / 32; }
int warp_of(int i) { return i / s.threads * warps_of_block() + i % s.threads / 32; }
int first_of_warp(int warp) {
    return warp / warps_of_block() * s.threads + warp % warps_of_block() * 32;
}

/* They meet in a barrier: what each did before it comes before what each does after it. */
void note_meeting(const int *threads, int count) {
    if (emulated_race_sync)
        emulated_race_sync(threads, count);
}

/* Barriers are `.aligned`: all lanes of a warp come to the same one. threads: in rising order. */
void meet_aligned(const int *threads, int count) {
    for (int i = 1; i < count; i++)
        if (warp_of(threads[i]) == warp_of(threads[i - 1]) &&
            task_of(threads[i]).line != task_of(threads[i - 1]).line)
            stop("lanes of a warp come to a barrier from different branches");
    note_meeting(threads, count);
}

/* Opens a barrier that all threads of a block, or of the cluster, have reached: true. */
bool open_barrier(int block) {
    resident_block &r = s.blocks[(size_t)block];
    if (!r.waiting || r.waiting + r.ended != s.threads)
        return false;
    std::vector<int> here;
    for (int i = block * s.threads; i < (block + 1) * s.threads; i++)
        if (state_of(i) == AT_BARRIER) {
            make_ready(i);
            here.push_back(i);
        }
    meet_aligned(here.data(), (int)here.size());
    r.waiting = 0;
    r.votes = r.votes_so_far;
    r.votes_so_far = 0;
    ++(block == s.block ? race_here.barriers : r.barriers);
    if (emulated_count_barrier)
        emulated_count_barrier();
    return true;
}
bool open_cluster() {
    int ended = 0, all = (int)s.tasks.size();
    for (const resident_block &r : s.blocks)
        ended += r.ended;
    if (!s.at_cluster || s.at_cluster + ended != all)
        return false;
    std::vector<int> here;
    for (int i = 0; i < all; i++)
        if (state_of(i) == AT_CLUSTER) {
            make_ready(i);
            here.push_back(i);
        }
    meet_aligned(here.data(), (int)here.size());
    s.at_cluster = 0;
    return true;
}

/* The first thread of the block that can go on after this turn, or -1: round after round in the
 * order. */
int next_of_block() {
    const resident_block &r = s.blocks[(size_t)s.turn_block];
    while (r.ready || open_barrier(s.turn_block)) {
        while (++s.turn < s.threads) {
            const int i = s.turn_block * s.threads + s.order[(size_t)s.turn];
            if (state_of(i) == STARTS || state_of(i) == RUNS)
                return i;
        }
        s.turn = -1;
    }
    return -1;
}

/* Whose turn it is after this one's, -1 if all have ended. */
int next_turn() {
    const int blocks = (int)s.blocks.size();
    for (;;) {
        int ended = 0;
        for (int n = 0; n < blocks; n++) {
            const int next = next_of_block();
            if (next >= 0)
                return next;
            ended += s.blocks[(size_t)s.turn_block].ended == s.threads;
            s.turn_block = (s.turn_block + 1) % blocks;
            s.turn = -1;
        }
        if (ended == blocks)
            return -1;
        if (open_cluster() || complete_a_copy())
            continue;
        explain_barriers();
        explain_registers();
        stop("threads wait for others that never come");
    }
}

/* The thread that runs waits until it has its next turn. */
void rest() {
    fiber *mine = task_of(s.at).on;
    const int next = next_turn();
    if (next == s.at)
        return;
    take_turn(next, state_of(next) == STARTS ? take_fiber() : nullptr);
    change(mine, task_of(next).on, false);
}

void finish_warp(int warp);

void end_thread() {
    if (!task_of(s.at).begun)
        stop("a thread ends without gpu_begin");
    for (const copy &c : task_of(s.at).copies)
        if (c.on)
            stop("a thread ends with copies that it did not wait for");
    check_thread_end();
    check_products_end();
    make_wait(ENDED);
    if (++block_of(s.at).ended == s.threads) {
        check_block_end((unsigned)s.block);
        check_warpgroups_end();
    }
    s.meetings[(size_t)warp_of(s.at)].ended |= 1u << now->lane;
    finish_warp(warp_of(s.at));
}

extern "C" void emulated_entry() {
#if FIBERS_ASAN
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
    if (s.from_main) {
        s.main.stack = stack;
        s.main.bytes = bytes;
        s.from_main = false;
    }
#endif
    for (;;) {
        (*s.body)();
        fiber *mine = task_of(s.at).on;
        end_thread();
        const int next = next_turn();
        if (next >= 0 && state_of(next) == STARTS) {
            take_turn(next, mine);
            continue;
        }
        if (next >= 0)
            take_turn(next, nullptr);
        s.idle.push_back(mine);
        change(mine, next >= 0 ? task_of(next).on : &s.main, true);
    }
}

/* The order in which the threads of a block, or the clusters of a grid, are taken up. */
std::vector<int> make_order(int count) {
    const char *text = getenv("EMULATED_ORDER");
    std::vector<int> order((size_t)count);
    for (int i = 0; i < count; i++)
        order[(size_t)i] = i;
    if (!text || strcmp(text, "forward") == 0)
        return order;
    std::reverse(order.begin(), order.end());
    unsigned seed = (unsigned)atoi(text);
    for (int i = count - 1; seed && i > 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        std::swap(order[(size_t)i], order[(seed >> 8) % (unsigned)(i + 1)]);
    }
    return order;
}

/* The warp's operation takes place when its last living lane of the mask has arrived. */
void finish_warp(int warp) {
    meeting &m = s.meetings[(size_t)warp];
    if (!m.here)
        return;
    const int one = __builtin_ctz(m.here);
    const unsigned wanted = m.mask[one] & m.lanes & ~m.ended;
    if ((m.here & wanted) != wanted)
        return; /* some are still on their way */
    for (int l = 0; l < 32; l++)
        if (m.here >> l & 1 &&
            (m.kind[l] != m.kind[one] || m.arg[l] != m.arg[one] || m.mask[l] != m.mask[one]))
            stop("lanes of a warp meet in different operations");
    if (emulated_count_warp)
        emulated_count_warp(warp, m.kind[one], m.arg[one], m.in, m.here,
                            m.here == (m.lanes & ~m.ended));
    if (m.apply)
        m.apply(m.in, m.out, m.here, m.arg[one]);
    int here[32], count = 0;
    for (int l = 0; l < 32; l++)
        if (m.here >> l & 1)
            make_ready(here[count++] = first_of_warp(warp) + l);
    if (!m.apply) {
        note_meeting(here, count);
        race_here.warp_syncs[warp % warps_of_block()]++;
    }
    m.here = 0;
}

unsigned blocks_of(dim3 d) { return d.x * d.y * d.z; }

void begin_grid(const launch_shape &shape) {
    const dim3 b = shape.block;
    const size_t blocks = blocks_of(shape.cluster);
    s.threads = (int)blocks_of(b);
    s.blocks.assign(blocks, resident_block{});
    s.tasks.resize(blocks * (size_t)s.threads);
    s.states.resize(s.tasks.size());
    s.meetings.assign(blocks * (size_t)warps_of_block(), meeting{});
    for (int i = 0; i < (int)s.tasks.size(); i++) {
        const unsigned t = (unsigned)(i % s.threads);
        task_of(i).self = thread{uint3{t % b.x, t / b.x % b.y, t / b.x / b.y}, (int)t % 32};
        s.meetings[(size_t)warp_of(i)].lanes |= 1u << t % 32;
    }
    s.order = make_order(s.threads);
    s.shared_checked = false;
    /* Exactly as large as was asked for, so that an address sanitizer sees its end. */
    s.shared_bytes = shape.shared_bytes + SHARED_SHIFT;
    race_here.shared_bytes = s.shared_bytes;
    race_here.blocks = (int)blocks;
    race_here.threads = s.threads;
    for (size_t r = 0; r < blocks; r++) {
        s.blocks[r].shared = static_cast<unsigned char *>(
            ::operator new(s.shared_bytes, std::align_val_t(SHARED_ALIGN)));
        race_here.shared[r] = s.blocks[r].shared;
    }
}
void end_grid() {
    for (const resident_block &r : s.blocks)
        ::operator delete(r.shared, std::align_val_t(SHARED_ALIGN));
}

/* The cluster whose first block has this index. */
void begin_cluster(const launch_shape &shape, uint3 first) {
    unsigned r = 0;
    for (unsigned z = 0; z < shape.cluster.z; z++)
        for (unsigned y = 0; y < shape.cluster.y; y++)
            for (unsigned x = 0; x < shape.cluster.x; x++) {
                resident_block &b = s.blocks[r++];
                memset(b.shared, 0xff, s.shared_bytes); /* NaN: no kernel may rely on it */
                b.place =
                    block{uint3{first.x + x, first.y + y, first.z + z}, shape.block, shape.grid};
                b.ready = s.threads;
                b.waiting = b.ended = b.votes_so_far = 0;
                b.id = ++s.last_block;
                b.barriers = 0;
                memset(b.warp_syncs, 0, sizeof b.warp_syncs);
                for (warps_barrier &w : b.some)
                    w.here.clear();
            }
    race_here.first_block = s.blocks[0].id;
    s.block = -1;
    s.at_cluster = 0;
    forget_copies();
    forget_products();
}

void run_cluster() {
    std::fill(s.states.begin(), s.states.end(), STARTS);
    for (meeting &m : s.meetings)
        m.ended = m.here = 0;
    s.turn = -1;
    s.turn_block = 0;
    s.from_main = true;
    const int first = next_turn();
    take_turn(first, take_fiber());
    change(&s.main, task_of(first).on, false);
}

} // namespace

[[noreturn]] void stop(const char *what) {
    fprintf(stderr, "emulated: %s: block (%u, %u, %u), thread %u\n", what, now_block.index.x,
            now_block.index.y, now_block.index.z, now->index.x);
    abort();
}

int thread_of_cluster() { return s.at; }
void sleep_on(const void *place) {
    task_of(s.at).sleeps_on = place;
    make_wait(SLEEPS);
    rest();
}
void wake(const void *place) {
    for (int i = 0; i < (int)s.tasks.size(); i++)
        if (state_of(i) == SLEEPS && task_of(i).sleeps_on == place)
            make_ready(i);
}

int block_of_shared(const void *p) {
    for (size_t r = 0; r < s.blocks.size(); r++)
        if (p >= s.blocks[r].shared && p < s.blocks[r].shared + s.shared_bytes)
            return (int)r;
    return -1;
}
void *in_block(const void *p, unsigned block) {
    const int from = block_of_shared(p);
    if (from < 0)
        stop("an address of the cluster outside dynamic shared memory");
    if (block >= s.blocks.size())
        stop("a block that the cluster does not have");
    return s.blocks[block].shared +
           (static_cast<const unsigned char *>(p) - s.blocks[(size_t)from].shared);
}
int threads_of_block() { return s.threads; }
bool block_has_ended(unsigned block) { return s.blocks[block].ended == s.threads; }
size_t shared_after(const void *p) {
    const resident_block &r = s.blocks[(size_t)block_of_shared(p)];
    return (size_t)(r.shared + s.shared_bytes - static_cast<const unsigned char *>(p));
}

void begin_kernel(const char *kernel) {
    task_of(s.at).begun = race_here.begun = true;
    if (!s.shared_checked)
        check_static_shared(kernel, s.code, s.shared_bytes - SHARED_SHIFT);
    s.shared_checked = true;
}

void barrier(int line) { barrier_count(0, line); }

int barrier_count(int p, int line) {
    task_of(s.at).line = line;
    make_wait(AT_BARRIER);
    block_of(s.at).waiting++;
    block_of(s.at).votes_so_far += p != 0;
    rest();
    return block_of(s.at).votes;
}

void warps_barrier_sync(int id, int threads, int line) {
    if (id < 1 || id >= WARPS_BARRIERS || threads < 32 || threads > s.threads || threads % 32)
        stop("a barrier of warps that does not exist");
    warps_barrier &w = block_of(s.at).some[id];
    if (w.here.empty())
        w.wanted = threads;
    if (w.wanted != threads)
        stop("warps come to a barrier with different numbers of threads");
    w.here.push_back(s.at);
    task_of(s.at).line = line;
    make_wait(AT_WARPS);
    if ((int)w.here.size() == threads) {
        for (int i : w.here)
            make_ready(i);
        std::sort(w.here.begin(), w.here.end());
        meet_aligned(w.here.data(), threads);
        w.here.clear();
    } else {
        rest();
    }
}

void cluster_sync(int line) {
    task_of(s.at).line = line;
    make_wait(AT_CLUSTER);
    s.at_cluster++;
    rest();
}
unsigned cluster_block() { return (unsigned)s.block; }
unsigned cluster_blocks() { return (unsigned)s.blocks.size(); }

void warp(int kind, int arg, unsigned mask, const void *in, void *out, warp_fn apply) {
    meeting &m = s.meetings[(size_t)warp_of(s.at)];
    const int lane = now->lane;
    if (!(mask >> lane & 1))
        stop("a lane calls an operation whose mask leaves it out");
    m.kind[lane] = kind;
    m.arg[lane] = arg;
    m.mask[lane] = mask;
    m.apply = apply;
    m.in[lane] = in;
    m.out[lane] = out;
    m.here |= 1u << lane;
    make_wait(AT_WARP);
    finish_warp(warp_of(s.at));
    if (state_of(s.at) == AT_WARP)
        rest();
}

void note_read(const void *p, size_t bytes) {
    if (emulated_race_read)
        emulated_race_read(p, bytes);
}
void note_atomic(const void *p, bool last) {
    if (emulated_race_atomic)
        emulated_race_atomic(p, last);
}
void note_fence() {
    if (emulated_race_fence)
        emulated_race_fence();
}

unsigned char *dynamic_shared() { return s.blocks[(size_t)s.block].shared + SHARED_SHIFT; }
unsigned char *dynamic_shared_1024() { return s.blocks[(size_t)s.block].shared; }

void copy_later(void *to, const void *from, int bytes, bool on) {
    task &f = task_of(s.at);
    if ((uintptr_t)to % (unsigned)bytes || (uintptr_t)from % (unsigned)bytes)
        stop("cp.async of an unaligned address");
    race_here.code = __builtin_return_address(0);
    if (emulated_race_copy)
        emulated_race_copy(to, from, (size_t)bytes, on);
    f.copies.push_back({to, from, bytes, on, f.group});
}
void copy_commit() { task_of(s.at).group++; }
void copy_wait(int pending_allowed) {
    task &f = task_of(s.at);
    size_t kept = 0;
    for (const copy &c : f.copies) {
        if (c.group >= f.group - pending_allowed) {
            f.copies[kept++] = c;
            continue;
        }
        if (c.on)
            memcpy(c.to, c.from, (size_t)c.bytes);
        else
            memset(c.to, 0, (size_t)c.bytes);
        if (emulated_race_copied)
            emulated_race_copied(c.to, (size_t)c.bytes);
    }
    f.copies.resize(kept);
}

static void run_cluster_at(const launch_shape &shape, uint3 first) {
    begin_cluster(shape, first);
    race_here.on = true;
    run_cluster();
    race_here.on = false;
    if (emulated_count_block_end)
        emulated_count_block_end();
}

void run_grid(const launch_shape &shape, const std::function<void()> &body) {
    std::lock_guard<std::recursive_mutex> make_resident(one_at_a_time);
    begin_grid(shape);
    s.body = &body;
    s.code = shape.kernel;
    race_here.launch++;
    const dim3 g = shape.grid, c = shape.cluster;
    int passes = 1;
    if (emulated_count_launch) {
        const emulated_grid grid = {shape.kernel,
                                    {g.x, g.y, g.z},
                                    {c.x, c.y, c.z},
                                    (unsigned)s.threads,
                                    shape.shared_bytes};
        passes = emulated_count_launch(&grid);
    }
    const unsigned wide = g.x / c.x, high = g.y / c.y;
    const std::vector<int> order = make_order((int)(wide * high * (g.z / c.z)));
    for (int pass = 0; pass < passes; pass++)
        for (const int i : order) {
            const unsigned k = (unsigned)i;
            const unsigned at[3] = {k % wide * c.x, k / wide % high * c.y, k / wide / high * c.z};
            if (!emulated_count_block || emulated_count_block(pass, at))
                run_cluster_at(shape, uint3{at[0], at[1], at[2]});
        }
    if (emulated_count_launch_end)
        emulated_count_launch_end();
    end_grid();
}

} // namespace emulated

static void ballot_apply(const void *const in[32], void *const out[32], unsigned present, int) {
    unsigned votes = 0;
    for (int l = 0; l < 32; l++)
        if (present >> l & 1)
            votes |= (unsigned)(*static_cast<const int *>(in[l]) != 0) << l;
    for (int l = 0; l < 32; l++)
        if (present >> l & 1)
            *static_cast<unsigned *>(out[l]) = votes;
}

unsigned __ballot_sync(unsigned mask, int p) {
    unsigned out = 0;
    emulated::warp(EMULATED_BALLOT, 0, mask, &p, &out, ballot_apply);
    return out;
}
