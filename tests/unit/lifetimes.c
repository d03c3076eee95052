/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps that live at one time never share a byte, and each is there from its first writer to its
 * last reader; who begins a gradient.
 */
#include "engine/lifetimes.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "tap.h"

static struct chex_error err;

static int overlaps(const struct chex_life *lives, int count) {
    int bad = 0;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++)
            bad += lives[i].from <= lives[j].to && lives[j].from <= lives[i].to &&
                   lives[i].offset < lives[j].offset + lives[j].bytes &&
                   lives[j].offset < lives[i].offset + lives[i].bytes;
    return bad;
}

/* The least that any placing needs: what is alive at one op. */
static size_t most_alive(const struct chex_life *lives, int count, int ops) {
    size_t most = 0;
    for (int t = 0; t <= ops; t++) {
        size_t sum = 0;
        for (int i = 0; i < count; i++)
            sum += lives[i].from <= t && t <= lives[i].to ? lives[i].bytes : 0;
        most = sum > most ? sum : most;
    }
    return most;
}

/* Ops outside the span of a buffer that they touch. */
static int outside(const struct chex_net *net, const struct chex_life *lives) {
    int bad = 0;
    for (int i = 0; i < net->op_count; i++) {
        const int used[] = {net->ops[i].in, net->ops[i].out, net->ops[i].side_in};
        const bool has_side = net->ops[i].kind == CHEX_OP_RESIDUAL_ADD;
        for (int k = 0; k < (has_side ? 3 : 2); k++)
            bad += used[k] >= 0 && (i < lives[used[k]].from || i > lives[used[k]].to);
    }
    return bad;
}

/* A training pass on one line of time. lives: 2 * buffer_count, with the bytes of the maps. */
static void pass_of(const struct chex_net *net, struct chex_life *lives, const char *model,
                    int size, double room) {
    const int count = net->buffer_count, end = 2 * net->op_count - 1;
    struct chex_life *g = lives + count;
    chex_lives_of_pass(net, lives, g);
    size_t maps = 0;
    for (int b = 0; b < count; b++) {
        g[b].bytes = lives[b].bytes;
        maps += lives[b].bytes;
    }
    int bad = 0;
    for (int i = 0; i < net->op_count; i++) {
        const struct chex_op *op = &net->ops[i];
        const int used[] = {op->in, op->out, op->kind == CHEX_OP_RESIDUAL_ADD ? op->side_in : -1};
        for (int k = 0; k < 3; k++) {
            if (used[k] < 0)
                continue;
            const struct chex_life *x = &lives[used[k]], *dx = &g[used[k]];
            bad += i < x->from || end - i > x->to; /* both passes meet the map */
            bad += end - i < dx->from || end - i > dx->to;
        }
    }
    const size_t placed = chex_lives_place(lives, 2 * count);
    const size_t least = most_alive(lives, 2 * count, end);
    OK(bad == 0 && overlaps(lives, 2 * count) == 0,
       "%s %d px: no map or gradient of a pass loses a byte while it is needed", model, size);
    OK((double)placed <= room * (double)least && placed < 2 * maps,
       "%s: %zu bytes where %zu are alive at once and maps alone take %zu", model, placed, least,
       maps);
}

static void network(const char *model, int size, double room) {
    struct chex_net *net = NULL;
    MUST(chex_net_create(model, 14, &net, &err));
    const int count = net->buffer_count;
    struct chex_life *lives = chex_alloc_zeroed(2 * (size_t)count, sizeof *lives);
    int *hw = chex_alloc_zeroed((size_t)count, sizeof *hw);
    bool *add = chex_alloc_zeroed(2 * (size_t)net->op_count, sizeof *add);
    BAIL_UNLESS(lives && hw && add, "out of memory");
    MUST(chex_net_shapes(net, size, hw, &err));
    size_t all = 0;
    chex_lives_of_buffers(net, lives);
    for (int b = 0; b < count; b++) {
        lives[b].bytes = (size_t)(hw[b] * hw[b] * net->buffers[b].channels * 2 + 63) / 64 * 64;
        all += lives[b].bytes;
    }
    const size_t end = chex_lives_place(lives, count);
    const size_t least = most_alive(lives, count, net->op_count);
    OK(overlaps(lives, count) == 0 && outside(net, lives) == 0,
       "%s %d px: no two living maps share a byte", model, size);
    OK((double)end <= room * (double)least,
       "%s: %zu bytes where %zu are alive at once and %zu there are", model, end, least, all);
    pass_of(net, lives, model, size, room);
    MUST(chex_gradient_adds(net, add, add + net->op_count, &err));
    int wrong = 0;
    for (int b = 0; b < count; b++) {
        int begins = 0, readers = 0;
        for (int i = 0; i < net->op_count; i++) {
            const struct chex_op *op = &net->ops[i];
            const bool side = op->kind == CHEX_OP_RESIDUAL_ADD && op->side_in == b;
            readers += (op->in == b) + side;
            begins += (op->in == b && !add[i]) + (side && !add[net->op_count + i]);
        }
        wrong += begins != (readers > 0);
    }
    OK(wrong == 0, "%s: one reader begins each gradient, all others add", model);
    free(lives);
    free(hw);
    free(add);
    chex_net_destroy(net);
}

static void drawn(void) {
    enum { COUNT = 40, ROUNDS = 300, OPS = 60 };
    struct chex_life lives[COUNT];
    int bad = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            const struct chex_rng4 r = chex_rng(1, CHEX_RNG_TEST, round, i);
            lives[i].bytes = r.v[0] % 9 * 64;
            lives[i].from = (int)(r.v[1] % OPS);
            lives[i].to = lives[i].from + (int)(r.v[2] % 12);
        }
        const size_t end = chex_lives_place(lives, COUNT);
        bad += overlaps(lives, COUNT);
        for (int i = 0; i < COUNT; i++)
            bad += lives[i].offset + lives[i].bytes > end;
    }
    OK(bad == 0, "drawn spans: no overlap, and the end is after all");
}

int main(void) {
    network("densenet121", 224, 1.01);
    network("densenet121", 75, 1.01);
    network("resnet50", 224, 1.01);
    network("resnet50", 33, 1.01);
    drawn();
    return tap_done();
}
