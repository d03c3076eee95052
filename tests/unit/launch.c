/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launch method the environment leads to. The real PMIx server is met in tests/slurm.
 */
#include "launch/launch.h"

#include <dlfcn.h>
#include <pmix.h>
#include <unistd.h>

#include "dir.h"
#include "tap.h"

static const char *const variables[] = {
    "PMIX_NAMESPACE",       "PMIX_RANK",    "SLURM_PROCID",    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURMD_NODENAME", "SLURM_JOB_ID",
};

static void clean(void) {
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
}

static void set_task(const char *rank, const char *tasks) {
    setenv("SLURM_PROCID", rank, 1);
    setenv("SLURM_NTASKS", tasks, 1);
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", tasks, 1);
    setenv("SLURM_JOB_ID", "77", 1);
    setenv("SLURMD_NODENAME", "node12", 1);
}

static bool alone(const struct chex_launch *l, const char *method) {
    return strcmp(l->method, method) == 0 && l->rank == 0 && l->size == 1 && l->local_rank == 0 &&
           l->local_size == 1 && l->node == 0 && l->nodes == 1 && l->host[0];
}

static void check_methods(void) {
    struct chex_launch launch = {0};
    struct chex_error err;
    char host[CHEX_HOST_BYTES] = "";
    gethostname(host, sizeof host - 1);

    clean();
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_OK, err, NULL);
    OK(alone(&launch, "single") && !launch.job_id[0], "nothing set: single, outside a job");
    OK(strcmp(launch.host, host) == 0, "the host is this machine's name: %s", launch.host);
    chex_launch_abort(&launch, 7);
    OK(true, "abort returns where there is one rank");
    chex_launch_finish(&launch);

    set_task("0", "1");
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_OK, err, NULL);
    OK(alone(&launch, "slurm") && strcmp(launch.job_id, "77") == 0, "one task of srun: slurm");
    OK(strcmp(launch.host, "node12") == 0, "Slurm's node name is taken");
    OK(chex_launch_tasks_left_out(&launch) == 0, "no task is left out");
    chex_launch_finish(&launch);

    set_task("1", "4");
    struct chex_launch before = launch;
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_E_ENV, err,
              "Slurm's variables: inconsistent: rank 1 of 4");
    OK(memcmp(&before, &launch, sizeof launch) == 0, "and leaves the output alone");

    unsetenv("SLURM_STEP_ID");
    unsetenv("SLURM_STEP_NUM_TASKS");
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_OK, err, NULL);
    OK(alone(&launch, "single") && strcmp(launch.job_id, "77") == 0,
       "the body of a batch script of 4 tasks is one process");
    OK(chex_launch_tasks_left_out(&launch) == 4, "which leaves tasks out");
    chex_launch_finish(&launch);

    /* A step without PMIx, started from within one with PMIx, inherits its variables. */
    set_task("0", "1");
    setenv("SLURM_STEP_ID", "1", 1);
    setenv("PMIX_NAMESPACE", "slurm.pmix.77.0", 1);
    setenv("PMIX_RANK", "0", 1);
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_OK, err, NULL);
    OK(alone(&launch, "slurm"), "PMIx of another step is not ours");
    chex_launch_finish(&launch);

    clean();
    setenv("PMIX_NAMESPACE", "slurm.pmix.77.0", 1);
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_OK, err, NULL);
    OK(alone(&launch, "single"), "a PMIx name space without a rank is no PMIx");
    chex_launch_finish(&launch);
    clean();
}

/* Before the first exchange the nodes of other ranks come from Slurm's lists. */
static void check_nodes(void) {
    static const char *const hosts[] = {"gpu-08", "gpu-08", "gpu-09", "gpu-09",      "gpu-10",
                                        "gpu-10", "gpu-12", "login",  "host unknown"};
    static const char *const more[][2] = {{"SLURM_LOCALID", "1"},
                                          {"SLURM_NODEID", "1"},
                                          {"SLURM_STEP_NUM_NODES", "5"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1(x2)"},
                                          {"SLURM_STEP_NODELIST", "gpu-[08-10,12],login"}};
    struct chex_launch launch = {0};
    struct chex_error err;
    char host[CHEX_HOST_BYTES];
    dir_make();
    set_task("3", "9");
    for (size_t i = 0; i < CHEX_COUNT(more); i++)
        setenv(more[i][0], more[i][1], 1);
    setenv("CHEX_STEP_DIR", dir, 1);
    OK_STATUS(chex_launch_init(&launch, &err), CHEX_OK, err, NULL);
    OK(launch.rank == 3 && launch.size == 9 && launch.local_rank == 1 && launch.local_size == 2 &&
           launch.node == 1 && launch.nodes == 5,
       "rank, size and node come from Slurm's variables");
    for (int r = 0; r < (int)CHEX_COUNT(hosts); r++) {
        chex_launch_host(&launch, r, host, sizeof host);
        OK(strcmp(host, r == launch.rank ? "node12" : hosts[r]) == 0, "rank %d is on %s", r, host);
    }
    setenv("SLURM_DISTRIBUTION", "cyclic", 1);
    chex_launch_host(&launch, 0, host, sizeof host);
    OK(strcmp(host, "host unknown") == 0, "unless the tasks are not in blocks");
    launch.broken = true; /* no last exchange */
    chex_launch_finish(&launch);
    OK(rmdir(dir) == 0, "the folder of the step is removed");
    for (size_t i = 0; i < CHEX_COUNT(more); i++)
        unsetenv(more[i][0]);
    unsetenv("SLURM_DISTRIBUTION");
    unsetenv("CHEX_STEP_DIR");
    clean();
}

static void check_exchange_alone(void) {
    struct chex_launch launch = {0};
    struct chex_error err;
    BAIL_UNLESS(chex_launch_init(&launch, &err) == CHEX_OK, "%s", err.text);
    int mine = 42, all = 0;
    OK_STATUS(chex_launch_exchange(&launch, "card", &mine, sizeof mine, &all, 1, &err), CHEX_OK,
              err, NULL);
    OK(all == 42, "one rank gets its own bytes back");
    OK_STATUS(chex_launch_exchange(&launch, "empty", NULL, 0, NULL, 1, &err), CHEX_OK, err, NULL);
    chex_launch_finish(&launch);
    chex_launch_finish(&launch);
    OK(true, "finish may be called twice");
}

/* For the leak sanitizer: libpmix keeps a few bytes of a PMIx_Init that finds no server. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libpmix.so"; }

/* Finds the function as the dynamic linker does for a library such as libmpi.so. */
static int initialized_for(void *handle) {
    int (*ask)(void) = NULL;
    *(void **)&ask = dlsym(handle, "PMIx_Initialized");
    return ask ? ask() : -1;
}

static void check_pmix_shared(void) {
    pmix_proc_t me;
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD);
    clean();
    (void)PMIx_Init(&me, NULL, 0); /* without a server it fails and counts */
    OK(library && initialized_for(library) == 1, "PMIx is initialized in this process");
    OK(initialized_for(RTLD_DEFAULT) == 0,
       "a library that asks PMIx_Initialized hears no, so Open MPI 5 calls PMIx_Init");
    PMIx_Finalize(NULL, 0);
}

int main(void) {
    check_methods();
    check_nodes();
    check_exchange_alone();
    check_pmix_shared();
    return tap_done();
}
