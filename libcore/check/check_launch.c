/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the launch: identity of the ranks, their consistency, CPUs, clocks.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "check/checks.h"
#include "launch/methods.h"

static void probe_launch(const struct chex_check_context *c, struct chex_check_result *r) {
    const struct chex_launch *l = c->launch;
    const int left_out = chex_launch_tasks_left_out(l);
    chex_check_expect(r, "%s", getenv("SLURM_JOB_ID") ? "every task" : "any");
    if (c->launch_error) {
        chex_check_found(r, "%s", c->launch_error->text);
        chex_check_worsen(r, CHEX_FAIL,
                          c->launch_error->status == CHEX_E_NODE ? CHEX_FAULT_NODE
                                                                 : CHEX_FAULT_USER,
                          "start with srun --mpi=pmix or srun --mpi=pmi2");
        return;
    }
    chex_check_found(r, "%s%s%s%s, %d rank%s on %d node%s%s%s", l->method, l->why[0] ? " (" : "",
                     l->why, l->why[0] ? ")" : "", l->size, l->size == 1 ? "" : "s", l->nodes,
                     l->nodes == 1 ? "" : "s", l->job_id[0] ? ", job " : "", l->job_id);
    if (left_out)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "the job has %d tasks, but this is one process: start it with srun",
                          left_out);
}
CHEX_CHECK(launch, .name = "launch", .question = "how was this started, and as how many ranks?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe_launch,
           .across = chex_check_same);

static void probe_ranks(const struct chex_check_context *c, struct chex_check_result *r) {
    chex_check_expect(r, "each rank once, with consistent counts");
    chex_check_found(r, "%d of %d", c->launch->rank, c->launch->size);
}

/* Whether record i contradicts the others. `why` gets the first contradiction. */
static bool is_inconsistent(const struct chex_check_record *records, int n, int i, char *why,
                            size_t size) {
    const struct chex_check_record *a = &records[i], *first = &records[0];
    int neighbours = 0;
    bool twin = false;
    for (int j = 0; j < n; j++) {
        bool near = strcmp(records[j].host, a->host) == 0 && records[j].node == a->node;
        neighbours += near;
        twin = twin || (near && j != i && records[j].local_rank == a->local_rank);
    }
    if (a->rank != i || a->size != n)
        snprintf(why, size, "says it is rank %d of %d, but answers as %d of %d", a->rank, a->size,
                 i, n);
    else if (strcmp(a->method, first->method) != 0)
        snprintf(why, size, "was started by %s, rank 0 by %s", a->method, first->method);
    else if (a->nodes != first->nodes)
        snprintf(why, size, "counts %d nodes, rank 0 %d", a->nodes, first->nodes);
    else if (twin)
        snprintf(why, size, "shares local rank %d of its node with another", a->local_rank);
    else if (neighbours != a->local_size)
        snprintf(why, size, "counts %d ranks on its node, there are %d", a->local_size, neighbours);
    else
        return false;
    return true;
}

static void across_ranks(const struct chex_check_record *records,
                         const struct chex_check_result *const *all, int n,
                         struct chex_check_result *merged) {
    char why[160];
    (void)all;
    chex_check_found(merged, "ranks 0 to %d, consistent", n - 1);
    for (int i = 0; i < n; i++) {
        if (!is_inconsistent(records, n, i, why, sizeof why))
            continue;
        chex_check_found(merged, "rank %d (%s) %s", i, records[i].host, why);
        chex_check_worsen(merged, CHEX_FAIL, CHEX_FAULT_NODE,
                          "two launchers or two versions of PMIx are mixed; leave node %s out",
                          records[i].host);
        return;
    }
}
CHEX_CHECK(ranks, .name = "ranks", .question = "do all ranks agree on ranks and nodes?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_NODE, .probe = probe_ranks,
           .across = across_ranks);

static void probe_cpus(const struct chex_check_context *c, struct chex_check_result *r) {
    const int wanted = chex_launch_env_int("SLURM_CPUS_PER_TASK", 0);
    const struct chex_binding *b = c->binding;
    if (wanted > 0)
        chex_check_expect(r, "%d CPU%s or more (SLURM_CPUS_PER_TASK)", wanted,
                          wanted == 1 ? "" : "s");
    else
        chex_check_expect(r, "2 CPUs or more");
    chex_check_found(r, "%d (%s), NUMA %s", b->cpu_count, b->cpus, b->numa[0] ? b->numa : "none");
    if (b->cpu_count < wanted)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "srun no longer takes -c from sbatch: export "
                          "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK, or srun -c %d",
                          wanted);
    else if (b->cpu_count == 1)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER,
                          "one core reads, decodes and computes: ask for more with srun -c N");
}
CHEX_CHECK(cpus, .name = "cpus", .question = "does each rank have the requested CPUs?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe_cpus);

enum { CPUS = 8192, WORD_BITS = 64 };

struct cpu_list {
    uint64_t words[CPUS / WORD_BITS];
};

/* Of a list that was cut, parses the first part. */
static struct cpu_list parse_cpus(const char *list) {
    struct cpu_list set = {{0}};
    for (long from, to; chex_text_next_range(&list, &from, &to);)
        for (long i = from; i >= 0 && i <= to && i < CPUS; i++)
            set.words[i / WORD_BITS] |= UINT64_C(1) << i % WORD_BITS;
    return set;
}

static int count_common(const struct cpu_list *a, const struct cpu_list *b) {
    int n = 0;
    for (int i = 0; i < CPUS / WORD_BITS; i++)
        n += __builtin_popcountll(a->words[i] & b->words[i]);
    return n;
}

bool chex_check_share_cpus(const char *a, const char *b) {
    const struct cpu_list set_a = parse_cpus(a), set_b = parse_cpus(b);
    return count_common(&set_a, &set_b) > 0;
}

static void probe_sharing(const struct chex_check_context *c, struct chex_check_result *r) {
    chex_check_expect(r, "no CPU is given to two ranks");
    chex_check_found(r, "%s", c->binding->cpus);
}

static void across_sharing(const struct chex_check_record *records,
                           const struct chex_check_result *const *all, int n,
                           struct chex_check_result *merged) {
    (void)all;
    chex_check_found(merged, n == 1 ? "one rank" : "each has its own");
    for (int i = 0; i < n; i++) {
        const struct cpu_list a = parse_cpus(records[i].cpus);
        for (int j = i + 1; j < n; j++) {
            if (strcmp(records[i].host, records[j].host) != 0)
                continue;
            const struct cpu_list b = parse_cpus(records[j].cpus);
            const int common = count_common(&a, &b);
            if (common == 0)
                continue;
            chex_check_found(merged, "ranks %d and %d of %s share %d", i, j, records[i].host,
                             common);
            chex_check_worsen(merged, CHEX_WARN, CHEX_FAULT_USER,
                              "start fewer ranks a node, or bind them: srun --cpu-bind=cores");
            return;
        }
    }
}
CHEX_CHECK(sharing, .name = "cpu-sharing", .question = "do two ranks run on the same CPU?",
           .modes = CHEX_IN_JOB, .fault = CHEX_FAULT_USER, .probe = probe_sharing,
           .across = across_sharing);

enum { SKEW_WARN_S = 1, SKEW_FAIL_S = 30 };

static void probe_clock(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    chex_check_expect(r, "within %d s of each other", SKEW_WARN_S);
}

/* Compares each clock with the median, so that one wrong node is reported, not all others. */
static void across_clock(const struct chex_check_record *records,
                         const struct chex_check_result *const *all, int n,
                         struct chex_check_result *merged) {
    double low = records[0].clock_s, high = low, window = 0, middle;
    int odd = 0;
    (void)all;
    for (int i = 0; i < n; i++) {
        low = fmin(low, records[i].clock_s);
        high = fmax(high, records[i].clock_s);
        window = fmax(window, records[i].clock_window_s);
    }
    middle = low;
    for (int i = 0; i < n; i++) { /* the median, by counting */
        int below = 0, level = 0;
        for (int j = 0; j < n; j++) {
            below += records[j].clock_s < records[i].clock_s;
            level += records[j].clock_s == records[i].clock_s;
        }
        if (below <= (n - 1) / 2 && below + level > (n - 1) / 2)
            middle = records[i].clock_s;
    }
    for (int i = 0; i < n; i++)
        if (fabs(records[i].clock_s - middle) > fabs(records[odd].clock_s - middle))
            odd = i;
    const double skew = fmax(0, fabs(records[odd].clock_s - middle) - window);
    if (n == 1)
        chex_check_found(merged, "one rank");
    else
        chex_check_found(merged, "within %.3f s", high - low);
    if (skew <= SKEW_WARN_S)
        return;
    chex_check_found(merged, "rank %d (%s) is %.1f s %s", odd, records[odd].host, skew,
                     records[odd].clock_s > middle ? "ahead" : "behind");
    chex_check_worsen(merged, skew > SKEW_FAIL_S ? CHEX_FAIL : CHEX_WARN, CHEX_FAULT_NODE,
                      "set the clock of node %s (chrony, NTP)", records[odd].host);
}
CHEX_CHECK(clock, .name = "clock", .question = "do the ranks' clocks agree?", .modes = CHEX_IN_JOB,
           .fault = CHEX_FAULT_NODE, .probe = probe_clock, .across = across_clock);
