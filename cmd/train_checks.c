/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of chex-train that contradict each other, or lack one that they need.
 */
#include <stdio.h>
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
#define NO_IMAGES "only a classifier trains, on the numbers in the file"
static const struct {
    const char *name, *others; /* with commas between */
    int when;
    const char *why;
} refused_pairs[] = {
    {"bench", "bench-input", VALUE, ONE_OF},
    {"plan", "bench,bench-input", VALUE, ONE_OF},
    {"timeline", "bench,bench-input", VALUE, "a timeline is one of a run"},
    {"accumulate", "logical-ranks", VALUE | GIVEN, ONE_OF},
    {"sync-bn", "bench", VALUE, "it times each rank on its own"},
    {"audit-steps", "sync-bn", VALUE, "a pass needs all ranks, so no process can repeat one"},
    {"audit-steps", "pipeline", VALUE, "no other process can repeat its batches"},
    {"features",
     "model,image-size,engine,precision,cache,resident,stage,bench,bench-input,crop-scale,hflip,"
     "antialias,rotate,brightness,contrast,freeze,layer-decay,sync-bn,audit-steps,machines",
     GIVEN, NO_IMAGES},
    {"features", "pipeline", VALUE, NO_IMAGES},
    {"head-only", "pipeline", VALUE, "it reads images in every epoch"},
    {"head-only", "crop-scale,hflip,antialias,rotate,brightness,contrast,freeze,layer-decay", GIVEN,
     FEATURES},
    {"head-only", "sync-bn,audit-steps,cache,resident,machines,bench,bench-input", GIVEN, FEATURES},
};

/* Takes the next word of a list with commas between. False: there is none. */
enum { WORD_BYTES = 32 };
static bool next_word(const char **list, char word[WORD_BYTES]) {
    const size_t n = strcspn(*list, ",");
    snprintf(word, WORD_BYTES, "%.*s", (int)n, *list);
    *list += n + ((*list)[n] == ',');
    return n > 0;
}

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
        const char *name = refused_pairs[i].name, *others = refused_pairs[i].others;
        char other[WORD_BYTES];
        while (holds(s, name, VALUE) && next_word(&others, other))
            if (holds(s, other, refused_pairs[i].when))
                return chex_error_set(err, CHEX_E_USAGE, "--%s and --%s%s: %s", name, other,
                                      strcmp(other, "pipeline") == 0 ? " old" : "",
                                      refused_pairs[i].why);
    }
    return CHEX_OK;
}

/* Options without effect, if `other` has another value than those in `with`. "!V": than V. */
static const struct {
    const char *names, *other, *with;
} effects[] = {
    {"momentum", "opt", "sgd,lars"},
    {"decay-norms", "weight-decay", "!0"},
    {"min-lr", "sched", "plateau,cosine,step"},
    {"lr-factor", "sched", "plateau,step"},
    {"patience-epochs", "sched", "plateau"},
    {"step-epochs", "sched", "step"},
    {"order,shuffle-block,workers,resident", "pipeline", "new"},
    {"data,output,epochs,sched,layer-decay,freeze,workers,cache,resident", "bench", "0"},
    {"logical-ranks,accumulate,deterministic", "bench", "0"},
};

static bool has_effect(const char *value, const char *with) {
    char word[WORD_BYTES];
    if (with[0] == '!')
        return strcmp(value, with + 1) != 0;
    while (next_word(&with, word))
        if (strcmp(word, value) == 0)
            return true;
    return false;
}

void train_warn_without_effect(const struct train_settings *s) {
    for (size_t i = 0; i < COUNT(effects); i++) {
        const char *names = effects[i].names, *other = effects[i].other;
        char value[4096], name[WORD_BYTES];
        chex_opt_value_text(option_of(other), s, value, sizeof value);
        while (!has_effect(value, effects[i].with) && next_word(&names, name)) {
            const int when = option_of(name)->type == CHEX_OPT_FLAG ? VALUE | GIVEN : GIVEN;
            if (holds(s, name, when))
                chex_warn("--%s has no effect with --%s %s", name, other, value);
        }
    }
}

/* Paths that appear in JSON must be UTF-8. --plan always builds a JSON object with all of them,
 * even without --json. */
static enum chex_status check_names(const struct train_settings *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    const struct {
        const char *option, *path;
    } names[] = {{"--output", c->output_dir}, {"--data", c->data_dir},
                 {"--machines", c->cluster},  {"--init", c->init},
                 {"--features", c->features}, {"--resume", c->resume},
                 {"--stage", c->stage}};
    const bool used = !s->bench.steps && !s->bench.batches && (s->plan || s->common.json);
    for (size_t i = 0; used && i < (s->plan ? CHEX_COUNT(names) : 1); i++)
        CHEX_TRY(
            chex_text_for_json(names[i].option, names[i].path, s->plan ? "--plan" : "--json", err));
    return CHEX_OK;
}

/* --prove repeats the run with its own options. The user may only say where: data, engine, threads
 * and the like. */
static enum chex_status check_prove(const struct train_settings *s, struct chex_error *err) {
    static const char *const refused[] = {"output", "resume",  "init",        "stage",  "timeline",
                                          "plan",   "requeue", "job-comment", "metrics"};
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

/* Options that need another one. */
static const struct {
    const char *name, *other, *text;
} needs[] = {{"machines", "plan", "--plan"},
             {"consume", "bench-input", "--bench-input N"},
             {"bench-layers", "bench", "--bench N"},
             {"bench-infer", "bench", "--bench N"}};

static enum chex_status check_needs(const struct train_settings *s, struct chex_error *err) {
    for (size_t i = 0; i < COUNT(needs); i++) {
        const struct chex_opt *o = option_of(needs[i].name);
        const bool flag = o->type == CHEX_OPT_FLAG;
        char value[4096];
        if (holds(s, o->name, VALUE) && !holds(s, needs[i].other, VALUE))
            return chex_error_set(
                err, CHEX_E_USAGE, "--%s%s%s: expected %s with it", o->name, flag ? "" : " ",
                flag ? "" : chex_opt_value_text(o, s, value, sizeof value), needs[i].text);
    }
    return CHEX_OK;
}

enum chex_status train_check_settings(const struct train_settings *s, struct chex_error *err) {
    const struct chex_train_config *c = &s->config;
    const bool trains = !s->bench.steps && !s->prove.run, outputs = trains && !s->bench.batches;
    CHEX_TRY(check_prove(s, err));
    CHEX_TRY(check_pairs(s, err));
    CHEX_TRY(check_needs(s, err));
    CHEX_TRY(check_loss(s, err));
    /* A default --opt may be replaced by that of the resumed run, which is checked there. */
    if (chex_opt_origin(s->set, "opt") != CHEX_FROM_DEFAULT || s->bench.steps)
        CHEX_TRY(chex_update_check(&c->update, err));
    /* A default --lr may be replaced by that of the resumed run: chex_train_run checks again. */
    if (chex_opt_origin(s->set, "lr") != CHEX_FROM_DEFAULT)
        CHEX_TRY(chex_schedule_check(&c->schedule, err));
    if ((trains && !c->data_dir) || (outputs && !c->output_dir))
        return chex_error_set(err, CHEX_E_USAGE, "--%s DIR is required; try 'chex-train --help'",
                              c->data_dir ? "output" : "data");
    return check_names(s, err);
}
