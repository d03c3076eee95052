/* SPDX-License-Identifier: Apache-2.0
 *
 * Preflight: is this allocation fit for training?
 *
 * A check is a question with an expected value and a found value. Every rank runs the probes of all
 * checks. Rank 0 collects the answers, compares them, and assigns each problem to the user or to
 * the node. The other ranks get the verdicts only.
 * - Level 1 only queries the system.
 * - Level 2 measures each rank on its node.
 * - Level 3 measures between the ranks.
 * The library prints nothing except a progress bar.
 *
 * A check is one CHEX_CHECK in a file of this folder, one declaration in checks.h and one line in
 * the table of check.c.
 */
#ifndef CHEX_CHECK_CHECK_H
#define CHEX_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "check/disturb.h"
#include "launch/bind.h"
#include "launch/group.h"
#include "launch/launch.h"

struct json_t;

enum chex_verdict { CHEX_PASS, CHEX_SKIP, CHEX_WARN, CHEX_FAIL }; /* from best to worst */
/* UNKNOWN: only after lost ranks. */
enum chex_fault { CHEX_FAULT_USER, CHEX_FAULT_NODE, CHEX_FAULT_UNKNOWN };
extern const char *const chex_verdict_names[]; /* "pass", "skip", "warn", "fail", NULL */
extern const char *const chex_fault_names[];   /* "user", "node", "unknown", NULL */

/* Where the command runs.
 * - JOB: in a job step.
 * - PROLOG: as root in Slurm's prolog, before any process of the user.
 * - LOGIN: on a login node, without an allocation.
 * - HEALTH: as root outside of jobs (HealthCheckProgram). As PROLOG, and faults of GPUs fail
 * although no job was given a GPU. */
enum chex_check_mode { CHEX_MODE_JOB, CHEX_MODE_PROLOG, CHEX_MODE_LOGIN, CHEX_MODE_HEALTH };
extern const char *const chex_check_mode_names[];
enum {
    CHEX_IN_JOB = 1 << CHEX_MODE_JOB,
    CHEX_IN_PROLOG = 1 << CHEX_MODE_PROLOG | 1 << CHEX_MODE_HEALTH,
    CHEX_IN_LOGIN = 1 << CHEX_MODE_LOGIN,
    CHEX_IN_ALL = CHEX_IN_JOB | CHEX_IN_PROLOG | CHEX_IN_LOGIN,
};

/* A number that a check measures. Rates and times are above 0; 0 means "not measured". */
struct chex_check_measurement {
    const char *key;      /* name in JSON and in --expect, with the unit: "gb_per_s" */
    const char *unit;     /* unit as printed: "GB/s" */
    bool lower_is_better; /* a time */
    bool compared;        /* ranks are compared; slow outliers are reported (check/outlier.h) */
    bool warn_only; /* an outlier only warns: other users of the file system change the figure */
    double margin;  /* least margin between measured value and limit in --record, as a share; 0:
                       the default of check_expected.c */
};
enum { CHEX_FIGURES = 4 };

/* The answer of one rank to one check. It has a fixed size and no pointers, because ranks exchange
 * its bytes. */
struct chex_check_result {
    enum chex_verdict verdict;
    enum chex_fault fault;
    char expected[192], found[512], remedy[320];
    /* Hash of the path that was asked about; 0: none. A path that fails on some nodes only is their
     * fault. */
    uint64_t path;
    uint64_t kind; /* hash of hardware and settings; only figures of the same kind are compared */
    double figures[CHEX_FIGURES];
    double spread[CHEX_FIGURES];          /* chex_spread of the repetitions; 0: measured once */
    char disturbed[CHEX_DISTURBED_BYTES]; /* how other processes disturbed it, or "" */
};

/* Identity and resources of a rank. Exchanged as bytes too. */
struct chex_check_record {
    int rank, size, local_rank, local_size, node, nodes;
    char method[16], host[CHEX_HOST_BYTES];
    char cpus[CHEX_CPUS_BYTES];
    int cpu_count;
    char gpu[16], visible[CHEX_VISIBLE_BYTES]; /* chex_gpu_visibility_names, CUDA_VISIBLE_DEVICES */
    char line[CHEX_BIND_LINE_BYTES];           /* chex_bind_line */
    double clock_s;        /* real-time clock right after an exchange of all ranks */
    double clock_window_s; /* greatest possible difference between the ranks' reading times */
    int lost;              /* a collective call of this rank hangs or failed */
};

/* The input of a probe. All pointers are borrowed. */
struct chex_check_context {
    enum chex_check_mode mode;
    const struct chex_launch *launch;
    const struct chex_error *launch_error; /* why the launch layer failed, or NULL */
    const struct chex_binding *binding;    /* NULL in the prolog */
    struct chex_gpu_view gpu;
    int level;                 /* 1, 2 or 3; 0: 1 */
    const char *data, *output; /* folders of shards and of results; NULL: not given */
    /* Both may be NULL, and must live as long as the process: a hanging probe still reads them. */
    const char *root; /* folder of a recording of the node, which has its /sys and /proc */
    const struct chex_check_expected *expected;
    bool show_progress;           /* progress bar on stderr, from level 2 */
    double until_s;               /* deadline, as of chex_clock_s(); set by the run */
    struct chex_measure *measure; /* check/measure.h; set by the run */
};

/* When a probe begins. */
enum chex_check_start {
    CHEX_START_ANY,      /* after the previous probe of this rank */
    CHEX_START_TOGETHER, /* after all ranks have reached it: measures under full load */
    CHEX_START_ALL, /* as TOGETHER, but skipped if one rank cannot take part: collective probe */
};

struct chex_check {
    const char *name, *question;
    unsigned modes;        /* CHEX_IN_* */
    enum chex_fault fault; /* default; a probe can set another */
    /* Fills *r, which is initially a pass with empty texts. May hang, for example on a broken file
     * system: the prober has a deadline. */
    void (*probe)(const struct chex_check_context *context, struct chex_check_result *r);
    /* Compares the records and answers of all ranks (n each, in rank order). *merged holds the
     * worst answer; the function may worsen it. Called on rank 0.
     * NULL: nothing to compare. */
    void (*across)(const struct chex_check_record *records,
                   const struct chex_check_result *const *all, int n,
                   struct chex_check_result *merged);
    int level; /* least --level that runs it; 0: level 1 */
    enum chex_check_start start;
    /* Describes figures[] of the result, in order, up to the first entry without a key. */
    struct chex_check_measurement figures[CHEX_FIGURES + 1];
    bool is_count; /* `found` is a number: --record writes it, --expect gives the least one */
    bool is_list;  /* `found` is a list with commas, up to a semicolon: --record writes it, --expect
                      wants each item */
    bool recorded; /* reads nothing but files that a recording has, by chex_check_root() */
    /* For events since boot, such as errors: sets their counts by name. Returns NULL, or why the
     * check is skipped. chex_check_probe_counts() judges their growth. */
    const char *(*count)(const char *root, struct json_t *counts_out);
    double (*most_a_day)(const char *name); /* a tenth of it warns, more fails */
    bool since_boot; /* judges counts without a record too, and the growth itself, not its rate */
    /* `found` is KIND: DIGEST. --record writes it with the version of chexnet. Only answers of the
     * same version and kind are compared with it. */
    bool is_digest;
};

extern const struct chex_check *const chex_checks[]; /* NULL-terminated */

/* PROLOG and HEALTH: only faults of the node count, and no variable of the environment is trusted.
 */
bool chex_check_of_node(enum chex_check_mode mode);

/* The folder in front of /sys, /proc, /dev and /etc: "", or that of a recording. */
const char *chex_check_root(const struct chex_check_context *c);

/* Helpers for the checks. Texts are made printable UTF-8. A text that is too long is cut at a word
 * and ends in "...". */
void chex_check_expect(struct chex_check_result *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void chex_check_found(struct chex_check_result *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends to r->found. */
void chex_check_found_more(struct chex_check_result *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Sets verdict, fault and remedy, unless r->verdict is already worse than `verdict`. */
void chex_check_worsen(struct chex_check_result *r, enum chex_verdict verdict,
                       enum chex_fault fault, const char *remedy_fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A warning whose fault is the user's. */
#define chex_check_warn_user(r, ...) chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_USER, __VA_ARGS__)
/* An `across` function: `found` must be the same text on all ranks. Names the first rank that
 * differs from the majority. */
void chex_check_same(const struct chex_check_record *records,
                     const struct chex_check_result *const *all, int n,
                     struct chex_check_result *merged);

/* A full list of chex_check_name_nodes. */
enum { CHEX_NODES_BYTES = 8 * (CHEX_HOST_BYTES + 24) + 32 };

/* Writes one rank of each node with bad ranks, eight at most: "rank 1 (n1), rank 6 (n3) and 4 more
 * nodes". bad: (n). ranks: false: "n1,n3", for --exclude. Returns the number of nodes. */
int chex_check_name_nodes(const struct chex_check_record *records, const bool *bad, int n,
                          bool ranks, char *buf, size_t size);

/* Whether the answer has at least one measured figure. */
bool chex_check_measured(const struct chex_check *check, const struct chex_check_result *r);

/* Whether two affinity lists ("0-3,8") have a CPU in common. */
bool chex_check_share_cpus(const char *a, const char *b);

/* All answers of all ranks, on rank 0. The other ranks have only the verdict and the fault of each
 * merged answer, and `hung`; their records and all are NULL. */
struct chex_check_report {
    const struct chex_check *const *checks; /* (count), those that run in this mode */
    size_t count;
    int ranks;
    enum chex_check_mode mode;
    struct chex_check_record *records; /* (ranks) */
    struct chex_check_result *all;     /* (ranks, count) */
    struct chex_check_result *merged;  /* (count) */
    bool hung; /* a record has `lost` set: some rank may hang in a call, and only abort ends it */
};

/* Expected values: the found text of a check, limits of its figures, or earlier counts. */
struct chex_check_expected;

/* Reads a file of expected values: a JSON object with the name of each check as key.
 * - The value is the found text, or an object of figures by key.
 * - A figure is its limit (a number: least rate or greatest time), or an object as
 *   chex_check_expected_write writes it. Only "limit" is required there.
 * - Or an object with "node-types" alone: an object of such values by pattern (fnmatch). The first
 *   that matches the type of the node below `root` is taken. root NULL: it is not accepted.
 * - CHEX_E_USAGE: anything else, or an unknown check or figure. The text has file and name. */
enum chex_status chex_check_expected_read(const char *path, const char *root,
                                          struct chex_check_expected **expected_out,
                                          struct chex_error *err);
void chex_check_expected_destroy(struct chex_check_expected *e); /* NULL allowed */

/* Compares an answer with the expected values.
 * - Fails it if the found text differs from the expected one, or if a figure is beyond its limit.
 * - Only warns the user if other processes disturbed the measurement.
 * - Only warns if the limit is within four times the spread of the measurement.
 * - Ignores the limit of a figure that was not measured. */
void chex_check_expected_apply(const struct chex_check_expected *e, const struct chex_check *check,
                               struct chex_check_result *r);

/* Lists the checks that have expected values and were not measured: "a, b", cut to `size`. Checks
 * that do not exist in this mode are left out. Returns the level that measures all; 0: none. */
int chex_check_expected_left_out(const struct chex_check_expected *e,
                                 const struct chex_check_report *report, char *buf, size_t size);

/* Lists the checks whose limits were recorded during a disturbance: "a, b", cut to `size`. */
void chex_check_expected_weak(const struct chex_check_expected *e, char *buf, size_t size);

/* Writes the figures of the report as a file of expected values, atomically. For each figure:
 * - "measured": the value of the worst rank
 * - "spread": of the repeated measurement
 * - "limit": worse than "measured" by the figure's margin or by four times the spread, whichever is
 *   greater
 * - "disturbed": true if other processes disturbed the measurement
 * Counts, and texts of lists, are those of this rank's node: `context`.
 * CHEX_E_USAGE: nothing was measured. */
enum chex_status chex_check_expected_write(const char *path, const struct chex_check_report *report,
                                           const struct chex_check_context *context,
                                           struct chex_error *err);

/* The type of the node below `root`: "AMD EPYC 9654 96-Core Processor, NVIDIA H100 80GB HBM3". */
void chex_check_node_type_text(const char *root, char *out, size_t size);

/* The pattern that the node's type matches in the expected values; "": none; NULL: no types. */
const char *chex_check_expected_type(const struct chex_check_expected *e);

/* The value expected of a check, or NULL. */
const struct json_t *chex_check_expected_value(const struct chex_check_expected *e,
                                               const char *check);

/* Lists the checks of a report that other processes disturbed: "a, b", cut to `size`. */
void chex_check_disturbed(const struct chex_check_report *report, char *buf, size_t size);

/* Runs the checks of `table` up to context->level, collects the answers on rank 0 and compares them
 * there. Collective.
 * - table NULL: chex_checks.
 * - With context->root, checks that a recording does not have are skipped.
 * - timeout_ms limits the rank's own time; waiting for other ranks does not count.
 * - A probe without an answer at the deadline fails, and the fault is the node's. The later probes
 *   are skipped. The hanging thread is abandoned.
 * - group: the ranks of context->launch. Its wait_ms must exceed timeout_ms: a rank with a hanging
 *   probe arrives up to timeout_ms late.
 * - CHEX_E_LOST: a rank did not reach an exchange. The text names it.
 * The caller calls chex_check_report_release. */
enum chex_status chex_check_run(const struct chex_check *const *table,
                                const struct chex_check_context *context, uint64_t timeout_ms,
                                struct chex_group *group, struct chex_check_report *report_out,
                                struct chex_error *err);
void chex_check_report_release(struct chex_check_report *report); /* zeroed allowed */

/* After an exchange has failed with CHEX_E_LOST: a report that blames the nodes of the ranks that
 * did not come. Not collective.
 * - If it is not known which ranks came or where the others are, or if most nodes are missing, one
 *   row of unknown fault has the text `why`.
 * - why: text of the failed exchange. speaks_out: this rank prints. It is the lowest that came, or
 *   rank 0 if that is unknown. */
enum chex_status chex_check_lost(const struct chex_launch *launch, const char *why,
                                 struct chex_check_report *report_out, bool *speaks_out,
                                 struct chex_error *err);

/* The exit status of a report.
 * - CHEX_E_NODE: at least one failure is the node's fault.
 * - CHEX_E_LOST: ranks were lost, by whose fault is unknown.
 * - CHEX_E_ENV: otherwise, if one is the user's fault. If chex_check_of_node(mode), that is
 *   CHEX_OK, because any other status drains the node.
 * - CHEX_OK: otherwise. */
enum chex_status chex_check_status(const struct chex_check_report *report);

/* The report as JSON text, {"schema":1,...} and a newline. The caller frees it. NULL: out of
 * memory. */
char *chex_check_json(const struct chex_check_report *report);
/* Appends a line of JSON to a file: the same without ranks and without checks that pass and measure
 * nothing, and with time, host and job. host: of the rank that writes. */
enum chex_status chex_check_history_append(const char *path, const struct chex_check_report *report,
                                           const char *host, struct chex_error *err);
/* Replaces a file of metrics (report/prometheus.h): verdicts, figures, exit status and time. */
enum chex_status chex_check_metrics_write(const char *path, const struct chex_check_report *report,
                                          const char *host, struct chex_error *err);

#endif
