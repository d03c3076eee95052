/* SPDX-License-Identifier: Apache-2.0
 *
 * State that the measuring checks of one rank share: engines with a small network, the system's
 * counters before and after, the collectives.
 *
 * The first check that needs a part creates it, on the thread of the probes. Later checks reuse it.
 * Only files of this folder include this.
 */
#ifndef CHEX_CHECK_MEASURE_H
#define CHEX_CHECK_MEASURE_H

#include "check/check.h"
#include "check/step.h"
#include "check/throttling.h"
#include "launch/coll.h"

struct chex_measure {
    struct chex_launch *launch;        /* of the context */
    struct chex_group *group;          /* its ranks; use chex_check_group() */
    struct chex_step *cpu;             /* step on the cpu engine */
    struct chex_step_result cpu_steps; /* repeats 0: not run yet */
    struct chex_step *gpu;             /* step on the cuda engine; gpu-copy creates it */
    struct chex_step_result gpu_steps;
    struct chex_gpu device; /* the GPU of `gpu` */
    struct chex_engine_limits gpu_limits;
    uint64_t ecc_before; /* corrected memory errors of the GPU before the load */
    char no_gpu[CHEX_ERROR_TEXT_BYTES + 32]; /* why `gpu` is NULL */
    struct chex_throttling before;   /* counters before the first measurement; wall_s 0: none yet */
    struct chex_disturb_watch watch; /* of the current measurement */
    char disturbed[CHEX_DISTURBED_BYTES]; /* first disturbance of CPUs or memory, or "" */
    double cpu_share; /* least share of CPU time that a busy thread got; 0: not measured */
    struct chex_coll *coll;
    bool in_coll; /* a collective call hangs or failed: make no further one */
};

/* The ranks, for exchanges inside a probe. A rank is lost after half of the remaining time, so an
 * exchange ends before the deadline of the run. */
struct chex_group *chex_check_group(const struct chex_check_context *c);

/* Releases everything. Collective if m->coll is set. A zeroed struct is allowed. */
void chex_measure_release(struct chex_measure *m);

/* Call before and after each measurement. The end sets r->disturbed if other processes disturbed
 * it. cpu-share reports the changes since the first begin. */
void chex_measure_begin(struct chex_measure *m, enum chex_disturb_kind kind);
void chex_measure_end(struct chex_measure *m, struct chex_check_result *r);

/* The step on the cpu engine, and on the cuda engine. NULL: there is none; *r is then a skip with
 * the reason. */
struct chex_step *chex_measure_cpu(const struct chex_check_context *c, struct chex_check_result *r);
struct chex_step *chex_measure_gpu(const struct chex_check_context *c, struct chex_check_result *r);

/* Whether a measurement of `need_s` seconds fits into the remaining time. False: *r is a skip with
 * the reason. */
bool chex_check_has_time(const struct chex_check_context *c, double need_s,
                         struct chex_check_result *r);

/* Bytes that this rank may use for a measurement: a quarter of its share of the free memory of its
 * cgroup or node. */
uint64_t chex_check_memory_share(const struct chex_check_context *c);

/* Number of threads that this rank computes with. */
int chex_check_threads(const struct chex_check_context *c);

/* A kind (chex_check_result): ranks with the same processor, number of threads and `what`. */
uint64_t chex_check_cpu_kind(const struct chex_check_context *c, const char *what);

/* A kind: ranks whose GPUs have the same name. */
uint64_t chex_check_gpu_kind(const struct chex_measure *m);

/* Reports the error of a measurement. CHEX_E_NODE (broken hardware) is a failure, any other error a
 * skip. */
void chex_check_not_measured(const struct chex_check_context *c, const struct chex_error *err,
                             struct chex_check_result *r);

/* Skips the check and sets the reason. */
void chex_check_skip(struct chex_check_result *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
