/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_probe info | exchange | notes | coll | reduce | rates [NAME=VALUE...]: what tests/slurm
 * asks of the launch layer, one JSON line a rank on stdout. Exit status as the commands have it.
 * rates measures, for tests/scale.sh.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "launch/bind.h"
#include "launch/coll.h"
#include "launch/reduce.h"

struct settings {
    int rounds, timeout_ms;
    int late, late_ms; /* this rank comes late to each round */
    int missing;       /* this rank does not come at all */
    int odd;           /* this rank gives fewer bytes than the others */
    int logical_ranks, deterministic;
    int swap;  /* collectives get the ranks in reverse */
    int count; /* elements of the vector that rates sums */
    int bytes; /* that each rank gives to the exchanges of rates */
};

static int to_fail(struct chex_error *err, const char *what) {
    return (int)chex_error_set(err, CHEX_E_FAIL, "%s: wrong result", what);
}

/* One write, so that the lines of several ranks do not mix. */
static void print_line(const char *line) {
    char text[1024];
    int n = snprintf(text, sizeof text, "%s\n", line);
    if (write(STDOUT_FILENO, text, (size_t)n) != n)
        exit(1);
}

static enum chex_status info(struct chex_launch *launch, const struct settings *s,
                             struct chex_error *err) {
    (void)s;
    struct chex_binding binding;
    struct chex_gpu_view gpu;
    char line[256], text[768];
    CHEX_TRY(chex_bind(launch, &binding, err));
    chex_gpu_view(&gpu);
    chex_bind_line(launch, &binding, &gpu, line, sizeof line);
    snprintf(text, sizeof text,
             "{\"method\": \"%s\", \"rank\": %d, \"size\": %d, \"local_rank\": %d, "
             "\"local_size\": %d, \"node\": %d, \"nodes\": %d, \"host\": \"%s\", "
             "\"job\": %s, \"cpu_count\": %d, \"threads\": %d, \"narrowed\": %s, "
             "\"gpu\": \"%s\", \"allotted\": %s, \"note\": \"%s\", \"line\": \"%s\"}",
             launch->method, launch->rank, launch->size, launch->local_rank, launch->local_size,
             launch->node, launch->nodes, launch->host, launch->job_id[0] ? "true" : "false",
             binding.cpu_count, binding.threads, binding.narrowed ? "true" : "false",
             chex_gpu_visibility_names[gpu.visibility], gpu.allotted ? "true" : "false",
             binding.note, line);
    print_line(text);
    return CHEX_OK;
}

struct card {
    uint64_t arrived_ns; /* all nodes of the fixture share one clock */
    int rank, round;
    char padding[200];
};

static enum chex_status exchange(struct chex_launch *launch, const struct settings *s,
                                 struct chex_error *err) {
    struct card *all = calloc((size_t)launch->size, sizeof *all);
    bool right = true, synchronised = true;
    enum chex_status st = all ? CHEX_OK : chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    /* On a busy machine the other ranks would come too late, too. */
    if (st == CHEX_OK && s->missing >= 0)
        st = chex_launch_exchange(launch, "start", "", 1, all, 60000, err);
    for (int round = 0; round < s->rounds && st == CHEX_OK; round++) {
        if (launch->rank == s->late)
            chex_clock_sleep_ms((unsigned)s->late_ms);
        while (launch->rank == s->missing)
            chex_clock_sleep_ms(1000);
        struct card mine = {chex_clock_ns(), launch->rank, round, ""};
        const size_t bytes = sizeof mine - (launch->rank == s->odd ? 8 : 0);
        st = chex_launch_exchange(launch, "card", &mine, bytes, all, (uint64_t)s->timeout_ms, err);
        uint64_t left_ns = chex_clock_ns();
        for (int r = 0; r < launch->size && st == CHEX_OK; r++) {
            right = right && all[r].rank == r && all[r].round == round;
            synchronised = synchronised && all[r].arrived_ns <= left_ns;
        }
    }
    free(all);
    if (st == CHEX_OK) {
        char text[128];
        snprintf(text, sizeof text, "{\"rank\": %d, \"right\": %s, \"synchronised\": %s}",
                 launch->rank, right ? "true" : "false", synchronised ? "true" : "false");
        print_line(text);
    }
    return st;
}

/* Each leaves a note but `missing`, and all look for all, twice: for the second time `odd` leaves
 * another number of bytes. */
static enum chex_status notes(struct chex_launch *launch, const struct settings *s,
                              struct chex_error *err) {
    enum { MOST = 64 };
    int all[MOST] = {0};
    bool came[MOST], right = launch->size <= MOST;
    char who[2][MOST + 1] = {"", ""}, key[32], host[CHEX_HOST_BYTES], text[512];
    for (int k = 0; right && k < 2; k++) {
        const int mine[2] = {100 * k + launch->rank, 0};
        const bool odd = k == 1 && launch->rank == s->odd;
        snprintf(key, sizeof key, "note.%d", k);
        /* Who misses nothing is through at once. */
        CHEX_TRY(chex_launch_exchange(launch, "notes", &k, sizeof k, all, 20000, err));
        if (launch->rank != s->missing)
            CHEX_TRY(chex_launch_publish(launch, key, mine, odd ? sizeof mine : sizeof *mine, err));
        chex_launch_lookup(launch, key, 0, launch->size, sizeof *all, all, came,
                           (uint64_t)s->timeout_ms);
        for (int r = 0; r < launch->size; r++) {
            who[k][r] = came[r] ? '1' : '0';
            right = right && (!came[r] || all[r] == 100 * k + r);
        }
    }
    chex_launch_host(launch, launch->size - 1, host, sizeof host);
    snprintf(text, sizeof text,
             "{\"rank\": %d, \"right\": %s, \"came\": \"%s %s\", \"last_host\": \"%s\"}",
             launch->rank, right ? "true" : "false", who[0], who[1], host);
    print_line(text);
    return CHEX_OK;
}

/* Longer than the piece that the MPI module cuts messages into. */
enum { LONG_BYTES = (64 << 20) + 4096 };

static enum chex_status coll_long(struct chex_coll *c, struct chex_error *err) {
    const size_t n = LONG_BYTES / sizeof(float);
    float *data = malloc(LONG_BYTES);
    enum chex_status st = data ? CHEX_OK : chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    for (size_t i = 0; st == CHEX_OK && i < n; i++)
        data[i] = (float)(i % 1000) * (float)(c->rank + 1);
    if (st == CHEX_OK)
        st = c->impl->sum_f32(c->self, data, n, err);
    const float ranks = (float)(c->size * (c->size + 1) / 2);
    for (size_t i = 0; st == CHEX_OK && i < n; i++)
        if (data[i] != (float)(i % 1000) * ranks)
            st = (enum chex_status)to_fail(err, "long sum");
    if (st == CHEX_OK && c->rank == c->size - 1)
        data[n - 1] = 42;
    if (st == CHEX_OK)
        st = chex_group_broadcast(c->group, data, LONG_BYTES, c->size - 1, err);
    if (st == CHEX_OK && data[n - 1] != 42)
        st = (enum chex_status)to_fail(err, "long broadcast");
    free(data);
    return st;
}

static enum chex_status coll_gather(struct chex_coll *c, struct chex_error *err) {
    /* Rank r gives r letters, so rank 0 gives none. */
    char mine[64];
    void *all = NULL;
    size_t total = 0, at = 0;
    memset(mine, 'a' + c->rank, sizeof mine);
    CHEX_TRY(chex_group_gather(c->group, mine, (size_t)c->rank, &all, &total, err));
    bool right = total == (size_t)(c->size * (c->size - 1) / 2) && (all != NULL) == (c->rank == 0);
    for (int r = 0; r < c->size; r++)
        for (int i = 0; i < r; i++, at++)
            right = right && (!all || ((char *)all)[at] == 'a' + r);
    free(all);
    return right && at == total ? CHEX_OK : (enum chex_status)to_fail(err, "gather_var");
}

static enum chex_status coll_agree(struct chex_coll *c, struct chex_error *err) {
    struct chex_error e = {0};
    char expect[64];
    CHEX_TRY(chex_group_agree(c->group, CHEX_OK, err));
    /* The last rank has bad data, the others were preempted: data is worse. */
    const int bad = c->size - 1;
    chex_error_set(&e, c->rank == bad ? CHEX_E_DATA : CHEX_E_PREEMPTED, "words of rank %d",
                   c->rank);
    enum chex_status st = chex_group_agree(c->group, e.status, &e);
    snprintf(expect, sizeof expect, "rank %d on ", bad);
    if (st != CHEX_E_DATA || strncmp(e.text, expect, strlen(expect)) != 0)
        return (enum chex_status)to_fail(err, "agree");
    if (chex_group_agree(c->group, c->rank == bad ? CHEX_E_RESOURCE : CHEX_OK, NULL) !=
        CHEX_E_RESOURCE)
        return (enum chex_status)to_fail(err, "agree without text");
    return CHEX_OK;
}

static enum chex_status coll_short(struct chex_coll *c, struct chex_error *err) {
    int word = c->rank;
    float sum[2] = {(float)c->rank, 1};
    CHEX_TRY(chex_coll_barrier(c, err));
    CHEX_TRY(chex_group_exchange(c->group, "ranks", &word, sizeof word, err));
    const int *ranks = c->group->all;
    for (int r = 0; r < c->size; r++)
        if (ranks[r] != r)
            return (enum chex_status)to_fail(err, "allgather");
    int collected[64] = {0};
    CHEX_TRY(chex_group_collect(c->group, "ranks", &word, sizeof word, collected, err));
    for (int r = 0; c->rank == 0 && r < c->size; r++)
        if (collected[r] != r)
            return (enum chex_status)to_fail(err, "collect");
    CHEX_TRY(c->impl->sum_f32(c->self, sum, 2, err));
    if (sum[0] != (float)(c->size * (c->size - 1) / 2) || sum[1] != (float)c->size)
        return (enum chex_status)to_fail(err, "sum_f32");
    if (c->size == 1)
        return CHEX_OK;
    /* Round the ring; rank 0 sends first. */
    const int next = (c->rank + 1) % c->size, last = (c->rank + c->size - 1) % c->size;
    int from = -1;
    if (c->rank == 0)
        CHEX_TRY(c->impl->send(c->self, &word, sizeof word, next, 5, err));
    CHEX_TRY(c->impl->receive(c->self, &from, sizeof from, last, 5, err));
    if (c->rank != 0)
        CHEX_TRY(c->impl->send(c->self, &word, sizeof word, next, 5, err));
    return from == last ? CHEX_OK : (enum chex_status)to_fail(err, "ring");
}

static enum chex_status coll(struct chex_launch *launch, const struct settings *s,
                             struct chex_error *err) {
    struct chex_coll *c = NULL;
    struct chex_launch swapped = *launch;
    if (s->swap)
        swapped.rank = swapped.size - 1 - swapped.rank;
    CHEX_TRY(chex_coll_create(&swapped, &c, err));
    enum chex_status st = coll_short(c, err);
    if (st == CHEX_OK)
        st = coll_gather(c, err);
    if (st == CHEX_OK)
        st = coll_agree(c, err);
    if (st == CHEX_OK)
        st = coll_long(c, err);
    if (st == CHEX_OK) {
        char text[128];
        snprintf(text, sizeof text, "{\"rank\": %d, \"library\": \"%s\", \"right\": true}", c->rank,
                 c->impl->name);
        print_line(text);
        chex_coll_destroy(c);
    }
    return st;
}

static const size_t reduce_count = 200003;

static float leaf_value(int step, int v, size_t i) {
    struct chex_rng4 r = chex_rng((uint64_t)step, CHEX_RNG_TEST, (uint64_t)v << 32 | i, 0);
    return (chex_rng_unit(r.v[0]) - 0.5f) * (float)(1u << (r.v[1] % 12));
}

static enum chex_status reduce_steps(struct chex_coll *c, struct chex_reduce *reduce,
                                     const struct settings *s, uint64_t *digest_out,
                                     struct chex_error *err) {
    int from, to;
    uint64_t digest = 0;
    chex_reduce_run(s->logical_ranks, c->size, c->rank, &from, &to);
    for (int step = 0; step < s->rounds; step++) {
        const float *sum = NULL;
        double exposed_s;
        for (int v = from; v < to; v++) {
            float *grad = chex_reduce_leaf(reduce, v);
            const size_t piece = 9973;
            for (size_t end = reduce_count; end > 0;) {
                size_t start = end > piece ? end - piece : 0;
                for (size_t i = start; i < end; i++)
                    grad[i] = leaf_value(step, v, i);
                chex_reduce_ready(reduce, start, end);
                end = start;
            }
        }
        CHEX_TRY(chex_reduce_finish(reduce, &sum, &exposed_s, err));
        digest = chex_hash64_mix(digest, sum, reduce_count * sizeof *sum);
    }
    *digest_out = digest;
    return CHEX_OK;
}

static enum chex_status reduce(struct chex_launch *launch, const struct settings *s,
                               struct chex_error *err) {
    struct chex_coll *c = NULL;
    struct chex_reduce *r = NULL;
    uint64_t digest = 0;
    CHEX_TRY(chex_coll_create(launch, &c, err));
    struct chex_reduce_config config = {.coll = c,
                                        .logical_ranks = s->logical_ranks,
                                        .count = reduce_count,
                                        .bucket_bytes = 64 << 10,
                                        .deterministic = s->deterministic != 0};
    CHEX_TRY(chex_reduce_create(&config, &r, err));
    CHEX_TRY(reduce_steps(c, r, s, &digest, err));
    char text[128];
    snprintf(text, sizeof text, "{\"rank\": %d, \"digest\": \"%016llx\"}", c->rank,
             (unsigned long long)digest);
    print_line(text);
    chex_reduce_destroy(r);
    chex_coll_destroy(c);
    return CHEX_OK;
}

static double cpu_s(void) {
    struct timespec t = {0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Time and processor time of one operation, and the memory that the process has kept of it. */
struct rate {
    double wall_ms, cpu_ms, kept_mb;
};

static struct rate rate_since(double began_s, double cpu_began_s, uint64_t had_bytes, int rounds) {
    return (struct rate){.wall_ms = (chex_clock_s() - began_s) * 1e3 / rounds,
                         .cpu_ms = (cpu_s() - cpu_began_s) * 1e3 / rounds,
                         .kept_mb =
                             ((double)chex_alloc_peak_rss_bytes() - (double)had_bytes) / 1e6};
}

static enum chex_status rate_exchange(struct chex_coll *c, const struct settings *s,
                                      struct rate *out, struct chex_error *err) {
    char mine[CHEX_GROUP_BYTES] = {0};
    const size_t bytes = (size_t)s->bytes < sizeof mine ? (size_t)s->bytes : sizeof mine;
    for (int i = 0; i < 3; i++) /* opens the connections */
        CHEX_TRY(chex_group_exchange(c->group, "rate", mine, bytes, err));
    CHEX_TRY(chex_coll_barrier(c, err));
    const uint64_t had = chex_alloc_peak_rss_bytes();
    const double from_s = chex_clock_s(), cpu_from_s = cpu_s();
    for (int i = 0; i < s->rounds; i++)
        CHEX_TRY(chex_group_exchange(c->group, "rate", mine, bytes, err));
    *out = rate_since(from_s, cpu_from_s, had, s->rounds);
    return CHEX_OK;
}

static enum chex_status rate_sum(struct chex_coll *c, const struct settings *s, struct rate *out,
                                 struct chex_error *err) {
    enum { SUMS = 2 };
    struct chex_reduce *r = NULL;
    const struct chex_reduce_config config = {.coll = c,
                                              .logical_ranks = c->size,
                                              .count = (size_t)s->count,
                                              .deterministic = s->deterministic != 0};
    double from_s = 0, cpu_from_s = 0, exposed_s;
    const uint64_t had = chex_alloc_peak_rss_bytes();
    enum chex_status st = chex_reduce_create(&config, &r, err);
    for (int i = 0; st == CHEX_OK && i <= SUMS; i++) {
        const float *sum;
        float *grad = chex_reduce_leaf(r, c->rank);
        for (int k = 0; k < s->count; k++)
            grad[k] = (float)(k % 7);
        st = chex_coll_barrier(c, err);
        if (i == 1) { /* the first one opens the connections */
            from_s = chex_clock_s();
            cpu_from_s = cpu_s();
        }
        chex_reduce_ready(r, 0, (size_t)s->count);
        if (st == CHEX_OK)
            st = chex_reduce_finish(r, &sum, &exposed_s, err);
    }
    *out = rate_since(from_s, cpu_from_s, had, SUMS);
    chex_reduce_destroy(r);
    return st;
}

static enum chex_status rates(struct chex_launch *launch, const struct settings *s,
                              struct chex_error *err) {
    struct chex_coll *c = NULL;
    struct rate e, r;
    char text[256];
    CHEX_TRY(chex_coll_create(launch, &c, err));
    CHEX_TRY(rate_exchange(c, s, &e, err));
    CHEX_TRY(rate_sum(c, s, &r, err));
    snprintf(text, sizeof text,
             "{\"rank\": %d, \"exchange_ms\": %.4f, \"exchange_cpu_ms\": %.4f, \"sum_ms\": %.2f, "
             "\"sum_cpu_ms\": %.2f, \"sum_mb\": %.1f}",
             c->rank, e.wall_ms, e.cpu_ms, r.wall_ms, r.cpu_ms, r.kept_mb);
    print_line(text);
    chex_coll_destroy(c);
    return CHEX_OK;
}

static bool set(struct settings *s, const char *word) {
    const struct {
        const char *name;
        int *to;
    } names[] = {{"rounds", &s->rounds},       {"timeout_ms", &s->timeout_ms},
                 {"late", &s->late},           {"late_ms", &s->late_ms},
                 {"missing", &s->missing},     {"odd", &s->odd},
                 {"swap", &s->swap},           {"logical_ranks", &s->logical_ranks},
                 {"fixed", &s->deterministic}, {"count", &s->count},
                 {"bytes", &s->bytes}};
    const char *equal = strchr(word, '=');
    for (size_t i = 0; equal && i < sizeof names / sizeof names[0]; i++)
        if (strncmp(names[i].name, word, (size_t)(equal - word)) == 0 &&
            names[i].name[equal - word] == '\0') {
            *names[i].to = atoi(equal + 1);
            return true;
        }
    return false;
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        enum chex_status (*call)(struct chex_launch *, const struct settings *,
                                 struct chex_error *);
    } modes[] = {{"info", info}, {"exchange", exchange}, {"notes", notes},
                 {"coll", coll}, {"reduce", reduce},     {"rates", rates}};
    const size_t mode_count = sizeof modes / sizeof modes[0];
    struct settings s = {3, 20000, -1, 0, -1, -1, 4, 1, 0, 1000000, 88};
    struct chex_launch launch = {0};
    struct chex_error err = {0};
    size_t mode = 0;
    while (mode < mode_count && (argc < 2 || strcmp(argv[1], modes[mode].name) != 0))
        mode++;
    bool good = mode < mode_count;
    for (int i = 2; i < argc; i++)
        good = good && set(&s, argv[i]);
    if (!good) {
        fprintf(stderr,
                "usage: launch_probe info|exchange|notes|coll|reduce|rates [NAME=VALUE...]\n");
        return CHEX_E_USAGE;
    }
    chex_log_init("launch_probe", CHEX_LOG_INFO);
    enum chex_status st = chex_launch_init(&launch, &err);
    if (st == CHEX_OK) {
        chex_log_set_rank(launch.rank, launch.size, launch.host);
        st = modes[mode].call(&launch, &s, &err);
    }
    if (st != CHEX_OK) {
        chex_err("%s", err.text);
        chex_launch_abort(&launch, (int)st);
    }
    chex_launch_finish(&launch);
    return (int)st;
}
