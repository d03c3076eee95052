/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of resource limits: locked memory, open files, stack, memory and its control group.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fs.h"
#include "base/memory_limit.h"
#include "base/units.h"
#include "check/checks.h"

static const uint64_t MIB = UINT64_C(1) << 20;

/* The soft limit of a resource. UINT64_MAX: none. */
static uint64_t limit(int resource) {
    struct rlimit l;
    if (getrlimit((__rlimit_resource_t)resource, &l) != 0 || l.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return l.rlim_cur;
}

static const char *size_text(char *buf, size_t size, uint64_t bytes) {
    if (bytes == UINT64_MAX)
        snprintf(buf, size, "unlimited");
    else
        chex_format_bytes(buf, size, bytes);
    return buf;
}

/* Fails if the limit is below `least`, warns below `wanted`. command: raises it. */
static void judge(struct chex_check_result *r, int resource, const char *expected, uint64_t least,
                  uint64_t wanted, const char *command) {
    char text[32];
    const uint64_t now = limit(resource);
    chex_check_expect(r, "%s", expected);
    if (resource == RLIMIT_NOFILE && now != UINT64_MAX)
        chex_check_found(r, "%" PRIu64, now);
    else
        chex_check_found(r, "%s", size_text(text, sizeof text, now));
    if (now < wanted)
        chex_check_worsen(r, now < least ? CHEX_FAIL : CHEX_WARN, CHEX_FAULT_USER,
                          "raise it with %s where the job is submitted", command);
}

/* Only network adapters with remote direct memory access (RDMA) need locked pages. */
static void probe_memlock(const struct chex_check_context *c, struct chex_check_result *r) {
    char text[32];
    struct chex_fs_name name;
    const uint64_t now = limit(RLIMIT_MEMLOCK);
    const bool needed = chex_fs_names(chex_check_root(c), "sys/class/infiniband", &name, 1) > 0;
    chex_check_expect(r, "%s", needed ? "unlimited, for InfiniBand" : "any: no InfiniBand here");
    chex_check_found(r, "%s", size_text(text, sizeof text, now));
    if (needed && now != UINT64_MAX)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "set LimitMEMLOCK=infinity for slurmd and PropagateResourceLimitsExcept"
                          "=MEMLOCK in slurm.conf");
}
CHEX_CHECK(memlock, .name = "memlock", .question = "may enough memory be locked for the network?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_NODE, .probe = probe_memlock);

static void probe_open_files(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    judge(r, RLIMIT_NOFILE, "1024 or more", 128, 1024, "ulimit -n 4096");
}
CHEX_CHECK(open_files, .name = "open-files", .question = "may enough files be open at a time?",
           .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER,
           .probe = probe_open_files);

static void probe_stack(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    judge(r, RLIMIT_STACK, "1 MiB or more", MIB, MIB, "ulimit -s 8192");
}
CHEX_CHECK(stack, .name = "stack", .question = "is the stack large enough for the threads?",
           .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER, .probe = probe_stack);

static const uint64_t min_memory = UINT64_C(256) << 20, wanted_memory = UINT64_C(2048) << 20;

/* Fails below min_memory, warns below wanted_memory. */
static enum chex_verdict verdict_of(uint64_t share) {
    return share < min_memory ? CHEX_FAIL : share < wanted_memory ? CHEX_WARN : CHEX_PASS;
}

void chex_check_judge_memory(const struct chex_memory_seen *m, struct chex_check_result *r) {
    const uint64_t ranks = m->ranks > 0 ? (uint64_t)m->ranks : 1;
    const uint64_t free_share = (m->group < m->available ? m->group : m->available) / ranks;
    const enum chex_verdict now = verdict_of(free_share);
    if (now == CHEX_PASS)
        return;
    if (m->group < m->available)
        chex_check_worsen(r, now, CHEX_FAULT_USER, "request more with --mem or --mem-per-cpu");
    else if (verdict_of(m->available) < now)
        chex_check_worsen(r, now, CHEX_FAULT_USER,
                          "too many ranks for the free memory of this node: start fewer per node");
    else if (verdict_of(m->total) == now)
        chex_check_worsen(r, now, CHEX_FAULT_NODE, "this node has too little memory for training");
    else
        chex_check_worsen(
            r, m->prolog ? CHEX_WARN : now, CHEX_FAULT_NODE,
            "other processes use this node's memory: wait for them, or request memory "
            "with --mem or the whole node with --exclusive");
}

/* Why 2 GiB: DenseNet-121 with moments needs 100 MB, activations of 16 images (224 px) 1.5 GB. */
static void probe_memory(const struct chex_check_context *c, struct chex_check_result *r) {
    char have_text[32], group_text[32];
    uint64_t available_kib = 0, total_kib = 0;
    const char *root = chex_check_root(c);
    const bool known = chex_fs_number(root, "proc/meminfo", "MemAvailable:", &available_kib) &&
                       chex_fs_number(root, "proc/meminfo", "MemTotal:", &total_kib);
    const struct chex_memory_seen m = {.available = available_kib * 1024,
                                       .total = total_kib * 1024,
                                       .group = chex_memory_group_bytes(root),
                                       .ranks = c->launch->local_size,
                                       .prolog = chex_check_of_node(c->mode)};
    chex_check_expect(r, "2 GiB a rank");
    chex_check_found(r, "%s available, control group %s, %d rank%s here",
                     size_text(have_text, sizeof have_text, m.available),
                     size_text(group_text, sizeof group_text, m.group), m.ranks,
                     m.ranks == 1 ? "" : "s");
    if (known)
        chex_check_judge_memory(&m, r);
    else
        chex_check_worsen(r, CHEX_SKIP, CHEX_FAULT_NODE, "/proc/meminfo cannot be read");
}
CHEX_CHECK(memory, .name = "memory", .question = "is there memory for each rank?",
           .modes = CHEX_IN_JOB | CHEX_IN_PROLOG, .fault = CHEX_FAULT_USER, .probe = probe_memory,
           .recorded = true);

/* A checkpoint of DenseNet-121 with its moments has 85 MB. */
static void probe_file_size(const struct chex_check_context *c, struct chex_check_result *r) {
    (void)c;
    judge(r, RLIMIT_FSIZE, "1 GiB or more", 128 * MIB, 1024 * MIB, "ulimit -f unlimited");
}
CHEX_CHECK(file_size, .name = "file-size", .question = "may files be large enough for checkpoints?",
           .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER,
           .probe = probe_file_size);

/* Libraries and the stacks of threads take 400 MiB of addresses before the first image. CUDA
 * reserves addresses for the memory of all GPUs and of the host. */
static void probe_address_space(const struct chex_check_context *c, struct chex_check_result *r) {
    if (c->gpu.allotted)
        judge(r, RLIMIT_AS, "unlimited, for a GPU", UINT64_MAX, UINT64_MAX, "ulimit -v unlimited");
    else
        judge(r, RLIMIT_AS, "4 GiB or more", 640 * MIB, 4096 * MIB, "ulimit -v unlimited");
}
CHEX_CHECK(address_space, .name = "address-space", .question = "may a rank map enough memory?",
           .modes = CHEX_IN_JOB | CHEX_IN_LOGIN, .fault = CHEX_FAULT_USER,
           .probe = probe_address_space);
