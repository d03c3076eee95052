/* SPDX-License-Identifier: Apache-2.0
 *
 * The reduction over V logical ranks gives the same bits for every number of processes, and those
 * of the recursive definition. The processes are threads here, with a collective library of a few
 * lines whose sends wait for the receiver: so a circle of waiting ranks would hang the test.
 *
 * So do the sums in the middle of passes (launch/rank_sum.h), with a thread for each logical rank.
 */
#include "launch/reduce.h"

#include "fixed_tree.h"
#include "launch/rank_sum.h"
#include "launch/reduce_order.h"
#include "thread_coll.h"

static struct chex_error err;

enum { MAX_V = 17, COUNT = 101, STEPS = 3 };

/* ---- one run ---- */

struct rank_job {
    struct coll_rank self;
    struct chex_reduce_config config;
    bool silent; /* keeps the last piece of each pass to itself */
    enum chex_status st;
    struct chex_error err;
    float sum[STEPS][COUNT];
};

/* A pass: the vector is filled from its end in pieces that know nothing of buckets. */
static void pass(struct rank_job *job, struct chex_reduce *reduce, int step, int v) {
    float *grad = chex_reduce_leaf(reduce, v);
    size_t piece = 1 + (size_t)(v * 7 + step * 3) % 23;
    for (size_t to = COUNT; to > 0;) {
        size_t from = to > piece ? to - piece : 0;
        for (size_t i = from; i < to; i++)
            grad[i] = (float)tree_leaf(step, v, i);
        if (!(job->silent && from == 0))
            chex_reduce_ready(reduce, from, to);
        to = from;
    }
}

static void *play(void *arg) {
    struct rank_job *job = arg;
    struct chex_reduce *reduce = NULL;
    int from, to;
    job->config.coll = &job->self.coll;
    job->st = chex_reduce_create(&job->config, &reduce, &job->err);
    chex_reduce_run(job->config.logical_ranks, job->self.coll.size, job->self.coll.rank, &from,
                    &to);
    for (int step = 0; step < STEPS && job->st == CHEX_OK; step++) {
        const float *sum = NULL;
        double exposed_s = -1;
        for (int v = from; v < to; v++)
            pass(job, reduce, step, v);
        job->st = chex_reduce_finish(reduce, &sum, &exposed_s, &job->err);
        if (job->st == CHEX_OK) {
            memcpy(job->sum[step], sum, sizeof job->sum[step]);
            if (exposed_s < 0)
                job->st = CHEX_E_FAIL;
        }
    }
    chex_reduce_destroy(reduce);
    return NULL;
}

static void play_all(struct rank_job *jobs, int size, int logical_ranks, bool deterministic,
                     int fail_after) {
    static struct coll_world w;
    coll_world_open(&w, size);
    w.fail_after = fail_after;
    for (int r = 0; r < size; r++)
        jobs[r].config = (struct chex_reduce_config){.logical_ranks = logical_ranks,
                                                     .count = COUNT,
                                                     .bucket_bytes = 32 * sizeof(float),
                                                     .deterministic = deterministic};
    coll_run(&w, play, jobs, sizeof *jobs);
}

static bool as_defined(const struct rank_job *jobs, int size, int V) {
    for (int r = 0; r < size; r++)
        for (int step = 0; step < STEPS; step++)
            for (size_t i = 0; i < COUNT; i++) {
                float want = (float)tree_sum(tree_leaf, true, step, 0, V, i);
                if (memcmp(&want, &jobs[r].sum[step][i], sizeof want) != 0)
                    return false;
            }
    return true;
}

static void check_fixed(void) {
    struct rank_job *jobs = calloc(MAX_V, sizeof *jobs);
    BAIL_UNLESS(jobs, "memory");
    for (int V = 1; V <= MAX_V; V++) {
        bool well = true, equal = true;
        int N = 1;
        for (; N <= V && well && equal; N++) {
            play_all(jobs, N, V, true, -1);
            for (int r = 0; r < N; r++)
                well = well && jobs[r].st == CHEX_OK;
            equal = as_defined(jobs, N, V);
        }
        OK(well && equal, "%d logical ranks: 1 to %d processes give the defined bits%s", V, N - 1,
           well ? "" : " (failed)");
    }
    free(jobs);
}

/* Without the fixed tree the sum is right except for rounding, and the same on all processes. */
static void check_free(void) {
    struct rank_job *jobs = calloc(MAX_V, sizeof *jobs);
    BAIL_UNLESS(jobs, "memory");
    double worst = 0;
    bool same = true;
    for (int N = 1; N <= 6; N++) {
        const int V = 11;
        play_all(jobs, N, V, false, -1);
        for (int r = 0; r < N; r++) {
            same = same && jobs[r].st == CHEX_OK &&
                   memcmp(jobs[0].sum, jobs[r].sum, sizeof jobs[0].sum) == 0;
            for (size_t i = 0; i < COUNT; i++) {
                double exact = 0;
                for (int v = 0; v < V; v++)
                    exact += tree_leaf(1, v, i);
                worst = fmax(worst, fabs(exact - (double)jobs[r].sum[1][i]));
            }
        }
    }
    OK(same, "not fixed: all processes hold the same sum");
    /* Ten additions of numbers below 11 * 2^10, each rounded by half an ulp at most. */
    OK(worst <= 10 * ldexp(1, 13 - 24), "not fixed: largest difference %.3g from the exact sum",
       worst);
    free(jobs);
}

/* ---- sums in the middle of passes ---- */

struct summing {
    struct chex_rank_sum *sum;
    int v;
    int fails_at; /* the step in which this logical rank gives up; -1: never */
    double values[STEPS][COUNT];
    enum chex_status st;
    struct chex_error err;
};

static double third(int step, int v, size_t i) { return tree_leaf(step, v, i) / 3; }

static void *sum_in_passes(void *arg) {
    struct summing *j = arg;
    for (int step = 0; step < STEPS && j->st == CHEX_OK; step++) {
        if (j->fails_at == step) {
            j->st = chex_error_set(&j->err, CHEX_E_NODE, "logical rank %d failed", j->v);
            chex_rank_sum_fail(j->sum, &j->err);
            break;
        }
        for (size_t i = 0; i < COUNT; i++)
            j->values[step][i] = third(step, j->v, i);
        j->st = chex_rank_sum_add(j->sum, j->v, j->values[step], COUNT, &j->err);
    }
    return NULL;
}

/* N processes play V logical ranks; logical rank `failing` gives up in step 1. */
static void sum_all(struct summing *jobs, int N, int V, int failing, int fail_after) {
    static struct coll_world w;
    struct coll_rank members[MAX_V];
    struct chex_rank_sum *sums[MAX_V];
    pthread_t thread[MAX_V];
    coll_world_open(&w, N);
    w.fail_after = fail_after;
    memset(jobs, 0, MAX_V * sizeof *jobs);
    for (int r = 0, v = 0; r < N; r++) {
        int from, to;
        coll_join(&w, &members[r], r);
        MUST(chex_rank_sum_create(&members[r].coll, V, COUNT, &sums[r], &err));
        for (chex_reduce_run(V, N, r, &from, &to); v < to; v++) {
            jobs[v].sum = sums[r];
            jobs[v].v = v;
            jobs[v].fails_at = v == failing ? 1 : -1;
        }
    }
    for (int v = 0; v < V; v++)
        BAIL_UNLESS(pthread_create(&thread[v], NULL, sum_in_passes, &jobs[v]) == 0, "thread");
    for (int v = 0; v < V; v++)
        pthread_join(thread[v], NULL);
    for (int r = 0; r < N; r++)
        chex_rank_sum_destroy(sums[r]);
    coll_world_close(&w);
}

static void check_sums_in_passes(void) {
    struct summing *jobs = calloc(MAX_V, sizeof *jobs);
    BAIL_UNLESS(jobs, "memory");
    for (int V = 1; V <= MAX_V; V += V < 5 ? 1 : 4) {
        bool well = true;
        for (int N = 1; N <= V; N++) {
            sum_all(jobs, N, V, -1, -1);
            for (int v = 0; v < V; v++)
                for (int step = 0; step < STEPS; step++)
                    for (size_t i = 0; i < COUNT; i++) {
                        const double want = tree_sum(third, false, step, 0, V, i);
                        well = well && jobs[v].st == CHEX_OK &&
                               memcmp(&want, &jobs[v].values[step][i], sizeof want) == 0;
                    }
        }
        OK(well, "%d logical ranks in the middle of passes: 1 to %d processes give the same sum", V,
           V);
    }
    sum_all(jobs, 1, 4, 2, -1);
    bool reported = true;
    for (int v = 0; v < 4; v++)
        reported = reported && jobs[v].st == CHEX_E_NODE &&
                   strstr(jobs[v].err.text, "logical rank 2 failed");
    OK(reported, "a logical rank that fails ends the passes of its process: %s", jobs[0].err.text);
    sum_all(jobs, 2, 4, -1, 1);
    reported = true;
    for (int v = 0; v < 4; v++)
        reported = reported && jobs[v].st == CHEX_E_LOST && strstr(jobs[v].err.text, "wire");
    OK(reported, "an error of the collectives ends the passes of each process: %s",
       jobs[0].err.text);

    struct chex_coll one = {.impl = &coll_threads, .size = 1};
    struct chex_rank_sum *sum = NULL;
    double values[3] = {1, 2, 3};
    MUST(chex_rank_sum_create(&one, 1, 2, &sum, &err));
    OK(chex_rank_sum_add(sum, 0, values, 2, &err) == CHEX_OK && values[0] == 1 && values[1] == 2 &&
           !chex_rank_sum_waits(sum),
       "one logical rank keeps its values");
    OK_STATUS(chex_rank_sum_add(sum, 0, values, 3, &err), CHEX_E_FAIL, err, "at most 2");
    chex_rank_sum_destroy(sum);
    chex_rank_sum_destroy(NULL);
    free(jobs);
}

static void check_failures(void) {
    struct rank_job *jobs = calloc(MAX_V, sizeof *jobs);
    BAIL_UNLESS(jobs, "memory");
    struct chex_reduce *reduce = NULL;
    play_all(jobs, 2, 2, true, 3);
    for (int r = 0; r < 2; r++)
        OK(jobs[r].st == CHEX_E_LOST && strstr(jobs[r].err.text, "wire"),
           "rank %d: an error of the collectives comes out of finish: %s", r, jobs[r].err.text);

    memset(jobs, 0, sizeof *jobs);
    jobs[0].silent = true;
    play_all(jobs, 1, 3, true, -1);
    OK(jobs[0].st == CHEX_E_FAIL && strstr(jobs[0].err.text, "logical rank 0"),
       "a pass that reports too little is found: %s", jobs[0].err.text);

    struct chex_coll one = {.impl = &coll_threads, .size = 3};
    struct chex_reduce_config config = {.coll = &one, .logical_ranks = 2, .count = 5};
    OK_STATUS(chex_reduce_create(&config, &reduce, &err), CHEX_E_USAGE, err, "too few for 3 ranks");
    one.size = 1;
    config.count = 0;
    OK_STATUS(chex_reduce_create(&config, &reduce, &err), CHEX_E_FAIL, err, "no elements");
    config.count = SIZE_MAX / 2;
    OK_STATUS(chex_reduce_create(&config, &reduce, &err), CHEX_E_RESOURCE, err, "out of memory");
    OK(reduce == NULL, "failed creations leave the output alone");
    chex_reduce_destroy(NULL);

    config.count = 5;
    config.logical_ranks = 1;
    MUST(chex_reduce_create(&config, &reduce, &err));
    const float *sum = NULL;
    double exposed_s;
    chex_reduce_leaf(reduce, 0);
    chex_reduce_ready(reduce, 2, 4); /* element 4 was left out */
    OK_STATUS(chex_reduce_finish(reduce, &sum, &exposed_s, &err), CHEX_E_FAIL, err, "[2, 4)");
    chex_reduce_destroy(reduce);

    MUST(chex_reduce_create(&config, &reduce, &err));
    chex_reduce_leaf(reduce, 0);
    chex_reduce_destroy(reduce);
    OK(true, "destroyed in the middle of a pass");
    free(jobs);
}

/* Vectors that a process needs. */
static int vectors(int V, int N, int r) {
    struct chex_reduce_order plan;
    int from, to;
    chex_reduce_run(V, N, r, &from, &to);
    BAIL_UNLESS(chex_reduce_order_init(&plan, V, from, to, N, NULL) == CHEX_OK, "no memory");
    const int n = plan.vectors;
    chex_reduce_order_release(&plan);
    return n;
}

static void check_plan(void) {
    bool cover = true, bounded = true;
    for (int V = 1; V <= 40; V++)
        for (int N = 1; N <= V; N++) {
            int end = 0, from, to;
            for (int r = 0; r < N; r++) {
                chex_reduce_run(V, N, r, &from, &to);
                cover = cover && from == end && to > from;
                end = to;
                int n = vectors(V, N, r), limit = 2;
                for (int p = 1; p < to - from; p *= 2)
                    limit += 2;
                bounded = bounded && n >= 1 && n <= to - from && n <= limit;
            }
            cover = cover && end == V;
        }
    OK(cover, "the runs of all processes are disjoint, not empty and cover all logical ranks");
    OK(bounded, "vectors alive at once grow with the logarithm of the run");
    OK(vectors(1, 1, 0) == 1, "one logical rank needs one vector");
    OK(vectors(8, 1, 0) == 4, "eight on one process need four");
    OK(vectors(5, 3, 1) == 2, "two that have no common parent need two");
    struct chex_reduce_order plan;
    bool small = true;
    for (int r = 0; r < 3; r++) {
        int from, to;
        chex_reduce_run(1 << 20, 3, r, &from, &to);
        MUST(chex_reduce_order_init(&plan, 1 << 20, from, to, 3, &err));
        small = small && plan.cross_count < 64 && plan.vectors < 64;
        chex_reduce_order_release(&plan);
    }
    OK(small, "a million logical ranks on three processes: few messages, few vectors");
}

int main(void) {
    check_plan();
    check_fixed();
    check_free();
    check_sums_in_passes();
    check_failures();
    return tap_done();
}
