/* SPDX-License-Identifier: Apache-2.0
 *
 * What the checks that measure share on one rank: an engine with a small network, what the system
 * counted before and after, the collectives. Made by the first check that wants it, on the thread
 * of the probes; the later ones find it. Only the files of this folder include this.
 */
#ifndef CHEX_CHECK_MEASURE_H
#define CHEX_CHECK_MEASURE_H

#include "check/check.h"
#include "check/step.h"
#include "check/strain.h"
#include "launch/coll.h"

struct chex_measure {
    struct chex_launch *launch;        /* the context's, to exchange with */
    struct chex_step *cpu;             /* on the cpu engine */
    struct chex_step_result cpu_steps; /* repeats 0: not run */
    struct chex_step *gpu;             /* on the cuda engine, by gpu-copy */
    struct chex_step_result gpu_steps;
    struct chex_gpu device; /* of gpu */
    struct chex_engine_limits gpu_limits;
    uint64_t ecc_before;       /* corrected errors of its memory */
    char no_gpu[160];          /* why there is none */
    struct chex_strain before; /* the first thing that was measured; wall_s 0: nothing was */
    double cpu_share;          /* of full speed that the busiest loop got; 0: not measured */
    struct chex_coll *coll;
    bool in_coll; /* a collective call has not come back, or failed: nobody else may make one */
};

/* Collective where there are collectives. Zeroed allowed. */
void chex_measure_release(struct chex_measure *m);

/* Call before measuring: cpu-share tells what has happened since the first of these calls. */
void chex_measure_begin(struct chex_measure *m);

/* The steps on the cpu engine, and on the cuda engine. NULL where there are none; *r is skipped and
 * says why. */
struct chex_step *chex_measure_cpu(const struct chex_check_context *c, struct chex_check_result *r);
struct chex_step *chex_measure_gpu(const struct chex_check_context *c, struct chex_check_result *r);

/* Whether a measurement of `need_s` seconds fits into the time that is left; else *r is skipped and
 * says so. */
bool chex_check_has_time(const struct chex_check_context *c, double need_s,
                         struct chex_check_result *r);

/* Bytes that this rank may take for a measurement: a quarter of its share of what its cgroup, or
 * the node, still has. */
uint64_t chex_check_memory_share(const struct chex_check_context *c);

/* Threads that this rank computes with. */
int chex_check_threads(const struct chex_check_context *c);

/* Figures are compared among ranks with the same processor, threads and `what`. */
uint64_t chex_check_cpu_kind(const struct chex_check_context *c, const char *what);

/* Among ranks whose GPU has the same name. */
uint64_t chex_check_gpu_kind(const struct chex_measure *m);

/* A measurement met an error: it is skipped, unless that says that hardware is broken. */
void chex_check_not_measured(const struct chex_check_context *c, const struct chex_error *err,
                             struct chex_check_result *r);

/* The measurement could not be made: skipped, with the reason. */
void chex_check_skip(struct chex_check_result *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
