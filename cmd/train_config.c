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

/* The numbers of the loss in use; those of the others stay options. */
static void set_loss(const struct train_settings *s, struct chex_loss *loss) {
    const bool focal = loss->kind == CHEX_LOSS_FOCAL, asl = loss->kind == CHEX_LOSS_ASL;
    loss->gamma_pos = focal ? s->focal_gamma : asl ? s->asl_gamma_pos : 0;
    loss->gamma_neg = asl ? s->asl_gamma_neg : 0;
    loss->clip = asl ? s->asl_clip : 0;
    loss->alpha = focal ? s->focal_alpha : -1;
}

static void set_update(double lr, struct chex_update *u) {
    u->lr = lr;
    u->beta1 = 0.9;
    u->beta2 = 0.999;
    u->eps = 1e-8;
    u->grad_scale = 1;
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
    out->save_every_steps = out->save_every_epochs = out->save_every_ms = 0;
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
            o->at == AT(config.cluster) || o->at == AT(prove.run) || o->at == AT(prove.stretches))
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
        if (o->at != AT(config.init) && o->at != AT(config.resume) && o->at != AT(config.stage))
            json_object_del(shared, o->name);
        else if (value && value[0] && strcmp(value, "auto") != 0 && strcmp(value, "none") != 0)
            json_object_set_new(shared, o->name, json_string("a path"));
    }
    return shared;
}

/* --accumulate N is --logical-ranks of N times the processes. */
static enum chex_status choose_logical_ranks(struct train_settings *s, struct chex_error *err) {
    enum { MOST = 65536 };
    const int64_t n = s->config.accumulate, all = n * s->size;
    if (all > MOST)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--accumulate %lld: %lld logical ranks on %d processes (at most %d)",
                              (long long)n, (long long)all, s->size, MOST);
    s->config.logical_ranks = n ? (int)all : s->logical_ranks;
    return CHEX_OK;
}

enum chex_status train_complete(struct train_settings *s, struct chex_error *err) {
    struct chex_train_config *c = &s->config;
    c->threads = s->threads ? s->threads : s->own_threads;
    c->schedule.epochs = c->epochs;
    c->head_only = c->head_only || c->features;
    set_update(c->schedule.lr, &c->update);
    set_loss(s, &c->loss);
    CHEX_TRY(choose_logical_ranks(s, err));
    CHEX_TRY(parse_cadence(s->checkpoint_every, c, err));
    CHEX_TRY(parse_save_before_end(s->save_before_end, &c->save_before_end, err));
    train_release(s);
    c->options = options_json(s);
    c->shared_options = shared_options(c->options);
    return c->shared_options ? CHEX_OK : chex_error_memory(err, NULL);
}

void train_release(struct train_settings *s) {
    json_decref(s->config.options);
    json_decref(s->config.shared_options);
    s->config.options = s->config.shared_options = NULL;
}

/* The default of --precision depends on the machine. A resumed run chooses it again, if the user
 * had not given it. A proof never does. */
static bool machine_chose(const struct train_settings *s, const struct chex_opt *o,
                          const json_t *origins) {
    const char *origin = json_string_value(json_object_get(origins, o->name));
    return o->at == AT(config.precision) && !s->prove.run &&
           (!origin || strcmp(origin, chex_opt_origin_names[CHEX_FROM_DEFAULT]) == 0);
}

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
