/* SPDX-License-Identifier: Apache-2.0
 *
 * What was asked of Slurm for the job, what the run used of it, and what to ask for next time.
 */
#ifndef CHEX_TRAIN_WATCH_JOB_USE_H
#define CHEX_TRAIN_WATCH_JOB_USE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The request, from the environment of the job. 0: not stated. */
struct chex_job_asked {
    uint64_t tasks, cores; /* cores: of a task */
    uint64_t node_bytes;
    uint64_t gpus;  /* of the job */
    double limit_s; /* time limit */
};

/* Elapsed is the time since the job began, in seconds. */
struct chex_job_used {
    double cores;        /* of the busiest task: its processor time by its elapsed time */
    uint64_t node_bytes; /* sum of the peaks of the ranks, on the node where it is highest */
    int gpus;
    double elapsed_s; /* 0: unknown */
    bool whole;       /* the job did the whole run: its time tells what the next run needs */
};

/* Reads the variables of Slurm. False outside of a job. now_s: seconds since 1970. elapsed_s_out: 0
 * if Slurm does not state the start of the job. */
bool chex_job_asked_read(double now_s, struct chex_job_asked *asked_out, double *elapsed_s_out);

/* Writes one line without a line feed. The advice leaves out what is not stated in `asked` and what
 * need not change: cores are rounded up, memory and time get a quarter more. Returns `text`. */
const char *chex_job_use_text(const struct chex_job_asked *asked, const struct chex_job_used *used,
                              char *text, size_t size);

#endif
