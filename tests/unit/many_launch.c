/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch code on 1,024 ranks of 64 nodes, in one process (tests/thread_pmix.h): who am I,
 * exchange, collect, messages to single ranks, end, and a node that is lost. Each rank sees the job
 * as on a cluster, and sends no more requests to its PMIx server than stated in doc/scale.md. The
 * run after the launch is played by many_ranks.c.
 */
#include <unistd.h>

#include "launch/group.h"
#include "tap.h"
#include "thread_pmix.h"

enum {
    /* A thread sanitizer knows 8,000 threads; each exchange asks for ranks x ranks values. */
    RANKS = TAP_SLOW_BUILD ? 256 : 1024,
    NODE_RANKS = 16,
    FEWER = 250, /* the last node has 10 */
    LOST_NODE = 8,
    EARLY_NODE = 5,
    WAIT_MS = 600000,
    NEAR = 4, /* ranks that a rank looks up */
    STACK_BYTES = 256 << 10,
};

struct card {
    int rank, node;
};

struct rank {
    int rank;
    struct chex_launch launch;
    bool knows_itself, exchanged, collected, found, silent_missing;
    int exchange_gets, other_gets; /* requests of one exchange, and of the collect */
    char last_host[CHEX_HOST_BYTES];
    enum chex_status st, again;
    struct chex_error err;
    bool missing_known; /* launch.came has the lost node's ranks */
};

static struct rank ranks[RANKS];

/* chex_launch_init is made for a process with one thread: it redirects standard output. */
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

static enum chex_status start(struct rank *r) {
    struct chex_launch *l = &r->launch;
    char host[32];
    pthread_mutex_lock(&start_lock);
    const enum chex_status st = chex_launch_init(l, &r->err);
    pthread_mutex_unlock(&start_lock);
    const int node = job_node(r->rank), first = node * job.node_ranks;
    const int left = job.size - first;
    snprintf(host, sizeof host, "n%d", node);
    r->knows_itself = st == CHEX_OK && l->rank == r->rank && l->size == job.size &&
                      l->local_rank == r->rank - first &&
                      l->local_size == (left < job.node_ranks ? left : job.node_ranks) &&
                      l->node == node && l->nodes == job_nodes() && strcmp(l->host, host) == 0;
    return st;
}

/* ---- a launch that goes well ---- */

static enum chex_status exchange(struct rank *r, struct chex_group *g) {
    const struct card mine = {r->rank, r->launch.node};
    const int before = job.rank[r->rank].gets;
    CHEX_TRY(chex_group_exchange(g, "card", &mine, sizeof mine, &r->err));
    const struct card *all = g->all;
    r->exchange_gets = job.rank[r->rank].gets - before;
    r->exchanged = true;
    for (int k = 0; k < g->size; k++)
        r->exchanged = r->exchanged && all[k].rank == k && all[k].node == job_node(k);
    return CHEX_OK;
}

static enum chex_status collect(struct rank *r, struct chex_group *g) {
    const struct card mine = {2 * r->rank, 0};
    struct card *all = r->rank == 0 ? calloc((size_t)g->size, sizeof *all) : NULL;
    const int before = job.rank[r->rank].gets;
    const enum chex_status st = chex_group_collect(g, "answers", &mine, sizeof mine, all, &r->err);
    r->other_gets = job.rank[r->rank].gets - before;
    r->collected = true;
    for (int k = 0; all && k < g->size; k++)
        r->collected = r->collected && all[k].rank == 2 * k;
    free(all);
    return st;
}

/* Each rank except the last publishes a note, and looks up those of the next ranks. */
static enum chex_status notes(struct rank *r) {
    const int size = job.size, silent = size - 1, mine = 3 * r->rank;
    const int from = (r->rank + 1) % (size - NEAR);
    int got[NEAR] = {0};
    bool came[NEAR], none;
    const char key[] = "note";
    job.rank[r->rank].caller_key = key;
    if (r->rank != silent)
        CHEX_TRY(chex_launch_publish(&r->launch, key, &mine, sizeof mine, &r->err));
    chex_launch_lookup(&r->launch, key, from, from + NEAR, sizeof *got, got, came, WAIT_MS);
    r->found = true;
    for (int k = 0; k < NEAR; k++)
        r->found = r->found && (from + k == r->rank || (came[k] && got[k] == 3 * (from + k)));
    if (r->rank == 0) {
        chex_launch_lookup(&r->launch, key, silent, size, 0, NULL, &none, 1);
        r->silent_missing = !none;
    }
    chex_launch_host(&r->launch, silent, r->last_host, sizeof r->last_host);
    return CHEX_OK;
}

static enum chex_status work(struct rank *r) {
    struct chex_group *g = NULL;
    CHEX_TRY(chex_group_of_launch(&r->launch, WAIT_MS, &g, &r->err));
    enum chex_status st = exchange(r, g);
    if (st == CHEX_OK)
        st = collect(r, g);
    if (st == CHEX_OK)
        st = notes(r);
    chex_group_destroy(g);
    return st;
}

static void *play_launch(void *arg) {
    struct rank *r = arg;
    job_me = r->rank;
    r->st = start(r);
    if (r->st == CHEX_OK)
        r->st = work(r);
    chex_launch_finish(&r->launch);
    return NULL;
}

/* ---- a node that is lost ---- */

static void *play_lost_node(void *arg) {
    struct rank *r = arg;
    const struct card mine = {r->rank, 0};
    job_me = r->rank;
    r->st = start(r);
    if (r->st == CHEX_OK && !job.rank[r->rank].absent) {
        struct card *all = calloc((size_t)job.size, sizeof *all);
        BAIL_UNLESS(all, "memory");
        r->st = chex_launch_exchange(&r->launch, "card", &mine, sizeof mine, all, WAIT_MS, &r->err);
        struct chex_error after = {0};
        r->again = chex_launch_exchange(&r->launch, "card", &mine, sizeof mine, all, 1, &after);
        free(all);
        const bool *came = r->launch.came;
        r->missing_known = came != NULL;
        for (int k = 0; came && k < job.size; k++)
            r->missing_known = r->missing_known && came[k] != (job_node(k) == LOST_NODE);
    }
    chex_launch_abort(&r->launch, (int)CHEX_E_LOST);
    chex_launch_finish(&r->launch);
    return NULL;
}

/* ---- all ranks ---- */

static void play_all(int size, void *(*play)(void *)) {
    static pthread_t thread[RANKS];
    pthread_attr_t small;
    const int kept = dup(STDOUT_FILENO);
    fflush(stdout);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct rank){.rank = r};
        BAIL_UNLESS(pthread_create(&thread[r], &small, play, &ranks[r]) == 0,
                    "this machine allows %d threads only", r);
    }
    for (int r = 0; r < size; r++)
        pthread_join(thread[r], NULL);
    pthread_attr_destroy(&small);
    dup2(kept, STDOUT_FILENO); /* the ends of all ranks have redirected it, side by side */
    close(kept);
}

static void check_launch(void) {
    bool well = true, known = true, exchanged = true, collected = true, found = true, hosts = true,
         own_key = true;
    bool few = true, silent = true, ended = true;
    char last[32];
    int early_gets = 0;
    job_begin("slurm.pmix.77.0", RANKS, NODE_RANKS, 0);
    job.early_node = EARLY_NODE;
    play_all(RANKS, play_launch);
    snprintf(last, sizeof last, "n%d", job_nodes() - 1);
    for (int k = 0; k < RANKS; k++) {
        const struct rank *r = &ranks[k];
        const struct job_rank *calls = &job.rank[k];
        if (r->st != CHEX_OK)
            printf("# rank %d: %s\n", k, r->err.text);
        well = well && r->st == CHEX_OK;
        known = known && r->knows_itself;
        exchanged = exchanged && r->exchanged;
        collected = collected && r->collected;
        found = found && r->found;
        hosts = hosts && strcmp(r->last_host, last) == 0;
        /* Two exchanges; rank 0 publishes no answer to itself, the last rank no note. */
        silent = silent && calls->puts == (k == 0 || k == RANKS - 1 ? 3 : 4) &&
                 (k > 0 || r->silent_missing);
        ended = ended && calls->ended && calls->fences == 2;
        few = few && (k == 0 || r->other_gets == 0);
        own_key = own_key && !calls->points_to_caller;
        if (job_node(k) == EARLY_NODE)
            early_gets = r->exchange_gets > early_gets ? r->exchange_gets : early_gets;
        else
            few = few && r->exchange_gets == RANKS - 1;
    }
    OK(well, "%d ranks on %d nodes: the launch ends well", RANKS, job_nodes());
    OK(known, "each rank knows its rank, its node and its place there");
    OK(exchanged, "each rank gets the cards of all, also where a fence returns too early");
    OK(collected, "rank 0 collects the answers of all ranks");
    OK(found && silent, "ranks find the notes of others, and see that one left none");
    OK(own_key, "a request has its own copy of the key");
    OK(hosts, "each rank knows the node of the last one");
    OK(few, "an exchange asks for each other rank once; a collect only on rank 0");
    OK(ended, "all ranks finish, and no fence is made without need");
    printf("# at most %d requests of a rank whose fence returned too early\n", early_gets);
    job_end();
}

static void check_lost_node(void) {
    bool known = true, named = true, ended = true;
    char want[160];
    job_begin("prterun-login-123@1", FEWER, NODE_RANKS, 1);
    for (int r = 0; r < FEWER; r++)
        job.rank[r].absent = job_node(r) == LOST_NODE;
    play_all(FEWER, play_lost_node);
    int n = snprintf(want, sizeof want, "rank ");
    for (int k = 0; k < 8; k++)
        n += snprintf(want + n, sizeof want - (size_t)n, "%s%d (n%d)", k ? ", " : "",
                      LOST_NODE * NODE_RANKS + k, LOST_NODE);
    snprintf(want + n, sizeof want - (size_t)n, " and %d more of %d did not come to exchange card",
             NODE_RANKS - 8, FEWER);
    const struct rank *wrong = NULL;
    for (int k = 0; k < FEWER; k++) {
        const struct rank *r = &ranks[k];
        const struct job_rank *calls = &job.rank[k];
        known = known && r->knows_itself;
        ended = ended && calls->ended && calls->aborted_with == CHEX_E_LOST;
        if (calls->absent)
            continue;
        if (r->st != CHEX_E_LOST || r->again != CHEX_E_LOST || !r->missing_known ||
            strncmp(r->err.text, want, strlen(want)) != 0)
            wrong = r;
    }
    named = !wrong;
    OK(known, "%d ranks of mpirun, which counts its own node: the nodes are numbered from 0",
       FEWER);
    OK(named, "a lost node: all ranks name it: %s", wrong ? wrong->err.text : want);
    OK(ended, "all abort with status 7, and end");
    job_end();
}

int main(void) {
    unsetenv("SLURMD_NODENAME");
    setenv("SLURM_STEP_ID", "0", 1);
    check_launch();
    check_lost_node();
    return tap_done();
}
