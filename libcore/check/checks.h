/* SPDX-License-Identifier: Apache-2.0
 *
 * What the table in check.c names. Only the files of this folder include this.
 */
#ifndef CHEX_CHECK_CHECKS_H
#define CHEX_CHECK_CHECKS_H

#include "check/check.h"

/* check_versions.c */
extern const struct chex_check chex_check_chexnet, chex_check_hdf5, chex_check_pmix,
    chex_check_hwloc, chex_check_libpng, chex_check_zlib, chex_check_jansson, chex_check_modules;
/* check_launch.c */
extern const struct chex_check chex_check_launch, chex_check_ranks, chex_check_cpus,
    chex_check_sharing, chex_check_clock;
/* check_engines.c */
extern const struct chex_check chex_check_engines, chex_check_engine_auto, chex_check_gpu;
/* check_gpu.c */
extern const struct chex_check chex_check_gpu_driver, chex_check_gpu_visible, chex_check_gpu_health,
    chex_check_gpu_busy, chex_check_gpu_memory, chex_check_gpu_peer;
/* check_limits.c */
extern const struct chex_check chex_check_memlock, chex_check_open_files, chex_check_stack,
    chex_check_memory;
/* check_files.c */
extern const struct chex_check chex_check_workdir, chex_check_tmpdir, chex_check_shm;
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
/* check_environment.c */
extern const struct chex_check chex_check_nccl_env, chex_check_mpi_env, chex_check_hdf5_env;

#endif
