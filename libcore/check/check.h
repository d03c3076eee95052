/* SPDX-License-Identifier: Apache-2.0
 *
 * Preflight: is this allocation fit to train? A table of checks, each a question with an expected
 * and a found value, probed on every rank, compared across ranks, and blamed on the user or on the
 * node. Level 1 asks, level 2 measures each rank on its node, level 3 what lies between the ranks.
 * Nothing here prints but a bar of progress.
 *
 * A check is one `const struct chex_check` in a file of this folder, one declaration in checks.h
 * and one line in the table of check.c.
 */
#ifndef CHEX_CHECK_CHECK_H
#define CHEX_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "launch/bind.h"
#include "launch/launch.h"

enum chex_verdict { CHEX_PASS, CHEX_SKIP, CHEX_WARN, CHEX_FAIL }; /* from good to bad */
enum chex_fault { CHEX_FAULT_USER, CHEX_FAULT_NODE };
extern const char *const chex_verdict_names[]; /* "pass", "skip", "warn", "fail", NULL */
extern const char *const chex_fault_names[];   /* "user", "node", NULL */

/* Where the command runs: in a job step; as root in Slurm's prolog, before any user's process; on
 * a login node, without an allocation. */
enum chex_check_mode { CHEX_MODE_JOB, CHEX_MODE_PROLOG, CHEX_MODE_LOGIN };
extern const char *const chex_check_mode_names[];
enum {
    CHEX_IN_JOB = 1 << CHEX_MODE_JOB,
    CHEX_IN_PROLOG = 1 << CHEX_MODE_PROLOG,
    CHEX_IN_LOGIN = 1 << CHEX_MODE_LOGIN,
    CHEX_IN_ALL = CHEX_IN_JOB | CHEX_IN_PROLOG | CHEX_IN_LOGIN,
};

/* A number that a check measures. Rates and times are above 0, so that 0 is "not measured". */
struct chex_figure {
    const char *key;  /* with its unit, in JSON and in --expect: "gb_per_s" */
    const char *unit; /* for people: "GB/s" */
    bool less;        /* the lower the better (a time) */
    bool compared;    /* who is far behind the others is named (check/outlier.h) */
    bool gentle;      /* and only warned about: others' use of a file system moves it */
};
enum { CHEX_FIGURES = 4 };

/* One answer. Plain bytes of fixed size, so that ranks exchange it as it lies. */
struct chex_check_result {
    enum chex_verdict verdict;
    enum chex_fault fault;
    char expected[128], found[256], remedy[224];
    uint64_t kind; /* of hardware and settings: figures are compared among equal ones */
    double figures[CHEX_FIGURES];
};

/* Who a rank is and what it was given; exchanged too. */
struct chex_check_card {
    int rank, size, local_rank, local_size, node, nodes;
    char method[16], host[CHEX_HOST_BYTES];
    char cpus[128];
    int cpu_count;
    char gpu[16], visible[64]; /* chex_gpu_visibility_names, CUDA_VISIBLE_DEVICES */
    char line[200];            /* chex_bind_line */
    double clock_s;            /* real-time clock right after all ranks had come together */
    double clock_window_s;     /* how far apart those moments may lie */
    int lost;                  /* a collective call of this rank did not come back, or failed */
};

/* What a probe may look at. Borrowed. */
struct chex_check_context {
    enum chex_check_mode mode;
    const struct chex_launch *launch;
    const struct chex_error *launch_error; /* why the launch layer failed, or NULL */
    const struct chex_binding *binding;    /* NULL in the prolog */
    struct chex_gpu_view gpu;
    int level;                    /* 1, 2 or 3; 0: 1 */
    const char *data, *output;    /* of shards, of results; NULL: none given */
    bool show_progress;           /* a bar on stderr, from level 2 on */
    double until_s;               /* chex_clock_s() when time is up; set by the run */
    struct chex_measure *measure; /* check/measure.h; set by the run */
};

/* When a probe begins. */
enum chex_check_start {
    CHEX_START_ANY,      /* when the one before it has ended */
    CHEX_START_TOGETHER, /* when all ranks have come to it: what is measured under full load */
    CHEX_START_ALL,      /* likewise, and only where all ranks can: it is collective */
};

struct chex_check {
    const char *name, *question;
    unsigned modes;        /* CHEX_IN_* */
    enum chex_fault fault; /* whose it is when the probe does not say */
    /* Fills *r, which starts as a pass with empty texts. May block on a sick file system. */
    void (*probe)(const struct chex_check_context *context, struct chex_check_result *r);
    /* Looks at all ranks' cards and answers (n each, in rank order) and may worsen *merged, which
     * holds the worst of them. Called on every rank. NULL: nothing to compare. */
    void (*across)(const struct chex_check_card *cards, const struct chex_check_result *const *all,
                   int n, struct chex_check_result *merged);
    int level; /* the least --level with it; 0: 1 */
    enum chex_check_start start;
    const struct chex_figure
        *figures; /* in the order of the result's; its end has no key; or NULL */
};

extern const struct chex_check *const chex_checks[]; /* NULL-terminated */

/* Helpers for the checks. */
void chex_check_expect(struct chex_check_result *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void chex_check_found(struct chex_check_result *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Worsens the verdict (never betters it), names the fault and how to mend it. */
void chex_check_worsen(struct chex_check_result *r, enum chex_verdict verdict,
                       enum chex_fault fault, const char *remedy_fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* An `across`: found must be the same text everywhere; the odd ranks are named. */
void chex_check_same(const struct chex_check_card *cards,
                     const struct chex_check_result *const *all, int n,
                     struct chex_check_result *merged);

/* Whether an affinity list ("0-3,8") has a CPU in common with another. */
bool chex_check_share_cpus(const char *a, const char *b);

/* All answers of all ranks, the same on every rank. */
struct chex_check_report {
    const struct chex_check *const *checks; /* (count), those that run in this mode */
    size_t count;
    int ranks;
    enum chex_check_mode mode;
    struct chex_check_card *cards;    /* (ranks) */
    struct chex_check_result *all;    /* (ranks, count) */
    struct chex_check_result *merged; /* (count) */
    bool
        hung; /* some rank's card says `lost`: ranks may hang in a call, and only abort ends them */
};

/* Values that are expected: of a check its found text, or limits of its figures. */
struct chex_check_expected;

/* A JSON object, name: found text, or name: object of figures and their limits (the least of a
 * rate, the most of a time). CHEX_E_USAGE with file and name for what is no such object, names no
 * check or no figure of it. */
enum chex_status chex_check_expected_read(const char *path,
                                          struct chex_check_expected **expected_out,
                                          struct chex_error *err);
void chex_check_expected_destroy(struct chex_check_expected *e); /* NULL allowed */

struct chex_check_report;

/* The checks for which values are expected that the run has not measured, "a, b", cut to size; the
 * level that would ask them all, 0 for none. What this mode never asks is left out. */
int chex_check_expected_left_out(const struct chex_check_expected *e,
                                 const struct chex_check_report *report, char *buf, size_t size);

/* Writes a file of that form with the figures of the report as limits, `slack` (0.1: a tenth) worse
 * than the worst rank's; whole or not at all. CHEX_E_USAGE where nothing was measured. */
enum chex_status chex_check_expected_write(const char *path, const struct chex_check_report *report,
                                           double slack, struct chex_error *err);

/* Runs the checks of `table` (NULL: chex_checks) up to context->level on this rank, exchanges and
 * compares. A probe that has not answered when timeout_ms of the rank's own time (waits for others
 * left out) are over fails, the node being at fault, and those behind it are skipped; its thread is
 * left to itself. expected may be NULL. Every rank calls it. A rank that does not come to an
 * exchange is CHEX_E_LOST and named in err. */
enum chex_status chex_check_run(const struct chex_check *const *table,
                                const struct chex_check_context *context,
                                const struct chex_check_expected *expected, uint64_t timeout_ms,
                                struct chex_launch *launch, struct chex_check_report *report_out,
                                struct chex_error *err);
void chex_check_report_release(struct chex_check_report *report); /* zeroed allowed */

/* The exit status: CHEX_E_NODE where any failure is the node's, else CHEX_E_ENV where one is the
 * user's, else CHEX_OK. In the prolog a user's mistake is CHEX_OK, because there any other status
 * drains the node. */
enum chex_status chex_check_status(const struct chex_check_report *report);

/* {"schema":1,...} as a fresh string with a newline; the caller frees. NULL when out of memory. */
char *chex_check_json(const struct chex_check_report *report);

#endif
