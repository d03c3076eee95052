/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU and memory binding.
 *
 * A rank knows only its own CPUs. If they are all CPUs of the machine (that the cgroup shows) and
 * the node has other ranks, then no launcher has bound the ranks. In this case the cores are
 * distributed by local rank, contiguously, so that neighbouring ranks fill one socket after the
 * other. A rank that Slurm or taskset has bound keeps its affinity.
 */
#include "launch/bind.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "launch/methods.h"

static enum chex_status load(const char *synthetic, hwloc_topology_t *topology_out,
                             struct chex_error *err) {
    hwloc_topology_t t = NULL;
    if (hwloc_topology_init(&t) != 0)
        return chex_error_memory(err, "hwloc");
    if ((synthetic && hwloc_topology_set_synthetic(t, synthetic) != 0) ||
        hwloc_topology_load(t) != 0) {
        hwloc_topology_destroy(t);
        return chex_error_set(err, CHEX_E_ENV, "hwloc cannot read the topology of %s",
                              synthetic ? synthetic : "this machine");
    }
    *topology_out = t;
    return CHEX_OK;
}

/* Reduces `mask` to the share of a local rank. False if there are fewer cores than ranks; mask is
 * then unchanged. */
static bool take_share(hwloc_topology_t t, int local_rank, int local_size, hwloc_bitmap_t mask) {
    long cores = hwloc_get_nbobjs_inside_cpuset_by_type(t, mask, HWLOC_OBJ_CORE);
    if (cores < local_size)
        return false;
    long first = cores * local_rank / local_size, end = cores * (local_rank + 1) / local_size;
    hwloc_bitmap_t share = hwloc_bitmap_alloc();
    if (!share)
        return false;
    for (long i = first; i < end; i++) {
        hwloc_obj_t core =
            hwloc_get_obj_inside_cpuset_by_type(t, mask, HWLOC_OBJ_CORE, (unsigned)i);
        hwloc_bitmap_or(share, share, core->cpuset);
    }
    hwloc_bitmap_copy(mask, share);
    hwloc_bitmap_free(share);
    return true;
}

/* Writes a set as a list. A list that is cut ends in "...". */
static void list_text(hwloc_const_bitmap_t set, char *buf, size_t size) {
    if (hwloc_bitmap_list_snprintf(buf, size, set) >= (int)size)
        memcpy(buf + size - 4, "...", 4);
}

static void describe(hwloc_topology_t t, hwloc_bitmap_t mask, struct chex_binding *out) {
    out->cpu_count = hwloc_bitmap_weight(mask);
    list_text(mask, out->cpus, sizeof out->cpus);
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    if (!nodes)
        return;
    hwloc_cpuset_to_nodeset(t, mask, nodes);
    list_text(nodes, out->numa, sizeof out->numa);
    hwloc_bitmap_free(nodes);
}

static void warn_of_lost_cpus(const struct chex_bind_input *in, int had, struct chex_binding *out) {
    if (had >= in->wanted_cpus)
        return;
    const char *cure = in->srun_cpus_set
                           ? "does the node have as many CPUs as slurm.conf states?"
                           : "pass -c to srun or set SRUN_CPUS_PER_TASK, because srun ignores "
                             "the job's --cpus-per-task";
    snprintf(out->note, sizeof out->note, "runs on %d CPU%s although SLURM_CPUS_PER_TASK is %d: %s",
             had, had == 1 ? "" : "s", in->wanted_cpus, cure);
}

/* Decides the binding. Changes `mask` if the rank is narrowed. */
static enum chex_status plan(hwloc_topology_t t, const struct chex_bind_input *in,
                             hwloc_bitmap_t mask, struct chex_binding *out,
                             struct chex_error *err) {
    struct chex_binding made = {.note = ""};
    hwloc_bitmap_and(mask, mask, hwloc_topology_get_topology_cpuset(t));
    const int had = hwloc_bitmap_weight(mask);
    if (had <= 0)
        return chex_error_set(err, CHEX_E_ENV,
                              "CPU affinity: contains none of the %d CPUs of this machine",
                              hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU));
    const bool shared =
        in->local_size > 1 && hwloc_bitmap_isequal(mask, hwloc_topology_get_allowed_cpuset(t));
    if (shared && in->may_bind)
        made.narrowed = take_share(t, in->local_rank, in->local_size, mask);
    describe(t, mask, &made);
    made.threads = made.cpu_count;
    if (shared &&
        !made.narrowed) /* all ranks run on the same cores: each counts its part of them */
        made.threads = had / in->local_size > 1 ? had / in->local_size : 1;
    warn_of_lost_cpus(in, had, &made);
    *out = made;
    return CHEX_OK;
}

enum chex_status chex_bind_choose(const struct chex_bind_input *in, const char *synthetic,
                                  const char *cpus, struct chex_binding *out,
                                  struct chex_error *err) {
    hwloc_topology_t t = NULL;
    CHEX_TRY(load(synthetic, &t, err));
    enum chex_status st;
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    if (mask && hwloc_bitmap_list_sscanf(mask, cpus) == 0)
        st = plan(t, in, mask, out, err);
    else
        st = chex_error_set(err, CHEX_E_FAIL,
                            "CPUs '%s': not a list (expected a form such as 0-3,8)", cpus);
    hwloc_bitmap_free(mask);
    hwloc_topology_destroy(t);
    return st;
}

/* Binds memory to the NUMA node of the cores (another node serves if it is full). A refusal by
 * kernel or container costs speed only. */
static void bind_memory(hwloc_topology_t t, hwloc_const_bitmap_t mask) {
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    if (!nodes)
        return;
    hwloc_cpuset_to_nodeset(t, mask, nodes);
    if (hwloc_bitmap_weight(nodes) == 1 && hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE) > 1 &&
        hwloc_set_membind(t, nodes, HWLOC_MEMBIND_BIND,
                          HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) != 0)
        chex_debug("memory cannot be bound to the NUMA node of the cores: %s", strerror(errno));
    hwloc_bitmap_free(nodes);
}

static enum chex_status bind_here(hwloc_topology_t t, struct chex_bind_input *in,
                                  struct chex_binding *out, struct chex_error *err) {
    enum chex_status st;
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    if (!mask || hwloc_get_cpubind(t, mask, HWLOC_CPUBIND_PROCESS) != 0) {
        st = chex_error_errno(err, CHEX_E_ENV, mask ? errno : ENOMEM,
                              "cannot read the CPU affinity of this process");
        goto out;
    }
    st = plan(t, in, mask, out, err);
    if (st == CHEX_OK && out->narrowed && hwloc_set_cpubind(t, mask, HWLOC_CPUBIND_PROCESS) != 0) {
        chex_debug("the process cannot be bound to CPUs %s: %s", out->cpus, strerror(errno));
        in->may_bind = false;
        if (hwloc_get_cpubind(t, mask, HWLOC_CPUBIND_PROCESS) == 0)
            st = plan(t, in, mask, out, err);
    }
    if (st == CHEX_OK)
        bind_memory(t, mask);
out:
    hwloc_bitmap_free(mask);
    return st;
}

enum chex_status chex_bind(const struct chex_launch *launch, struct chex_binding *out,
                           struct chex_error *err) {
    struct chex_bind_input in = {
        .local_rank = launch->local_rank,
        .local_size = launch->local_size,
        .may_bind = true,
        .wanted_cpus = chex_launch_env_int("SLURM_CPUS_PER_TASK", 0),
        .srun_cpus_set = getenv("SRUN_CPUS_PER_TASK") != NULL,
    };
    hwloc_topology_t t = NULL;
    struct chex_binding made = {.note = ""};
    CHEX_TRY(load(NULL, &t, err));
    enum chex_status st = bind_here(t, &in, &made, err);
    hwloc_topology_destroy(t);
    if (st == CHEX_OK)
        *out = made;
    return st;
}

/* The first entries of a list, for people. */
static const char *short_list(const char *list, char *buf, size_t size) {
    size_t n = strlen(list);
    if (n >= size) {
        for (n = size - sizeof ",..."; n > 0 && list[n] != ','; n--)
            ;
        snprintf(buf, size, "%.*s,...", (int)n, list);
    } else {
        memcpy(buf, list, n + 1);
    }
    return buf;
}

static void gpu_text(const struct chex_gpu_view *gpu, char *buf, size_t size) {
    char visible[100];
    short_list(gpu->visible, visible, sizeof visible);
    switch (gpu->visibility) {
    case CHEX_GPU_OWN:
        if (gpu->node_count)
            snprintf(buf, size, "gpu own %s (of %d)", visible, gpu->node_count);
        else
            snprintf(buf, size, "gpu own %s", visible);
        return;
    case CHEX_GPU_ALL: snprintf(buf, size, "gpu all %s (of %d)", visible, gpu->node_count); return;
    case CHEX_GPU_UNBOUND: snprintf(buf, size, "gpu unbound (%d)", gpu->node_count); return;
    case CHEX_GPU_NONE: break;
    }
    if (gpu->allotted)
        snprintf(buf, size, "gpu none visible (of %d)", gpu->node_count);
    else
        snprintf(buf, size, "gpu none");
}

const char *chex_bind_line(const struct chex_launch *launch, const struct chex_binding *binding,
                           const struct chex_gpu_view *gpu, char *buf, size_t size) {
    char text[160], cpus[100];
    gpu_text(gpu, text, sizeof text);
    short_list(binding->cpus, cpus, sizeof cpus);
    snprintf(buf, size, "rank %d/%d, %s, local %d/%d, cores %s (%d), NUMA %s, %s", launch->rank,
             launch->size, launch->host, launch->local_rank, launch->local_size, cpus,
             binding->cpu_count, binding->numa, text);
    return buf;
}
