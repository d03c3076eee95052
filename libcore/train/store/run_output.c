/* SPDX-License-Identifier: Apache-2.0
 *
 * The output folder of a run: checks and locks it before the set-up, and creates the files of the
 * run after it. Only rank 0 calls these functions, except chex_session_check_shared_output. With
 * plan_only they change nothing.
 *
 * An existing folder is locked at once. A new one is created and locked only when the run can
 * begin, so a run that fails in the set-up leaves no folder.
 */
#include "train/store/run_output.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/lockfile.h"
#include "base/log.h"
#include "train/store/save.h"

#define LOCK_NAME ".lock"

static enum chex_status lock_output(struct chex_session *s, struct chex_error *err) {
    static const char advice[] = "name a new folder with --output";
    const char *dir = s->config.output_dir;
    char subject[CHEX_ERROR_TEXT_BYTES];
    snprintf(subject, sizeof subject, "output folder %s", dir);
    if (!s->config.plan_only)
        return chex_lockfile_take(dir, LOCK_NAME, subject, advice, &s->output.lock, err);
    return chex_lockfile_check(dir, LOCK_NAME, subject, advice, err);
}

enum chex_status chex_session_check_output(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    CHEX_AUTO_FREE char *name = NULL;
    if (chex_fs_exists(c->output_dir) && !chex_fs_is_dir(c->output_dir))
        return chex_error_set(err, CHEX_E_USAGE, "--output %s is a file, expected a folder",
                              c->output_dir);
    CHEX_TRY(chex_fs_check_mkdirs(c->output_dir, err));
    if (chex_runfiles_is_foreign(c->output_dir, &name))
        return chex_error_set(
            err, CHEX_E_USAGE,
            "output folder %s holds no training run, but other files (%s): name a new or an empty "
            "folder with --output",
            c->output_dir, name ? name : "a file");
    if (strcmp(c->resume, "none") == 0 && chex_runfiles_has_run(c->output_dir))
        return chex_error_set(err, CHEX_E_USAGE,
                              "output folder %s already holds a run: go on with --resume auto, or "
                              "name a new folder with --output",
                              c->output_dir);
    if (c->timeline)
        CHEX_TRY(chex_timeline_check(c->timeline, err));
    if (c->metrics)
        CHEX_TRY(chex_fs_check_create(c->metrics, err));
    if (!chex_fs_is_dir(c->output_dir))
        return CHEX_OK;
    CHEX_TRY(lock_output(s, err));
    if (!c->plan_only) /* before check_space, because this frees space */
        chex_runfiles_sweep(c->output_dir);
    return CHEX_OK;
}

/* If the run resumes from an older checkpoint, sets the later ones aside. */
static enum chex_status settle_checkpoints(struct chex_session *s, struct chex_error *err) {
    struct chex_position *at = &s->at;
    if (!s->newest[0])
        return CHEX_OK;
    bool best;
    CHEX_TRY(chex_checkpoint_store_go_on_from(s->config.output_dir, s->newest, at->step,
                                              at->has_best ? at->best_step : 0, &best, err));
    if (at->has_best && !best)
        chex_info("%s/best.h5 is not there or is damaged: the next validation writes a new one",
                  s->config.output_dir);
    at->has_best = at->has_best && best;
    return CHEX_OK;
}

enum chex_status chex_session_repair_names(struct chex_session *s, struct chex_error *err) {
    const struct chex_position *at = &s->at;
    bool best;
    if (s->rank != 0 || strcmp(s->config.resume, "auto") != 0)
        return CHEX_OK;
    return chex_checkpoint_store_set_names(s->config.output_dir, s->newest, at->step,
                                           at->has_best ? at->best_step : 0, &best, err);
}

static enum chex_status allocate_snapshot(struct chex_session *s, struct chex_error *err) {
    struct chex_checkpoint *c = &s->output.snapshot;
    snprintf(c->model, sizeof c->model, "%s", s->net->model);
    c->classes = s->net->classes;
    c->class_names = s->input.train->class_names;
    c->image_size = s->config.image_size;
    const size_t groups = 1 + (size_t)s->input.selection->sources.count;
    s->output.aurocs = chex_alloc_zeroed(groups * (size_t)c->classes, sizeof *s->output.aurocs);
    return s->output.aurocs ? chex_session_alloc_state(s, c, err) : chex_error_memory(err, NULL);
}

static enum chex_status start_writer(struct chex_session *s, struct chex_error *err) {
    const struct chex_checkpoint_writer_config config = {.dir = s->config.output_dir,
                                                         .keep = s->audit ? 0 : s->config.save_keep,
                                                         .net = s->net,
                                                         .snapshot = &s->output.snapshot,
                                                         .log = s->output.checkpoint_log,
                                                         .trace = s->timeline.trace};
    CHEX_TRY(allocate_snapshot(s, err));
    return chex_checkpoint_writer_create(&config, &s->output.writer, err);
}

enum chex_status chex_session_make_output(struct chex_session *s, bool *made_out,
                                          struct chex_error *err) {
    const char *dir = s->config.output_dir;
    *made_out = !chex_fs_is_dir(dir);
    if (s->output.lock >= 0)
        return CHEX_OK;
    CHEX_TRY(lock_output(s, err));
    if (chex_runfiles_has_run(dir))
        return chex_error_set(err, CHEX_E_ENV,
                              "another run has begun and ended in output folder %s meanwhile: run "
                              "again to go on with it, or name a new folder with --output",
                              dir);
    return CHEX_OK;
}

enum chex_status chex_session_confirm_output(const struct chex_session *s, struct chex_error *err) {
    const char *dir = s->config.output_dir;
    char subject[CHEX_ERROR_TEXT_BYTES];
    snprintf(subject, sizeof subject, "output folder %s", dir);
    return chex_lockfile_confirm(dir, LOCK_NAME, subject, s->output.lock, err);
}

void chex_session_unmake_output(struct chex_session *s) {
    chex_lockfile_release(s->config.output_dir, LOCK_NAME, s->output.lock, true);
    s->output.lock = -1;
    rmdir(s->config.output_dir);
}

/* Adds the line of the checkpoint that the run goes on from, if the file lacks it. */
static enum chex_status open_checkpoint_log(struct chex_session *s, struct chex_error *err) {
    struct chex_run_output *o = &s->output;
    const char *dir = s->config.output_dir;
    CHEX_AUTO_FREE struct chex_checkpoint_line *lines = NULL;
    size_t count = 0;
    CHEX_TRY(chex_runfiles_open(dir, CHEX_CHECKPOINT_LOG, s->at.step, false, NULL,
                                &o->checkpoint_log, err));
    if (!o->resumed.step)
        return CHEX_OK;
    CHEX_TRY(chex_checkpoint_log_read(dir, &lines, &count, err));
    const struct chex_checkpoint_line *last = count ? &lines[count - 1] : NULL;
    if (last && last->step == o->resumed.step && strcmp(last->digest, o->resumed.digest) == 0)
        return CHEX_OK;
    chex_checkpoint_store_name(o->resumed.step, o->resumed.file);
    if (!chex_fs_exists(chex_path(dir, o->resumed.file).text))
        snprintf(o->resumed.file, sizeof o->resumed.file, "last.h5");
    return chex_checkpoint_log_add(o->checkpoint_log, dir, &o->resumed, err);
}

enum chex_status chex_session_create_output(struct chex_session *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    if (s->space.warning[0])
        chex_warn("%s", s->space.warning);
    if (c->timeline)
        CHEX_TRY(chex_fs_make_folder_of(c->timeline, err));
    if (c->metrics)
        CHEX_TRY(chex_fs_make_folder_of(c->metrics, err));
    CHEX_TRY(chex_runfiles_init(&s->files, c->output_dir, err));
    CHEX_TRY(settle_checkpoints(s, err));
    CHEX_TRY(chex_runfiles_json(&s->files, "config.json", json_incref(c->options), err));
    CHEX_TRY(open_checkpoint_log(s, err)); /* before the metrics: store/restore.c */
    CHEX_TRY(chex_runfiles_open_metrics(&s->files, s->at.step, s->at.validation_due, err));
    chex_request_files_start(&s->requests, c->output_dir);
    const uint64_t next = s->at.step + !s->at.validation_due; /* the next step with results */
    CHEX_TRY(chex_tfevents_create(c->output_dir, s->world.launch->host, (int64_t)next,
                                  &s->output.events, err));
    return start_writer(s, err);
}

enum chex_status chex_session_check_shared_output(const struct chex_session *s,
                                                  struct chex_error *err) {
    enum { TRIES = 50, PAUSE_MS = 100 };
    const char *dir = s->config.output_dir, *slash = strrchr(dir, '/');
    char lock[4096], parent[4096];
    if (s->rank == 0 || s->world.launch->local_rank != 0)
        return CHEX_OK;
    snprintf(lock, sizeof lock, "%s/" LOCK_NAME, dir);
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - dir) + 1 : 1, slash ? dir : ".");
    for (int i = 0; i < TRIES; i++) {
        DIR *again = opendir(parent);
        if (again)
            closedir(again);
        if (access(lock, F_OK) == 0)
            return CHEX_OK;
        if (chex_fs_is_local(dir))
            return chex_error_set(err, CHEX_E_ENV,
                                  "--output %s: node %s does not see the folder of rank 0, but a "
                                  "file system of its own: name a folder that all nodes share",
                                  dir, s->world.launch->host);
        chex_clock_sleep_ms(PAUSE_MS);
    }
    chex_warn(
        "--output %s: node %s does not see the folder of rank 0 so far; if that stays so, the "
        "run cannot be resumed on these nodes: name a folder that all nodes share",
        dir, s->world.launch->host);
    return CHEX_OK;
}

void chex_session_release_output(struct chex_session *s) {
    struct chex_run_output *o = &s->output;
    chex_checkpoint_writer_destroy(o->writer);
    chex_tfevents_close(o->events);
    chex_lockfile_release(s->config.output_dir, LOCK_NAME, o->lock, false);
    if (o->checkpoint_log)
        fclose(o->checkpoint_log);
    chex_session_free_state(&o->snapshot);
    free(o->aurocs);
}
