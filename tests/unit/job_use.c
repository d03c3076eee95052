/* SPDX-License-Identifier: Apache-2.0
 *
 * The line about a job: what was asked, what was used, and what to ask for.
 */
#include "train/watch/job_use.h"

#include "tap.h"

static const double now_s = 1000000;

static void set(const char *name, const char *value) { setenv(name, value, 1); }

static void test_reading(void) {
    struct chex_job_asked a;
    double elapsed_s;
    OK(!chex_job_asked_read(now_s, &a, &elapsed_s), "outside of a job there is no request");
    set("SLURM_JOB_ID", "7");
    OK(chex_job_asked_read(now_s, &a, &elapsed_s) && elapsed_s == 0 && !a.cores && !a.node_bytes &&
           !a.gpus && a.limit_s == 0,
       "what Slurm does not state is unknown");
    set("SLURM_NTASKS", "4");
    set("SLURM_CPUS_PER_TASK", "8");
    set("SLURM_MEM_PER_CPU", "2048");
    set("SLURM_CPUS_ON_NODE", "16");
    set("SLURM_JOB_START_TIME", "996400");
    set("SLURM_JOB_END_TIME", "1003600");
    set("SLURM_GPUS_ON_NODE", "2");
    set("SLURM_JOB_NUM_NODES", "2");
    OK(chex_job_asked_read(now_s, &a, &elapsed_s) && a.tasks == 4 && a.cores == 8,
       "tasks and cores are read");
    OK(a.node_bytes == (uint64_t)32 << 30, "memory per core counts for all cores of the node");
    OK(a.gpus == 4, "GPUs of a node count for all nodes");
    OK(elapsed_s == 3600 && a.limit_s == 7200, "the time limit is from start to end");
    set("SLURM_MEM_PER_NODE", "65536");
    set("SLURM_GPUS", "3");
    OK(chex_job_asked_read(now_s, &a, &elapsed_s) && a.node_bytes == (uint64_t)64 << 30 &&
           a.gpus == 3,
       "memory per node and GPUs of the job take precedence");
    set("SLURM_CPUS_PER_TASK", "eight");
    OK(chex_job_asked_read(now_s, &a, &elapsed_s) && !a.cores,
       "a value that is no number is unknown");
}

static void test_text(void) {
    struct chex_job_asked a = {4, 8, (uint64_t)64 << 30, 4, 7200};
    struct chex_job_used u = {3.1, (uint64_t)10 << 30, 2, 3600, true};
    char text[512];
    OK(strcmp(
           chex_job_use_text(&a, &u, text, sizeof text),
           "job: asked for 4 tasks, 8 cores a task, 64.0 GiB a node, 4 GPUs, 2h00m; used 3.1 cores "
           "a task, 10.0 GiB a node, 2 GPUs, 1h00m; next time ask for --cpus-per-task=4 --mem=13G "
           "--gpus=2 --time=1:16:00") == 0,
       "the line has what was asked, used and what to ask for");
    u.whole = false;
    u.cores = 7.6;
    u.gpus = 0;
    OK(strstr(chex_job_use_text(&a, &u, text, sizeof text), "ask for --mem=13G no GPU"),
       "a part of a run gives no advice about time; all cores in use give none about cores");
    a = (struct chex_job_asked){0};
    OK(strstr(chex_job_use_text(&a, &u, text, sizeof text),
              "asked for nothing that Slurm states; used 7.6 cores a task") &&
           strstr(text, "ask for the same"),
       "without a request there is no advice");
    char tiny[20];
    OK(strlen(chex_job_use_text(&a, &u, tiny, sizeof tiny)) == 19, "a long line is cut");
}

int main(void) {
    unsetenv("SLURM_JOB_ID");
    test_reading();
    test_text();
    return tap_done();
}
