/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm over two logical ranks on the CUDA engine: two processes, each with a device and half
 * of a batch, which exchange their sums by a socket. Their mean gradient must be that of the ref
 * engine with the whole batch, within the bounds of op/net.h. On emulated devices the same by NCCL
 * on the stream: the bits of the socket's sums, which have two terms.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/group.h"
#include "op/net.h"

enum { PARTS = 2, PASSES = 3, LONGEST = 8192, DIES_AFTER = 1 };
enum way { BY_SOCKET, BY_NCCL, DIES }; /* DIES: by NCCL, and part 1 ends after a pass */

/* What both processes see. */
struct shared {
    double loss[PARTS];
    bool same[PARTS]; /* all passes gave the same bits */
    int sums[PARTS];  /* by the socket */
    struct chex_error lost;
    float grad[]; /* (PARTS, state_count) */
};

struct rank {
    int part, socket;
    int sums; /* by the socket */
};

/* Rank 0 adds its values first on both sides. */
static enum chex_status sum(void *arg, double *values, size_t count, struct chex_error *err) {
    struct rank *r = arg;
    r->sums++;
    double other[LONGEST];
    const size_t bytes = count * sizeof *values;
    if (count > LONGEST || send(r->socket, values, bytes, MSG_NOSIGNAL) != (ssize_t)bytes ||
        recv(r->socket, other, bytes, MSG_WAITALL) != (ssize_t)bytes)
        return chex_error_set(err, CHEX_E_LOST, "the other process is gone");
    for (size_t i = 0; i < count; i++)
        values[i] = r->part ? other[i] + values[i] : values[i] + other[i];
    return CHEX_OK;
}

static enum chex_status exchange(struct chex_launch *launch, const char *name, const char *key,
                                 const void *mine, size_t bytes, unsigned char *all_out,
                                 uint64_t timeout_ms, struct chex_error *err) {
    const struct rank *r = launch->self;
    unsigned char *all = all_out;
    (void)name, (void)key, (void)timeout_ms;
    memcpy(all + (size_t)r->part * bytes, mine, bytes);
    if (send(r->socket, mine, bytes, MSG_NOSIGNAL) != (ssize_t)bytes ||
        recv(r->socket, all + (size_t)(1 - r->part) * bytes, bytes, MSG_WAITALL) != (ssize_t)bytes)
        return chex_error_set(err, CHEX_E_LOST, "the other process is gone");
    return CHEX_OK;
}

/* Passes one half of the batch, several times: from the second pass on, parts without sums are
 * CUDA graphs. By NCCL: the reduction of the gradients is set up, and the order of sums is free. */
static void play(int part, int socket, enum way way, const char *spec, const struct setting *all,
                 const struct chex_net *net, const float *state, const struct chex_batch *whole,
                 struct shared *out) {
    static const struct chex_launch_method method = {.name = "pair", .gather = exchange};
    struct chex_error err = {0};
    struct rank rank = {part, socket, 0};
    struct chex_launch launch = {
        .method = "pair", .rank = part, .size = PARTS, .impl = &method, .self = &rank};
    struct chex_group *group = NULL;
    const struct chex_reduce_memory *memory;
    const struct chex_engine_sync sync = {PARTS, sum, &rank, way != BY_SOCKET};
    const int n = all->n / PARTS;
    const size_t first = (size_t)(part * n), count = net->state_count;
    struct chex_engine_config config = test_config(net, all);
    config.batch = n;
    config.sync = &sync;
    struct chex_batch batch = {n, whole->pixels + first * (size_t)(all->size * all->size),
                               whole->labels + first * CLASSES};
    struct chex_pass_result result;
    float *mine = out->grad + (size_t)part * count, *again = test_floats(count);
    struct chex_engine *e = test_engine(spec, &config, NULL);
    float *grad = test_grad(e);
    const uint64_t timeout_ms = way == DIES ? 10000 : tap_wait_ms();
    if (way != BY_SOCKET)
        BAIL_UNLESS(chex_group_of_launch(&launch, timeout_ms, &group, &err) == CHEX_OK &&
                        e->impl->device->reduce_memory(e->self, &launch, group, timeout_ms, &memory,
                                                       &err) == CHEX_OK,
                    "%s", err.text);
    test_set(e, CHEX_STATE_PARAMS, state);
    out->same[part] = true;
    for (int pass = 0; pass < PASSES; pass++) {
        if (way == DIES && pass == DIES_AFTER) {
            if (part == 0)
                chex_engine_pass(e, &batch, grad, NULL, NULL, &result, &out->lost);
            _exit(0);
        }
        result = test_pass(e, &batch, grad, pass ? again : mine);
        out->same[part] =
            out->same[part] && (!pass || memcmp(again, mine, count * sizeof *mine) == 0);
    }
    out->loss[part] = result.loss;
    out->sums[part] = rank.sums;
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    chex_group_destroy(group);
    free(again);
}

/* Both halves, in two processes. */
static struct shared *play_both(enum way way, const char *spec, const struct setting *all,
                                const struct chex_net *net, const float *state,
                                const struct chex_batch *batch) {
    const size_t bytes = sizeof(struct shared) + PARTS * net->state_count * sizeof(float);
    struct shared *both =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int sockets[PARTS], status[PARTS] = {-1, -1};
    pid_t child[PARTS];
    BAIL_UNLESS(both != MAP_FAILED && socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "memory");
    fflush(stdout);
    for (int part = 0; part < PARTS; part++) {
        child[part] = fork();
        BAIL_UNLESS(child[part] >= 0, "fork");
        if (child[part])
            continue;
        close(sockets[1 - part]); /* so that the end of a part shows */
        play(part, sockets[part], way, spec, all, net, state, batch, both);
        _exit(0);
    }
    close(sockets[0]);
    close(sockets[1]);
    for (int part = 0; part < PARTS; part++)
        waitpid(child[part], &status[part], 0);
    BAIL_UNLESS(status[0] == 0 && status[1] == 0, "a child failed");
    return both;
}

static void check_parts(const char *spec, const struct setting *all) {
    struct chex_net *net = small_net(all->model, CLASSES);
    struct outcome ref;
    float *state = make_state(net);
    const struct chex_batch batch = make_batch(all);
    const size_t count = net->state_count;
    struct shared *both = play_both(BY_SOCKET, spec, all, net, state, &batch);
#ifdef CHEX_GPU_EMULATED
    const struct shared *on_device = play_both(BY_NCCL, spec, all, net, state, &batch);
    OK(both->sums[0] > 0 && on_device->sums[0] == 0 && on_device->sums[1] == 0 &&
           memcmp(both->loss, on_device->loss, sizeof both->loss) == 0 &&
           memcmp(both->grad, on_device->grad, PARTS * count * sizeof(float)) == 0,
       "%s %s: NCCL's sums on the stream give the bits of %d sums by the host", spec, all->model,
       both->sums[0]);
    const struct shared *alone = play_both(DIES, spec, all, net, state, &batch);
    OK(alone->lost.status == CHEX_E_LOST && strstr(alone->lost.text, "the other process is gone"),
       "a pass whose sums lack a lost rank fails: %s", alone->lost.text);
#endif
    run("ref", all, net, state, 2, &ref);
    for (size_t i = 0; i < count; i++)
        both->grad[i] = (both->grad[i] + both->grad[count + i]) / PARTS;
    const double loss = fabs((both->loss[0] + both->loss[1]) / PARTS - ref.result.loss);
    double most, most_stats, median = spread(net, both->grad, ref.grad, false, &most);
    spread(net, both->grad, ref.grad, true, &most_stats);
    const double c = cosine(both->grad, ref.grad, net->param_count);
    OK(loss < 1e-5 * ref.result.loss && c > 1 - 3e-2 * 3e-2 / 2 && median < 3e-2 && most < 0.1 &&
           most_stats < 1e-3,
       "%s %s: two halves of a batch are the whole: gradients within %.1e, median %.1e, cosine "
       "%.7f, statistics within %.1e",
       spec, all->model, most, median, c, most_stats);
    OK(both->same[0] && both->same[1], "%s %s: %d passes give the same bits", spec, all->model,
       PASSES);
    release(&ref);
    free(state);
    free_batch(&batch);
    chex_net_destroy(net);
}

int main(void) {
#ifdef CHEX_GPU_EMULATED
    setenv("CHEX_NCCL", NCCL_EMULATED, 1);
    setenv("EMULATED_STREAMS", "late", 1);
#endif
    check_parts("cuda:s0", &(struct setting){SMALL_RESNET, 33, 4, 4, CHEX_FP32});
    return tap_done();
}
