/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank 0 reads the records of the run and chooses the stretches. All ranks get them as one JSON
 * text, so that they set up the same sessions. Each stretch is a session of its own: the set-up of
 * a resumed run, which checks data, classes and shapes, without an output folder.
 */
#include "prove/prove.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/result.h"
#include "base/rng.h"
#include "base/text.h"
#include "prove/prove_files.h"
#include "train/head_only.h"
#include "train/loop.h"
#include "train/store/provenance.h"
#include "train/store/save.h"
#include "train/validate.h"

static uint64_t get_u64(const json_t *o, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(o, key));
}
static const char *get_text(const json_t *o, const char *key) {
    return json_string_value(json_object_get(o, key));
}

enum chex_status chex_prove_options_read(const char *run, struct chex_prove_options *out,
                                         struct chex_error *err) {
    json_auto_t *provenance = NULL, *config = NULL;
    *out = (struct chex_prove_options){.engine = "auto"};
    CHEX_TRY(chex_runfiles_read_json(run, "config.json", &config, err));
    CHEX_TRY(chex_provenance_read(run, &provenance, err));
    json_t *options = json_object_get(config, "options");
    if (!json_is_object(options))
        return chex_error_set(err, CHEX_E_DATA, "%s %s (expected a JSON object with options)",
                              chex_path(run, "config.json").text,
                              config ? "is damaged" : "does not exist");
    const json_t *start = chex_provenance_start_of(provenance, UINT64_MAX);
    const json_t *machine = json_array_get(json_object_get(start, "machines"), 0);
    if (get_text(machine, "engine") && get_text(machine, "variant"))
        snprintf(out->engine, sizeof out->engine, "%s:%s", get_text(machine, "engine"),
                 get_text(machine, "variant"));
    out->options = json_incref(options);
    return CHEX_OK;
}

/* ---- what was recorded: rank 0 ---- */

/* Appends the stretch between two states to `list`, if it can be repeated: the start that computed
 * it and the file of its first state are known. */
static enum chex_status add_stretch(const char *run, const json_t *provenance,
                                    const struct chex_checkpoint_line *from,
                                    const struct chex_checkpoint_line *to, json_t *list,
                                    struct chex_error *err) {
    CHEX_AUTO_FREE char *first = NULL, *last = NULL;
    json_t *start = chex_provenance_start_of(provenance, to->step);
    CHEX_TRY(chex_checkpoint_store_find(run, to->step, &last, err));
    if (from->step)
        CHEX_TRY(chex_checkpoint_store_find(run, from->step, &first, err));
    if (start && (first || from->step == 0))
        json_array_append_new(
            list, chex_result(CHEX_FIELD("from_step", from->step), CHEX_FIELD("to_step", to->step),
                              CHEX_FIELD("from", first), CHEX_FIELD("to", last),
                              CHEX_FIELD("from_digest", (const char *)from->digest),
                              CHEX_FIELD("digest", (const char *)to->digest),
                              CHEX_FIELD("start", json_incref(start))));
    return CHEX_OK;
}

/* Removes all but `count` stretches, chosen at random; their order stays. */
static void choose(json_t *list, size_t count) {
    uint64_t seed = (uint64_t)chex_clock_unix_s();
    (void)!getrandom(&seed, sizeof seed, GRND_NONBLOCK);
    for (uint64_t i = 0; json_array_size(list) > count; i++) {
        const uint32_t word = chex_rng_block(seed, (uint32_t)i, 0, 0, 0).v[0];
        json_array_remove(list, chex_rng_below(word, (uint32_t)json_array_size(list)));
    }
}

/* Rank 0: the proof before the work. The files are checked here, and the stretches wait for their
 * verdicts. */
static enum chex_status begin_proof(const struct chex_prove *p, json_t **out,
                                    struct chex_error *err) {
    CHEX_AUTO_FREE struct chex_checkpoint_line *states = NULL;
    const struct chex_checkpoint_line none = {0};
    json_auto_t *provenance = NULL, *list = json_array(), *files = json_array();
    size_t count = 0;
    CHEX_TRY(chex_provenance_read(p->run, &provenance, err));
    CHEX_TRY(chex_checkpoint_log_read(p->run, &states, &count, err));
    for (size_t i = 0; i < count; i++)
        CHEX_TRY(
            add_stretch(p->run, provenance, i ? &states[i - 1] : &none, &states[i], list, err));
    const size_t possible = json_array_size(list);
    if (!possible)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: no stretch can be repeated (%zu checkpoint%s recorded; expected "
                              "one with the file of the one before it, and %s/" CHEX_PROVENANCE ")",
                              p->run, count, chex_text_s(count), p->run);
    if (p->stretches)
        choose(list, (size_t)p->stretches);
    CHEX_TRY(chex_prove_files(p->run, provenance, states, count, files, err));
    *out = chex_result(CHEX_FIELD("schema", 1), CHEX_FIELD("command", "chex-train"),
                       CHEX_FIELD("version", CHEXNET_VERSION), CHEX_FIELD("run", p->run),
                       CHEX_FIELD("recorded_checkpoints", count),
                       CHEX_FIELD("possible_stretches", possible), CHEX_FIELD("equal_stretches", 0),
                       CHEX_FIELD("stretches", json_incref(list)), CHEX_FIELD("equal_files", 0),
                       CHEX_FIELD("files", json_incref(files)));
    return CHEX_OK;
}

/* Gives all ranks the JSON object of rank 0. */
static enum chex_status share(struct chex_group *g, json_t **object, struct chex_error *err) {
    CHEX_AUTO_FREE char *text = g->rank == 0 ? json_dumps(*object, JSON_COMPACT) : NULL;
    CHEX_TRY(chex_group_share_text(g, &text, err));
    if (g->rank != 0 && !(*object = json_loads(text, 0, NULL)))
        return chex_error_memory(err, NULL);
    return CHEX_OK;
}

/* ---- one stretch: all ranks ---- */

struct proof {
    const struct chex_prove *prove;
    const struct chex_train_world *world;
    const char *metrics; /* rank 0: metrics.jsonl, or NULL */
    bool together;
};

/* The start that computed the stretch. */
static const json_t *start_of(const json_t *stretch) { return json_object_get(stretch, "start"); }

/* Without --deterministic the additions between processes depend on their number. */
static enum chex_status check_processes(const struct proof *p, const json_t *stretch,
                                        struct chex_error *err) {
    const json_t *start = start_of(stretch);
    const int was = (int)get_u64(start, "processes"), now = p->world->launch->size;
    if (json_is_true(json_object_get(start, "deterministic")) || was == now)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "%s: steps %llu to %llu were computed by %d process%s without "
                          "--deterministic: prove them with as many (these are %d)",
                          p->prove->run, (unsigned long long)get_u64(stretch, "from_step") + 1,
                          (unsigned long long)get_u64(stretch, "to_step"), was,
                          was == 1 ? "" : "es", now);
}

/* The configuration of the stretch. Its texts belong to `stretch` and to world->restore. */
static enum chex_status configure(const struct proof *p, const json_t *stretch,
                                  struct chex_train_world *w, struct chex_train_config *c,
                                  struct chex_error *err) {
    const json_t *start = start_of(stretch);
    const char *from = get_text(stretch, "from");
    char restored[1024], where[600];
    *w = *p->world;
    w->restore = NULL;
    snprintf(where, sizeof where, "%.500s/" CHEX_PROVENANCE, p->prove->run);
    CHEX_TRY(p->world->restore(p->world->restore_arg, where, json_object_get(start, "options"),
                               NULL, c, restored, sizeof restored, err));
    c->logical_ranks = (int)get_u64(start, "logical_ranks");
    const json_t *loss = json_object_get(start, "loss");
    c->proven_loss = json_is_object(loss) ? loss : NULL;
    const json_t *kernels = json_object_get(start, "cuda_choices");
    c->proven_kernels = json_is_array(kernels) ? kernels : NULL;
    c->output_dir = p->prove->run;
    c->resume = from ? from : "none";
    c->init = from ? NULL : get_text(json_object_get(start, "init"), "file");
    c->plan_only = c->prove = true;
    c->epochs = INT64_MAX; /* the stretch ends by its steps */
    c->max_steps = c->stop_after = c->audit_steps = 0;
    c->stage = c->timeline = NULL;
    return CHEX_OK;
}

/* At least one machine of the run must give the bits of this one. */
static enum chex_status check_machine(const struct chex_session *s, const json_t *stretch,
                                      struct chex_error *err) {
    struct chex_machine mine;
    const json_t *then;
    size_t i;
    char was[CHEX_MACHINE_BITS_BYTES] = "", now[CHEX_MACHINE_BITS_BYTES];
    chex_machine_of(s, &mine);
    chex_machine_bits(mine.engine, mine.variant, mine.precision, now);
    json_array_foreach(json_object_get(start_of(stretch), "machines"), i, then) {
        chex_machine_bits(get_text(then, "engine"), get_text(then, "variant"),
                          get_text(then, "precision"), was);
        if (strcmp(was, now) == 0)
            return CHEX_OK;
    }
    return chex_error_set(err, CHEX_E_ENV,
                          "%s was computed with the engine %s, and this is %s: their bits differ; "
                          "name that engine with --engine on a machine that has it",
                          s->config.output_dir, was, now);
}

/* For a stretch from step 0: no checkpoint names the data and the file of --init. */
static enum chex_status check_sources(const struct chex_session *s, const json_t *stretch,
                                      struct chex_error *err) {
    const json_t *start = start_of(stretch);
    const char *data = get_text(json_object_get(start, "data"), "source_digest");
    const char *init = get_text(json_object_get(start, "init"), "digest");
    const char *features = get_text(start, "features_digest");
    CHEX_AUTO_FREE char *bytes = NULL;
    char now[CHEX_HASH128_HEX_BYTES];
    size_t size;
    if (s->at.step)
        return CHEX_OK;
    if (s->config.features && (!features || strcmp(features, s->features_digest) != 0))
        return chex_error_set(err, CHEX_E_DATA, "--features %s: other features than those of %s",
                              s->config.features, s->config.output_dir);
    if (!data || strcmp(data, chex_set_source_digest(s->input.train)) != 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s was trained on other images than those of %s: name them with "
                              "--data",
                              s->config.output_dir, s->config.data_dir);
    if (!s->config.init || !init || s->rank != 0)
        return CHEX_OK;
    CHEX_TRY(chex_fs_read(s->config.init, UINT64_MAX, &bytes, &size, err));
    chex_hash128_hex(bytes, size, now);
    if (strcmp(now, init) == 0)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "--init %s is another file than that of %s (digest %s; expected %s)",
                          s->config.init, s->config.output_dir, now, init);
}

/* The loss of `step` in metrics.jsonl; NaN if it has none. */
static double recorded_loss(const char *metrics, uint64_t step) {
    char key[48];
    snprintf(key, sizeof key, "\"step\":%llu,\"loss\":", (unsigned long long)step);
    const char *at = metrics;
    while (at && (at = strstr(at, "\"kind\":\"step\""))) {
        const char *end = strchr(at, '\n'), *found = strstr(at, key);
        if (found && end && found < end)
            return strtod(found + strlen(key), NULL);
        at = end;
    }
    return NAN;
}

/* Compares as metrics.jsonl has it: with nine digits. */
static bool other_loss(const char *metrics, uint64_t step, double loss) {
    char text[32];
    const double then = recorded_loss(metrics, step);
    snprintf(text, sizeof text, "%.9g", loss);
    return isfinite(then) && then != strtod(text, NULL);
}

/* A stretch may pass the end of an epoch (--checkpoint-every 2epochs). Its validation decides the
 * rate of plateau, and nothing else. */
static enum chex_status next_epoch(struct chex_session *s, struct chex_error *err) {
    struct chex_validation v = {.training_loss = s->at.epoch_loss / (double)s->at.step_in_epoch};
    if (s->config.schedule.kind == CHEX_SCHED_PLATEAU && s->input.val) {
        const size_t groups = 1 + (size_t)s->input.selection->sources.count;
        CHEX_AUTO_FREE double *aurocs =
            chex_alloc_zeroed(groups * (size_t)s->net->classes, sizeof *aurocs);
        CHEX_TRY(chex_session_agree(s, aurocs ? CHEX_OK : chex_error_memory(err, NULL), err));
        CHEX_TRY(chex_session_validate(s, aurocs, &v, err));
    }
    chex_schedule_observe(&s->config.schedule, v.training_loss);
    s->at.epoch++;
    s->at.step_in_epoch = 0;
    s->at.epoch_loss = 0;
    return CHEX_OK;
}

/* Does the steps up to `end`. *other_out (rank 0): the first step with another loss, or 0. */
static enum chex_status repeat_steps(const struct proof *p, struct chex_session *s, uint64_t end,
                                     uint64_t *other_out, struct chex_error *err) {
    *other_out = 0;
    while (s->at.step < end) {
        struct chex_step_verdict v;
        if (s->at.step_in_epoch == s->steps)
            CHEX_TRY(next_epoch(s, err));
        CHEX_TRY(chex_session_step(s, &v, err));
        if (s->rank == 0 && !*other_out && other_loss(p->metrics, s->at.step, v.loss))
            *other_out = s->at.step;
        if (v.stop == CHEX_STOP_PREEMPT) {
            s->together = true;
            return chex_error_set(err, CHEX_E_PREEMPTED,
                                  "asked to stop at step %llu: nothing was written; run again to "
                                  "begin a new proof",
                                  (unsigned long long)s->at.step);
        }
    }
    return chex_reduce_settle(s->reduce, err);
}

static const char *first_other(const struct chex_net *net, const float *a, const float *b) {
    for (int i = 0; a && b && i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        if (memcmp(a + p->offset, b + p->offset, p->count * sizeof *a) != 0)
            return p->name;
    }
    return NULL;
}

/* Writes the first parameter that differs from the file's; "" if there is no file. */
static void find_other(const struct chex_net *net, const struct chex_checkpoint *now,
                       const char *path, char *text, size_t size) {
    static const char *const parts[CHEX_CHECKPOINT_VECTORS] = {
        "", "first moment of ", "second moment of ", "moving average of "};
    struct chex_net *theirs = NULL;
    struct chex_checkpoint *then = NULL;
    text[0] = '\0';
    if (!path || chex_checkpoint_read(path, true, &theirs, &then, NULL) != CHEX_OK)
        return;
    const bool same_shape = theirs->state_count == net->state_count;
    for (int i = 0; !text[0] && same_shape && i < CHEX_CHECKPOINT_VECTORS; i++) {
        const char *name = first_other(net, now->vectors[i], then->vectors[i]);
        if (name)
            snprintf(text, size, "%s%s", parts[i], name);
    }
    chex_checkpoint_destroy(then);
    chex_net_destroy(theirs);
}

/* Rank 0: compares the state with the recorded digest and adds the verdict to `stretch`. */
static enum chex_status judge(const struct chex_session *s, json_t *stretch, uint64_t other_step,
                              struct chex_error *err) {
    struct chex_checkpoint now = {0};
    char digest[CHEX_HASH128_HEX_BYTES] = "", parameter[CHEX_NET_NAME_BYTES + 24] = "";
    const char *then = get_text(stretch, "digest");
    enum chex_status st = chex_session_alloc_state(s, &now, err);
    if (st == CHEX_OK)
        st = chex_session_get_state(s, &now, err);
    if (st == CHEX_OK) {
        chex_checkpoint_digest(s->net, &now, digest);
        const bool equal = strcmp(digest, then) == 0;
        if (!equal)
            find_other(s->net, &now, get_text(stretch, "to"), parameter, sizeof parameter);
        json_object_update_new(
            stretch,
            chex_result(
                CHEX_FIELD("repeated_digest", (const char *)digest), CHEX_FIELD("equal", equal),
                CHEX_FIELD_IF(other_step, "first_other_step", other_step),
                CHEX_FIELD_IF(parameter[0], "first_other_parameter", (const char *)parameter)));
    }
    chex_session_free_state(&now);
    return st;
}

/* Rank 0: the file at the start of the stretch must hold the state that was recorded. The engine's
 * state may be another: --ema may begin or end with the stretch. */
static enum chex_status check_first_state(const json_t *stretch, struct chex_error *err) {
    char digest[CHEX_HASH128_HEX_BYTES];
    const char *then = get_text(stretch, "from_digest"), *from = get_text(stretch, "from");
    uint64_t step;
    if (!from)
        return CHEX_OK;
    CHEX_TRY(chex_prove_digest(from, digest, &step, err));
    if (strcmp(digest, then) == 0)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_DATA,
                          "%s holds another state than the one recorded for step %llu (digest %s; "
                          "expected %s)",
                          from, (unsigned long long)step, digest, then);
}

static enum chex_status repeat_session(const struct proof *p, struct chex_session *s,
                                       json_t *stretch, struct chex_error *err) {
    uint64_t other = 0;
    CHEX_TRY(chex_session_open(s, err));
    CHEX_TRY(chex_session_agree(s, check_machine(s, stretch, err), err));
    CHEX_TRY(chex_head_only_compute(s, err));
    enum chex_status st = check_sources(s, stretch, err);
    if (st == CHEX_OK && s->rank == 0)
        st = check_first_state(stretch, err);
    if (st == CHEX_OK)
        st = chex_session_open_pipeline(s, err);
    CHEX_TRY(chex_session_agree(s, st, err));
    CHEX_TRY(repeat_steps(p, s, get_u64(stretch, "to_step"), &other, err));
    st = s->rank == 0 ? judge(s, stretch, other, err) : CHEX_OK;
    return chex_session_agree(s, st, err);
}

static void log_verdict(const json_t *stretch) {
    const bool equal = json_is_true(json_object_get(stretch, "equal"));
    chex_info("steps %llu to %llu: %s", (unsigned long long)get_u64(stretch, "from_step") + 1,
              (unsigned long long)get_u64(stretch, "to_step"), equal ? "equal" : "different");
}

static enum chex_status repeat(struct proof *p, json_t *stretch, struct chex_error *err) {
    struct chex_train_world w;
    struct chex_train_config c;
    struct chex_session s;
    p->together = true;
    CHEX_TRY(check_processes(p, stretch, err));
    CHEX_TRY(configure(p, stretch, &w, &c, err));
    chex_session_init(&s, &c, &w);
    enum chex_status st = repeat_session(p, &s, stretch, err);
    chex_session_end(&s, st, &p->together);
    if (st == CHEX_OK && s.rank == 0)
        log_verdict(stretch);
    return st;
}

/* ---- the whole ---- */

/* Rank 0: counts what is equal. CHEX_E_DATA if something is not. */
static enum chex_status judge_all(json_t *proof, struct chex_error *err) {
    static const struct {
        const char *list, *equal, *text;
    } parts[] = {
        {"stretches", "equal_stretches", "repeated stretches differ from what the run recorded"},
        {"files", "equal_files", "files are not what the run recorded"}};
    enum chex_status st = CHEX_OK;
    for (size_t k = 0; k < CHEX_COUNT(parts); k++) {
        const json_t *list = json_object_get(proof, parts[k].list);
        const size_t all = json_array_size(list);
        json_t *one;
        size_t i, equal = 0;
        json_array_foreach(list, i, one) {
            equal += json_is_true(json_object_get(one, "equal"));
            json_object_del(one, "start");
        }
        json_object_set_new(proof, parts[k].equal, json_integer((json_int_t)equal));
        if (equal < all && st == CHEX_OK)
            st = chex_error_set(err, CHEX_E_DATA, "%s: %zu of %zu %s", get_text(proof, "run"),
                                all - equal, all, parts[k].text);
    }
    return st;
}

enum chex_status chex_train_prove(const struct chex_prove *prove,
                                  const struct chex_train_world *world, json_t **proof_out,
                                  bool *together_out, struct chex_error *err) {
    CHEX_AUTO_FREE char *metrics = NULL;
    json_auto_t *proof = NULL;
    struct chex_group *g = world->coll->group;
    *proof_out = NULL;
    enum chex_status st = g->rank == 0 ? begin_proof(prove, &proof, err) : CHEX_OK;
    if (st == CHEX_OK && g->rank == 0)
        st = chex_runfiles_read(prove->run, "metrics.jsonl", &metrics, NULL, err);
    struct proof p = {.prove = prove, .world = world, .metrics = metrics, .together = true};
    st = chex_group_follow(g, 0, st, err);
    if (st == CHEX_OK)
        st = share(g, &proof, err);
    const json_t *list = json_object_get(proof, "stretches");
    for (size_t i = 0; st == CHEX_OK && i < json_array_size(list); i++)
        st = repeat(&p, json_array_get(list, i), err);
    if (st == CHEX_OK) {
        *proof_out = g->rank == 0 ? json_incref(proof) : NULL;
        st = chex_group_follow(g, 0, g->rank == 0 ? judge_all(proof, err) : CHEX_OK, err);
    }
    *together_out = p.together && !g->broken;
    return st;
}
