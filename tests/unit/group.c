/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of a group with ranks that are threads: what they return, whose error counts, and
 * that no rank waits for one that is out of memory.
 */
#include "launch/group.h"

#include "thread_ranks.h"

enum { SIZE = 4, LARGE = 5000 };

struct rank {
    void (*play)(struct chex_group *g, struct rank *r);
    enum chex_status give, status;
    const char *text;
    bool no_error; /* passes no struct chex_error */
    int fail_at;   /* this allocation fails */
    bool failed, right;
    struct chex_error err;
};
static struct rank ranks[SIZE];

static void play(struct chex_group *g, void *arg) {
    struct rank *r = arg;
    if (r->give != CHEX_OK && r->text)
        chex_error_set(&r->err, r->give, "%s", r->text);
    ranks_fail_allocation(r->fail_at);
    r->play(g, r);
    r->failed = ranks_allocation_failed();
}

static void run(int size, void (*fn)(struct chex_group *g, struct rank *r)) {
    for (int r = 0; r < size; r++)
        ranks[r].play = fn;
    ranks_run(size, play, ranks, sizeof *ranks);
}

static void reset(void) { memset(ranks, 0, sizeof ranks); }

static bool all_return(int size, enum chex_status status, const char *text) {
    bool same = true;
    for (int r = 0; r < size; r++)
        same = same && ranks[r].status == status &&
               (ranks[r].no_error || !text || strcmp(ranks[r].err.text, text) == 0);
    return same;
}

/* ---- operations ---- */

static void agree(struct chex_group *g, struct rank *r) {
    r->status = chex_group_agree(g, r->give, r->no_error ? NULL : &r->err);
}

static void follow_last(struct chex_group *g, struct rank *r) {
    r->status = chex_group_follow(g, g->size - 1, r->give, &r->err);
}

static void exchange(struct chex_group *g, struct rank *r) {
    unsigned char mine[LARGE];
    r->right = true;
    for (size_t bytes = 0; bytes <= LARGE && r->status == CHEX_OK; bytes += LARGE / 2) {
        memset(mine, g->rank + 1, sizeof mine);
        r->status = chex_group_exchange(g, "test", mine, bytes, &r->err);
        const unsigned char *all = g->all;
        for (size_t i = 0; r->status == CHEX_OK && i < bytes * (size_t)g->size; i++)
            r->right = r->right && all[i] == i / bytes + 1;
    }
}

static void broadcast(struct chex_group *g, struct rank *r) {
    unsigned char data[LARGE];
    memset(data, g->rank, sizeof data);
    r->status = chex_group_broadcast(g, data, sizeof data, g->size - 1, &r->err);
    r->right = true;
    for (size_t i = 0; i < LARGE; i++)
        r->right = r->right && data[i] == g->size - 1;
}

/* Rank r gives r * LARGE bytes, so rank 0 gives none. */
static void gather(struct chex_group *g, struct rank *r) {
    static unsigned char mine[SIZE][SIZE * LARGE];
    void *all = NULL;
    size_t total = 0, at = 0;
    memset(mine[g->rank], 'a' + g->rank, sizeof *mine);
    r->status = chex_group_gather(g, mine[g->rank], (size_t)g->rank * LARGE, &all, &total, &r->err);
    r->right = total == LARGE * (size_t)g->size * (size_t)(g->size - 1) / 2 &&
               (all != NULL) == (g->rank == 0);
    for (int from = 0; r->right && all && from < g->size; from++)
        for (int i = 0; i < from * LARGE; i++)
            r->right = r->right && ((unsigned char *)all)[at++] == 'a' + from;
    free(all);
}

/* ---- tests ---- */

static void test_results(void) {
    static const struct {
        const char *name;
        void (*fn)(struct chex_group *g, struct rank *r);
    } operations[] = {{"exchange", exchange}, {"broadcast", broadcast}, {"gather", gather}};
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        for (int size = 1; size <= SIZE; size += SIZE - 1) {
            bool right = true;
            reset();
            run(size, operations[i].fn);
            for (int r = 0; r < size; r++)
                right = right && ranks[r].right;
            OK(right && all_return(size, CHEX_OK, NULL), "%s of %d rank%s", operations[i].name,
               size, size > 1 ? "s" : "");
        }
}

static void give(int rank, enum chex_status status, const char *text) {
    ranks[rank].give = status;
    ranks[rank].text = text;
}

static void test_agree(void) {
    reset();
    run(SIZE, agree);
    OK(all_return(SIZE, CHEX_OK, ""), "all ranks succeed");

    reset();
    give(2, CHEX_E_DATA, "shard 3 is torn");
    run(SIZE, agree);
    OK(all_return(SIZE, CHEX_E_DATA, "rank 2 on node2: shard 3 is torn"),
       "all ranks, the failed one too, get its text with rank and host: %s", ranks[2].err.text);

    reset();
    for (int r = 0; r < SIZE; r++)
        give(r, CHEX_E_DATA, "no such folder");
    run(SIZE, agree);
    OK(all_return(SIZE, CHEX_E_DATA, "no such folder"), "ranks that fail alike are not named");

    reset();
    give(0, CHEX_E_PREEMPTED, "asked to stop");
    give(1, CHEX_E_USAGE, "option");
    give(2, CHEX_E_NODE, "first");
    give(3, CHEX_E_NODE, "second");
    run(SIZE, agree);
    OK(all_return(SIZE, CHEX_E_NODE, "rank 2 on node2: first"),
       "the worst status counts, and of two the lower rank: %s", ranks[0].err.text);

    reset();
    give(0, CHEX_E_PREEMPTED, "asked to stop");
    give(3, CHEX_E_FAIL, "bug");
    run(SIZE, agree);
    OK(all_return(SIZE, CHEX_E_FAIL, "rank 3 on node3: bug"), "preemption is the mildest");

    reset();
    give(1, CHEX_E_RESOURCE, NULL);
    ranks[1].no_error = ranks[2].no_error = true;
    run(SIZE, agree);
    OK(all_return(SIZE, CHEX_E_RESOURCE, "rank 1 on node1: out of memory or disk"),
       "without a text the status speaks: %s", ranks[0].err.text);

    reset();
    give(0, CHEX_E_DATA, "shard 3 is torn");
    run(1, agree);
    OK(all_return(1, CHEX_E_DATA, "shard 3 is torn"), "one rank agrees with itself");

    reset();
    give(0, CHEX_E_NODE, "ignored");
    give(SIZE - 1, CHEX_E_USAGE, "output holds a set");
    run(SIZE, follow_last);
    OK(all_return(SIZE, CHEX_E_USAGE, "output holds a set"), "all follow one rank, without names");
}

/* Each allocation inside each operation fails on one rank in turn. */
static void test_memory(void) {
    static const struct {
        const char *name;
        void (*fn)(struct chex_group *g, struct rank *r);
        int allocations[2]; /* of rank 0, of another rank */
    } operations[] = {{"agree", agree, {0, 0}},
                      {"broadcast", broadcast, {0, 0}},
                      {"exchange", exchange, {2, 2}},
                      {"gather", gather, {1, 0}}};
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        for (int bad = 0; bad < SIZE; bad++) {
            int number = 0;
            bool same = true;
            for (bool failed = true; failed && number < 100;) {
                reset();
                ranks[bad].fail_at = ++number;
                run(SIZE, operations[i].fn);
                failed = ranks[bad].failed;
                same = same && all_return(SIZE, failed ? CHEX_E_RESOURCE : CHEX_OK, NULL);
                for (int r = 0; failed && r < SIZE; r++)
                    same = same && strcmp(ranks[r].err.text, ranks[bad].err.text) == 0 &&
                           strstr(ranks[r].err.text, "out of memory");
            }
            OK(same && number - 1 == operations[i].allocations[bad > 0],
               "%s: rank %d is out of memory at each of its %d allocations: all ranks return the "
               "same, none waits",
               operations[i].name, bad, number - 1);
        }
}

static void leave_early(struct chex_group *g, struct rank *r) {
    g->wait_ms = 50;
    if (g->rank == 1)
        return;
    r->status = chex_group_agree(g, CHEX_OK, &r->err);
    r->right = g->broken;
    give(g->rank, CHEX_E_DATA, NULL);
    struct chex_error own = {.status = CHEX_E_DATA, .text = "my own fault"}, later = {0};
    r->right = r->right && chex_group_agree(g, CHEX_E_DATA, &own) == CHEX_E_DATA &&
               strcmp(own.text, "my own fault") == 0 &&
               chex_group_exchange(g, "later", NULL, 0, &later) == CHEX_E_LOST &&
               strstr(later.text, "later: not started");
}

static void test_lost(void) {
    reset();
    run(SIZE, leave_early);
    OK(ranks[0].status == CHEX_E_LOST && ranks[3].status == CHEX_E_LOST,
       "a rank that does not come within wait_ms is lost: %s", ranks[0].err.text);
    OK(ranks[0].right && ranks[2].right && ranks[3].right,
       "then the group is broken: a rank keeps its own error, and waits no more");
}

int main(void) {
    test_results();
    test_agree();
    test_memory();
    test_lost();
    return tap_done();
}
