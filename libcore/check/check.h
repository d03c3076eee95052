/* SPDX-License-Identifier: Apache-2.0
 *
 * Preflight: is this allocation fit to train? A table of checks, each a question with an expected
 * and a found value, probed on every rank, compared across ranks, and blamed on the user or on the
 * node. Nothing here prints.
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

/* One answer. Plain bytes of fixed size, so that ranks exchange it as it lies. */
struct chex_check_result {
    enum chex_verdict verdict;
    enum chex_fault fault;
    char expected[128], found[256], remedy[224];
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
};

/* What a probe may look at. Borrowed. */
struct chex_check_context {
    enum chex_check_mode mode;
    const struct chex_launch *launch;
    const struct chex_error *launch_error; /* why the launch layer failed, or NULL */
    const struct chex_binding *binding;    /* NULL in the prolog */
    struct chex_gpu_view gpu;
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

/* All answers of all ranks, the same on every rank. */
struct chex_check_report {
    const struct chex_check *const *checks; /* (count), those that run in this mode */
    size_t count;
    int ranks;
    enum chex_check_mode mode;
    struct chex_check_card *cards;    /* (ranks) */
    struct chex_check_result *all;    /* (ranks, count) */
    struct chex_check_result *merged; /* (count) */
};

/* Values that the user expects: pairs of check name and found text. */
struct chex_check_expected;

/* A JSON object of strings, name: expected found value. CHEX_E_USAGE with file and name for what
 * is no such object or names no check. */
enum chex_status chex_check_expected_read(const char *path,
                                          struct chex_check_expected **expected_out,
                                          struct chex_error *err);
void chex_check_expected_destroy(struct chex_check_expected *e); /* NULL allowed */

/* Runs the checks of `table` (NULL: chex_checks) on this rank, exchanges and compares. A probe that
 * has not answered when timeout_ms are over fails, the node being at fault, and those behind it are
 * skipped; its thread is left to itself. expected may be NULL. Every rank calls it. A rank that
 * does not come to the exchange is CHEX_E_LOST and named in err. */
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
