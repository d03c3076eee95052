/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of threads as fibers: what cuda_runtime.h beside this promises of barriers and warps.
 */
#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "counts.h"
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

enum state : unsigned char { STARTS, RUNS, AT_BARRIER, AT_WARP, ENDED };

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
    int threads, ready, waiting, ended; /* ready: to start or to run; waiting: at the barrier */
    int turn;                           /* in the order */
    int at;                             /* the thread that runs */
    int votes, votes_so_far;            /* of the last barrier, of the next one */
    fiber main;
    bool from_main;
    const std::function<void()> *body;
    std::vector<unsigned char> shared;
    unsigned char *shared_aligned;
};
scheduler s;
std::recursive_mutex one_at_a_time;

[[noreturn]] void stop(const char *what) {
    fprintf(stderr, "emulated: %s: block (%u, %u, %u), thread %u\n", what, now_block.index.x,
            now_block.index.y, now_block.index.z, now->index.x);
    abort();
}

enum state &state_of(int i) { return s.states[(size_t)i]; }
task &task_of(int i) { return s.tasks[(size_t)i]; }

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
    now = &t.self;
    race_here.thread = i;
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

/* True if a barrier that all have reached was opened. */
bool open_barrier() {
    if (!s.waiting || s.waiting + s.ended != s.threads)
        return false;
    for (enum state &state : s.states)
        if (state == AT_BARRIER)
            state = RUNS;
    s.ready = s.waiting;
    s.waiting = 0;
    s.votes = s.votes_so_far;
    s.votes_so_far = 0;
    race_here.barriers++;
    if (emulated_count_barrier)
        emulated_count_barrier();
    return true;
}

/* Whose turn it is after this one's, -1 if all have ended: round after round in the order. */
int next_turn() {
    while (s.ended < s.threads) {
        while (++s.turn < s.threads) {
            const int i = s.order[(size_t)s.turn];
            if (state_of(i) == STARTS || state_of(i) == RUNS)
                return i;
        }
        s.turn = -1;
        if (!s.ready && !open_barrier())
            stop("threads wait for others that never come");
    }
    return -1;
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
    state_of(s.at) = ENDED;
    s.ready--;
    s.ended++;
    s.meetings[(size_t)s.at / 32].ended |= 1u << s.at % 32;
    finish_warp(s.at / 32);
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

/* The order in which fibers are taken up. */
void make_order(int threads) {
    const char *text = getenv("EMULATED_ORDER");
    s.order.resize((size_t)threads);
    for (int i = 0; i < threads; i++)
        s.order[(size_t)i] = i;
    if (!text || strcmp(text, "forward") == 0)
        return;
    std::reverse(s.order.begin(), s.order.end());
    unsigned seed = (unsigned)atoi(text);
    for (int i = threads - 1; seed && i > 0; i--) {
        seed = seed * 1664525u + 1013904223u;
        std::swap(s.order[(size_t)i], s.order[(seed >> 8) % (unsigned)(i + 1)]);
    }
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
    else
        race_here.warp_syncs[warp]++;
    for (int l = 0; l < 32; l++)
        if (m.here >> l & 1)
            state_of(32 * warp + l) = RUNS;
    s.ready += __builtin_popcount(m.here);
    m.here = 0;
}

void begin_grid(const launch_shape &shape) {
    const dim3 b = shape.block;
    s.threads = (int)(b.x * b.y * b.z);
    s.tasks.resize((size_t)s.threads);
    s.states.resize((size_t)s.threads);
    s.meetings.assign(((size_t)s.threads + 31) / 32, meeting{});
    for (int i = 0; i < s.threads; i++) {
        const unsigned t = (unsigned)i;
        task_of(i).self = thread{uint3{t % b.x, t / b.x % b.y, t / b.x / b.y}, i % 32};
        s.meetings[(size_t)i / 32].lanes |= 1u << i % 32;
    }
    make_order(s.threads);
}

void run_block() {
    std::fill(s.states.begin(), s.states.end(), STARTS);
    for (meeting &m : s.meetings)
        m.ended = m.here = 0;
    s.ready = s.threads;
    s.waiting = s.ended = s.votes_so_far = 0;
    s.turn = -1;
    s.from_main = true;
    const int first = next_turn();
    take_turn(first, take_fiber());
    change(&s.main, task_of(first).on, false);
}

} // namespace

void begin_kernel() { task_of(s.at).begun = race_here.begun = true; }

void barrier() { barrier_count(0); }

int barrier_count(int p) {
    state_of(s.at) = AT_BARRIER;
    s.ready--;
    s.waiting++;
    s.votes_so_far += p != 0;
    rest();
    return s.votes;
}

void warp(int kind, int arg, unsigned mask, const void *in, void *out, warp_fn apply) {
    meeting &m = s.meetings[(size_t)s.at / 32];
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
    state_of(s.at) = AT_WARP;
    s.ready--;
    finish_warp(s.at / 32);
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

unsigned char *dynamic_shared() { return s.shared_aligned; }

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

void run_grid(const launch_shape &shape, const std::function<void()> &body) {
    std::lock_guard<std::recursive_mutex> make_resident(one_at_a_time);
    begin_grid(shape);
    s.body = &body;
    /* Exactly as large as was asked for, so that an address sanitizer sees its end. */
    std::vector<unsigned char>().swap(s.shared);
    s.shared.resize(shape.shared_bytes + 128);
    s.shared_aligned = (unsigned char *)(((uintptr_t)s.shared.data() + 127) / 128 * 128);
    if (emulated_count_launch)
        emulated_count_launch(shape.kernel, shape.grid.x * shape.grid.y * shape.grid.z,
                              (unsigned)s.threads, shape.shared_bytes);
    race_here.launch++;
    race_here.shared = s.shared.data();
    race_here.shared_bytes = s.shared.size();
    for (unsigned z = 0; z < shape.grid.z; z++)
        for (unsigned y = 0; y < shape.grid.y; y++)
            for (unsigned x = 0; x < shape.grid.x; x++) {
                memset(s.shared.data(), 0xff, s.shared.size()); /* NaN: no kernel may rely on it */
                now_block = block{uint3{x, y, z}, shape.block, shape.grid};
                race_here.block++;
                race_here.barriers = 0;
                memset(race_here.warp_syncs, 0, sizeof race_here.warp_syncs);
                race_here.on = true;
                run_block();
                race_here.on = false;
                if (emulated_count_block_end)
                    emulated_count_block_end();
            }
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
