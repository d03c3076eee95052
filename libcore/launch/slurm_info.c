/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens chexnet-slurm.so without a risk for the run, and answers from the environment without it.
 */
#include "launch/slurm_info.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/module.h"
#include "base/text.h"
#include "base/units.h"

enum { TRIAL_S = 10 };

static enum chex_status job_id(uint32_t *id_out, struct chex_error *err) {
    const char *text = getenv("SLURM_JOB_ID");
    uint64_t id;
    if (!text || !chex_parse_u64(text, &id) || id == 0 || id > UINT32_MAX)
        return chex_error_set(err, CHEX_E_ENV, "not in a Slurm job: SLURM_JOB_ID is not set");
    *id_out = (uint32_t)id;
    return CHEX_OK;
}

/* In the child: exit handlers of libslurm's fatal() may print or hang. */
_Noreturn static void try_to_ask(const struct chex_slurm_library *lib) {
    struct chex_slurm_job job;
    struct chex_error ignored = {0};
    const int nowhere = open("/dev/null", O_RDWR);
    for (int fd = 0; nowhere >= 0 && fd <= 2; fd++)
        dup2(nowhere, fd);
    signal(SIGALRM, SIG_DFL);
    alarm(TRIAL_S);
    if (lib->open(&ignored) == CHEX_OK)
        (void)chex_slurm_this_job(lib, &job, &ignored);
    _exit(0);
}

/* libslurm's slurm_init ends the process if it finds no configuration, after up to a minute. A
 * request to a slurmctld that does not answer takes long too. Errors that are returned are no
 * concern here: the caller gets them again. */
static enum chex_status check_answers(const struct chex_slurm_library *lib,
                                      struct chex_error *err) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0)
        try_to_ask(lib);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return CHEX_OK;
    const char *conf = getenv("SLURM_CONF");
    return chex_error_set(err, CHEX_E_ENV,
                          "libslurm finds no configuration, or slurmctld does not answer "
                          "(SLURM_CONF=%s)",
                          conf ? conf : "");
}

enum chex_status chex_slurm_open(const struct chex_slurm_library **lib_out,
                                 struct chex_error *err) {
    uint32_t id;
    void *symbol;
    CHEX_TRY(job_id(&id, err));
    CHEX_TRY(chex_module_symbol("slurm", "chexnet_slurm", &symbol, err));
    const struct chex_slurm_library *lib = symbol;
    CHEX_TRY(check_answers(lib, err));
    CHEX_TRY(lib->open(err));
    *lib_out = lib;
    return CHEX_OK;
}

enum chex_status chex_slurm_this_job(const struct chex_slurm_library *lib,
                                     struct chex_slurm_job *out, struct chex_error *err) {
    uint32_t id;
    CHEX_TRY(job_id(&id, err));
    return lib->job(id, out, err);
}

/* Removes NAME=NUMBER with one blank after it. chexnet.sbatch may have put its count directly after
 * the number. */
static void remove_number(char *comment, const char *name) {
    char *own = strstr(comment, name);
    if (!own)
        return;
    const char *rest = own + strlen(name);
    rest += strspn(rest, "0123456789.");
    rest += *rest == ' ';
    memmove(own, rest, strlen(rest) + 1);
}

enum chex_status chex_slurm_write_use(const struct chex_slurm_library *lib, double images_per_s,
                                      const struct chex_energy *energy, struct chex_error *err) {
    const struct {
        const char *name;
        double value;
        int digits;
    } numbers[] = {{"chexnet-images-per-s=", images_per_s, 1},
                   {"chexnet-gpu-joules=", energy->gpu_j, 0},
                   {"chexnet-node-joules=", energy->node_j, 0}};
    struct chex_slurm_job job;
    char comment[sizeof job.comment + 128];
    struct chex_text_line line = {comment, sizeof comment, 0};
    CHEX_TRY(chex_slurm_this_job(lib, &job, err));
    for (size_t i = 0; i < CHEX_COUNT(numbers); i++) {
        remove_number(job.comment, numbers[i].name);
        if (numbers[i].value > 0)
            chex_text_append(&line, "%s%s%.*f", i ? " " : "", numbers[i].name, numbers[i].digits,
                             numbers[i].value);
    }
    chex_text_append(&line, "%s%s", job.comment[0] ? " " : "", job.comment);
    return lib->set_comment(job.id, comment, err);
}

/* ---- back into the queue ---- */

static const char retries_mark[] = "chexnet-retries=";

static enum chex_status check_requeue(const struct chex_slurm_job *job, struct chex_error *err) {
    if (!job->batch)
        return chex_error_set(err, CHEX_E_ENV,
                              "only a job of sbatch can be put back into the queue");
    if (!job->requeue)
        return chex_error_set(err, CHEX_E_ENV,
                              "the job may not be put back into the queue (--no-requeue, or "
                              "JobRequeue=0 in slurm.conf)");
    return CHEX_OK;
}

enum chex_status chex_slurm_can_requeue(const struct chex_slurm_library *lib,
                                        struct chex_error *err) {
    struct chex_slurm_job job;
    CHEX_TRY(chex_slurm_this_job(lib, &job, err));
    return check_requeue(&job, err);
}

/* Writes the count to the end of the comment. */
static enum chex_status write_retries(const struct chex_slurm_library *lib,
                                      struct chex_slurm_job *job, unsigned count,
                                      struct chex_error *err) {
    char comment[sizeof job->comment + 64];
    char *own = strstr(job->comment, retries_mark);
    if (!own && count == 0)
        return CHEX_OK;
    if (own)
        *own = '\0';
    snprintf(comment, sizeof comment, "%s%s%u", job->comment, retries_mark, count);
    return lib->set_comment(job->id, comment, err);
}

/* The count comes first: a job that is not put back has a count too high by one, and not a loop. */
enum chex_status chex_slurm_requeue(const struct chex_slurm_library *lib, bool lost,
                                    struct chex_error *err) {
    struct chex_slurm_job job;
    CHEX_TRY(chex_slurm_this_job(lib, &job, err));
    CHEX_TRY(check_requeue(&job, err));
    const char *own = strstr(job.comment, retries_mark);
    const unsigned long count = own ? strtoul(own + sizeof retries_mark - 1, NULL, 10) : 0;
    if (lost && count >= CHEX_SLURM_RETRIES)
        return chex_error_set(err, CHEX_E_ENV,
                              "ranks were lost again after %d retries (%s%lu in the job's comment)",
                              CHEX_SLURM_RETRIES, retries_mark, count);
    CHEX_TRY(write_retries(lib, &job, lost ? (unsigned)count + 1 : 0, err));
    return lib->requeue(job.id, err);
}

struct chex_job_end chex_slurm_job_end(const struct chex_slurm_library *lib) {
    const char *text = getenv("SLURM_JOB_END_TIME");
    struct chex_slurm_job job;
    struct chex_error ignored = {0};
    struct chex_job_end end = {0};
    if (lib && chex_slurm_this_job(lib, &job, &ignored) == CHEX_OK)
        return (struct chex_job_end){.end_s = job.end_s, .from = "libslurm"};
    if (text && chex_parse_i64(text, &end.end_s) && end.end_s > 0)
        end.from = "SLURM_JOB_END_TIME";
    else
        end.end_s = 0;
    return end;
}
