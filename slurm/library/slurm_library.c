/* SPDX-License-Identifier: Apache-2.0
 *
 * The module chexnet-slurm.so: the only part that links libslurm.
 *
 * libslurm changes its interface and its file name (libslurm.so.38 is 22.05) with each release, and
 * its structs with it. So a module fits one release: another libslurm is not found by the loader,
 * or is refused by `open`.
 */
#include <dlfcn.h>
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <string.h>

#include "base/module.h"
#include "launch/slurm_info.h"

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(21, 8, 0)
#error "Slurm 21.08 or later is needed: configure with CHEX_WITH_SLURM=OFF"
#endif

CHEX_MODULE_VERSION_SYMBOL

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
#define JOB_ID step_id.job_id /* of job_desc_msg_t */
#else
#define JOB_ID job_id
#endif

/* Since 26.05 libslurm takes a record in place of the number of a job. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
static slurm_step_id_t as_job(uint32_t id) {
    slurm_step_id_t job = SLURM_STEP_ID_INITIALIZER;
    job.job_id = id;
    return job;
}
#else
static uint32_t as_job(uint32_t id) { return id; }
#endif

/* Plugins of Slurm, such as auth/munge, use symbols of libslurm without naming it. So its symbols
 * must be global. */
static void make_global(void) {
    Dl_info where;
    union { /* ISO C has no cast from a function pointer to void *, so a union converts it */
        long (*function)(void);
        void *address;
    } of = {slurm_api_version};
    if (dladdr(of.address, &where) && where.dli_fname)
        dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
}

static enum chex_status library_open(struct chex_error *err) {
    const long found = SLURM_VERSION_MAJOR(slurm_api_version());
    if (found != CHEX_SLURM_API)
        return chex_error_set(
            err, CHEX_E_ENV, "libslurm has interface %ld, chexnet was built for %d (Slurm %d.%02d)",
            found, CHEX_SLURM_API, SLURM_VERSION_MAJOR(SLURM_VERSION_NUMBER),
            SLURM_VERSION_MINOR(SLURM_VERSION_NUMBER));
    make_global();
    slurm_init(NULL);
    return CHEX_OK;
}

static enum chex_status refused(const char *what, struct chex_error *err) {
    return chex_error_set(err, CHEX_E_ENV, "libslurm: %s: %s", what, slurm_strerror(errno));
}

static enum chex_status copy(char *to, size_t size, const char *text, const char *what,
                             struct chex_error *err) {
    if (snprintf(to, size, "%s", text ? text : "") >= (int)size)
        return chex_error_set(err, CHEX_E_ENV, "libslurm: %s has more than %zu characters", what,
                              size - 1);
    return CHEX_OK;
}

static enum chex_status fill_job(const job_info_t *job, struct chex_slurm_job *out,
                                 struct chex_error *err) {
    const bool limited = job->time_limit != INFINITE && job->time_limit != NO_VAL;
    out->end_s = limited ? (int64_t)job->end_time : 0;
    out->restarts = job->restart_cnt;
    out->batch = job->batch_flag != 0;
    out->requeue = job->requeue != 0;
    CHEX_TRY(copy(out->nodes, sizeof out->nodes, job->nodes, "the node list", err));
    return copy(out->comment, sizeof out->comment, job->comment, "the comment", err);
}

static enum chex_status library_job(uint32_t id, struct chex_slurm_job *out,
                                    struct chex_error *err) {
    job_info_msg_t *found = NULL;
    out->id = id;
    if (slurm_load_job(&found, as_job(id), SHOW_DETAIL) != SLURM_SUCCESS)
        return refused("the job", err);
    const enum chex_status st =
        found->record_count
            ? fill_job(&found->job_array[0], out, err)
            : chex_error_set(err, CHEX_E_ENV, "libslurm: job %u is unknown", (unsigned)id);
    slurm_free_job_info_msg(found);
    return st;
}

static enum chex_status fill_node(const node_info_t *node, struct chex_slurm_node *out,
                                  struct chex_error *err) {
    const char *features = node->features_act ? node->features_act : node->features;
    CHEX_TRY(copy(out->features, sizeof out->features, features, "a list of features", err));
    CHEX_TRY(copy(out->gres, sizeof out->gres, node->gres, "a GRES list", err));
    return copy(out->reason, sizeof out->reason, node->reason, "a reason", err);
}

static enum chex_status library_node(const char *name, struct chex_slurm_node *out,
                                     struct chex_error *err) {
    node_info_msg_t *found = NULL;
    char copy_of_name[256]; /* the parameter is not const */
    CHEX_TRY(copy(copy_of_name, sizeof copy_of_name, name, "the node's name", err));
    if (slurm_load_node_single(&found, copy_of_name, SHOW_DETAIL) != SLURM_SUCCESS)
        return refused(name, err);
    const enum chex_status st =
        found->record_count ? fill_node(&found->node_array[0], out, err)
                            : chex_error_set(err, CHEX_E_ENV, "libslurm: node %s is unknown", name);
    slurm_free_node_info_msg(found);
    return st;
}

static enum chex_status library_set_comment(uint32_t id, const char *text, struct chex_error *err) {
    job_desc_msg_t update;
    char comment[sizeof((struct chex_slurm_job *)0)->comment];
    CHEX_TRY(copy(comment, sizeof comment, text, "the new comment", err));
    slurm_init_job_desc_msg(&update);
    update.JOB_ID = id;
    update.comment = comment;
    return slurm_update_job(&update) == SLURM_SUCCESS ? CHEX_OK : refused("the comment", err);
}

static enum chex_status library_requeue(uint32_t id, struct chex_error *err) {
    return slurm_requeue(as_job(id), 0) == SLURM_SUCCESS ? CHEX_OK : refused("requeue", err);
}

__attribute__((visibility("default"))) extern const struct chex_slurm_library chexnet_slurm;
const struct chex_slurm_library chexnet_slurm = {.open = library_open,
                                                 .job = library_job,
                                                 .node = library_node,
                                                 .set_comment = library_set_comment,
                                                 .requeue = library_requeue};
