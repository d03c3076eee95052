/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits of the process: locked memory, open files, stack, memory and its control group.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/units.h"
#include "check/checks.h"

static const uint64_t MIB = UINT64_C(1) << 20;

/* The soft limit; UINT64_MAX for none. */
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

static bool has_infiniband(void) {
    DIR *d = opendir("/sys/class/infiniband");
    bool any = false;
    for (struct dirent *e; d && (e = readdir(d));)
        any = any || e->d_name[0] != '.';
    if (d)
        closedir(d);
    return any;
}

/* Only network adapters that read and write memory by themselves need locked pages. */
static void probe_memlock(const struct chex_check_context *c, struct chex_check_result *r) {
    char text[32];
    const uint64_t now = limit(RLIMIT_MEMLOCK);
    const bool needed = has_infiniband();
    (void)c;
    chex_check_expect(r, "%s", needed ? "unlimited, for InfiniBand" : "any: no InfiniBand here");
    chex_check_found(r, "%s", size_text(text, sizeof text, now));
    if (needed && now != UINT64_MAX)
        chex_check_worsen(r, CHEX_WARN, CHEX_FAULT_NODE,
                          "set LimitMEMLOCK=infinity for slurmd and PropagateResourceLimitsExcept"
                          "=MEMLOCK in slurm.conf");
}
const struct chex_check chex_check_memlock = {"memlock",
                                              "may enough memory be locked for the network?",
                                              CHEX_IN_JOB | CHEX_IN_PROLOG,
                                              CHEX_FAULT_NODE,
                                              probe_memlock,
                                              NULL};

static void probe_open_files(const struct chex_check_context *c, struct chex_check_result *r) {
    const uint64_t now = limit(RLIMIT_NOFILE);
    (void)c;
    chex_check_expect(r, "1024 or more");
    if (now == UINT64_MAX)
        chex_check_found(r, "unlimited");
    else
        chex_check_found(r, "%llu", (unsigned long long)now);
    if (now < 1024)
        chex_check_worsen(r, now < 128 ? CHEX_FAIL : CHEX_WARN, CHEX_FAULT_USER,
                          "raise it with ulimit -n 4096 where the job is submitted");
}
const struct chex_check chex_check_open_files = {"open-files",
                                                 "may enough files be open at a time?",
                                                 CHEX_IN_JOB | CHEX_IN_LOGIN,
                                                 CHEX_FAULT_USER,
                                                 probe_open_files,
                                                 NULL};

static void probe_stack(const struct chex_check_context *c, struct chex_check_result *r) {
    char text[32];
    const uint64_t now = limit(RLIMIT_STACK);
    (void)c;
    chex_check_expect(r, "1 MiB or more");
    chex_check_found(r, "%s", size_text(text, sizeof text, now));
    if (now < MIB)
        chex_check_worsen(r, CHEX_FAIL, CHEX_FAULT_USER,
                          "raise it with ulimit -s 8192 where the job is submitted");
}
const struct chex_check chex_check_stack = {"stack",
                                            "is the stack large enough for the threads?",
                                            CHEX_IN_JOB | CHEX_IN_LOGIN,
                                            CHEX_FAULT_USER,
                                            probe_stack,
                                            NULL};

static bool read_number(const char *path, uint64_t *out) {
    char line[64];
    FILE *f = fopen(path, "r");
    bool got = f && fgets(line, sizeof line, f);
    if (f)
        fclose(f);
    if (!got)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return chex_parse_u64(line, out);
}

/* The least limit on the way from our control group to the root; UINT64_MAX for none ("max"). */
static uint64_t group_limit(void) {
    char line[1024], path[1400];
    uint64_t least = UINT64_MAX, value;
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *colon = strchr(line, ':'), *group = colon ? strchr(colon + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        const bool v2 = strcmp(colon, ":") == 0, v1 = strcmp(colon, ":memory") == 0;
        for (char *slash = group + strlen(group); (v1 || v2) && slash;
             slash = strrchr(group, '/')) {
            *slash = '\0';
            snprintf(path, sizeof path, "/sys/fs/cgroup%s%s/%s", v1 ? "/memory" : "", group,
                     v1 ? "memory.limit_in_bytes" : "memory.max");
            if (read_number(path, &value) && value < least)
                least = value;
        }
    }
    if (f)
        fclose(f);
    /* Version 1 writes "none" as a number near 2^63. */
    return least > (UINT64_C(1) << 60) ? UINT64_MAX : least;
}

static uint64_t available_memory(void) {
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return (uint64_t)kib * 1024;
}

/* A DenseNet-121 with moments takes 100 MB, the activations of 16 images of 224 px about 1.5 GB. */
static void probe_memory(const struct chex_check_context *c, struct chex_check_result *r) {
    char have_text[32], group_text[32];
    const uint64_t have = available_memory(), group = group_limit();
    const uint64_t ranks = c->launch->local_size > 0 ? (uint64_t)c->launch->local_size : 1;
    const uint64_t share = (group < have ? group : have) / ranks;
    chex_check_expect(r, "2 GiB a rank");
    chex_check_found(r, "%s available, control group %s, %llu rank%s here",
                     size_text(have_text, sizeof have_text, have),
                     size_text(group_text, sizeof group_text, group), (unsigned long long)ranks,
                     ranks == 1 ? "" : "s");
    if (have == 0)
        chex_check_worsen(r, CHEX_SKIP, CHEX_FAULT_NODE, "/proc/meminfo cannot be read");
    else if (share < 2048 * MIB)
        chex_check_worsen(r, share < 256 * MIB ? CHEX_FAIL : CHEX_WARN,
                          group < have ? CHEX_FAULT_USER : CHEX_FAULT_NODE, "%s",
                          group < have ? "ask for more with --mem or --mem-per-cpu"
                                       : "other processes hold this node's memory");
}
const struct chex_check chex_check_memory = {"memory",
                                             "is there memory for each rank?",
                                             CHEX_IN_JOB | CHEX_IN_PROLOG,
                                             CHEX_FAULT_USER,
                                             probe_memory,
                                             NULL};
