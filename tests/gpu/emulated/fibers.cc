/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of threads as fibers: what cuda_runtime.h beside this promises of barriers and warps.
 */
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <vector>

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
race_place race_here;

namespace {

enum state { RUNS, AT_BARRIER, AT_WARP, ENDED };

struct copy {
    void *to;
    const void *from;
    int bytes;
    bool on;
    int group;
};

struct fiber {
    thread self;
    enum state state;
    void *stack_pointer;
    char *stack;
    int count_vote;
    /* a warp's operation */
    int kind, arg;
    unsigned mask;
    const void *in;
    void *out;
    warp_fn apply;
    /* copies that have not been waited for */
    std::vector<copy> copies;
    int group;
};

constexpr size_t STACK = FIBERS_ASAN ? 512 << 10 : 128 << 10;

struct scheduler {
    std::vector<fiber> fibers;
    std::vector<int> order;
    int threads;
    int at; /* the fiber that runs */
    void *main_stack;
    const void *main_bottom;
    size_t main_size;
    const std::function<void()> *body;
    std::vector<unsigned char> shared;
    unsigned char *shared_aligned;
    int votes; /* of the last barrier */
};
scheduler s;
std::recursive_mutex one_at_a_time;

[[noreturn]] void stop(const char *what) {
    fprintf(stderr, "emulated: %s: block (%u, %u, %u), thread %u\n", what, now->block.x,
            now->block.y, now->block.z, now->index.x);
    abort();
}

void to_scheduler(bool for_ever) {
    fiber &f = s.fibers[(size_t)s.at];
#if FIBERS_ASAN
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake, s.main_bottom, s.main_size);
    emulated_switch(&f.stack_pointer, s.main_stack);
    __sanitizer_finish_switch_fiber(fake, &s.main_bottom, &s.main_size);
#else
    (void)for_ever;
    emulated_switch(&f.stack_pointer, s.main_stack);
#endif
}

void resume(int i) {
    fiber &f = s.fibers[(size_t)i];
    s.at = i;
    now = &f.self;
    race_here.thread = i;
    race_here.stack = f.stack;
    race_here.stack_end = f.stack + STACK;
#if FIBERS_ASAN
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, f.stack, STACK);
    emulated_switch(&s.main_stack, f.stack_pointer);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    emulated_switch(&s.main_stack, f.stack_pointer);
#endif
}

/* One barrier's line of all lanes of a warp. */
void finish_warp(int first);

extern "C" void emulated_entry() {
#if FIBERS_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &s.main_bottom, &s.main_size);
#endif
    for (;;) {
        (*s.body)();
        fiber &f = s.fibers[(size_t)s.at];
        f.state = ENDED;
        for (const copy &c : f.copies)
            if (c.on)
                stop("a thread ends with copies that nobody waited for");
        finish_warp(s.at / 32 * 32);
        to_scheduler(false);
    }
}

void prepare(int threads) {
    while ((int)s.fibers.size() < threads) {
        fiber f{};
        void *stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) {
            fprintf(stderr, "emulated: no memory for stacks\n");
            abort();
        }
        f.stack = static_cast<char *>(stack);
        s.fibers.push_back(f);
    }
    for (int i = 0; i < threads; i++) {
        fiber &f = s.fibers[(size_t)i];
        char *top = f.stack + STACK;
#if FIBERS_ASAN
        /* The entry never returns: what it had marked is there still. */
        __asan_unpoison_memory_region(top - 4096, 4096);
#endif
#if defined(__x86_64__)
        void **sp =
            reinterpret_cast<void **>(top) - 2; /* so that the entry finds it as after a call */
        *sp = reinterpret_cast<void *>(emulated_entry);
        sp -= 6;
        memset(sp, 0, 6 * sizeof *sp);
#else
        void **sp = reinterpret_cast<void **>(top - 160);
        memset(sp, 0, 160);
        sp[11] = reinterpret_cast<void *>(emulated_entry);
#endif
        f.stack_pointer = sp;
        f.copies.clear();
        f.group = 0;
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
void finish_warp(int first) {
    const int last = std::min(first + 32, s.threads);
    unsigned present = 0, mask = 0;
    int kind = 0, arg = 0;
    warp_fn apply = nullptr;
    for (int i = first; i < last; i++)
        if (s.fibers[(size_t)i].state == AT_WARP) {
            present |= 1u << (i - first);
            mask = s.fibers[(size_t)i].mask;
            kind = s.fibers[(size_t)i].kind;
            arg = s.fibers[(size_t)i].arg;
            apply = s.fibers[(size_t)i].apply;
        }
    if (!present)
        return;
    for (int i = first; i < last; i++) {
        const fiber &f = s.fibers[(size_t)i];
        if (!(mask >> (i - first) & 1) || f.state == ENDED)
            continue;
        if (f.state != AT_WARP)
            return; /* still on its way */
        if (f.kind != kind || f.arg != arg || f.mask != mask)
            stop("lanes of a warp meet in different operations");
    }
    const void *in[32] = {};
    void *out[32] = {};
    for (int i = first; i < last; i++) {
        in[i - first] = s.fibers[(size_t)i].in;
        out[i - first] = s.fibers[(size_t)i].out;
    }
    if (apply)
        apply(in, out, present, arg);
    else
        race_here.warp_syncs[first / 32]++;
    for (int i = first; i < last; i++)
        if (s.fibers[(size_t)i].state == AT_WARP)
            s.fibers[(size_t)i].state = RUNS;
}

/* True if a barrier that all have reached was opened. */
bool open_barrier() {
    int waiting = 0, votes = 0;
    for (int i = 0; i < s.threads; i++) {
        const fiber &f = s.fibers[(size_t)i];
        if (f.state == AT_BARRIER) {
            waiting++;
            votes += f.count_vote;
        } else if (f.state != ENDED) {
            return false;
        }
    }
    if (!waiting)
        return false;
    s.votes = votes;
    race_here.barriers++;
    for (int i = 0; i < s.threads; i++)
        if (s.fibers[(size_t)i].state == AT_BARRIER)
            s.fibers[(size_t)i].state = RUNS;
    return true;
}

void run_block() {
    prepare(s.threads);
    for (int i = 0; i < s.threads; i++)
        s.fibers[(size_t)i].state = RUNS;
    for (;;) {
        bool ran = false;
        int left = 0;
        for (int i : s.order) {
            if (s.fibers[(size_t)i].state == RUNS) {
                resume(i);
                ran = true;
            }
            left += s.fibers[(size_t)i].state != ENDED;
        }
        if (!left)
            return;
        if (!ran && !open_barrier())
            stop("threads wait for others that never come");
    }
}

} // namespace

void barrier() { barrier_count(0); }

int barrier_count(int p) {
    fiber &f = s.fibers[(size_t)s.at];
    f.state = AT_BARRIER;
    f.count_vote = p != 0;
    to_scheduler(false);
    return s.votes;
}

void warp(int kind, int arg, unsigned mask, const void *in, void *out, warp_fn apply) {
    fiber &f = s.fibers[(size_t)s.at];
    f.kind = kind;
    f.arg = arg;
    f.mask = mask;
    f.in = in;
    f.out = out;
    f.apply = apply;
    f.state = AT_WARP;
    if (!(mask >> f.self.lane & 1))
        stop("a lane calls an operation whose mask leaves it out");
    finish_warp(s.at / 32 * 32);
    if (f.state == AT_WARP)
        to_scheduler(false);
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
    fiber &f = s.fibers[(size_t)s.at];
    if ((uintptr_t)to % (unsigned)bytes || (uintptr_t)from % (unsigned)bytes)
        stop("cp.async of an unaligned address");
    if (emulated_race_copy)
        emulated_race_copy(to, from, (size_t)bytes, on);
    f.copies.push_back({to, from, bytes, on, f.group});
}
void copy_commit() { s.fibers[(size_t)s.at].group++; }
void copy_wait(int pending_allowed) {
    fiber &f = s.fibers[(size_t)s.at];
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
    std::lock_guard<std::recursive_mutex> hold(one_at_a_time);
    const dim3 b = shape.block;
    s.threads = (int)(b.x * b.y * b.z);
    s.body = &body;
    /* Exactly as large as was asked for, so that an address sanitizer sees its end. */
    std::vector<unsigned char>().swap(s.shared);
    s.shared.resize(shape.shared_bytes + 128);
    s.shared_aligned = (unsigned char *)(((uintptr_t)s.shared.data() + 127) / 128 * 128);
    make_order(s.threads);
    race_here.launch++;
    race_here.shared = s.shared.data();
    race_here.shared_bytes = s.shared.size();
    for (unsigned z = 0; z < shape.grid.z; z++)
        for (unsigned y = 0; y < shape.grid.y; y++)
            for (unsigned x = 0; x < shape.grid.x; x++) {
                memset(s.shared.data(), 0xff, s.shared.size()); /* NaN: nobody may rely on it */
                prepare(s.threads);
                for (int i = 0; i < s.threads; i++) {
                    const unsigned t = (unsigned)i;
                    s.fibers[(size_t)i].self = thread{uint3{t % b.x, t / b.x % b.y, t / b.x / b.y},
                                                      uint3{x, y, z}, b, shape.grid, i % 32};
                }
                race_here.block++;
                race_here.barriers = 0;
                memset(race_here.warp_syncs, 0, sizeof race_here.warp_syncs);
                race_here.on = true;
                run_block();
                race_here.on = false;
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
