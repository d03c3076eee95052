/* SPDX-License-Identifier: Apache-2.0
 *
 * --plan. Each rank fills a report after the set-up; rank 0 gathers the reports and builds one JSON
 * object ("the plan") from them and from its own session. Each *_json function makes one part of
 * the object.
 */
#include "plan/plan.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "base/result.h"
#include "base/text.h"
#include "base/units.h"
#include "bench/roofline.h"
#include "plan/machines.h"
#include "shard/manifest.h"
#include "train/layer_rates.h"
#include "train/loop.h"
#include "train/loss_setup.h"
#include "train/memory_budget.h"
#include "train/store/ranks_file.h"
#include "train/watch/pass_audit.h"

/* Every rank sends this to rank 0, as raw bytes. */
struct report {
    struct chex_train_needs needs;
    uint64_t allowed, free; /* bytes of host memory */
    uint64_t train_first, train_end, val_first, val_end, val_read;
    double pass_s, flop_per_s, bytes_per_s; /* least time of a pass at the limits; 0: unknown */
    int32_t largest_batch;                  /* -1: unknown */
    int32_t passes;                         /* passes per step, one after another */
    int32_t cores, engine_threads, input_threads;
    /* Set by the first rank of each node only. */
    char memory_warning[sizeof((struct chex_session *)0)->memory_warning];
};

struct plan {
    struct chex_session *s;
    const struct report *reports;        /* (size) */
    const struct chex_machines *cluster; /* NULL: without --machines */
    json_t *warnings;
};

static void warn(struct plan *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void warn(struct plan *p, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    json_array_append_new(p->warnings, json_string(text));
}

/* ---- the report of each rank ---- */

/* Measures the limits of the machine, on all ranks at once, and computes the least time that one
 * pass needs at these limits. */
static enum chex_status measure_pass(struct chex_session *s, struct report *report,
                                     struct chex_error *err) {
    const struct chex_engine_impl *impl = s->engine->impl;
    const int ops = s->net->op_count;
    struct chex_roofline r = {.net = s->net,
                              .image_size = s->config.image_size,
                              .batch = s->config.batch,
                              .precision = s->config.precision,
                              .training = true};
    if (!impl->capacity ||
        s->needs.on_device) /* a GPU's limits do not predict its matrix products */
        return CHEX_OK;
    if (s->rank == 0 && s->config.threads > s->world.binding->cpu_count)
        chex_warn("--threads %d: more than the %d core%s of this rank", s->config.threads,
                  s->world.binding->cpu_count, chex_text_s((size_t)s->world.binding->cpu_count));
    CHEX_TRY(impl->capacity->limits(s->engine->self, report->free / 2, &r.limits, err));
    CHEX_AUTO_FREE struct chex_layer *layers = chex_alloc_zeroed((size_t)ops + 1, sizeof *layers);
    CHEX_AUTO_FREE double *share =
        impl->timing ? chex_alloc_zeroed((size_t)ops, sizeof *share) : NULL;
    if (share)
        impl->timing->product_shares(s->engine->self, share);
    r.share = share;
    CHEX_TRY(layers ? chex_roofline_layers(&r, layers, err) : chex_error_memory(err, NULL));
    report->pass_s = layers[ops].forward.min_s + layers[ops].backward.min_s;
    report->flop_per_s = r.limits.flop_per_s;
    report->bytes_per_s = r.limits.bytes_per_s;
    return CHEX_OK;
}

static enum chex_status fill_report(struct chex_session *s, struct report *c,
                                    struct chex_error *err) {
    const struct chex_train_input *in = &s->input;
    const struct chex_train_needs *n = &s->needs;
    const uint64_t px = (uint64_t)in->train->size;
    size_t first, end;
    memset(c, 0, sizeof *c); /* padding too: the struct is sent as bytes */
    chex_pipeline_rows(s->config.pipeline, &in->order, in->run_from, in->run_to, &first, &end);
    c->needs = *n;
    c->allowed = chex_train_allowed_bytes(s->world.launch);
    c->free = chex_train_free_bytes(s->world.launch);
    c->train_first = first;
    c->train_end = end;
    c->val_first = in->val_first;
    c->val_end = in->val_end;
    c->val_read = (in->val_end - in->val_first) * px * px;
    c->passes = (s->input.run_to - s->input.run_from) / chex_sync_bn_engines(s->sync_bn);
    c->cores = s->world.binding->cpu_count;
    c->engine_threads = s->config.threads;
    c->input_threads = chex_train_input_threads(in);
    if (s->world.launch->local_rank == 0)
        memcpy(c->memory_warning, s->memory_warning, sizeof c->memory_warning);
    const uint64_t limit = c->allowed && c->allowed < c->free ? c->allowed : c->free;
    c->largest_batch =
        limit ? chex_session_largest_batch(s, limit, n->device + n->device_left) : -1;
    return measure_pass(s, c, err);
}

/* ---- the parts of the object ---- */

static uint64_t file_bytes(const char *dir, const char *file) {
    struct stat info;
    return stat(chex_path(dir, file).text, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static json_t *splits_json(const char *dir, const struct chex_manifest *m) {
    json_t *splits = json_array();
    for (int k = 0; k < CHEX_SPLIT_COUNT; k++) {
        const struct chex_manifest_split *split = &m->splits[k];
        uint64_t bytes = 0;
        for (size_t i = 0; i < split->shard_count; i++)
            bytes += file_bytes(dir, split->shards[i].file);
        if (split->shard_count)
            json_array_append_new(splits, chex_result(CHEX_FIELD("name", chex_split_names[k]),
                                                      CHEX_MEMBER(split, rows),
                                                      CHEX_MEMBER(split, patients),
                                                      CHEX_FIELD("shards", split->shard_count),
                                                      CHEX_FIELD("bytes", bytes)));
    }
    return splits;
}

/* Each set with its splits and the images that are chosen of it. */
static json_t *sets_json(const struct chex_selection *data) {
    json_t *sets = json_array();
    for (int i = 0; i < data->sources.count; i++) {
        const struct chex_selection_source *source = &data->source[i];
        const struct chex_source *set = &data->sources.set[i];
        json_array_append_new(
            sets, chex_result(CHEX_MEMBER(set, name), CHEX_FIELD("folder", set->dir),
                              CHEX_FIELD("source_digest", source->manifest->source_digest),
                              CHEX_FIELD("train_images", source->kept[CHEX_PART_TRAIN]),
                              CHEX_FIELD("uses_an_epoch", source->uses[CHEX_PART_TRAIN]),
                              CHEX_FIELD("val_images", source->kept[CHEX_PART_VAL]),
                              CHEX_FIELD("splits", splits_json(set->dir, source->manifest))));
    }
    return sets;
}

static json_t *data_json(const struct chex_session *s) {
    const struct chex_selection *data = s->input.selection;
    const struct chex_manifest *m = data->source[0].manifest;
    char fold[32];
    snprintf(fold, sizeof fold, "%d of %d", data->fold.number, data->fold.folds);
    return chex_result(
        CHEX_FIELD("folder", s->config.data_dir),
        CHEX_FIELD("trained_on", chex_splits_name(data->source[0].splits[CHEX_PART_TRAIN])),
        CHEX_FIELD("stored_px", data->size), CHEX_MEMBER(m, resize),
        CHEX_MEMBER(data, source_digest),
        CHEX_FIELD("classes", chex_result_texts(data->class_names, (size_t)data->classes)),
        CHEX_FIELD("splits", splits_json(data->sources.set[0].dir, m)),
        CHEX_FIELD("train_images", chex_selection_images(data, CHEX_PART_TRAIN)),
        CHEX_FIELD("val_images", data->rows[CHEX_PART_VAL]), CHEX_FIELD("where", s->config.where),
        CHEX_FIELD("fold", data->fold.folds ? (const char *)fold : NULL),
        CHEX_FIELD("uncertain", s->config.uncertain), CHEX_FIELD("sets", sets_json(data)),
        CHEX_FIELD("stage", s->config.stage));
}

static json_t *memory_json(const struct report *c) {
    const struct chex_train_needs *n = &c->needs;
    return chex_result(
        CHEX_FIELD("program_bytes", n->program), CHEX_FIELD("parameters_bytes", n->params),
        CHEX_FIELD("optimizer_bytes", n->moments), CHEX_FIELD("work_bytes", n->work),
        CHEX_FIELD("gradients_bytes", n->gradients), CHEX_FIELD("input_ring_bytes", n->ring),
        CHEX_FIELD("kept_rows_bytes", n->rows), CHEX_FIELD("snapshot_bytes", n->snapshot),
        CHEX_FIELD("host_bytes", n->host),
        CHEX_FIELD("engine_in", n->on_device ? "device" : "host"),
        CHEX_FIELD_IF(c->allowed, "host_allowed_bytes", c->allowed),
        CHEX_FIELD_IF(c->free, "host_free_bytes", c->free),
        CHEX_FIELD_IF(n->on_device, "device_bytes", n->device),
        CHEX_FIELD_IF(n->on_device, "device_left_bytes", n->device_left));
}

static json_t *range_json(uint64_t first, uint64_t end) {
    return json_pack("[I,I]", (json_int_t)first, (json_int_t)end);
}

/* The records of ranks.json, plus rows, reads and memory of each rank. */
static enum chex_status ranks_json(struct chex_session *s, const struct report *reports,
                                   json_t **out, struct chex_error *err) {
    json_t *ranks = NULL;
    CHEX_TRY(chex_session_gather_ranks(s, &ranks, err));
    for (int r = 0; ranks && r < s->size; r++) {
        const struct report *c = &reports[r];
        json_object_update_new(
            json_array_get(ranks, (size_t)r),
            chex_result(CHEX_FIELD("train_rows", range_json(c->train_first, c->train_end)),
                        CHEX_FIELD("val_rows", range_json(c->val_first, c->val_end)),
                        CHEX_FIELD("first_epoch_read_bytes", c->needs.first_read + c->val_read),
                        CHEX_FIELD("later_epoch_read_bytes", c->needs.later_read + c->val_read),
                        CHEX_FIELD("least_pass_ns", (int64_t)(c->pass_s * 1e9)),
                        CHEX_FIELD("memory", memory_json(c))));
    }
    *out = ranks;
    return CHEX_OK;
}

static json_t *steps_json(const struct chex_session *s) {
    const uint64_t all = chex_session_all_steps(s), done = s->at.step < all ? s->at.step : all;
    const size_t step = (size_t)s->config.batch * (size_t)s->config.logical_ranks;
    return chex_result(CHEX_FIELD("batch_images", s->config.batch),
                       CHEX_MEMBER(&s->config, logical_ranks), CHEX_FIELD("step_images", step),
                       CHEX_FIELD("steps_an_epoch", s->steps),
                       CHEX_FIELD("rows_left_out_an_epoch", s->input.train->rows - s->steps * step),
                       CHEX_FIELD("steps_in_all", all), CHEX_FIELD("steps_done", done),
                       CHEX_FIELD("steps_to_do", all - done), CHEX_MEMBER(&s->at, validation_due));
}

static json_t *order_json(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    const struct chex_train_input *in = &s->input;
    return chex_result(
        CHEX_FIELD("order", chex_order_names[c->order]),
        CHEX_FIELD("pipeline", chex_pipeline_names[c->pipeline]),
        CHEX_FIELD("shuffle_rows", chex_pipeline_width(c->pipeline, &in->order)),
        CHEX_MEMBER(c, shuffle_block),
        CHEX_FIELD("cache", in->resident.resident && !in->cache.keep ? "" : in->cache.why),
        CHEX_FIELD("resident", in->resident.why));
}

/* part "options": the text of an option; part "origins": where it came from. As in config.json. */
static const char *option(const struct chex_session *s, const char *part, const char *name) {
    const char *v =
        json_string_value(json_object_get(json_object_get(s->config.options, part), name));
    return v ? v : "";
}

static void why_engine(const struct chex_session *s, char *text, size_t size) {
    const char *asked = option(s, "options", "engine");
    const bool automatic = strcmp(asked, "auto") == 0, named = strchr(s->config.engine, ':');
    if (s->config.features)
        snprintf(text, size, "the classifier alone");
    else if (automatic)
        snprintf(text, size, "--engine auto, and %s; the variant is the best here",
                 s->world.gpu->allotted ? "a GPU was allotted"
                                        : "no GPU was allotted or asked for");
    else
        snprintf(text, size, "--engine %s (%s)%s", asked, option(s, "origins", "engine"),
                 named ? "" : "; the variant is the best here");
}

static json_t *engine_json(const struct chex_session *s, const struct report *c) {
    char why[160];
    why_engine(s, why, sizeof why);
    const bool usual = strcmp(option(s, "origins", "precision"), "default") == 0;
    return chex_result(
        CHEX_FIELD("name", s->engine_name), CHEX_FIELD("variant", s->engine_variant),
        CHEX_FIELD("why", why), CHEX_FIELD("precision", chex_precision_names[s->config.precision]),
        CHEX_FIELD("precision_why", usual ? "the default of this engine on this machine"
                                          : option(s, "origins", "precision")),
        CHEX_FIELD("threads", c->engine_threads), CHEX_MEMBER(c, input_threads),
        CHEX_FIELD("engines", chex_sync_bn_engines(s->sync_bn)), CHEX_MEMBER(c, cores));
}

static json_t *schedule_json(const struct chex_session *s) {
    const struct chex_schedule *sched = &s->config.schedule;
    const uint64_t all = chex_session_all_steps(s), last = all ? all - 1 : 0, per = s->steps;
    return chex_result(
        CHEX_FIELD("optimizer", chex_optim_names[s->config.update.optim]),
        CHEX_FIELD("schedule", chex_sched_names[sched->kind]), CHEX_MEMBER(sched, lr),
        CHEX_FIELD("next_step_lr",
                   chex_schedule_lr(sched, s->at.step / per, s->at.step % per, per)),
        CHEX_FIELD("last_step_lr", chex_schedule_lr(sched, last / per, last % per, per)),
        CHEX_MEMBER(sched, min_lr),
        CHEX_FIELD("warmup_steps", (int64_t)(sched->warmup_epochs * (double)per + 0.5)));
}

/* Which loss trains which parameters. */
static json_t *training_json(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    char loss[512], rates[160] = "";
    chex_loss_weights_text(&s->loss, chex_set_class_names(s->input.train), s->net->classes, loss,
                           sizeof loss);
    if (s->lr_scales)
        chex_layer_rates_text(s->net, s->lr_scales, rates, sizeof rates);
    return chex_result(CHEX_FIELD("loss", loss[0] ? loss : "bce loss"),
                       CHEX_FIELD_IF(c->update.clip_norm > 0, "clip_norm", c->update.clip_norm),
                       CHEX_FIELD_IF(c->ema_decay > 0, "ema_decay", c->ema_decay),
                       CHEX_FIELD("rates", rates[0] ? rates : NULL), CHEX_MEMBER(c, head_only));
}

static json_t *start_json(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    const char *file = s->newest[0] ? s->newest : c->init;
    return chex_result(CHEX_FIELD("from", s->newest[0] ? "checkpoint"
                                          : c->init    ? "init"
                                                       : "seed"),
                       CHEX_FIELD("file", file), CHEX_FIELD("epoch", s->at.epoch + 1),
                       CHEX_FIELD("steps_done", s->at.step), CHEX_MEMBER(s, complete));
}

static json_t *checkpoints_json(const struct chex_session *s) {
    const struct chex_checkpoint_space *space = &s->space;
    const bool all = s->config.save_keep == 0;
    return chex_result(CHEX_FIELD("folder", s->config.output_dir), CHEX_MEMBER(space, file_bytes),
                       CHEX_FIELD("keep", s->config.save_keep),
                       CHEX_FIELD("every", option(s, "options", "checkpoint-every")),
                       CHEX_FIELD_IF(!all, "more_bytes", (uint64_t)space->more * space->file_bytes),
                       CHEX_MEMBER(space, free_bytes));
}

static json_t *gradients_json(const struct chex_session *s) {
    struct chex_reduce_facts f;
    chex_reduce_facts(s->reduce, &f);
    const bool alone = s->size == 1;
    return chex_result(CHEX_FIELD("way", alone                      ? "none: one process"
                                         : !s->config.deterministic ? "all-reduce"
                                         : f.summed_bytes ? "all-reduce along the fixed tree"
                                                          : "fixed tree, then broadcast"),
                       CHEX_FIELD_IF(!alone, "carrier", f.carrier),
                       CHEX_FIELD("bytes", chex_session_gradients(s) * sizeof(float)),
                       CHEX_MEMBER(&f, buckets), CHEX_MEMBER(&f, bucket_bytes),
                       CHEX_FIELD("step_summed_bytes", f.summed_bytes),
                       CHEX_FIELD("step_sent_bytes", f.sent_bytes),
                       CHEX_FIELD("step_received_bytes", f.received_bytes),
                       CHEX_FIELD("step_broadcast_bytes", f.broadcast_bytes));
}

static json_t *network_json(const struct chex_session *s) {
    const bool images = !s->config.features;
    return chex_result(CHEX_MEMBER(s->net, model), CHEX_MEMBER(s->net, classes),
                       CHEX_FIELD("parameters", s->net->param_count),
                       CHEX_FIELD_IF(images, "image_px", s->config.image_size),
                       CHEX_FIELD_IF(images, "image_gflop",
                                     6 * chex_net_macs(s->net, s->config.image_size) / 1e9));
}

/* ---- time ---- */

/* The last line of kind "epoch" in DIR/metrics.jsonl. NULL: none. */
static json_t *last_epoch(const char *dir) {
    static const char epoch[] = "\"kind\":\"epoch\"";
    json_t *last = NULL, *o;
    size_t size = 0;
    CHEX_AUTO_FREE char *data = NULL;
    if (chex_runfiles_read(dir, "metrics.jsonl", &data, &size, NULL) != CHEX_OK || !data)
        return NULL;
    for (char *line = data, *end; (end = memchr(line, '\n', (size_t)(data + size - line)));
         line = end + 1) {
        const size_t bytes = (size_t)(end - line);
        if (!memmem(line, bytes, epoch, strlen(epoch)) || !(o = json_loadb(line, bytes, 0, NULL)))
            continue;
        json_decref(last);
        last = o;
    }
    return last;
}

/* The number of ranks of the last run in DIR, from ranks.json; 0: unknown. */
static int ranks_before(const char *dir) {
    json_auto_t *o = NULL;
    return chex_runfiles_read_json(dir, "ranks.json", &o, NULL) == CHEX_OK
               ? (int)json_array_size(json_object_get(o, "ranks"))
               : 0;
}

static double min_step_s(const struct plan *p) {
    double slowest = 0;
    for (int r = 0; r < p->s->size; r++) {
        const struct report *c = &p->reports[r];
        if (c->pass_s <= 0)
            return 0;
        slowest = fmax(slowest, c->passes * c->pass_s);
    }
    return slowest;
}

static json_t *seconds_json(const struct chex_session *s, double step_s, const char *from) {
    const uint64_t all = chex_session_all_steps(s), to_do = all > s->at.step ? all - s->at.step : 0;
    return chex_result(
        CHEX_FIELD("step_s", step_s), CHEX_FIELD("epoch_s", step_s * (double)s->steps),
        CHEX_FIELD("run_s", step_s * (double)to_do),
        CHEX_FIELD("images_per_s", (double)s->config.batch * s->config.logical_ranks / step_s),
        CHEX_FIELD("from", from));
}

/* "at_least" comes from the machine's limits, "measured" from the run's last epoch. Both leave out
 * validation and checkpoints. */
static json_t *time_json(const struct plan *p, double *min_run_s_out) {
    struct chex_session *s = p->s;
    char from[256];
    json_t *o = json_pack("{s:n,s:n}", "at_least", "measured");
    const double step_s = min_step_s(p);
    if (step_s > 0) {
        snprintf(from, sizeof from,
                 "the machine's limits, just measured on rank 0: %.1f GFLOP/s and %.1f GB/s, which "
                 "no engine reaches throughout; without input, reduction and update",
                 p->reports[0].flop_per_s / 1e9, p->reports[0].bytes_per_s / 1e9);
        json_object_set_new(o, "at_least", seconds_json(s, step_s, from));
    }
    json_auto_t *epoch = s->at.step ? last_epoch(s->config.output_dir) : NULL;
    const double rate = json_number_value(json_object_get(epoch, "images_per_s"));
    const int ranks = ranks_before(s->config.output_dir);
    if (rate > 0 && ranks == s->size) {
        snprintf(from, sizeof from, "epoch %lld of this run, on as many ranks",
                 (long long)json_integer_value(json_object_get(epoch, "epoch")));
        json_object_set_new(
            o, "measured",
            seconds_json(s, (double)s->config.batch * s->config.logical_ranks / rate, from));
    }
    const json_t *best =
        json_object_get(o, json_is_null(json_object_get(o, "measured")) ? "at_least" : "measured");
    *min_run_s_out = json_number_value(json_object_get(best, "run_s"));
    return o;
}

/* What a step of this run does on any number of processes. */
static struct chex_machines_work cluster_work(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    struct chex_reduce_facts f;
    struct chex_machines_work w = {.gradient_bytes = s->net->state_count * sizeof(float),
                                   .batch_images = c->batch,
                                   .rows = s->input.train->rows,
                                   .process_passes = c->accumulate ? c->accumulate : 1,
                                   .audit_steps = c->audit_steps};
    chex_reduce_facts(s->reduce, &f);
    w.bucket_bytes = f.bucket_bytes;
    /* By default, and with --accumulate, more processes have more logical ranks. */
    if (!c->accumulate && (c->logical_ranks != s->size || s->at.step))
        w.logical_ranks = c->logical_ranks;
    if (c->sync_bn)
        chex_sync_bn_sums(s->net, &w.sync_sums, &w.sync_bytes);
    return w;
}

static json_t *cluster_row_json(const struct chex_machines_row *r) {
    return chex_result(CHEX_MEMBER(r, processes), CHEX_MEMBER(r, nodes), CHEX_MEMBER(r, passes),
                       CHEX_MEMBER(r, step_s), CHEX_MEMBER(r, wait_s), CHEX_MEMBER(r, exposed_s),
                       CHEX_MEMBER(r, sync_s), CHEX_MEMBER(r, audit_s),
                       CHEX_MEMBER(r, images_per_s), CHEX_MEMBER(r, efficiency),
                       CHEX_MEMBER(r, epoch_s));
}

/* --machines: a line for each number of processes. */
static json_t *cluster_json(struct plan *p) {
    const struct chex_session *s = p->s;
    struct chex_machines c = *p->cluster;
    const struct chex_machines_work work = cluster_work(s);
    const int V = work.logical_ranks;
    int counts[CHEX_MACHINES_COUNTS];
    json_t *rows = json_array();
    chex_machines_fit(&c, &work);
    const int n = chex_machines_counts(&c, counts);
    for (int i = 0; i < n && (!V || counts[i] <= V); i++) {
        struct chex_machines_row r;
        chex_machines_predict(&c, &work, counts[i], &r);
        json_array_append_new(rows, cluster_row_json(&r));
    }
    if (c.batch_images && c.batch_images != s->config.batch)
        warn(p, "--machines %s was measured with batches of %d images, and --batch-size is %d",
             s->config.cluster, c.batch_images, s->config.batch);
    if (V && V < counts[n - 1])
        warn(p, "the run has %d logical ranks, so it uses at most %d of the cluster's %d processes",
             V, V, counts[n - 1]);
    return chex_result(CHEX_FIELD("file", s->config.cluster), CHEX_MEMBER(&c, nodes),
                       CHEX_FIELD("processes_a_node", c.node_processes),
                       CHEX_MEMBER(&c, images_per_s), CHEX_MEMBER(&c, wait_s),
                       CHEX_FIELD_IF(V, "logical_ranks", V),
                       CHEX_FIELD_IF(work.sync_sums, "sync_sums", work.sync_sums),
                       CHEX_FIELD("predictions", rows));
}

/* ---- warnings ---- */

static void warn_of_rows(struct plan *p) {
    const struct chex_session *s = p->s;
    const size_t rows = s->input.train->rows,
                 used = s->steps * (size_t)s->config.batch * (size_t)s->config.logical_ranks;
    if ((rows - used) * 50 > rows)
        warn(p,
             "%zu of %zu training images (%.1f %%) are left out of each epoch, others each time: "
             "whole batches of %d x %d logical ranks do not fit; a smaller --batch-size leaves out "
             "fewer",
             rows - used, rows, 100.0 * (double)(rows - used) / (double)rows, s->config.batch,
             s->config.logical_ranks);
    if (s->config.logical_ranks % s->size)
        warn(p,
             "%d logical ranks on %d ranks: some ranks have %d, others have %d and wait; choose a "
             "multiple of %d",
             s->config.logical_ranks, s->size, s->config.logical_ranks / s->size + 1,
             s->config.logical_ranks / s->size, s->size);
    if (s->config.pipeline == CHEX_PIPELINE_OLD && s->size > 1)
        warn(p, "--pipeline old reads and augments all images on each of the %d ranks", s->size);
}

static void warn_of_labels(struct plan *p) {
    const struct chex_label_gaps *gaps = &p->s->gaps;
    const char *const texts[] = {p->s->input.overlap, gaps->train, gaps->val,
                                 gaps->no_auroc ? CHEX_NO_AUROC : ""};
    for (size_t i = 0; i < CHEX_COUNT(texts); i++)
        if (texts[i][0])
            warn(p, "%s", texts[i]);
}

static void warn_of_schedule(struct plan *p) {
    const struct chex_session *s = p->s;
    const struct chex_schedule *sched = &s->config.schedule;
    if (!s->input.val)
        warn(p, "%s has no validation images: best.h5 is chosen by the training loss%s",
             s->config.data_dir,
             sched->kind == CHEX_SCHED_PLATEAU
                 ? ", and so does --sched plateau, which may lower the rate late or never"
                 : "");
    if (sched->warmup_epochs * (double)s->steps > (double)chex_session_all_steps(s))
        warn(p, "--warmup-epochs %g is longer than the run: the rate never reaches %g",
             sched->warmup_epochs, sched->lr);
    if (s->config.max_steps && s->config.max_steps < s->steps)
        warn(p, "--max-steps %llu ends within the first epoch of %zu step%s",
             (unsigned long long)s->config.max_steps, s->steps, chex_text_s(s->steps));
    if (s->config.batch < 8 && !s->sync_bn && !s->config.head_only)
        warn(p,
             "--batch-size %d: batch norms take their statistics of %d image%s, for each logical "
             "rank by itself; 8 or more are usual, or --sync-bn",
             s->config.batch, s->config.batch, s->config.batch > 1 ? "s" : "");
}

static void warn_of_machine(struct plan *p) {
    const struct chex_session *s = p->s;
    int crowded = 0, first = -1;
    for (int r = 0; r < s->size; r++) {
        const struct report *c = &p->reports[r];
        const int busy = c->input_threads + (c->needs.on_device ? 1 : c->engine_threads);
        /* One input thread in addition to the engine's threads is normal. */
        if (busy <= c->cores + 1 && c->input_threads <= c->cores && c->engine_threads <= c->cores)
            continue;
        first = crowded++ ? first : r;
    }
    if (crowded)
        warn(p, "rank %d%s: %d compute and %d input threads (--threads, --workers) share %d core%s",
             first, crowded > 1 ? " and others" : "", p->reports[first].engine_threads,
             p->reports[first].input_threads, p->reports[first].cores,
             p->reports[first].cores > 1 ? "s" : "");
    for (int r = 0; r < s->size; r++)
        if (p->reports[r].memory_warning[0])
            warn(p, "%s", p->reports[r].memory_warning);
    if (s->space.warning[0])
        warn(p, "%s", s->space.warning);
    if (!s->config.stall_abort_ms && s->size > 1)
        warn(p, "--stall-abort 0s: a rank that hangs holds the allocation until its time is up");
}

static void warn_of_time(struct plan *p, double run_s) {
    const struct chex_job_end end = chex_slurm_job_end(p->s->world.slurm);
    char left[32], need[32];
    if (!end.end_s || run_s <= 0)
        return;
    const double left_s = (double)end.end_s - (double)time(NULL);
    if (run_s > left_s)
        warn(p,
             "the job has %s left and the run takes at least %s: the job ends first. Start the run "
             "again to resume from its newest checkpoint",
             chex_format_duration(left, sizeof left, left_s > 0 ? left_s : 0),
             chex_format_duration(need, sizeof need, run_s));
}

/* ---- the whole ---- */

static int smallest_batch(const struct plan *p) {
    int smallest = p->reports[0].largest_batch;
    for (int r = 1; r < p->s->size; r++)
        smallest = p->reports[r].largest_batch < smallest ? p->reports[r].largest_batch : smallest;
    return smallest;
}

static json_t *memory_of_all(const struct plan *p) {
    const struct chex_memory_limit limit = chex_memory_limit("");
    const int batch = smallest_batch(p);
    return chex_result(CHEX_FIELD("rank_0", memory_json(&p->reports[0])),
                       CHEX_FIELD_IF(limit.bytes, "node_allowed_bytes", limit.bytes),
                       CHEX_FIELD("node_allowed_by", limit.from),
                       CHEX_FIELD_IF(batch >= 0, "largest_batch", batch));
}

static json_t *head(const struct chex_session *s, const char *action) {
    const json_t *c = s->config.options;
    return chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("command", "chex-train"),
                       CHEX_FIELD("version", CHEXNET_VERSION), CHEX_FIELD("action", action),
                       CHEX_FIELD("output", s->config.output_dir),
                       CHEX_FIELD("options", json_incref(json_object_get(c, "options"))),
                       CHEX_FIELD("origins", json_incref(json_object_get(c, "origins"))));
}

static json_t *audit_json(const struct chex_session *s) {
    if (!s->audit)
        return json_null();
    return chex_result(CHEX_FIELD("steps", s->config.audit_steps),
                       CHEX_FIELD("time_share", chex_pass_audit_share(s)));
}

/* Takes the reference of `ranks`. */
static enum chex_status assemble(struct plan *p, json_t *ranks, json_t **out,
                                 struct chex_error *err) {
    struct chex_session *s = p->s;
    const struct chex_launch *l = s->world.launch;
    double run_s = 0;
    json_t *o = head(s, s->at.step ? "go on" : "start");
    json_t *parts = chex_result(
        CHEX_FIELD("data", data_json(s)),
        CHEX_FIELD("launch", chex_result(CHEX_MEMBER(l, method), CHEX_MEMBER(l, job_id),
                                         CHEX_FIELD("ranks", s->size), CHEX_MEMBER(l, nodes))),
        CHEX_FIELD("ranks", ranks), CHEX_FIELD("steps", steps_json(s)),
        CHEX_FIELD("order", order_json(s)), CHEX_FIELD("network", network_json(s)),
        CHEX_FIELD("engine", engine_json(s, &p->reports[0])),
        CHEX_FIELD("memory", memory_of_all(p)), CHEX_FIELD("schedule", schedule_json(s)),
        CHEX_FIELD("training", training_json(s)), CHEX_FIELD("start", start_json(s)),
        CHEX_FIELD("checkpoints", checkpoints_json(s)), CHEX_FIELD("gradients", gradients_json(s)),
        CHEX_FIELD("audit", audit_json(s)), CHEX_FIELD("time", time_json(p, &run_s)));
    bool whole = json_object_update_new(o, parts) == 0;
    if (p->cluster)
        whole = json_object_set_new(o, "cluster", cluster_json(p)) == 0 && whole;
    warn_of_rows(p);
    warn_of_labels(p);
    warn_of_schedule(p);
    warn_of_machine(p);
    warn_of_time(p, run_s);
    whole = json_object_set_new(o, "warnings", p->warnings) == 0 && whole;
    *out = o;
    return whole ? CHEX_OK : chex_error_memory(err, "the plan");
}

static enum chex_status make_plan(struct chex_session *s, const struct chex_machines *cluster,
                                  json_t **out, struct chex_error *err) {
    struct report mine;
    CHEX_AUTO_FREE void *reports = NULL;
    size_t bytes;
    json_t *ranks = NULL;
    CHEX_TRY(chex_session_agree(s, fill_report(s, &mine, err), err));
    CHEX_TRY(chex_session_agree(
        s, chex_group_gather(s->world.coll->group, &mine, sizeof mine, &reports, &bytes, err),
        err));
    enum chex_status st = ranks_json(s, reports, &ranks, err);
    if (st == CHEX_OK && s->rank == 0) {
        struct plan p = {.s = s, .reports = reports, .cluster = cluster, .warnings = json_array()};
        st = assemble(&p, ranks, out, err);
    }
    return chex_session_agree(s, st, err);
}

/* The set-up of a complete run ends early, so only the start is known. */
static enum chex_status nothing_to_do(const struct chex_session *s, json_t **out,
                                      struct chex_error *err) {
    if (s->rank != 0)
        return CHEX_OK;
    json_t *o = head(s, "nothing");
    json_object_set_new(o, "start", start_json(s));
    json_object_set_new(o, "warnings",
                        json_pack("[s++]", "the run in the output folder is complete: raise --",
                                  chex_session_ended_by(s), " to go on, or name a new folder"));
    *out = o;
    return o ? CHEX_OK : chex_error_memory(err, "the plan");
}

enum chex_status chex_train_plan(const struct chex_train_config *config,
                                 const struct chex_train_world *world, json_t **plan_out,
                                 bool *together_out, struct chex_error *err) {
    struct chex_session s;
    struct chex_machines cluster;
    chex_session_init(&s, config, world);
    s.config.plan_only = true;
    *plan_out = NULL;
    enum chex_status st = config->cluster && s.rank == 0
                              ? chex_machines_read(config->cluster, &cluster, err)
                              : CHEX_OK;
    st = chex_group_follow(world->coll->group, 0, st, err);
    s.together = st != CHEX_OK && !world->coll->group->broken;
    if (st == CHEX_OK)
        st = chex_session_open(&s, err);
    if (st == CHEX_OK)
        st = s.complete ? nothing_to_do(&s, plan_out, err)
                        : make_plan(&s, config->cluster ? &cluster : NULL, plan_out, err);
    chex_session_end(&s, st, together_out);
    return st;
}
