/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients in device memory, reduced over processes by NCCL: the bits of the CPU's tree, whatever
 * the number of ranks, while the device still works on the passes; and what happens when a rank
 * dies, stalls, or has no NCCL. Each rank is a process, for a process has one place in NCCL. The
 * launcher's exchange is played by memory that they share.
 *
 * gpu-reduce none (or stalls, dies) under srun plays one rank of the job over the real launcher.
 *
 * On emulated devices every number of ranks is tried, and streams are late, so that a missing wait
 * between streams gives wrong sums. On real ones a rank needs a GPU of its own.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "engine/cuda/nccl/cuda_reduce.h"
#include "gpu/gpu_test.h"

enum {
    RANKS = 4,
    V_MAX = 7,
    STEPS = 3,
    COUNT = 3001, /* elements: the last bucket and the last piece are odd */
    BUCKET_BYTES = 2048,
    PIECE = 190, /* what a pass reports at once */
    PIECES = (COUNT + PIECE - 1) / PIECE,
    ROUNDS = 8, /* exchanges */
    MESSAGE_BYTES = CHEX_GROUP_BYTES,
#ifdef CHEX_GPU_EMULATED
    PATIENCE = 1,
#else
    PATIENCE = 10, /* the real library takes seconds to connect */
#endif
};

/* ---- ranks as processes ---- */

struct shared {
    atomic_int came[ROUNDS][RANKS];
    unsigned char message[ROUNDS][RANKS][MESSAGE_BYTES];
    enum chex_status st[RANKS];
    struct chex_error err[RANKS];
    int finished[RANKS]; /* steps whose finish gave a sum */
    float sum[RANKS][STEPS][COUNT];
    int devices;
    bool has_nccl;
};
static struct shared *shared;

struct player {
    int round;
};

static enum chex_status fake_exchange(struct chex_launch *launch, const char *name, const char *key,
                                      const void *mine, size_t bytes, unsigned char *all_out,
                                      uint64_t timeout_ms, struct chex_error *err) {
    struct player *p = launch->self;
    const int round = p->round++;
    (void)key;
    const double until_s = chex_clock_s() + (double)timeout_ms / 1e3;
    if (round >= ROUNDS || bytes > MESSAGE_BYTES)
        return chex_error_set(err, CHEX_E_FAIL, "the test has too little room");
    memcpy(shared->message[round][launch->rank], mine, bytes);
    atomic_store(&shared->came[round][launch->rank], 1);
    for (int r = 0; r < launch->size; r++) {
        while (!atomic_load(&shared->came[round][r]) && chex_clock_s() < until_s)
            usleep(500);
        if (!atomic_load(&shared->came[round][r]))
            return chex_error_set(err, CHEX_E_LOST, "rank %d (node%d) did not come to exchange %s",
                                  r, r, name);
        memcpy((char *)all_out + (size_t)r * bytes, shared->message[round][r], bytes);
    }
    return CHEX_OK;
}

static const struct chex_launch_method fake_method = {.name = "processes", .gather = fake_exchange};
/* What only rank, size and the vectors' own memory need. */
static const struct chex_coll_impl no_coll = {.name = "none"};

/* ---- what each rank plays ---- */

enum mishap {
    NONE,
    DIES,          /* rank 1, in the middle of a pass of the second step */
    STALLS,        /* rank 2, before its passes of the second step */
    LATE,          /* rank 2 there, between what others wait for it and for the roll call */
    NO_LIBRARY,    /* rank 1 */
    NO_DEVICE,     /* rank 1 cannot select its GPU */
    NEVER_COMES,   /* rank 1 does not set up at all */
    NO_NCCL_ALONE, /* no rank has one, and there is one rank */
    GPUS_DIFFER    /* in their multiprocessors; rank 0's log goes to a file */
};

struct scene {
    int size, logical_ranks;
    bool deterministic, graphs; /* graphs: a pass is one launch, its events are nodes of it */
    enum mishap mishap;
    uint64_t timeout_ms;
};

static struct scene scene(int size, int logical_ranks, enum mishap mishap, uint64_t timeout_ms) {
    return (struct scene){.size = size,
                          .logical_ranks = logical_ranks,
                          .deterministic = true,
                          .mishap = mishap,
                          .timeout_ms = timeout_ms};
}

/* Values of many sizes, so that another order of additions gives other bits. */
static float leaf_value(int step, int v, size_t i) {
    struct chex_rng4 r = chex_rng((uint64_t)step, CHEX_RNG_TEST, (uint64_t)v, (uint32_t)i);
    return ldexpf(chex_rng_unit(r.v[0]) - 0.5f, (int)chex_rng_below(r.v[1], 12));
}

/* An engine whose backward pass copies its gradient from host memory, piece by piece. */
struct engine {
    cudaStream_t compute;
    cudaEvent_t event[PIECES]; /* behind piece i, counted from the end */
    float *staged;             /* pinned: COUNT per (step, v) */
    cudaGraphExec_t graph[STEPS * V_MAX];
    int graphs;
};

static size_t piece_from(int i) {
    const size_t far = (size_t)(i + 1) * PIECE;
    return far < COUNT ? COUNT - far : 0;
}
static size_t piece_to(int i) { return COUNT - (size_t)i * PIECE; }

static cudaEvent_t event_of(void *arg, size_t from) {
    struct engine *e = arg;
    for (int i = 0; i < PIECES; i++)
        if (piece_from(i) <= from)
            return e->event[i];
    return NULL;
}

static void engine_open(struct engine *e, int device) {
    GT_OK(cudaSetDevice(device));
    GT_OK(cudaStreamCreateWithFlags(&e->compute, cudaStreamNonBlocking));
    for (int i = 0; i < PIECES; i++)
        GT_OK(cudaEventCreateWithFlags(&e->event[i], cudaEventDisableTiming));
    GT_OK(cudaMallocHost((void **)&e->staged, sizeof(float) * STEPS * V_MAX * COUNT));
}

static void engine_close(struct engine *e) {
    GT_OK(cudaStreamSynchronize(e->compute));
    for (int i = 0; i < e->graphs; i++)
        GT_OK(cudaGraphExecDestroy(e->graph[i]));
    for (int i = 0; i < PIECES; i++)
        GT_OK(cudaEventDestroy(e->event[i]));
    GT_OK(cudaStreamDestroy(e->compute));
    GT_OK(cudaFreeHost(e->staged));
}

static void enqueue_piece(struct engine *e, float *grad, const float *staged, int i, bool graph) {
    const size_t from = piece_from(i), to = piece_to(i);
    GT_OK(cudaMemcpyAsync(grad + from, staged + from, (to - from) * sizeof *grad,
                          cudaMemcpyHostToDevice, e->compute));
    GT_OK(cudaEventRecordWithFlags(e->event[i], e->compute, graph ? cudaEventRecordExternal : 0));
}

/* As the engine's: all work is enqueued, then reported; nothing is waited for. */
static void pass(struct engine *e, const struct scene *s, struct chex_reduce *reduce, int step,
                 int v, bool die) {
    float *grad = chex_reduce_leaf(reduce, v);
    float *staged = e->staged + (size_t)(step * V_MAX + v) * COUNT;
    for (size_t i = 0; i < COUNT; i++)
        staged[i] = leaf_value(step, v, i);
    if (s->graphs) {
        cudaGraph_t graph;
        GT_OK(cudaStreamBeginCapture(e->compute, cudaStreamCaptureModeThreadLocal));
        GT_OK(cudaMemsetAsync(grad, 0xff, COUNT * sizeof *grad, e->compute));
        for (int i = 0; i < PIECES; i++)
            enqueue_piece(e, grad, staged, i, true);
        GT_OK(cudaStreamEndCapture(e->compute, &graph));
        GT_OK(cudaGraphInstantiate(&e->graph[e->graphs], graph, 0));
        GT_OK(cudaGraphDestroy(graph));
        GT_OK(cudaGraphLaunch(e->graph[e->graphs++], e->compute));
    } else {
        GT_OK(cudaMemsetAsync(grad, 0xff, COUNT * sizeof *grad, e->compute));
    }
    for (int i = 0; i < PIECES; i++) {
        if (die && i == PIECES / 2)
            _exit(3);
        if (!s->graphs)
            enqueue_piece(e, grad, staged, i, false);
        chex_reduce_ready(reduce, piece_from(i), piece_to(i));
    }
}

static enum chex_status play_steps(const struct scene *s, struct engine *e,
                                   struct chex_reduce *reduce, int rank, float *pinned,
                                   struct chex_error *err) {
    int from, to;
    chex_reduce_run(s->logical_ranks, s->size, rank, &from, &to);
    for (int step = 0; step < STEPS; step++) {
        const float *sum = NULL;
        double exposed_s = -1;
        if (s->mishap == STALLS && rank == 2 && step == 1)
            for (;;)
                pause();
        if (s->mishap == LATE && rank == 2 && step == 1)
            chex_clock_sleep_ms((unsigned)(s->timeout_ms * PATIENCE * 3 / 2));
        for (int v = from; v < to; v++)
            pass(e, s, reduce, step, v, s->mishap == DIES && rank == 1 && step == 1);
        CHEX_TRY(chex_reduce_finish(reduce, &sum, &exposed_s, err));
        shared->finished[rank]++;
        if (!(exposed_s >= 0 && exposed_s < tap_wait_s()))
            return chex_error_set(err, CHEX_E_FAIL, "exposed %g s", exposed_s);
        /* The update: on the compute stream, not waited for. */
        GT_OK(cudaMemcpyAsync(pinned + (size_t)step * COUNT, sum, COUNT * sizeof *sum,
                              cudaMemcpyDeviceToHost, e->compute));
        if (s->mishap == STALLS)
            CHEX_TRY(chex_reduce_settle(reduce, err));
    }
    CHEX_TRY(chex_reduce_settle(reduce, err));
    GT_OK(cudaStreamSynchronize(e->compute));
    memcpy(shared->sum[rank], pinned, sizeof shared->sum[rank]);
    return CHEX_OK;
}

static enum chex_status play(const struct scene *s, struct chex_launch *launch,
                             struct chex_error *err) {
    const int rank = launch->rank;
    struct chex_coll coll = {.impl = &no_coll, .rank = rank, .size = s->size};
    struct engine e = {0};
    struct gpu_reduce *gpu = NULL;
    struct chex_reduce *reduce = NULL;
    float *pinned = NULL;
    const int device = rank % shared->devices;
    engine_open(&e, device);
    GT_OK(cudaMallocHost((void **)&pinned, sizeof shared->sum[rank]));
    struct chex_group *group = NULL;
    BAIL_UNLESS(chex_group_of_launch(launch, s->timeout_ms * PATIENCE, &group, err) == CHEX_OK,
                "%s", err->text);
    struct gpu_reduce_config g = {.launch = launch,
                                  .group = group,
                                  .timeout_ms = s->timeout_ms * PATIENCE,
                                  .device = s->mishap == NO_DEVICE && rank == 1 ? 99 : device,
                                  .compute = e.compute,
                                  .event_of = event_of,
                                  .engine = &e};
    enum chex_status st = gpu_reduce_create(&g, &gpu, err);
    struct chex_reduce_config config = {.coll = &coll,
                                        .memory = gpu ? gpu_reduce_memory(gpu) : NULL,
                                        .logical_ranks = s->logical_ranks,
                                        .count = COUNT,
                                        .bucket_bytes = BUCKET_BYTES,
                                        .deterministic = s->deterministic};
    if (st == CHEX_OK)
        st = chex_reduce_create(&config, &reduce, err);
    if (st == CHEX_OK && gpu_reduce_bytes(gpu) < COUNT * sizeof(float))
        st = chex_error_set(err, CHEX_E_FAIL, "%llu bytes are held",
                            (unsigned long long)gpu_reduce_bytes(gpu));
    if (st == CHEX_OK)
        st = play_steps(s, &e, reduce, rank, pinned, err);
    chex_reduce_destroy(reduce);
    gpu_reduce_destroy(gpu);
    chex_group_destroy(group);
    engine_close(&e);
    GT_OK(cudaFreeHost(pinned));
    return st;
}

static enum chex_status play_process(const struct scene *s, int rank, struct chex_error *err) {
    struct player player = {0};
    struct chex_launch launch = {.method = "processes",
                                 .rank = rank,
                                 .size = s->size,
                                 .impl = &fake_method,
                                 .self = &player};
    snprintf(launch.host, sizeof launch.host, "node%d", rank);
    return play(s, &launch, err);
}

static char log_path[] = "/tmp/chexnet-reduce-XXXXXX";

static void environment(const struct scene *s, int rank) {
#ifdef CHEX_GPU_EMULATED
    setenv("EMULATED_STREAMS", "late", 1);
    setenv("CHEX_NCCL", NCCL_EMULATED, 1);
#endif
    if ((s->mishap == NO_LIBRARY && rank == 1) || s->mishap == NO_NCCL_ALONE)
        setenv("CHEX_NCCL", "/nowhere/libnccl.so.2", 1);
    if (s->mishap == GPUS_DIFFER) {
        setenv("EMULATED_SMS", rank == 1 ? "2" : "4", 1);
        BAIL_UNLESS(rank || freopen(log_path, "w", stderr), "%s", log_path);
    }
}

/* Until all but those that never end have ended. False where one ended badly. */
static bool wait_for_all(const struct scene *s, const pid_t *pid) {
    bool well = true;
    for (int r = 0; r < s->size; r++) {
        const bool stalls = s->mishap == STALLS && r == 2;
        int status = 0;
        if (stalls)
            continue;
        waitpid(pid[r], &status, 0);
        const int want = s->mishap == DIES && r == 1 ? 3 : 0;
        well = well && WIFEXITED(status) && WEXITSTATUS(status) == want;
    }
    if (s->mishap == STALLS) {
        kill(pid[2], SIGKILL);
        waitpid(pid[2], NULL, 0);
    }
    return well;
}

static bool act(const struct scene *s) {
    pid_t pid[RANKS];
    const int devices = shared->devices;
    const bool has_nccl = shared->has_nccl;
    memset(shared, 0, sizeof *shared);
    shared->devices = devices;
    shared->has_nccl = has_nccl;
    fflush(stdout);
    for (int r = 0; r < s->size; r++) {
        pid[r] = fork();
        BAIL_UNLESS(pid[r] >= 0, "fork");
        if (pid[r] > 0)
            continue;
        alarm((unsigned)(4 * tap_wait_s())); /* a hang is a failure */
        environment(s, r);
        if (!(s->mishap == NEVER_COMES && r == 1))
            shared->st[r] = play_process(s, r, &shared->err[r]);
        fflush(stdout);
        exit(0);
    }
    return wait_for_all(s, pid);
}

/* ---- what is right ---- */

static struct {
    bool there;
    float sum[STEPS][COUNT];
} truth[V_MAX + 1];

/* By the CPU path with one rank. */
static void host_sums(int logical_ranks) {
    struct chex_error err = {0};
    struct chex_coll coll = {.impl = &no_coll, .size = 1};
    struct chex_reduce_config config = {
        .coll = &coll, .logical_ranks = logical_ranks, .count = COUNT, .deterministic = true};
    struct chex_reduce *reduce = NULL;
    if (truth[logical_ranks].there)
        return;
    BAIL_UNLESS(chex_reduce_create(&config, &reduce, &err) == CHEX_OK, "%s", err.text);
    for (int step = 0; step < STEPS; step++) {
        const float *sum;
        double exposed_s;
        for (int v = 0; v < logical_ranks; v++) {
            float *leaf = chex_reduce_leaf(reduce, v);
            for (size_t i = 0; i < COUNT; i++)
                leaf[i] = leaf_value(step, v, i);
            chex_reduce_ready(reduce, 0, COUNT);
        }
        BAIL_UNLESS(chex_reduce_finish(reduce, &sum, &exposed_s, &err) == CHEX_OK, "%s", err.text);
        memcpy(truth[logical_ranks].sum[step], sum, COUNT * sizeof *sum);
    }
    chex_reduce_destroy(reduce);
    truth[logical_ranks].there = true;
}

static bool can_play(int size) {
#ifdef CHEX_GPU_EMULATED
    (void)size;
    return true;
#else
    if (size == 1 || (shared->devices >= size && shared->has_nccl))
        return true;
    printf("# %d ranks: not tried, for here are %d GPUs and %s NCCL\n", size, shared->devices,
           shared->has_nccl ? "an" : "no");
    return false;
#endif
}

static void check_sums(int size, int logical_ranks, bool graphs) {
    struct scene s = scene(size, logical_ranks, NONE, tap_wait_ms());
    s.graphs = graphs;
    int equal = 0;
    if (!can_play(size))
        return;
    host_sums(logical_ranks);
    const bool well = act(&s);
    for (int r = 0; r < size; r++)
        equal += shared->st[r] == CHEX_OK &&
                 memcmp(shared->sum[r], truth[logical_ranks].sum, sizeof shared->sum[r]) == 0;
    OK(well && equal == size, "V = %d, %d ranks%s: the bits of the CPU's tree%s%s", logical_ranks,
       size, graphs ? ", passes as graphs" : "", shared->err[0].text[0] ? ": " : "",
       shared->err[0].text);
}

/* The library's own order: the same on all ranks, right except for rounding. */
static void check_free(int size, int logical_ranks) {
    struct scene s = {.size = size, .logical_ranks = logical_ranks, .timeout_ms = tap_wait_ms()};
    double worst = 0;
    if (!can_play(size))
        return;
    bool same = act(&s);
    for (int r = 0; r < size; r++)
        same = same && shared->st[r] == CHEX_OK &&
               memcmp(shared->sum[0], shared->sum[r], sizeof shared->sum[0]) == 0;
    for (int step = 0; step < STEPS; step++)
        for (size_t i = 0; i < COUNT; i++) {
            double exact = 0;
            for (int v = 0; v < logical_ranks; v++)
                exact += (double)leaf_value(step, v, i);
            worst = fmax(worst, fabs(exact - (double)shared->sum[0][step][i]));
        }
    /* V - 1 additions of numbers below V * 2^10, V <= 8, each rounded by half an ulp at most. */
    OK(same && worst <= (logical_ranks - 1) * ldexp(1, 13 - 24),
       "all-reduce, V = %d, %d ranks: the same everywhere, %.3g from the exact sum%s",
       logical_ranks, size, worst, shared->err[0].text);
}

static bool lost_naming(int rank, const char *needle) {
    char self[32];
    snprintf(self, sizeof self, "rank %d on node%d,", rank, rank);
    return shared->st[rank] == CHEX_E_LOST && strstr(shared->err[rank].text, self) &&
           strstr(shared->err[rank].text, "reducing gradients") &&
           strstr(shared->err[rank].text, needle);
}

/* Plays a scene whose ranks time one rank out. On a busy machine other ranks are late too: then
 * once more, with more time. */
static bool act_until(struct scene s, bool (*right)(void)) {
    const double from_s = chex_clock_s();
    for (; chex_clock_s() - from_s < tap_wait_s(); s.timeout_ms *= 4)
        if (act(&s) && right())
            return true;
    return false;
}

static bool death_is_named(void) {
    return lost_naming(0, "rank 1 (node1)") && lost_naming(2, "rank 1 (node1)");
}
/* Rank 0 has only orders to give in finish: the wait is the device's, and settle brings the fault.
 */
static bool stall_is_named(void) {
    return lost_naming(0, "rank 2 (node2)") && lost_naming(1, "rank 2 (node2)") &&
           strstr(shared->err[0].text, "did not end within") && shared->finished[0] == 2;
}
static bool late_comes(void) {
    return lost_naming(0, "furthest behind is rank 2 (node2)") &&
           lost_naming(2, "furthest behind is rank 2 (node2)");
}
static bool no_library(void) {
    return shared->st[0] == CHEX_E_ENV && shared->st[1] == CHEX_E_ENV &&
           strstr(shared->err[0].text, "rank 1 on node1: ") &&
           strstr(shared->err[0].text, "/nowhere/libnccl.so.2") &&
           strcmp(shared->err[0].text, shared->err[1].text) == 0;
}
static bool no_device(void) {
    return shared->st[0] == shared->st[1] && shared->st[2] == shared->st[1] &&
           strstr(shared->err[0].text, "rank 1 on node1: cudaSetDevice");
}
static bool never_comes(void) {
    return shared->st[0] == CHEX_E_LOST && strstr(shared->err[0].text, "rank 1 (node1)");
}
/* The text that is printed: that of `rank`. */
static void check_mishap(struct scene s, bool (*right)(void), const char *what, int rank) {
    if (can_play(s.size))
        OK(act_until(s, right), "%s: %s", what, shared->err[rank].text);
}

static void check_set_up(void) {
    check_mishap(scene(3, 3, NO_LIBRARY, 3000), no_library, "a rank without NCCL ends all", 1);
    check_mishap(scene(3, 3, NO_DEVICE, 3000), no_device,
                 "a rank that fails before the exchange of the id ends all", 0);
    check_mishap(scene(3, 3, NEVER_COMES, 300), never_comes,
                 "a rank that does not come to the set-up is named", 0);
}

static void check_steps(void) {
    struct scene free_order = scene(3, 4, DIES, 1000);
    free_order.deterministic = false;
    check_mishap(scene(3, 4, DIES, 1000), death_is_named,
                 "a rank that dies is named by the others, who end", 0);
    check_mishap(free_order, death_is_named, "and where the library sums in its own order", 0);
    check_mishap(scene(3, 3, STALLS, 1000), stall_is_named,
                 "a rank that stalls is named, and finish does not wait for it on the host", 0);
    check_mishap(scene(3, 3, LATE, 2000), late_comes,
                 "a rank that comes too late comes to the roll call", 2);
}

#ifdef CHEX_GPU_EMULATED
static void check_different(void) {
    const struct scene s = scene(2, 2, GPUS_DIFFER, tap_wait_ms());
    struct chex_error err = {0};
    char *log = NULL;
    const int file = mkstemp(log_path);
    BAIL_UNLESS(file >= 0 && close(file) == 0, "%s", log_path);
    const bool well = act(&s);
    BAIL_UNLESS(chex_fs_read(log_path, 1 << 16, &log, NULL, &err) == CHEX_OK, "%s", err.text);
    OK(well && shared->st[0] == CHEX_OK &&
           strstr(log, "the GPU of rank 0 has 4 multiprocessors, that of rank 1 has 2"),
       "different GPUs are warned of: %s", log);
    unlink(log_path);
    free(log);
}
#endif

static void check_alone(void) {
    const struct scene s = scene(1, 3, NO_NCCL_ALONE, 1000);
    const bool well = act(&s);
    host_sums(3);
    OK(well && shared->st[0] == CHEX_OK &&
           memcmp(shared->sum[0], truth[3].sum, sizeof truth[3].sum) == 0,
       "one rank needs no NCCL%s", shared->err[0].text);
}

/* In a child, for this process must not have touched the device when it forks. */
static void look_around(void) {
    const struct scene plain = {.size = 1};
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        environment(&plain, 0);
        const char *set = getenv("CHEX_NCCL");
        shared->has_nccl = dlopen(set ? set : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL) != NULL;
        cudaGetDeviceCount(&shared->devices);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    if (shared->devices < 1)
        SKIP_ALL("no device");
}

/* One rank of a job. */
static int play_launched(const char *mishap) {
    const enum mishap what = strcmp(mishap, "stalls") == 0 ? STALLS
                             : strcmp(mishap, "dies") == 0 ? DIES
                                                           : NONE;
    struct scene s = scene(0, V_MAX, what, 4000);
    struct chex_launch launch;
    struct chex_error err = {0};
    environment(&s, 0);
    host_sums(V_MAX);
    cudaGetDeviceCount(&shared->devices);
    BAIL_UNLESS(chex_launch_init(&launch, &err) == CHEX_OK, "%s", err.text);
    s.size = launch.size;
    BAIL_UNLESS(s.size <= RANKS, "%d ranks", s.size);
    const enum chex_status st = play(&s, &launch, &err);
    const bool right =
        memcmp(shared->sum[launch.rank], truth[V_MAX].sum, sizeof truth[V_MAX].sum) == 0;
    printf("rank %d of %d: %s\n", launch.rank, launch.size,
           st != CHEX_OK ? err.text
           : right       ? "the bits of the CPU's tree"
                         : "other bits");
    fflush(stdout);
    if (st != CHEX_OK)
        chex_launch_abort(&launch, st);
    chex_launch_finish(&launch);
    return st != CHEX_OK ? (int)st : !right;
}

int main(int argc, char **argv) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BAIL_UNLESS(shared != MAP_FAILED, "memory");
    if (argc > 1)
        return play_launched(argv[1]);
    look_around();
    for (int size = 1; size <= RANKS; size++) {
        check_sums(size, 4, false);
        check_sums(size, 7, false);
    }
    check_sums(1, 7, true);
    check_sums(2, 7, true);
    check_sums(1, 1, false);
    check_free(1, 7);
    check_free(2, 7);
    check_free(4, 7);
    check_alone();
#ifdef CHEX_GPU_EMULATED
    check_different();
#endif
    if (shared->has_nccl)
        check_set_up();
    check_steps();
    return tap_done();
}
