/* SPDX-License-Identifier: Apache-2.0
 *
 * What is measured between ranks, with threads for ranks and a collective library of a few lines
 * whose sends wait for the receiver, so that a circle of waiting ranks would hang the test. One
 * rank can be made slow, one can be made to change a bit, and the pass of one rank can fail.
 */
#include "check/between.h"

#include <pthread.h>

#include "base/clock.h"
#include "check/step.h"
#include "tap.h"

enum { MOST = 7, COUNT = 5000 };

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, per_node, arrived, round;
    int slow, faulty; /* ranks; -1: none */
    const void *box[MOST][MOST];
    const void *shared[MOST];
};

static float total[1 << 20]; /* a bucket of gradients */

struct member {
    struct world *w;
    int rank;
    enum chex_status st;
    struct chex_error err;
    struct chex_link links[2];
    struct chex_sum_rate sums;
    bool equal; /* of the sums of steps */
};

/* All have come; the last one in adds up `count` floats. */
static void meet(struct world *w, size_t count) {
    const int round = w->round;
    if (++w->arrived == w->size) {
        for (size_t i = 0; i < count; i++) {
            total[i] = 0;
            for (int r = 0; r < w->size; r++)
                total[i] += ((const float *)w->shared[r])[i];
        }
        w->arrived = 0;
        w->round++;
        pthread_cond_broadcast(&w->changed);
    }
    while (w->round == round)
        pthread_cond_wait(&w->changed, &w->lock);
}

/* Shows `data` to all. */
static void share(struct member *m, const void *data, size_t add) {
    m->w->shared[m->rank] = data;
    meet(m->w, add);
}

static enum chex_status barrier(void *self, struct chex_error *err) {
    struct member *m = self;
    (void)err;
    pthread_mutex_lock(&m->w->lock);
    meet(m->w, 0);
    pthread_mutex_unlock(&m->w->lock);
    return CHEX_OK;
}

static enum chex_status broadcast(void *self, void *data, size_t bytes, int root,
                                  struct chex_error *err) {
    struct member *m = self;
    (void)err;
    pthread_mutex_lock(&m->w->lock);
    share(m, data, 0);
    if (m->rank != root)
        memcpy(data, m->w->shared[root], bytes);
    meet(m->w, 0);
    pthread_mutex_unlock(&m->w->lock);
    return CHEX_OK;
}

static enum chex_status allgather(void *self, const void *mine, size_t bytes, void *all_out,
                                  struct chex_error *err) {
    struct member *m = self;
    (void)err;
    pthread_mutex_lock(&m->w->lock);
    share(m, mine, 0);
    for (int r = 0; r < m->w->size; r++)
        memcpy((char *)all_out + (size_t)r * bytes, m->w->shared[r], bytes);
    meet(m->w, 0);
    pthread_mutex_unlock(&m->w->lock);
    return CHEX_OK;
}

static enum chex_status sum_f32(void *self, float *data, size_t count, struct chex_error *err) {
    struct member *m = self;
    (void)err;
    pthread_mutex_lock(&m->w->lock);
    share(m, data, count);
    memcpy(data, total, count * sizeof *data);
    if (m->rank == m->w->faulty && count > 7)
        data[7] += 1;
    meet(m->w, 0);
    pthread_mutex_unlock(&m->w->lock);
    return CHEX_OK;
}

static enum chex_status send(void *self, const void *data, size_t bytes, int to, int tag,
                             struct chex_error *err) {
    struct member *m = self;
    struct world *w = m->w;
    (void)tag, (void)err;
    if (bytes > 1000 && (m->rank == w->slow || to == w->slow))
        chex_clock_sleep_ms(20);
    pthread_mutex_lock(&w->lock);
    w->box[m->rank][to] = data;
    pthread_cond_broadcast(&w->changed);
    while (w->box[m->rank][to])
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return CHEX_OK;
}

static enum chex_status receive(void *self, void *data, size_t bytes, int from, int tag,
                                struct chex_error *err) {
    struct member *m = self;
    struct world *w = m->w;
    (void)tag, (void)err;
    pthread_mutex_lock(&w->lock);
    while (!w->box[from][m->rank])
        pthread_cond_wait(&w->changed, &w->lock);
    memcpy(data, w->box[from][m->rank], bytes);
    w->box[from][m->rank] = NULL;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return CHEX_OK;
}

static const struct chex_coll_impl threads = {.name = "threads",
                                              .barrier = barrier,
                                              .broadcast = broadcast,
                                              .allgather = allgather,
                                              .sum_f32 = sum_f32,
                                              .send = send,
                                              .receive = receive};

static void *play_links(void *arg) {
    struct member *m = arg;
    struct chex_coll c = {.impl = &threads, .self = m, .rank = m->rank, .size = m->w->size};
    BAIL_UNLESS(chex_coll_make_group(&c, "", &m->err) == CHEX_OK, "%s", m->err.text);
    m->st = chex_between_links(&c, m->rank % m->w->per_node, 4096, m->links, &m->err);
    chex_group_destroy(c.group);
    return NULL;
}

static void *play_sums(void *arg) {
    struct member *m = arg;
    struct chex_coll c = {.impl = &threads, .self = m, .rank = m->rank, .size = m->w->size};
    BAIL_UNLESS(chex_coll_make_group(&c, "", &m->err) == CHEX_OK, "%s", m->err.text);
    m->st = chex_between_sums(&c, COUNT, 0.05, &m->sums, &m->err);
    chex_group_destroy(c.group);
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
    struct chex_coll c = {.impl = &threads, .self = m, .rank = m->rank, .size = m->w->size};
    struct chex_step *step = NULL;
    struct chex_step_sums sums = {0};
    BAIL_UNLESS(chex_coll_make_group(&c, "", &m->err) == CHEX_OK, "%s", m->err.text);
    BAIL_UNLESS(chex_step_create("cpu", 1, NULL, &step, &m->err) == CHEX_OK, "%s", m->err.text);
    passes = 0;
    fails = m->rank == m->w->faulty ? m->w->slow : 0;
    m->st = chex_step_sum(step, NULL, &c, 0, 1000, &sums, &m->err);
    m->equal = sums.equal;
    chex_step_destroy(step);
    chex_group_destroy(c.group);
    return NULL;
}

static struct member members[MOST];

static void run(void *(*play)(void *), int size, int per_node, int slow, int faulty) {
    static struct world w;
    pthread_t id[MOST];
    memset(members, 0, sizeof members);
    w = (struct world){.size = size, .per_node = per_node, .slow = slow, .faulty = faulty};
    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.changed, NULL);
    for (int r = 0; r < size; r++) {
        members[r] = (struct member){.w = &w, .rank = r};
        BAIL_UNLESS(pthread_create(&id[r], NULL, play, &members[r]) == 0, "thread");
    }
    for (int r = 0; r < size; r++)
        pthread_join(id[r], NULL);
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.lock);
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
