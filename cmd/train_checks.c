/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of chex-train that contradict each other, or lack one that they need.
 */
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "engine/update.h"
#include "option_rows.h"
#include "train_settings.h"

/* An option of one loss must be given with that loss. Those of a resumed run may stay. */
static enum chex_status check_loss(const struct train_settings *s, struct chex_error *err) {
    static const struct {
        const char *name;
        enum chex_loss_kind kind;
    } own[] = {{"focal-gamma", CHEX_LOSS_FOCAL},
               {"focal-alpha", CHEX_LOSS_FOCAL},
               {"asl-gamma-neg", CHEX_LOSS_ASL},
               {"asl-gamma-pos", CHEX_LOSS_ASL},
               {"asl-clip", CHEX_LOSS_ASL}};
    for (size_t i = 0; i < COUNT(own); i++)
        if (chex_opt_origin(s->set, own[i].name) > CHEX_FROM_RUN &&
            own[i].kind != s->config.loss.kind)
            return chex_error_set(err, CHEX_E_USAGE, "--%s: --loss is %s (expected %s)",
                                  own[i].name, chex_loss_names[s->config.loss.kind],
                                  chex_loss_names[own[i].kind]);
    return CHEX_OK;
}

/* Pairs of options that are refused: the first is not at its default, and of the second `when`
 * holds. Here is every pair that the values alone decide, so that they are refused before any work;
 * chex_session_open checks what depends on the number of processes, the engine or the checkpoint.
 */
enum { VALUE = 1, GIVEN = 2 }; /* not at its default; given by the user, not by the resumed run */
#define ONE_OF "expected one of them"
#define FEATURES "only the classifier trains, on features that are computed once"
static const struct {
    const char *name, *other;
    int when;
    const char *why;
} refused_pairs[] = {
    {"bench", "bench-input", VALUE, ONE_OF},
    {"plan", "bench", VALUE, ONE_OF},
    {"plan", "bench-input", VALUE, ONE_OF},
    {"timeline", "bench", VALUE, "a timeline is one of a run"},
    {"timeline", "bench-input", VALUE, "a timeline is one of a run"},
    {"accumulate", "logical-ranks", VALUE | GIVEN, ONE_OF},
    {"sync-bn", "bench", VALUE, "it times each rank on its own"},
    {"audit-steps", "sync-bn", VALUE, "a pass needs all ranks, so no process can repeat one"},
    {"audit-steps", "pipeline", VALUE, "no other process can repeat its batches"},
    {"head-only", "pipeline", VALUE, "it reads images in every epoch"},
    {"head-only", "crop-scale", GIVEN, FEATURES},
    {"head-only", "hflip", GIVEN, FEATURES},
    {"head-only", "antialias", GIVEN, FEATURES},
    {"head-only", "rotate", GIVEN, FEATURES},
    {"head-only", "brightness", GIVEN, FEATURES},
    {"head-only", "contrast", GIVEN, FEATURES},
    {"head-only", "freeze", GIVEN, FEATURES},
    {"head-only", "layer-decay", GIVEN, FEATURES},
    {"head-only", "sync-bn", GIVEN, FEATURES},
    {"head-only", "audit-steps", GIVEN, FEATURES},
    {"head-only", "cache", GIVEN, FEATURES},
    {"head-only", "resident", GIVEN, FEATURES},
    {"head-only", "machines", GIVEN, FEATURES},
    {"head-only", "bench", GIVEN, FEATURES},
    {"head-only", "bench-input", GIVEN, FEATURES},
};

static const struct chex_opt *option_of(const char *name) {
    const struct chex_opt *o = train_program.opts;
    while (o->type == CHEX_OPT_GROUP || strcmp(o->name, name) != 0)
        o++;
    return o;
}

static bool holds(const struct train_settings *s, const char *name, int when) {
    const struct chex_opt *o = option_of(name);
    char value[4096];
    chex_opt_value_text(o, s, value, sizeof value);
    const char *unset = o->def ? o->def : o->type == CHEX_OPT_FLAG ? "no" : "";
    return (!(when & VALUE) || strcmp(value, unset) != 0) &&
           (!(when & GIVEN) || chex_opt_origin(s->set, name) > CHEX_FROM_RUN);
}

static enum chex_status check_pairs(const struct train_settings *s, struct chex_error *err) {
    for (size_t i = 0; i < COUNT(refused_pairs); i++) {
        const char *other = refused_pairs[i].other;
        if (!holds(s, refused_pairs[i].name, VALUE) || !holds(s, other, refused_pairs[i].when))
            continue;
        return chex_error_set(err, CHEX_E_USAGE, "--%s and --%s%s: %s", refused_pairs[i].name,
                              other, strcmp(other, "pipeline") == 0 ? " old" : "",
                              refused_pairs[i].why);
    }
    return CHEX_OK;
}

/* An option without effect, if `other` has another value than those in `with`. "!V": than V. */
static const struct {
    const char *name, *other, *with;
} effects[] = {
    {"momentum", "opt", "sgd,lars"},
    {"decay-norms", "weight-decay", "!0"},
    {"min-lr", "sched", "plateau,cosine,step"},
    {"lr-factor", "sched", "plateau,step"},
    {"patience-epochs", "sched", "plateau"},
    {"step-epochs", "sched", "step"},
    {"order", "pipeline", "new"},
    {"shuffle-block", "pipeline", "new"},
    {"workers", "pipeline", "new"},
    {"resident", "pipeline", "new"},
    {"data", "bench", "0"},
    {"output", "bench", "0"},
    {"epochs", "bench", "0"},
    {"sched", "bench", "0"},
    {"layer-decay", "bench", "0"},
    {"freeze", "bench", "0"},
    {"workers", "bench", "0"},
    {"cache", "bench", "0"},
    {"resident", "bench", "0"},
    {"logical-ranks", "bench", "0"},
    {"accumulate", "bench", "0"},
    {"deterministic", "bench", "0"},
};

static bool has_effect(const char *value, const char *with) {
    const size_t n = strlen(value);
    if (with[0] == '!')
        return strcmp(value, with + 1) != 0;
    for (const char *word = with; *word; word += strcspn(word, ","), word += *word == ',')
        if (strncmp(word, value, n) == 0 && (word[n] == ',' || !word[n]))
            return true;
    return false;
}

void train_warn_without_effect(const struct train_settings *s) {
    for (size_t i = 0; i < COUNT(effects); i++) {
        const char *name = effects[i].name, *other = effects[i].other;
        char value[4096];
        chex_opt_value_text(option_of(other), s, value, sizeof value);
        const int when = option_of(name)->type == CHEX_OPT_FLAG ? VALUE | GIVEN : GIVEN;
        if (holds(s, name, when) && !has_effect(value, effects[i].with))
            chex_warn("--%s has no effect with --%s %s", name, other, value);
    }
}

/* Paths that appear in JSON must be UTF-8. --plan always builds a JSON object with all of them,
 * even without --json. */
static enum chex_status check_names(const struct train_settings *s, struct chex_error *err) {
    const char *user = s->plan ? "--plan" : "--json";
    if (s->bench.steps || s->bench.batches || (!s->plan && !s->common.json))
        return CHEX_OK;
    CHEX_TRY(chex_text_for_json("--output", s->config.output_dir, user, err));
    if (!s->plan)
        return CHEX_OK;
    CHEX_TRY(chex_text_for_json("--data", s->config.data_dir, user, err));
    CHEX_TRY(chex_text_for_json("--machines", s->config.cluster, user, err));
    CHEX_TRY(chex_text_for_json("--init", s->config.init, user, err));
    CHEX_TRY(chex_text_for_json("--resume", s->config.resume, user, err));
    return chex_text_for_json("--stage", s->config.stage, user, err);
}

/* --prove repeats the run with its own options. The user may only say where: data, engine, threads
 * and the like. */
static enum chex_status check_prove(const struct train_settings *s, struct chex_error *err) {
    static const char *const refused[] = {"output",   "resume", "init",    "stage",
                                          "timeline", "plan",   "requeue", "job-comment"};
    if (!s->prove.run && chex_opt_origin(s->set, "stretches") > CHEX_FROM_RUN)
        return chex_error_set(err, CHEX_E_USAGE, "--stretches: expected --prove RUN with it");
    for (size_t i = 0; s->prove.run && i < train_program.count; i++) {
        const struct chex_opt *o = &train_program.opts[i];
        bool bad = o->of_run || o->at == AT(bench.steps) || o->at == AT(bench.batches) ||
                   o->at == AT(config.max_steps) || o->at == AT(config.accumulate);
        for (size_t r = 0; o->name && r < COUNT(refused); r++)
            bad = bad || strcmp(o->name, refused[r]) == 0;
        if (bad && chex_opt_origin(s->set, o->name) > CHEX_FROM_RUN)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--prove and --%s: a proof repeats the run with its own options "
                                  "and writes nothing",
                                  o->name);
    }
    return CHEX_OK;
}

enum chex_status train_check_settings(const struct train_settings *s, struct chex_error *err) {
    bool needs_output = !s->bench.steps && !s->bench.batches && !s->prove.run;
    CHEX_TRY(check_prove(s, err));
    CHEX_TRY(check_pairs(s, err));
    if (s->config.cluster && !s->plan)
        return chex_error_set(err, CHEX_E_USAGE, "--machines %s: expected --plan with it",
                              s->config.cluster);
    if (s->bench.images_per_s > 0 && !s->bench.batches)
        return chex_error_set(err, CHEX_E_USAGE, "--consume %g: expected --bench-input N with it",
                              s->bench.images_per_s);
    if ((s->bench.layers || s->bench.infer) && !s->bench.steps)
        return chex_error_set(err, CHEX_E_USAGE, "--bench-%s: expected --bench N with it",
                              s->bench.layers ? "layers" : "infer");
    CHEX_TRY(check_loss(s, err));
    /* A default --opt may be replaced by that of the resumed run, which is checked there. */
    if (chex_opt_origin(s->set, "opt") != CHEX_FROM_DEFAULT || s->bench.steps)
        CHEX_TRY(chex_update_check(&s->config.update, err));
    /* A default --lr may be replaced by that of the resumed run: chex_train_run checks again. */
    if (s->config.schedule.min_lr > s->config.schedule.lr &&
        chex_opt_origin(s->set, "lr") != CHEX_FROM_DEFAULT)
        return chex_error_set(err, CHEX_E_USAGE, "--min-lr %g: expected no more than --lr, %g",
                              s->config.schedule.min_lr, s->config.schedule.lr);
    if ((!s->bench.steps && !s->prove.run && !s->config.data_dir) ||
        (needs_output && !s->config.output_dir))
        return chex_error_set(err, CHEX_E_USAGE, "--%s DIR is required; try 'chex-train --help'",
                              s->config.data_dir ? "output" : "data");
    return check_names(s, err);
}
