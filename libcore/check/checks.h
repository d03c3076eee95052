/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations of all checks, for the table in check.c. Only files of this folder include this.
 */
#ifndef CHEX_CHECK_CHECKS_H
#define CHEX_CHECK_CHECKS_H

#include "check/check.h"

/* Defines chex_check_ID: CHEX_CHECK(ID, .name = "id", .question = "...", ...). */
#define CHEX_CHECK(id, ...) const struct chex_check chex_check_##id = {__VA_ARGS__}

/* check_versions.c */
extern const struct chex_check chex_check_chexnet, chex_check_hdf5, chex_check_pmix,
    chex_check_hwloc, chex_check_libpng, chex_check_zlib, chex_check_jansson, chex_check_modules;
/* check_launch.c */
extern const struct chex_check chex_check_launch, chex_check_ranks, chex_check_cpus,
    chex_check_sharing, chex_check_clock;
/* check_engines.c */
extern const struct chex_check chex_check_engines, chex_check_engine_auto, chex_check_gpu;
/* check_gpu.c */
extern const struct chex_check chex_check_gpu_driver, chex_check_gpu_visible, chex_check_gpu_count,
    chex_check_gpu_health, chex_check_gpu_busy, chex_check_gpu_memory, chex_check_gpu_peer;
/* check_limits.c */
extern const struct chex_check chex_check_memlock, chex_check_open_files, chex_check_stack,
    chex_check_memory, chex_check_file_size, chex_check_address_space;
/* check_files.c */
extern const struct chex_check chex_check_workdir, chex_check_tmpdir, chex_check_shm;
/* check_output.c */
extern const struct chex_check chex_check_output;
/* check_speed.c */
extern const struct chex_check chex_check_memory_rate, chex_check_compute_rate,
    chex_check_cpu_share;
/* check_step.c */
extern const struct chex_check chex_check_step_rate, chex_check_step_bits, chex_check_gpu_step_rate,
    chex_check_gpu_step_bits;
/* check_gpu_speed.c */
extern const struct chex_check chex_check_gpu_copy, chex_check_gpu_memory_rate,
    chex_check_gpu_after;
/* check_storage.c */
extern const struct chex_check chex_check_data_rate, chex_check_output_rate, chex_check_tmpdir_rate;
/* check_between.c */
extern const struct chex_check chex_check_fence, chex_check_collectives, chex_check_neighbours,
    chex_check_gpu_sums;
/* check_slurm.c */
extern const struct chex_check chex_check_slurm_job;
/* check_environment.c */
extern const struct chex_check chex_check_nccl_env, chex_check_mpi_env, chex_check_ucx_env,
    chex_check_hdf5_env, chex_check_interfaces;
/* check_fabric.c */
extern const struct chex_check chex_check_fabric_ports, chex_check_fabric_errors;
/* check_node.c */
extern const struct chex_check chex_check_node_type, chex_check_gpu_xid, chex_check_fabric_manager;

/* check_fabric.c: ports of InfiniBand and RoCE adapters (/sys/class/infiniband) and network
 * interfaces (/sys/class/net). */
enum { CHEX_LINKS = 128 };

struct chex_fabric_link {
    char name[64];     /* "ib0", or of a port, as NCCL and UCX write it, "mlx5_0:1" */
    char folder[112];  /* in /sys */
    char model[48];    /* of a port: the adapter's, and the kind of link: "MT4129InfiniBand" */
    char state[32];    /* "ACTIVE", "up" */
    char rate[40];     /* of a port: "200 Gb/sec (4X HDR)" */
    double gbit_per_s; /* 0: unknown */
    bool up;           /* a port that is active, an interface with an address */
};

struct chex_fabric {
    int ports, count; /* the ports are the first links */
    struct chex_fabric_link links[CHEX_LINKS];
};
void chex_fabric_read(const char *root, struct chex_fabric *out);

/* The verdict of a fault of a node's GPUs: a job that has none runs well there. */
enum chex_verdict chex_check_gpu_verdict(const struct chex_check_context *c);

/* check_counts.c: the probe of a check with `count`, and what --record keeps of it. */
void chex_check_probe_counts(const struct chex_check_context *c, const struct chex_check *check,
                             struct chex_check_result *r);
struct json_t *chex_check_counts_kept(const struct chex_check_context *c,
                                      const struct chex_check *check);

/* Input of the memory check, in bytes. group: UINT64_MAX means no limit. Separate from the probe,
 * so that tests can call the judgement. */
struct chex_memory_seen {
    uint64_t available, total, group;
    int ranks; /* of this node */
    bool prolog;
};

/* Worsens *r if a rank's share is too small.
 * A small control group is the user's fault, and so are more ranks than the free memory carries.
 * Otherwise the node has too little, or other processes hold it. The latter only warns in the
 * prolog, because the node is sound. */
void chex_check_judge_memory(const struct chex_memory_seen *m, struct chex_check_result *r);

/* Input of the check of a folder. */
struct chex_folder_seen {
    int error; /* errno of writing a file; 0: written */
    uint64_t free, total;
    uint64_t min, wanted; /* free bytes: fail below `min`, warn below `wanted` */
    uint64_t left;        /* bytes of users without a process on this node */
    bool prolog;
};

/* Worsens *r with `fault`, or the user's if their limit of file sizes is to blame. In the prolog, a
 * folder that is large enough but full of other users' files only warns, because the node is sound;
 * it fails if ended jobs left them. */
void chex_check_judge_folder(const struct chex_folder_seen *f, enum chex_fault fault,
                             const char *remedy, struct chex_check_result *r);

#endif
