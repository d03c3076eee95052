/* SPDX-License-Identifier: Apache-2.0
 *
 * The preflight machinery with checks of its own, and with ranks that are only pretended: a launch
 * method whose exchange hands back this rank's bytes as everybody's, changed by a hook.
 */
#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/text.h"
#include "check/check.h"
#include "check/checks.h"
#include "tap.h"

static enum chex_verdict verdict_now;
static enum chex_fault fault_now;
static atomic_bool hangs;
static atomic_int answers; /* of probe_slow */

static void probe_steered(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    chex_check_expect(r, "something");
    chex_check_found(r, "value");
    chex_check_worsen(r, verdict_now, fault_now, "do %s", "this");
}
static void probe_slow(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    for (const double from_s = chex_clock_s();
         atomic_load(&hangs) && chex_clock_s() - from_s < tap_wait_s();)
        chex_clock_sleep_ms(10);
    chex_check_found(r, "late");
    atomic_fetch_add(&answers, 1);
}

static const struct chex_check steered = {"steered",       "?",           CHEX_IN_ALL,
                                          CHEX_FAULT_USER, probe_steered, chex_check_same};
static const struct chex_check slow = {"slow", "?", CHEX_IN_JOB, CHEX_FAULT_USER, probe_slow, NULL};
static const struct chex_check *const one[] = {&steered, NULL};
static const struct chex_check *const two[] = {&slow, &steered, NULL};

/* ---- pretended ranks ---- */
static void (*alter)(int rank, struct chex_check_result *answer);
static int cpus_each = 4; /* of a rank */

/* How the record of one rank differs. */
struct odd {
    int rank;
    double clock_s;
    bool first; /* local rank 0 */
    int size;
    const char *cpus;
};
static struct odd odd;

static void pretend_record(const struct chex_launch *l, int k, struct chex_check_record *record) {
    record->rank = k;
    record->local_rank = k % l->local_size;
    record->node = k / l->local_size;
    snprintf(record->host, sizeof record->host, "n%d", record->node);
    snprintf(record->cpus, sizeof record->cpus, "%d-%d", record->local_rank * cpus_each,
             (record->local_rank + 1) * cpus_each - 1);
    if (k != odd.rank)
        return;
    record->clock_s += odd.clock_s;
    record->local_rank = odd.first ? 0 : record->local_rank;
    record->size = odd.size ? odd.size : record->size;
    if (odd.cpus)
        snprintf(record->cpus, sizeof record->cpus, "%s", odd.cpus);
}

static enum chex_status pretend(struct chex_launch *l, const char *name, const char *key,
                                const void *mine, size_t bytes, unsigned char *all_out,
                                uint64_t timeout_ms, struct chex_error *err) {
    (void)key, (void)timeout_ms, (void)err;
    for (int k = 0; k < l->size; k++) {
        void *at = (char *)all_out + (size_t)k * bytes;
        memcpy(at, mine, bytes);
        if (strcmp(name, "check-records") == 0)
            pretend_record(l, k, at);
        if (alter && strcmp(name, "check-answers") == 0)
            alter(k, at);
    }
    return CHEX_OK;
}
static const struct chex_launch_method pretended = {
    .name = "pmix", .gather = pretend, .gather_at_0 = pretend};

static struct chex_launch ranks_on(int nodes, int per_node) {
    return (struct chex_launch){.method = "pmix",
                                .size = nodes * per_node,
                                .local_size = per_node,
                                .nodes = nodes,
                                .host = "n0",
                                .impl = &pretended};
}

static struct chex_launch alone(void) {
    return (struct chex_launch){
        .method = "single", .size = 1, .local_size = 1, .nodes = 1, .host = "here"};
}

static struct chex_check_report run_mode(const struct chex_check *const *table,
                                         struct chex_launch launch, enum chex_check_mode mode,
                                         const struct chex_check_expected *expected,
                                         uint64_t timeout_ms) {
    struct chex_error err = {0};
    struct chex_check_report report = {0};
    struct chex_binding binding = {.cpus = "0-3", .cpu_count = 4, .numa = "0", .threads = 4};
    struct chex_check_context c = {
        .mode = mode, .launch = &launch, .binding = &binding, .expected = expected};
    struct chex_group *group = NULL;
    BAIL_UNLESS(chex_group_of_launch(&launch, timeout_ms, &group, &err) == CHEX_OK, "%s", err.text);
    OK_STATUS(chex_check_run(table, &c, timeout_ms, group, &report, &err), CHEX_OK, err, NULL);
    chex_group_destroy(group);
    return report;
}

static const struct chex_check_result *find(const struct chex_check_report *r, const char *name) {
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->checks[i]->name, name) == 0)
            return &r->merged[i];
    BAIL_UNLESS(false, "no check %s", name);
    return NULL;
}

static enum chex_status verdict_status(enum chex_verdict v, enum chex_fault f,
                                       enum chex_check_mode mode) {
    verdict_now = v;
    fault_now = f;
    struct chex_check_report r = run_mode(one, alone(), mode, NULL, tap_wait_ms());
    enum chex_status st = chex_check_status(&r);
    chex_check_report_release(&r);
    return st;
}

static void test_status(void) {
    OK(verdict_status(CHEX_PASS, CHEX_FAULT_USER, CHEX_MODE_JOB) == 0, "a pass is 0");
    OK(verdict_status(CHEX_WARN, CHEX_FAULT_NODE, CHEX_MODE_JOB) == 0, "a warning is 0");
    OK(verdict_status(CHEX_SKIP, CHEX_FAULT_NODE, CHEX_MODE_JOB) == 0, "a skip is 0");
    OK(verdict_status(CHEX_FAIL, CHEX_FAULT_USER, CHEX_MODE_JOB) == 4, "a user's fault is 4");
    OK(verdict_status(CHEX_FAIL, CHEX_FAULT_NODE, CHEX_MODE_JOB) == 5, "a node's fault is 5");
    OK(verdict_status(CHEX_FAIL, CHEX_FAULT_USER, CHEX_MODE_PROLOG) == 0,
       "a user's fault drains no node");
    OK(verdict_status(CHEX_FAIL, CHEX_FAULT_NODE, CHEX_MODE_PROLOG) == 5,
       "a node's fault is 5 in the prolog, too");
}

static void test_worsen(void) {
    struct chex_check_result r = {.fault = CHEX_FAULT_USER};
    chex_check_worsen(&r, CHEX_FAIL, CHEX_FAULT_NODE, "first");
    chex_check_worsen(&r, CHEX_WARN, CHEX_FAULT_USER, "second");
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_NODE && strcmp(r.remedy, "first") == 0,
       "a failure is not bettered by a later warning");
    char longer[600];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    chex_check_found(&r, "%s", longer);
    OK(strlen(r.found) == sizeof r.found - 1 && strcmp(r.found + sizeof r.found - 4, "...") == 0,
       "a long text is cut and shows it");
    for (size_t i = 0; i + 1 < sizeof longer; i++)
        longer[i] = i % 7 == 6 ? ' ' : 'x';
    chex_check_found(&r, "%s", longer);
    OK(strlen(r.found) > sizeof r.found - 12 && strcmp(strrchr(r.found, 'x'), "x...") == 0 &&
           (strlen(r.found) - 3) % 7 == 6,
       "at a word, where there are words: ends %s", r.found + strlen(r.found) - 12);
    for (size_t i = 0; i + 1 < sizeof longer - 1; i += 2)
        memcpy(longer + i, "\xc3\xa9", 2);
    longer[sizeof longer - 2] = '\0';
    chex_check_found(&r, "%s", longer);
    OK(chex_text_is_utf8(r.found), "and never within a character");
    chex_check_found(&r, "a");
    chex_check_found_more(&r, ", %s", "b\033[31mc");
    OK(strcmp(r.found, "a, b\\x1B[31mc") == 0, "control characters are escaped: %s", r.found);
}

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static struct chex_check_result memory(uint64_t total, uint64_t available, uint64_t group,
                                       int ranks, bool prolog) {
    struct chex_check_result r = {.fault = CHEX_FAULT_USER};
    const struct chex_memory_seen m = {.available = available,
                                       .total = total,
                                       .group = group ? group : UINT64_MAX,
                                       .ranks = ranks,
                                       .prolog = prolog};
    chex_check_judge_memory(&m, &r);
    return r;
}

static void test_memory(void) {
    struct chex_check_result r = memory(2048 * GIB, 2000 * GIB, 0, 256, false);
    OK(r.verdict == CHEX_PASS, "a node of 2 TiB carries 256 ranks");
    r = memory(24 * GIB, 18 * GIB, 0, 96, false);
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_USER && strstr(r.remedy, "too many ranks"),
       "too many ranks are the user's fault: %s", r.remedy);
    r = memory(64 * GIB, 18 * GIB, 0, 96, true);
    OK(r.fault == CHEX_FAULT_USER, "also where other processes hold memory");
    r = memory(64 * GIB, 8 * GIB, 100 * MIB, 1, false);
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_USER && strstr(r.remedy, "--mem"),
       "so is a small control group");
    r = memory(64 * GIB, 100 * MIB, 0, 1, true);
    OK(r.verdict == CHEX_WARN && strstr(r.remedy, "other processes use"),
       "in the prolog memory that others hold is a warning: %s", r.remedy);
    r = memory(64 * GIB, 100 * MIB, 0, 1, false);
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_NODE, "in a job there is none for it");
    r = memory(200 * MIB, 100 * MIB, 0, 1, true);
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_NODE, "a node that is too small fails");
}

static struct chex_check_result folder(int error, uint64_t free, uint64_t total, bool prolog) {
    struct chex_check_result r = {.fault = CHEX_FAULT_NODE};
    const struct chex_folder_seen f = {.error = error,
                                       .free = free,
                                       .total = total,
                                       .min = MIB,
                                       .wanted = 64 * MIB,
                                       .prolog = prolog};
    chex_check_judge_folder(&f, CHEX_FAULT_NODE, "clean it", &r);
    return r;
}

/* A full folder, seen from the prolog. */
static struct chex_check_result leftovers(uint64_t left) {
    const struct chex_folder_seen f = {
        .total = GIB, .min = MIB, .wanted = 64 * MIB, .left = left, .prolog = true};
    struct chex_check_result r = {0};
    chex_check_judge_folder(&f, CHEX_FAULT_NODE, "clean it", &r);
    return r;
}

static void test_folder(void) {
    OK(folder(0, GIB, GIB, true).verdict == CHEX_PASS, "a folder with space passes");
    OK(folder(0, 100, GIB, false).verdict == CHEX_FAIL, "a full one fails in a job");
    OK(folder(0, 100, GIB, true).verdict == CHEX_WARN, "a user's files there drain no node");
    OK(folder(ENOSPC, 0, GIB, true).verdict == CHEX_WARN, "not even if nothing can be written");
    OK(folder(EDQUOT, 0, GIB, true).verdict == CHEX_WARN, "or a quota is used up");
    OK(folder(EFBIG, 0, GIB, false).fault == CHEX_FAULT_USER,
       "a limit of file sizes is the user's");
    OK(leftovers(GIB).verdict == CHEX_FAIL, "what ended jobs left fails in the prolog");
    OK(leftovers(100).verdict == CHEX_WARN, "unless others use the space");
    OK(folder(EROFS, 0, GIB, true).verdict == CHEX_FAIL, "a file system that is read-only does");
    OK(folder(EIO, 0, GIB, true).verdict == CHEX_FAIL, "and one with I/O errors");
    OK(folder(0, 100, 16 * MIB, true).verdict == CHEX_FAIL, "and one that is too small");
}

static void test_cpu_lists(void) {
    OK(chex_check_share_cpus("0-3,1500-1600", "1600") && chex_check_share_cpus("8191", "4096-8191"),
       "CPUs above 1,024 are compared too");
    OK(!chex_check_share_cpus("0-2046", "2047") && !chex_check_share_cpus("0,2,4", "1,3,5"),
       "disjoint lists");
    OK(chex_check_share_cpus("0,2,...", "2"), "a list that was cut counts as far as it goes");
}

static void test_many_ranks(void) {
    cpus_each = 16;
    struct chex_check_report r =
        run_mode(NULL, ranks_on(64, 16), CHEX_MODE_JOB, NULL, tap_wait_ms());
    const char *ranks = find(&r, "ranks")->found, *sharing = find(&r, "cpu-sharing")->found;
    OK(r.ranks == 1024 && strcmp(ranks, "ranks 0 to 1023, consistent") == 0,
       "1,024 ranks are compared: %s", ranks);
    OK(strcmp(sharing, "each has its own") == 0, "256 CPUs a node: %s", sharing);
    char *text = chex_check_json(&r);
    json_t *top = text ? json_loads(text, 0, NULL) : NULL;
    OK(json_array_size(json_object_get(top, "ranks")) == 1024, "and all of them are in the object");
    json_decref(top);
    free(text);
    chex_check_report_release(&r);
    cpus_each = 4;
}

static void test_timeout(void) {
    verdict_now = CHEX_PASS;
    atomic_store(&hangs, true);
    struct chex_check_report r = run_mode(two, alone(), CHEX_MODE_JOB, NULL, 100);
    OK(r.merged[0].verdict == CHEX_FAIL && r.merged[0].fault == CHEX_FAULT_NODE &&
           strcmp(r.merged[0].found, "no answer") == 0,
       "a probe that hangs fails and is the node's");
    OK(r.merged[1].verdict == CHEX_SKIP && strstr(r.merged[1].found, "slow did not answer"),
       "those after it are skipped: %s", r.merged[1].found);
    OK(chex_check_status(&r) == CHEX_E_NODE, "the status says node");
    chex_check_report_release(&r);
    atomic_store(&hangs, false);
    while (!atomic_load(&answers))
        chex_clock_sleep_ms(10);
    chex_clock_sleep_ms(50); /* the late probe ends by itself, and frees what it used */
    r = run_mode(two, alone(), CHEX_MODE_JOB, NULL, tap_wait_ms());
    OK(r.merged[0].verdict == CHEX_PASS && strcmp(r.merged[0].found, "late") == 0,
       "one that answers passes");
    chex_check_report_release(&r);
    r = run_mode(two, alone(), CHEX_MODE_LOGIN, NULL, tap_wait_ms());
    OK(r.count == 1 && r.checks[0] == &steered, "a check runs only in its modes");
    chex_check_report_release(&r);
}

static void odd_answer(int rank, struct chex_check_result *answer) {
    if (rank == 2)
        chex_check_found(answer, "other");
}
static void bad_answer(int rank, struct chex_check_result *answer) {
    if (rank == 3)
        chex_check_worsen(answer, CHEX_WARN, CHEX_FAULT_NODE, "mend it");
}

static void test_across(void) {
    verdict_now = CHEX_PASS;
    struct chex_check_report r = run_mode(one, ranks_on(2, 2), CHEX_MODE_JOB, NULL, tap_wait_ms());
    OK(r.merged[0].verdict == CHEX_PASS && strcmp(r.merged[0].found, "value") == 0,
       "equal answers pass as they are");
    chex_check_report_release(&r);

    alter = odd_answer;
    r = run_mode(one, ranks_on(2, 2), CHEX_MODE_JOB, NULL, tap_wait_ms());
    OK(r.merged[0].verdict == CHEX_FAIL &&
           strcmp(r.merged[0].found, "rank 2 (n1): other; 1 of 4 ranks differ") == 0,
       "the odd one is named: %s", r.merged[0].found);
    OK(strstr(r.merged[0].remedy, "--exclude=n1"), "and its node: %s", r.merged[0].remedy);
    OK(strstr(r.merged[0].expected, "value"), "and what the others have");
    chex_check_report_release(&r);

    alter = bad_answer;
    r = run_mode(one, ranks_on(2, 2), CHEX_MODE_JOB, NULL, tap_wait_ms());
    OK(r.merged[0].verdict == CHEX_WARN && strcmp(r.merged[0].found, "rank 3 (n1): value") == 0,
       "the worst answer is shown with its rank: %s", r.merged[0].found);
    chex_check_report_release(&r);
    alter = NULL;
}

/* One altered run of the real table, and what one check makes of it. */
static void expect_across(struct odd how, const char *name, enum chex_verdict verdict,
                          const char *needle) {
    odd = how;
    struct chex_check_report r = run_mode(NULL, ranks_on(2, 2), CHEX_MODE_JOB, NULL, tap_wait_ms());
    const struct chex_check_result *c = find(&r, name);
    OK(c->verdict == verdict && strstr(c->found, needle), "%s is %s: %s", name,
       chex_verdict_names[c->verdict], c->found);
    chex_check_report_release(&r);
    odd = (struct odd){0};
}

static void test_table_across(void) {
    expect_across((struct odd){0}, "ranks", CHEX_PASS, "ranks 0 to 3, consistent");
    expect_across((struct odd){3, .first = true}, "ranks", CHEX_FAIL, "shares local rank 0");
    expect_across((struct odd){2, .size = 2}, "ranks", CHEX_FAIL,
                  "rank 2 (n1) says it is rank 2 of 2");
    expect_across((struct odd){0}, "clock", CHEX_PASS, "within 0.");
    expect_across((struct odd){1, .clock_s = 100}, "clock", CHEX_FAIL,
                  "rank 1 (n0) is 100.0 s ahead");
    expect_across((struct odd){3, .clock_s = -5}, "clock", CHEX_WARN,
                  "rank 3 (n1) is 5.0 s behind");
    expect_across((struct odd){0}, "cpu-sharing", CHEX_PASS, "each has its own");
    expect_across((struct odd){3, .cpus = "2-3,8"}, "cpu-sharing", CHEX_WARN,
                  "ranks 2 and 3 of n1 share 2");
    expect_across((struct odd){3, .cpus = "4-7,16"}, "cpu-sharing", CHEX_PASS, "each has its own");
}

/* ---- a folder that fails on some nodes ---- */
static int bad_from, bad_to;

static void probe_shared(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    r->path = 7;
    chex_check_found(r, "fine");
}
static void bad_folder(int rank, struct chex_check_result *answer) {
    if (rank < bad_from || rank >= bad_to)
        return;
    chex_check_found(answer, "full");
    chex_check_worsen(answer, CHEX_FAIL, CHEX_FAULT_USER, "free it");
}
static void other_folder(int rank, struct chex_check_result *answer) {
    bad_folder(rank, answer);
    if (answer->verdict == CHEX_FAIL)
        answer->path = 8;
}

static void expect_folder(void (*how)(int, struct chex_check_result *), int from, int to,
                          enum chex_fault fault, const char *found, const char *what) {
    static const struct chex_check shared = {"shared",        "?",          CHEX_IN_ALL,
                                             CHEX_FAULT_USER, probe_shared, NULL};
    static const struct chex_check *const table[] = {&shared, NULL};
    alter = how;
    bad_from = from;
    bad_to = to;
    struct chex_check_report r =
        run_mode(table, ranks_on(2, 2), CHEX_MODE_JOB, NULL, tap_wait_ms());
    const struct chex_check_result *m = &r.merged[0];
    OK(m->verdict == CHEX_FAIL && m->fault == fault && strcmp(m->found, found) == 0, "%s: %s", what,
       m->found);
    OK((strstr(m->remedy, "--exclude=n") != NULL) == (fault == CHEX_FAULT_NODE), "%s: %s", what,
       m->remedy);
    chex_check_report_release(&r);
    alter = NULL;
}

static void test_nodes(void) {
    static struct chex_check_record records[24];
    bool bad[24];
    char text[CHEX_NODES_BYTES];
    expect_folder(bad_folder, 2, 4, CHEX_FAULT_NODE, "rank 2 (n1): full",
                  "a folder that fails on one node alone is the node's fault");
    expect_folder(bad_folder, 3, 4, CHEX_FAULT_USER, "rank 3 (n1): full",
                  "a folder that another rank of the node can use is the user's fault");
    expect_folder(bad_folder, 1, 4, CHEX_FAULT_USER, "rank 1 (n0), rank 2 (n1): full",
                  "a folder that fails on most nodes is the user's fault");
    expect_folder(other_folder, 2, 4, CHEX_FAULT_USER, "rank 2 (n1): full",
                  "a folder that only one node was asked about is the user's fault");
    expect_folder(bad_folder, 0, 4, CHEX_FAULT_USER, "rank 0 (n0), as all others: full",
                  "a folder that fails on all nodes is the user's fault");
    for (int i = 0; i < 24; i++) {
        records[i] = (struct chex_check_record){.rank = i, .node = i / 2};
        snprintf(records[i].host, sizeof records[i].host, "n%d", i / 2);
        bad[i] = i > 2;
    }
    OK(chex_check_name_nodes(records, bad, 24, true, text, sizeof text) == 11 &&
           strcmp(text, "rank 3 (n1), rank 4 (n2), rank 6 (n3), rank 8 (n4), rank 10 (n5), rank 12 "
                        "(n6), rank 14 (n7), rank 16 (n8) and 3 more nodes") == 0,
       "one rank of each bad node is named, eight at most: %s", text);
}

static struct chex_check_result probe_with(const struct chex_check *check, const char *name,
                                           const char *value) {
    static struct chex_launch launch;
    static struct chex_binding binding;
    struct chex_check_result r = {.fault = check->fault};
    launch = alone();
    binding = (struct chex_binding){.cpus = "0", .cpu_count = 1, .numa = "0"};
    struct chex_check_context c = {.mode = CHEX_MODE_JOB, .launch = &launch, .binding = &binding};
    setenv(name, value, 1);
    chex_gpu_view(&c.gpu);
    check->probe(&c, &r);
    unsetenv(name);
    return r;
}

static void test_probes(void) {
    struct chex_check_result r = probe_with(&chex_check_cpus, "SLURM_CPUS_PER_TASK", "2");
    OK(r.verdict == CHEX_WARN && strstr(r.remedy, "SRUN_CPUS_PER_TASK"), "lost -c: %s", r.remedy);
    r = probe_with(&chex_check_gpu, "CUDA_VISIBLE_DEVICES", "1");
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_USER && strstr(r.remedy, "--engine cpu"),
       "a GPU without an engine: %s", r.remedy);
    r = probe_with(&chex_check_gpu, "CUDA_VISIBLE_DEVICES", "");
    OK(r.verdict == CHEX_PASS && strcmp(r.found, "none") == 0, "no GPU");
    r = probe_with(&chex_check_tmpdir, "TMPDIR", "/nonexistent/place");
    OK(r.verdict == CHEX_FAIL && r.fault == CHEX_FAULT_USER &&
           strstr(r.found, "/nonexistent/place: No such file"),
       "TMPDIR: %s", r.found);
    r = probe_with(&chex_check_nccl_env, "NCCL_P2P_DISABLE", "1");
    OK(r.verdict == CHEX_WARN && strstr(r.found, "NCCL_P2P_DISABLE=1 (environment)"), "NCCL: %s",
       r.found);
    r = probe_with(&chex_check_mpi_env, "OMPI_MCA_btl", "self,tcp");
    OK(r.verdict == CHEX_WARN && strstr(r.remedy, "vader"), "Open MPI: %s", r.remedy);
    r = probe_with(&chex_check_mpi_env, "PMIX_RANK", "0");
    OK(strstr(r.found, "PMIX_RANK") == NULL, "what the launcher sets is not listed: %s", r.found);
    r = probe_with(&chex_check_hdf5_env, "HDF5_USE_FILE_LOCKING", "TRUE");
    OK(r.verdict == CHEX_WARN, "HDF5 locking: %s", r.remedy);
    r = probe_with(&chex_check_launch, "SLURM_NTASKS", "4");
    OK(r.verdict == CHEX_WARN && strstr(r.remedy, "srun"), "a job without srun: %s", r.remedy);
}

static void write_text(const char *path, const char *text) {
    struct chex_error err = {0};
    BAIL_UNLESS(chex_fs_write(path, text, strlen(text), &err) == CHEX_OK, "%s", err.text);
}

static void test_expected(void) {
    char path[] = "/tmp/chex-check-XXXXXX";
    int fd = mkstemp(path);
    BAIL_UNLESS(fd >= 0, "no temporary file");
    close(fd);
    struct chex_error err = {0};
    struct chex_check_expected *e = NULL;
    write_text(path, "{\"jansson\": \"9.9\"}");
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_OK, err, NULL);
    struct chex_check_report r = run_mode(NULL, alone(), CHEX_MODE_LOGIN, e, tap_wait_ms());
    const struct chex_check_result *c = find(&r, "jansson");
    OK(c->verdict == CHEX_FAIL && strncmp(c->expected, "9.9 (from ", 10) == 0, "another value: %s",
       c->expected);
    chex_check_report_release(&r);
    struct chex_check_result same = {0};
    chex_check_found(&same, "9.9");
    chex_check_expected_apply(e, &chex_check_jansson, &same);
    OK(same.verdict == CHEX_PASS, "the same value passes");
    chex_check_expected_destroy(e);
    e = NULL;
    write_text(path, "{\"jansson\": 3}");
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_E_USAGE, err, "expected a text");
    write_text(path, "{\"nosuch\": \"3\"}");
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_E_USAGE, err,
              "'nosuch' is not a check");
    write_text(path, "{\"jansson\":\n");
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_E_USAGE, err, "line ");
    write_text(path, "[]");
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_E_USAGE, err,
              "expected an object");
    OK(e == NULL, "nothing is written on failure");
    unlink(path);
    OK_STATUS(chex_check_expected_read(path, "", &e, &err), CHEX_E_USAGE, err, path);
    OK(err.status == CHEX_E_USAGE, "and the error says so");
}

static void test_json(void) {
    struct chex_check_report r = run_mode(NULL, ranks_on(2, 2), CHEX_MODE_JOB, NULL, tap_wait_ms());
    char *text = chex_check_json(&r);
    json_t *all = json_loads(text, 0, NULL);
    static const char *const keys[] = {"name",    "question", "expected", "found",
                                       "verdict", "fault",    "remedy"};
    json_t *checks = json_object_get(all, "checks"), *ranks = json_object_get(all, "ranks");
    OK(json_integer_value(json_object_get(all, "schema")) == 1, "schema 1");
    OK(json_array_size(checks) == r.count && r.count > 20, "%zu checks", r.count);
    OK(json_array_size(ranks) == 4, "four ranks");
    bool complete = true;
    for (size_t i = 0; i < json_array_size(checks); i++)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            complete =
                complete && json_is_string(json_object_get(json_array_get(checks, i), keys[k]));
    OK(complete, "each check has its seven texts");
    json_t *third = json_array_get(ranks, 2);
    OK(json_integer_value(json_object_get(third, "rank")) == 2 &&
           strcmp(json_string_value(json_object_get(third, "host")), "n1") == 0,
       "a rank says who and where it is");
    json_decref(all);
    free(text);
    snprintf(r.merged[0].found, sizeof r.merged[0].found, "bad \xff byte");
    text = chex_check_json(&r);
    OK(text && strstr(text, "bad \\\\xFF byte"), "bytes that are no UTF-8 do not spoil the object");
    free(text);
    chex_check_report_release(&r);
}

static void pair_host(const struct chex_launch *launch, int rank, char *buf, size_t size) {
    (void)launch;
    snprintf(buf, size, rank < 6 ? "n%d" : "host unknown", rank / 2);
}

/* reporter: the rank that prints. */
static void names_none(struct chex_launch *launch, int reporter, const char *what) {
    struct chex_check_report r = {0};
    struct chex_error err = {0};
    bool speaks;
    launch->rank = reporter;
    OK(chex_check_lost(launch, "late", &r, &speaks, &err) == CHEX_OK && speaks && r.count == 1 &&
           strcmp(r.merged[0].found, "late") == 0 && chex_check_status(&r) == CHEX_E_LOST,
       "%s", what);
    chex_check_report_release(&r);
}

static void test_lost(void) {
    static const struct chex_launch_method method = {.name = "pretended", .host = pair_host};
    bool came[8] = {true, true, true, true, true, true, true, true}, speaks = false;
    struct chex_launch launch = {
        .rank = 1, .size = 8, .nodes = 4, .host = "n0", .impl = &method, .came = came};
    struct chex_check_report r = {0};
    struct chex_error err = {0};
    came[0] = came[4] = came[5] = false;
    OK(chex_check_lost(&launch, "late", &r, &speaks, &err) == CHEX_OK && r.count == 2 && speaks,
       "there is a row for each node with lost ranks, and the lowest rank that came prints");
    OK(strcmp(r.merged[0].found, "rank 0 (n0): no answer") == 0 &&
           strcmp(r.merged[1].found, "rank 4 (n2), and others of this node: no answer") == 0,
       "rows name the ranks and nodes: %s; %s", r.merged[0].found, r.merged[1].found);
    OK(chex_check_status(&r) == CHEX_E_NODE, "lost ranks are their node's fault");
    chex_check_report_release(&r);
    launch.rank = 2;
    OK(chex_check_lost(&launch, "late", &r, &speaks, &err) == CHEX_OK && !speaks,
       "the other ranks do not print");
    chex_check_report_release(&r);
    launch.rank = 1;
    came[2] = false;
    names_none(&launch, 1, "if most nodes are missing, none is blamed");
    came[2] = came[0] = true;
    came[6] = false;
    names_none(&launch, 0, "a node without a name is not blamed");
    launch.came = NULL;
    names_none(&launch, 0, "if it is not known who came, none is blamed");
}

int main(void) {
    test_status();
    test_worsen();
    test_memory();
    test_folder();
    test_cpu_lists();
    test_many_ranks();
    test_timeout();
    test_across();
    test_table_across();
    test_nodes();
    test_probes();
    test_expected();
    test_json();
    test_lost();
    return tap_done();
}
