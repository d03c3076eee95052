/* SPDX-License-Identifier: Apache-2.0
 *
 * From the options of chex-train to the configuration of libcore, and the record of the options:
 * what config.json and checkpoints keep, what all ranks must share, and what a resumed run takes
 * over.
 */
#include <stdio.h>
#include <string.h>

#include "base/result.h"
#include "base/units.h"
#include "train_settings.h"

struct chex_update train_update_of(const struct train_settings *s) {
    return (struct chex_update){.optim = (enum chex_optim)s->opt,
                                .lr = s->lr,
                                .weight_decay = s->weight_decay,
                                .momentum = s->momentum,
                                .nesterov = s->nesterov,
                                .decay_norms = s->decay_norms,
                                .clip_norm = s->clip_norm,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .grad_scale = 1};
}

struct chex_loss train_loss_of(const struct train_settings *s) {
    const bool focal = s->loss == CHEX_LOSS_FOCAL, asl = s->loss == CHEX_LOSS_ASL;
    return (struct chex_loss){.kind = (enum chex_loss_kind)s->loss,
                              .smoothing = s->label_smoothing,
                              .gamma_pos = focal ? s->focal_gamma
                                           : asl ? s->asl_gamma_pos
                                                 : 0,
                              .gamma_neg = asl ? s->asl_gamma_neg : 0,
                              .clip = asl ? s->asl_clip : 0,
                              .alpha = focal ? s->focal_alpha : -1};
}

/* A whole number with the unit after it: "500steps". */
static bool parse_count(const char *text, const char *unit, uint64_t *out) {
    char number[32];
    const size_t n = strlen(text), after = strlen(unit);
    if (n <= after || n - after >= sizeof number || strcmp(text + n - after, unit) != 0)
        return false;
    snprintf(number, sizeof number, "%.*s", (int)(n - after), text);
    return chex_parse_u64(number, out);
}

/* --checkpoint-every: "500steps", "2epochs" or a duration, more than 0. Sets one of the three
 * numbers. */
static enum chex_status parse_cadence(const char *text, struct chex_train_config *out,
                                      struct chex_error *err) {
    if ((parse_count(text, "steps", &out->save_every_steps) && out->save_every_steps) ||
        (parse_count(text, "epochs", &out->save_every_epochs) && out->save_every_epochs) ||
        (chex_parse_duration(text, &out->save_every_ms) && out->save_every_ms))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "--checkpoint-every: '%s' is not valid: expected a time such as 30m, "
                          "steps such as 500steps, or epochs such as 2epochs; more than 0",
                          text);
}

static enum chex_status parse_save_before_end(const char *text, struct chex_save_before_end *out,
                                              struct chex_error *err) {
    *out = (struct chex_save_before_end){.off = strcmp(text, "off") == 0};
    if (out->off || strcmp(text, "auto") == 0 ||
        (chex_parse_duration(text, &out->margin_ms) && out->margin_ms))
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_USAGE,
        "--save-before-end: '%s' is not valid: expected auto, off, or a time such "
        "as 5m",
        text);
}

/* For config.json and checkpoints: the effective options and, by the same names, their origins.
 * --plan, --prove and the shared options (--help, --json, ...) are left out. */
static json_t *options_json(const struct train_settings *s) {
    json_t *object = json_object(), *origins = json_object();
    for (size_t i = 0; i < train_program.count; i++) {
        const struct chex_opt *o = &train_program.opts[i];
        char value[4096];
        if (o->type == CHEX_OPT_GROUP || o->at < sizeof s->common || o->at == AT(plan) ||
            o->at == AT(cluster) || o->at == AT(prove) || o->at == AT(stretches))
            continue;
        chex_opt_value_text(o, s, value, sizeof value);
        json_object_set_new(object, o->name, json_string(value));
        json_object_set_new(origins, o->name,
                            json_string(chex_opt_origin_names[chex_opt_origin(s->set, o->name)]));
    }
    return chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("command", train_program.name),
                       CHEX_FIELD("version", CHEXNET_VERSION), CHEX_FIELD("options", object),
                       CHEX_FIELD("origins", origins));
}

/* The options that must be equal on all ranks. The files of --init and --resume and the folder of
 * --stage may differ between ranks. But if only some ranks have one, the ranks would make different
 * collective calls. */
static json_t *shared_options(const json_t *recorded) {
    json_t *shared = json_copy(json_object_get(recorded, "options"));
    for (size_t i = 0; i < train_program.count; i++) {
        const struct chex_opt *o = &train_program.opts[i];
        const char *value = json_string_value(json_object_get(shared, o->name));
        if (!o->of_rank)
            continue;
        if (o->at != AT(init) && o->at != AT(resume) && o->at != AT(stage))
            json_object_del(shared, o->name);
        else if (value && value[0] && strcmp(value, "auto") != 0 && strcmp(value, "none") != 0)
            json_object_set_new(shared, o->name, json_string("a path"));
    }
    return shared;
}

enum chex_status train_config_of(const struct train_settings *s, const char *engine,
                                 const struct chex_gpu *device, int threads,
                                 struct chex_train_config *out, struct chex_error *err) {
    *out = (struct chex_train_config){
        .data_dir = s->data,
        .findings = s->findings,
        .uncertain = s->uncertain,
        .where = s->where,
        .data_weights = s->data_weights,
        .output_dir = s->output,
        .cluster = s->cluster,
        .model = chex_net_names[s->model],
        .engine = engine,
        .device = device,
        .image_size = (int)s->image_size,
        .batch = (int)s->batch_size,
        .threads = threads,
        .workers = (int)s->workers,
        .epochs = s->epochs,
        .max_steps = (uint64_t)s->max_steps,
        .stop_after = (uint64_t)s->stop_after,
        .precision = (enum chex_precision)s->precision,
        .schedule = {.kind = (enum chex_sched)s->sched,
                     .lr = s->lr,
                     .min_lr = s->min_lr,
                     .warmup_epochs = s->warmup_epochs,
                     .epochs = s->epochs,
                     .factor = s->lr_factor,
                     .patience = s->patience,
                     .step_epochs = s->step_epochs},
        .update = train_update_of(s),
        .loss = train_loss_of(s),
        .pos_weight = s->pos_weight,
        .loss_mean = (enum chex_loss_mean)s->loss_mean,
        .layer_decay = s->layer_decay,
        .freeze = s->freeze,
        .head_only = s->head_only,
        .ema_decay = s->ema,
        .init = s->init,
        .resume = s->resume,
        .seed = (uint64_t)s->seed,
        .deterministic = s->deterministic,
        .sync_bn = s->sync_bn,
        .audit_steps = (uint64_t)s->audit_steps,
        .accumulate = (int)s->accumulate,
        .logical_ranks = (int)(s->accumulate ? s->accumulated_ranks : s->logical_ranks),
        .order = (enum chex_order_kind)s->order,
        .pipeline = (enum chex_pipeline_kind)s->pipeline,
        .shuffle_block = (size_t)s->shuffle_block,
        .augment = {.crop_scale = s->crop_scale,
                    .hflip = s->hflip,
                    .antialias = s->antialias,
                    .rotate = s->rotate,
                    .brightness = s->brightness,
                    .contrast = s->contrast},
        .cache = (enum chex_cache_mode)s->cache,
        .resident = (enum chex_resident_mode)s->resident,
        .stage = s->stage,
        .save_keep = (int)s->checkpoint_keep,
        .job_comment = s->job_comment,
        .stall_warn_ms = s->stall_warn,
        .stall_abort_ms = s->stall_abort,
        .timeline = s->timeline};
    CHEX_TRY(parse_cadence(s->checkpoint_every, out, err));
    CHEX_TRY(parse_save_before_end(s->save_before_end, &out->save_before_end, err));
    out->options = options_json(s);
    out->shared_options = shared_options(out->options);
    return out->shared_options ? CHEX_OK : chex_error_memory(err, NULL);
}

/* The default of --precision depends on the machine. A resumed run chooses it again, if the user
 * had not given it. A proof never does. */
static bool machine_chose(const struct train_settings *s, const struct chex_opt *o,
                          const json_t *origins) {
    const char *origin = json_string_value(json_object_get(origins, o->name));
    return o->at == AT(precision) && !s->prove &&
           (!origin || strcmp(origin, chex_opt_origin_names[CHEX_FROM_DEFAULT]) == 0);
}

/* Takes over the recorded options that were not given again. `restored` gets the list of changes.
 */
enum chex_status train_restore_options(struct train_settings *s, const char *path,
                                       const json_t *recorded, const json_t *origins,
                                       char *restored, size_t size, struct chex_error *err) {
    size_t used = 0;
    restored[0] = '\0';
    for (size_t i = 0; i < train_program.count; i++) {
        const struct chex_opt *o = &train_program.opts[i];
        const char *value =
            o->of_run ? json_string_value(json_object_get(recorded, o->name)) : NULL;
        char before[64], after[64];
        if (!value || !*value || machine_chose(s, o, origins))
            continue;
        chex_opt_value_text(o, s, before, sizeof before);
        CHEX_TRY(chex_opt_take(s->set, o, s, value, path, err));
        chex_opt_value_text(o, s, after, sizeof after);
        if (strcmp(before, after) != 0 && used < size)
            used += (size_t)snprintf(restored + used, size - used, "%s%s '%s'", used ? ", " : "",
                                     o->name, after);
    }
    return CHEX_OK;
}
