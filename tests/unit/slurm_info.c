/* SPDX-License-Identifier: Apache-2.0
 *
 * What chexnet asks of Slurm, with a table in place of the module: counts of retries, the comment
 * of the job, and jobs that cannot be put back.
 */
#include "launch/slurm_info.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "dir.h"
#include "launch/slurm_step.h"
#include "tap.h"

static struct chex_slurm_job job;
static int requeued;
static bool refuses;

static enum chex_status get_job(uint32_t id, struct chex_slurm_job *out, struct chex_error *err) {
    (void)err;
    *out = job;
    out->id = id;
    return CHEX_OK;
}

static enum chex_status set_comment(uint32_t id, const char *text, struct chex_error *err) {
    (void)id, (void)err;
    snprintf(job.comment, sizeof job.comment, "%s", text);
    return CHEX_OK;
}

static enum chex_status requeue(uint32_t id, struct chex_error *err) {
    if (refuses)
        return chex_error_set(err, CHEX_E_ENV, "libslurm: requeue: refused");
    requeued = (int)id;
    return CHEX_OK;
}

static struct chex_error err;
static const struct chex_slurm_library lib = {
    .job = get_job, .set_comment = set_comment, .requeue = requeue};

static enum chex_status ask(bool batch, bool may, const char *comment, bool lost) {
    job = (struct chex_slurm_job){.batch = batch, .requeue = may};
    snprintf(job.comment, sizeof job.comment, "%s", comment);
    requeued = 0;
    err = (struct chex_error){0};
    return chex_slurm_requeue(&lib, lost, &err);
}

/* What is known of n1 and n2 if the program beside the modules is this script; it runs on n0. */
static const char *ended(const char *script) {
    static const char nodes[2][CHEX_HOST_BYTES] = {"n1", "n2"};
    static char text[64];
    const char *path = dir_path("chexnet-slurm-step");
    bool ended[2];
    FILE *f = script ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "#!/bin/sh\n%s\n", script);
        fclose(f);
        chmod(path, 0700);
    }
    const bool known = chex_slurm_step_ended("5", "1", "n0", nodes, 2, 2000, ended);
    snprintf(text, sizeof text, "%d %d%d", known, ended[0], ended[1]);
    unlink(path);
    return text;
}

static void test_ended(void) {
    dir_make();
    setenv("CHEX_LIBDIR", dir, 1);
    OK(strcmp(ended(NULL), "0 00") == 0, "without the program it is unknown who has ended");
    OK(strcmp(ended("[ \"$*\" = '5 1 n0,n1,n2' ] && printf 'n0 runs\\nn2 ended\\nn1 runs\\n'"),
              "1 01") == 0,
       "a node whose tasks have ended is found");
    OK(strcmp(ended("printf 'n0 runs\\nn12 ended\\n'"), "1 00") == 0,
       "a node without an answer of its own counts as running");
    OK(strcmp(ended("printf 'n0 ended\\nn1 ended\\n'"), "0 00") == 0,
       "an answer that this process has ended is not believed");
    const double start = chex_clock_s();
    OK(strcmp(ended("printf 'n0 runs\\nn1 ended\\n'; exec sleep 1000"), "1 10") == 0 &&
           chex_clock_s() - start < tap_wait_s(),
       "a program that hangs is stopped, and what it said counts");
    dir_remove();
}

/* The comment after `before`, with this use of the job. */
static const char *noted(const char *before, double images_per_s, double gpu_j, double node_j) {
    const struct chex_energy e = {.gpu_j = gpu_j, .node_j = node_j};
    snprintf(job.comment, sizeof job.comment, "%s", before);
    OK_CALL(chex_slurm_write_use(&lib, images_per_s, &e, &err));
    return job.comment;
}

int main(void) {
    test_ended();
    setenv("SLURM_JOB_ID", "17", 1);
    OK(strcmp(noted("", 12.34, 0, 0), "chexnet-images-per-s=12.3") == 0,
       "unknown energy is left out of the comment");
    OK(strcmp(noted("chexnet-images-per-s=1.0 chexnet-gpu-joules=7 chexnet-node-joules=8 of user "
                    "chexnet-retries=1",
                    12.34, 5e6, 0),
              "chexnet-images-per-s=12.3 chexnet-gpu-joules=5000000 of user chexnet-retries=1") ==
           0,
       "earlier values are replaced, and the rest of the comment stays: %s", job.comment);
    OK(strcmp(noted("chexnet-images-per-s=1.0chexnet-retries=2", 2, 0, 9),
              "chexnet-images-per-s=2.0 chexnet-node-joules=9 chexnet-retries=2") == 0,
       "a count directly after a number stays: %s", job.comment);

    OK(ask(true, true, "", true) == CHEX_OK && requeued == 17, "a batch job is put back");
    OK(strcmp(job.comment, "chexnet-retries=1") == 0, "lost ranks are counted from 1");
    ask(true, true, "of user chexnet-retries=2", true);
    OK(strcmp(job.comment, "of user chexnet-retries=3") == 0,
       "the text of the user stays before the count");
    OK(ask(true, true, "chexnet-retries=3", true) == CHEX_E_ENV && !requeued,
       "after three retries the job is not put back");
    OK(strstr(err.text, "after 3 retries"), "the text names the limit");
    OK(ask(true, true, "a chexnet-retries=3", false) == CHEX_OK && requeued == 17,
       "a save puts the job back whatever the count");
    OK(strcmp(job.comment, "a chexnet-retries=0") == 0, "a save sets the count to 0");
    ask(true, true, "of user", false);
    OK(strcmp(job.comment, "of user") == 0, "a save without a count leaves the comment alone");
    OK(ask(false, true, "", false) == CHEX_E_ENV && !requeued, "a job of srun is refused");
    OK(strstr(err.text, "only a job of sbatch"), "the text says which jobs can be put back");
    OK(ask(true, false, "", true) == CHEX_E_ENV && !requeued && !job.comment[0],
       "a job with --no-requeue is refused, and its comment stays");
    refuses = true;
    OK(ask(true, true, "", true) == CHEX_E_ENV, "a refusal of Slurm is returned");
    unsetenv("SLURM_JOB_ID");
    OK(ask(true, true, "", true) == CHEX_E_ENV && strstr(err.text, "not in a Slurm job"),
       "outside of a job the text says so");
    return tap_done();
}
