/* SPDX-License-Identifier: Apache-2.0
 *
 * What Slurm knows about the present job: its end, its restarts, its nodes, its comment.
 *
 * Only the module chexnet-slurm.so links libslurm. Each entry of its table is one request to
 * slurmctld, which can take as long as MessageTimeout in slurm.conf: call them on rank 0 only, and
 * no more than once a minute. Without the module a caller knows less and goes on.
 */
#ifndef CHEX_LAUNCH_SLURM_INFO_H
#define CHEX_LAUNCH_SLURM_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "launch/energy.h"

/* A text that is longer than its array is refused, not cut: a caller may write it back. */
struct chex_slurm_job {
    uint32_t id;
    int64_t end_s;     /* when the time limit ends, seconds since 1970; 0: there is no limit */
    unsigned restarts; /* how often the job was put back into the queue */
    bool batch;        /* made by sbatch: only such a job can be put back */
    bool requeue;      /* its user and the cluster allow it (--requeue, JobRequeue) */
    char nodes[1024];  /* as in SLURM_JOB_NODELIST */
    char comment[1024];
};

struct chex_slurm_node {
    char features[256], gres[256];
    char reason[256]; /* why the node is drained or down; "": it is not */
};

/* The table `chexnet_slurm` of the module. Errors are CHEX_E_ENV with libslurm's text. */
struct chex_slurm_library {
    /* CHEX_E_ENV: this libslurm has another interface than the one at build time. If libslurm
     * cannot read its configuration, it ends the process. */
    enum chex_status (*open)(struct chex_error *err);
    enum chex_status (*job)(uint32_t id, struct chex_slurm_job *out, struct chex_error *err);
    enum chex_status (*node)(const char *name, struct chex_slurm_node *out, struct chex_error *err);
    /* Replaces the comment of the job. Only its owner and administrators may. */
    enum chex_status (*set_comment)(uint32_t id, const char *text, struct chex_error *err);
    /* Puts the job back into the queue. Slurm then ends its processes: TERM, and KILL after
     * KillWait. Only its owner and administrators may. */
    enum chex_status (*requeue)(uint32_t id, struct chex_error *err);
};

/* How often a job is put back after lost ranks, as in chexnet.sbatch. */
enum { CHEX_SLURM_RETRIES = 3 };

/* Opens the module inside a job. A child process tries one request first, for 10 s at most: without
 * a configuration libslurm would end this process. Call it before MPI starts: memory that is
 * registered with a network adapter must not be copied by fork. CHEX_E_ENV: not in a job, or no
 * usable library; the text is the reason. */
enum chex_status chex_slurm_open(const struct chex_slurm_library **lib_out, struct chex_error *err);

/* The job of this process; CHEX_E_ENV outside a job. */
enum chex_status chex_slurm_this_job(const struct chex_slurm_library *lib,
                                     struct chex_slurm_job *out, struct chex_error *err);

/* Writes speed and energy of a run into the comment of the present job: "chexnet-images-per-s=123.4
 * chexnet-gpu-joules=5 chexnet-node-joules=6" at its beginning, without what is unknown. Replaces
 * earlier values; the rest of the comment stays, such as a user's text and the count of
 * chexnet.sbatch. CHEX_E_ENV: the comment would get too long, or Slurm refuses. */
enum chex_status chex_slurm_write_use(const struct chex_slurm_library *lib, double images_per_s,
                                      const struct chex_energy *energy, struct chex_error *err);

/* Whether the present job can be put back into the queue. CHEX_E_ENV: the text is the reason. */
enum chex_status chex_slurm_can_requeue(const struct chex_slurm_library *lib,
                                        struct chex_error *err);

/* Puts the present job back into the queue.
 * - lost: after lost ranks. It is counted in the comment of the job ("chexnet-retries=2", at its
 *   end, as chexnet.sbatch does), and refused after CHEX_SLURM_RETRIES.
 * - otherwise after a save: the count starts again.
 * CHEX_E_ENV: the job stays as it is; the text is the reason. */
enum chex_status chex_slurm_requeue(const struct chex_slurm_library *lib, bool lost,
                                    struct chex_error *err);

/* When the present job ends, and who says so. */
struct chex_job_end {
    int64_t end_s;    /* seconds since 1970; 0: there is no limit, or it is unknown */
    const char *from; /* "libslurm", "SLURM_JOB_END_TIME", or NULL: unknown */
};

/* Asks libslurm; if `lib` is NULL or fails, reads SLURM_JOB_END_TIME, which newer releases of Slurm
 * set and which does not change with the limit. */
struct chex_job_end chex_slurm_job_end(const struct chex_slurm_library *lib);

#endif
