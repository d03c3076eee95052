/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/bind.h"

#include <pthread.h>
#include <sched.h>

#include "tap.h"

static struct chex_error err;

/* Two sockets with a NUMA node each, eight cores, two threads a core: CPUs 0-15. */
static const char *const dual = "pack:2 numa:1 core:4 pu:2";

struct row {
    const char *what, *machine, *cpus;
    int local_rank, local_size, wanted;
    const char *expect_cpus, *expect_numa;
    int threads;
    bool narrowed, note;
};

static const struct row rows[] = {
    {"alone on the node", dual, "0-15", 0, 1, 0, "0-15", "0-1", 16, false, false},
    {"unbound, first of 4", dual, "0-15", 0, 4, 0, "0-3", "0", 4, true, false},
    {"unbound, last of 4", dual, "0-15", 3, 4, 0, "12-15", "1", 4, true, false},
    {"unbound, first of 3", dual, "0-15", 0, 3, 0, "0-3", "0", 4, true, false},
    {"unbound, second of 3", dual, "0-15", 1, 3, 0, "4-9", "0-1", 6, true, false},
    {"unbound, last of 3", dual, "0-15", 2, 3, 0, "10-15", "1", 6, true, false},
    {"bound by Slurm", dual, "4-7", 1, 4, 4, "4-7", "0", 4, false, false},
    {"bound, no contiguous set", dual, "0,2,8", 0, 2, 0, "0,2,8", "0-1", 3, false, false},
    {"fewer cores than ranks", "core:2 pu:1", "0-1", 2, 4, 0, "0-1", "0", 1, false, false},
    {"fewer cores, many CPUs", "core:2 pu:4", "0-7", 2, 3, 0, "0-7", "0", 2, false, false},
    {"srun forgot -c", dual, "3", 1, 2, 2, "3", "0", 1, false, true},
    {"unbound is no loss", dual, "0-15", 0, 8, 16, "0-1", "0", 2, true, false},
    {"256 cores, first of 256", "pack:2 numa:4 core:32 pu:2", "0-511", 0, 256, 0, "0-1", "0", 2,
     true, false},
    {"256 cores, last of 256", "pack:2 numa:4 core:32 pu:2", "0-511", 255, 256, 0, "510-511", "7",
     2, true, false},
    {"256 cores, one rank", "pack:2 numa:4 core:32 pu:2", "0-511", 0, 1, 0, "0-511", "0-7", 512,
     false, false},
    {"2,048 CPUs", "pack:4 numa:4 core:64 pu:2", "0-2047", 15, 16, 0, "1920-2047", "15", 128, true,
     false},
    {"CPUs beyond the machine", "core:2 pu:1", "0-7", 0, 1, 8, "0-1", "0", 2, false, true},
};

static void check_rows(void) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *w = &rows[i];
        struct chex_bind_input in = {.local_rank = w->local_rank,
                                     .local_size = w->local_size,
                                     .may_bind = true,
                                     .wanted_cpus = w->wanted};
        struct chex_binding b = {.note = ""};
        enum chex_status st = chex_bind_choose(&in, w->machine, w->cpus, &b, &err);
        OK(st == CHEX_OK && strcmp(b.cpus, w->expect_cpus) == 0 &&
               strcmp(b.numa, w->expect_numa) == 0 && b.threads == w->threads &&
               b.narrowed == w->narrowed && (b.note[0] != '\0') == w->note,
           "%s: CPUs %s (%d), NUMA %s, %d threads%s%s%s", w->what, b.cpus, b.cpu_count, b.numa,
           b.threads, b.narrowed ? ", narrowed" : "", b.note[0] ? "; " : "", b.note);
    }
}

/* Lists that are as long as a large node makes them. */
static void check_long_lists(void) {
    char every_second[CHEX_CPUS_BYTES] = "", line[CHEX_BIND_LINE_BYTES];
    size_t at = 0;
    for (int i = 0; i < 1024; i += 2)
        at +=
            (size_t)snprintf(every_second + at, sizeof every_second - at, "%s%d", i ? "," : "", i);
    struct chex_bind_input in = {.local_size = 1, .may_bind = true};
    struct chex_launch launch = {.rank = 1023, .size = 1024, .local_size = 16};
    struct chex_gpu_view view = {.visibility = CHEX_GPU_ALL, .node_count = 16};
    struct chex_binding b;
    OK_CALL(chex_bind_choose(&in, "pack:2 numa:8 core:32 pu:2", every_second, &b, &err));
    OK(b.cpu_count == 512 && strcmp(b.cpus, every_second) == 0,
       "the list of every second of 1,024 CPUs is whole: %zu bytes", strlen(b.cpus));
    memset(launch.host, 'n', sizeof launch.host - 1);
    memset(view.visible, '7', sizeof view.visible - 1);
    for (size_t i = 40; i < sizeof view.visible - 1; i += 41)
        view.visible[i] = ',';
    chex_bind_line(&launch, &b, &view, line, sizeof line);
    OK(strstr(line, ",... (512), NUMA 0-15, gpu all 777") && strstr(line, ",... (of 16)"),
       "a rank's line shortens them: %s", line);
}

static void check_edges(void) {
    struct chex_bind_input in = {.local_rank = 1, .local_size = 4, .may_bind = false};
    struct chex_binding b;
    OK_CALL(chex_bind_choose(&in, dual, "0-15", &b, &err));
    OK(!b.narrowed && strcmp(b.cpus, "0-15") == 0 && b.threads == 4,
       "where binding is refused each rank takes its part of the threads: %d", b.threads);
    OK_STATUS(chex_bind_choose(&in, "core:2 pu:1", "7", &b, &err), CHEX_E_ENV, err, "of the 2 CPUs");
    OK_STATUS(chex_bind_choose(&in, "no such thing", "0", &b, &err), CHEX_E_ENV, err, "topology");

    in = (struct chex_bind_input){.local_size = 1, .wanted_cpus = 2};
    OK_CALL(chex_bind_choose(&in, dual, "3", &b, &err));
    OK(strstr(b.note, "SRUN_CPUS_PER_TASK") && strstr(b.note, "runs on 1 CPU "),
       "the note names the cure: %s", b.note);
    in.srun_cpus_set = true;
    OK_CALL(chex_bind_choose(&in, dual, "3", &b, &err));
    OK(strstr(b.note, "slurm.conf"), "srun with an option has another note: %s", b.note);

    /* Every other CPU of 4,096: the list is longer than the field. */
    char cpus[16384] = "";
    size_t at = 0;
    for (int i = 0; i < 4096; i += 2)
        at += (size_t)snprintf(cpus + at, sizeof cpus - at, "%s%d", i ? "," : "", i);
    in = (struct chex_bind_input){.local_size = 1};
    OK_CALL(chex_bind_choose(&in, "core:4096 pu:1", cpus, &b, &err));
    OK(b.cpu_count == 2048 && strlen(b.cpus) == sizeof b.cpus - 1 &&
           strcmp(b.cpus + strlen(b.cpus) - 3, "...") == 0,
       "a long list is cut, the count is not");
}

static void check_here(void) {
    cpu_set_t mask;
    BAIL_UNLESS(sched_getaffinity(0, sizeof mask, &mask) == 0, "no affinity");
    struct chex_launch launch = {.method = "single", .size = 1, .local_size = 1, .nodes = 1};
    struct chex_binding b;
    unsetenv("SLURM_CPUS_PER_TASK");
    unsetenv("SRUN_CPUS_PER_TASK");
    OK_CALL(chex_bind(&launch, &b, &err));
    OK(b.cpu_count == CPU_COUNT(&mask) && b.threads == b.cpu_count && !b.narrowed && !b.note[0],
       "one process keeps what it has: %s (%d)", b.cpus, b.cpu_count);
    setenv("SLURM_CPUS_PER_TASK", "4096", 1);
    OK_CALL(chex_bind(&launch, &b, &err));
    OK(strstr(b.note, "is 4096"), "SLURM_CPUS_PER_TASK is compared: %s", b.note);
    unsetenv("SLURM_CPUS_PER_TASK");

    /* Two ranks that may run everywhere: each is really bound to its part, if there are two cores
     * and the test was not bound itself. */
    launch = (struct chex_launch){
        .method = "pmix", .size = 2, .local_rank = 1, .rank = 1, .local_size = 2, .nodes = 1};
    OK_CALL(chex_bind(&launch, &b, &err));
    cpu_set_t after;
    sched_getaffinity(0, sizeof after, &after);
    if (b.narrowed)
        OK(CPU_COUNT(&after) == b.cpu_count && b.cpu_count < CPU_COUNT(&mask) &&
               b.threads == b.cpu_count,
           "the second of two is bound to %s", b.cpus);
    else
        OK(CPU_EQUAL(&after, &mask) && b.threads >= 1, "the second of two is left as it was");
    sched_setaffinity(0, sizeof mask, &mask);
}

int main(void) {
    check_rows();
    check_edges();
    check_long_lists();
    check_here();
    return tap_done();
}
