/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm over two logical ranks on the CUDA engine: two processes, each with a device and half
 * of a batch, which exchange their sums by a socket. Their mean gradient must be that of the ref
 * engine with the whole batch, within the bounds of op/net.h.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "op/net.h"
#include "small_net.h"

enum { PARTS = 2, PASSES = 3, LONGEST = 8192 };

/* What both processes see. */
struct shared {
    double loss[PARTS];
    bool same[PARTS]; /* all passes gave the same bits */
    float grad[];     /* (PARTS, state_count) */
};

struct rank {
    int part, socket;
};

/* Rank 0 adds its values first on both sides. */
static enum chex_status sum(void *arg, double *values, size_t count, struct chex_error *err) {
    const struct rank *r = arg;
    double other[LONGEST];
    const size_t bytes = count * sizeof *values;
    if (count > LONGEST || send(r->socket, values, bytes, 0) != (ssize_t)bytes ||
        recv(r->socket, other, bytes, MSG_WAITALL) != (ssize_t)bytes)
        return chex_error_set(err, CHEX_E_LOST, "the other process is gone");
    for (size_t i = 0; i < count; i++)
        values[i] = r->part ? other[i] + values[i] : values[i] + other[i];
    return CHEX_OK;
}

/* Passes one half of the batch, several times: from the second pass on, parts without sums are
 * CUDA graphs. */
static void play(int part, int socket, const char *spec, const struct setting *all,
                 const struct chex_net *net, const float *state, const float *pixels,
                 const int8_t *labels, struct shared *out) {
    struct chex_error err = {0};
    struct rank rank = {part, socket};
    const struct chex_engine_sync sync = {PARTS, sum, &rank};
    const int n = all->n / PARTS;
    const size_t first = (size_t)(part * n), count = net->state_count;
    struct chex_engine_config config = {.net = net,
                                        .image_size = all->size,
                                        .batch = n,
                                        .precision = all->precision,
                                        .threads = 1,
                                        .training = true,
                                        .sync = &sync};
    struct chex_batch batch = {n, pixels + first * (size_t)(all->size * all->size),
                               labels + first * CLASSES};
    struct chex_engine *e = NULL;
    struct chex_pass_result result;
    float *mine = out->grad + (size_t)part * count;
    float *again = chex_alloc_zeroed(count, sizeof *again);
    BAIL_UNLESS(chex_engine_create(spec, &config, &e, &err) == CHEX_OK, "%s", err.text);
    float *grad = chex_engine_grad_alloc(e);
    BAIL_UNLESS(again && grad, "out of memory");
    BAIL_UNLESS(chex_engine_set(e, CHEX_STATE_PARAMS, state, &err) == CHEX_OK, "set");
    out->same[part] = true;
    for (int pass = 0; pass < PASSES; pass++) {
        BAIL_UNLESS(chex_engine_pass(e, &batch, grad, NULL, NULL, &result, &err) == CHEX_OK, "%s",
                    err.text);
        BAIL_UNLESS(e->impl->grad_get(e->self, grad, pass ? again : mine, &err) == CHEX_OK, "get");
        out->same[part] =
            out->same[part] && (!pass || memcmp(again, mine, count * sizeof *mine) == 0);
    }
    out->loss[part] = result.loss;
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    free(again);
}

static void check_parts(const char *spec, const struct setting *all) {
    struct chex_net *net = small_net(all->model, CLASSES);
    struct outcome ref;
    int sockets[PARTS], status = -1;
    float *state = make_state(net);
    float *pixels =
        chex_alloc_zeroed((size_t)all->n * (size_t)(all->size * all->size), sizeof *pixels);
    int8_t *labels = chex_alloc_zeroed((size_t)all->n * CLASSES, 1);
    const size_t count = net->state_count;
    const size_t bytes = sizeof(struct shared) + PARTS * count * sizeof(float);
    struct shared *both =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BAIL_UNLESS(pixels && labels && both != MAP_FAILED, "out of memory");
    BAIL_UNLESS(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
    fill_batch(all, pixels, labels);
    fflush(stdout);
    const pid_t child = fork();
    BAIL_UNLESS(child >= 0, "fork");
    play(child == 0, sockets[child == 0], spec, all, net, state, pixels, labels, both);
    if (child == 0)
        _exit(0);
    BAIL_UNLESS(waitpid(child, &status, 0) == child && status == 0, "the child failed");
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
    munmap(both, bytes);
    close(sockets[0]);
    close(sockets[1]);
    free(state);
    free(pixels);
    free(labels);
    chex_net_destroy(net);
}

int main(void) {
    check_parts("cuda:s0", &(struct setting){SMALL_RESNET, 33, 4, 4, CHEX_FP32});
    return tap_done();
}
