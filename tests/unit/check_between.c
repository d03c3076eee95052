/* SPDX-License-Identifier: Apache-2.0
 *
 * What is measured between ranks, with threads for ranks (tests/thread_coll.h). One rank can be made
 * slow, one can be made to change a bit, and the pass of one rank can fail.
 */
#include "check/between.h"

#include "check/step.h"
#include "thread_coll.h"

enum { MOST = 7, COUNT = 5000 };
static int ranks_per_node;

struct member {
    struct coll_rank self;
    enum chex_status st;
    struct chex_error err;
    struct chex_link links[2];
    struct chex_sum_rate sums;
    bool equal; /* of the sums of steps */
};

static void *play_links(void *arg) {
    struct member *m = arg;
    m->st = chex_between_links(&m->self.coll, m->self.coll.rank % ranks_per_node, 4096, m->links,
                               &m->err);
    return NULL;
}

static void *play_sums(void *arg) {
    struct member *m = arg;
    m->st = chex_between_sums(&m->self.coll, COUNT, 0.05, &m->sums, &m->err);
    return NULL;
}

/* The pass of this thread that fails, from 1; 0: none. It has reported a part of its gradient by
 * then. The linker puts this function in place of chex_engine_pass. */
static _Thread_local int fails, passes;

enum chex_status __real_chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                         float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                         struct chex_pass_result *out, struct chex_error *err);
enum chex_status __wrap_chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                         float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                         struct chex_pass_result *out, struct chex_error *err);
enum chex_status __wrap_chex_engine_pass(struct chex_engine *e, const struct chex_batch *batch,
                                         float *grad_out, chex_grad_ready_fn ready, void *ready_arg,
                                         struct chex_pass_result *out, struct chex_error *err) {
    const size_t count = e->config.net->state_count;
    if (++passes != fails)
        return __real_chex_engine_pass(e, batch, grad_out, ready, ready_arg, out, err);
    memset(grad_out, 0, count * sizeof *grad_out);
    ready(ready_arg, count / 2, count);
    return chex_error_set(err, CHEX_E_NODE, "the pass fails");
}

static void *play_steps(void *arg) {
    struct member *m = arg;
    struct chex_step *step = NULL;
    struct chex_step_sums sums = {0};
    BAIL_UNLESS(chex_step_create("cpu", 1, NULL, &step, &m->err) == CHEX_OK, "%s", m->err.text);
    passes = 0;
    fails = m->self.coll.rank == m->self.world->faulty ? m->self.world->slow : 0;
    m->st = chex_step_sum(step, NULL, &m->self.coll, 0, 1000, &sums, &m->err);
    m->equal = sums.equal;
    chex_step_destroy(step);
    return NULL;
}

static struct member members[MOST];

static void run(void *(*play)(void *), int size, int per_node, int slow, int faulty) {
    static struct coll_world w;
    memset(members, 0, sizeof members);
    ranks_per_node = per_node;
    coll_world_open(&w, size);
    w.slow = slow;
    w.faulty = faulty;
    coll_run(&w, play, members, sizeof *members);
}

static bool linked(int rank, int before, int behind) {
    const struct chex_link *l = members[rank].links;
    bool good = members[rank].st == CHEX_OK && l[0].rank == before && l[1].rank == behind;
    for (int i = 0; i < 2; i++)
        good = good && (l[i].rank < 0 || (l[i].bytes_per_s > 0 && l[i].latency_s > 0));
    return good;
}

static double best(int rank) {
    const struct chex_link *l = members[rank].links;
    return fmax(l[0].rank < 0 ? 0 : l[0].bytes_per_s, l[1].rank < 0 ? 0 : l[1].bytes_per_s);
}

static void test_links(void) {
    run(play_links, 1, 1, -1, -1);
    OK(linked(0, -1, -1), "one node has no neighbour");
    run(play_links, 2, 1, -1, -1);
    OK(linked(0, -1, 1) && linked(1, 0, -1), "two are one pair");
    OK(members[0].links[1].bytes_per_s == members[1].links[0].bytes_per_s &&
           members[0].links[1].latency_s == members[1].links[0].latency_s,
       "whose link has one figure");
    run(play_links, 3, 1, -1, -1);
    OK(linked(0, 2, 1) && linked(1, 0, 2) && linked(2, 1, 0), "three are a ring");
    run(play_links, 4, 1, -1, -1);
    OK(linked(0, 3, 1) && linked(1, 0, 2) && linked(2, 1, 3) && linked(3, 2, 0), "four are");
    run(play_links, 6, 2, -1, -1);
    OK(linked(0, 4, 2) && linked(2, 0, 4) && linked(4, 2, 0) && linked(1, -1, -1) &&
           linked(3, -1, -1) && linked(5, -1, -1),
       "of a node its first rank");
    run(play_links, 5, 5, -1, -1);
    OK(linked(0, -1, -1), "all on one node");
    run(play_links, 7, 1, 3, -1);
    bool last = true;
    for (int r = 0; r < 7; r++)
        last = last && (r == 3 || best(3) < best(r));
    OK(last, "the slow node is the worst, and not its neighbours: %.3g and %.3g MB/s",
       best(3) / 1e6, best(2) / 1e6);
}

static void test_sums(void) {
    run(play_sums, 5, 1, -1, -1);
    bool good = true;
    for (int r = 0; r < 5; r++) {
        const struct chex_sum_rate *s = &members[r].sums;
        good = good && members[r].st == CHEX_OK && s->wrong == 0 && s->repeats >= 2 &&
               s->repeats == members[0].sums.repeats && s->small_s > 0 && s->vector_s > 0 &&
               s->bus_bytes_per_s > 0;
    }
    OK(good, "sums of five ranks are exact and have rates");
    run(play_sums, 3, 1, -1, 1);
    OK(members[0].sums.wrong == 0 && members[2].sums.wrong == 0, "the others' sums are right");
    OK(members[1].st == CHEX_OK && members[1].sums.wrong == 1 && members[1].sums.first_wrong == 7,
       "one wrong bit is found on the rank that has it: element %zu", members[1].sums.first_wrong);
}

/* In place of a slow rank, the number of the pass that fails. */
static void test_steps(void) {
    run(play_steps, 2, 1, -1, -1);
    OK(members[0].st == CHEX_OK && members[0].equal && members[1].st == CHEX_OK && members[1].equal,
       "ranks whose passes succeed have equal sums");
    for (int pass = 1; pass <= 3; pass += 2) {
        run(play_steps, 2, 1, pass, 1);
        for (int r = 0; r < 2; r++)
            OK(members[r].st == CHEX_E_NODE && strstr(members[r].err.text, "the pass fails"),
               "pass %d fails on rank 1: rank %d returns its error", pass, r);
        OK(strstr(members[0].err.text, "rank 1"), "and rank 0 names it: %s", members[0].err.text);
    }
}

int main(void) {
    test_links();
    test_sums();
    test_steps();
    return tap_done();
}
