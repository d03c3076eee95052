/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval predict: predicts new images, without labels and without shards, on all ranks.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "base/textfile.h"
#include "base/units.h"
#include "evaluate/output.h"
#include "evaluate/run_engine.h"
#include "evaluate/subcommands.h"
#include "image/resize.h"
#include "infer/predict_images.h"
#include "report/publish.h"

#define KEY_FILE "predict.json" /* moved last: if it exists, all results exist */
enum { SHEET_IMAGES = 500 };

struct prediction {
    const struct chex_eval_settings *s;
    const struct chex_opt_set *set;
    const char **names; /* of --images */
    size_t name_count;
    size_t pictures;
    struct chex_world world;
    struct chex_group *group; /* with time for the work */
    struct chex_eval_network network;
    struct chex_eval_engine engine;
    int stored_px, image_px, workers;
    char checkpoint_digest[34]; /* of parameters and deployment part */
    struct chex_image_list *list;
    struct chex_eval_output output; /* on rank 0 */
    json_t *facts;                  /* of predict.json */
};

/* ---- options ---- */

static enum chex_status parse_heat_maps(struct prediction *p, struct chex_error *err) {
    int64_t n = 0;
    const char *text = p->s->heat_maps;
    if (!text)
        return CHEX_OK;
    if (strcmp(text, "all") == 0) {
        p->pictures = SIZE_MAX;
        return CHEX_OK;
    }
    if (!chex_parse_i64(text, &n) || n < 1)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--heat-maps: '%s' is not valid: expected all or an integer from 1",
                              text);
    p->pictures = (size_t)n;
    return CHEX_OK;
}

/* The values of --images: the first one, then the words. */
static enum chex_status take_names(struct prediction *p, const struct chex_opt_set *set,
                                   struct chex_error *err) {
    const size_t words = chex_opt_word_count(set);
    if (!(p->names = chex_alloc_zeroed(words + 1, sizeof *p->names)))
        return chex_error_memory(err, NULL);
    p->names[p->name_count++] = p->s->images;
    for (size_t i = 0; i < words; i++)
        p->names[p->name_count++] = chex_opt_word(set, i);
    return CHEX_OK;
}

static enum chex_status check_options(struct prediction *p, struct chex_error *err) {
    const struct chex_eval_settings *s = p->s;
    if (!s->images || !s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval predict needs --%s",
                              !s->images       ? "images DIR|FILE"
                              : !s->checkpoint ? "checkpoint FILE"
                                               : "output DIR");
    CHEX_TRY(chex_text_for_json("--checkpoint", s->checkpoint, "predict.json", err));
    if (s->common.json)
        CHEX_TRY(chex_text_for_json("--output", s->output, "--json", err));
    return parse_heat_maps(p, err);
}

/* ---- set-up ---- */

/* "PARAMETERS" of all networks, or "PARAMETERS-DEPLOYMENT" of a deployment file, in hex digits. */
static void digest_checkpoint(struct prediction *p) {
    const char *part = p->network.about.deployment;
    char digest[17];
    chex_deployment_digest(p->network.net, p->network.state, digest);
    snprintf(p->checkpoint_digest, sizeof p->checkpoint_digest, "%s", digest);
    if (part)
        snprintf(p->checkpoint_digest + strlen(digest),
                 sizeof p->checkpoint_digest - strlen(digest), "-%016llx",
                 (unsigned long long)chex_hash64(part, strlen(part)));
}

/* Not collective. */
static enum chex_status open_network(struct prediction *p, struct chex_error *err) {
    const struct chex_eval_settings *s = p->s;
    const bool first = p->group->rank == 0;
    if (first)
        CHEX_TRY(chex_eval_output_check(&p->output, err));
    CHEX_TRY(chex_eval_network_open(s, 0, &p->network, err));
    if (p->network.networks > 1 && p->pictures)
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--heat-maps: --checkpoint %s is an ensemble of %d networks (expected "
            "one, whose map is drawn)",
            s->checkpoint, p->network.networks);
    CHEX_TRY(chex_eval_network_sizes(s, &p->network, first, &p->stored_px, &p->image_px, err));
    digest_checkpoint(p);
    return CHEX_OK;
}

/* Collective. */
static enum chex_status compare_checkpoints(const struct prediction *p, struct chex_error *err) {
    struct chex_group *g = p->group;
    CHEX_TRY(chex_group_exchange(g, "checkpoint", p->checkpoint_digest, sizeof p->checkpoint_digest,
                                 err));
    const char *all = g->all;
    for (int r = 1; r < g->size; r++)
        if (memcmp(all, all + (size_t)r * sizeof p->checkpoint_digest,
                   sizeof p->checkpoint_digest) != 0)
            return chex_error_set(err, CHEX_E_DATA,
                                  "--checkpoint %s: rank %d reads another file than rank 0",
                                  p->s->checkpoint, r);
    return CHEX_OK;
}

/* Begins or continues the results of what they depend on. Only on rank 0. */
static enum chex_status begin_output(struct prediction *p, struct chex_error *err) {
    const struct chex_image_list *l = p->list;
    const struct chex_engine_impl *impl = p->engine.engine->impl;
    CHEX_AUTO_FREE char *lines = chex_fs_format(
        "version of chexnet=%s\ncheckpoint=%s\nlist of images=%zu %016llx\n--weights=%s\n"
        "--image-size=%d\n--stored-size=%d\n--engine=%s:%s\n--precision=%s\n--heat-maps=%zu\n"
        "--sheet=%d\n--ensemble=%s\n",
        CHEXNET_VERSION, p->checkpoint_digest, l->count, (unsigned long long)l->digest,
        p->network.about.weights ? p->network.about.weights : "unknown", p->image_px, p->stored_px,
        impl->name, impl->variant(p->engine.engine->self),
        chex_precision_names[p->engine.precision], p->pictures, p->s->sheet,
        chex_ensemble_names[p->network.mean]);
    CHEX_TRY(lines ? chex_eval_output_begin(&p->output, err) : chex_error_memory(err, NULL));
    return chex_partial_begin(p->s->output, lines, p->s->force, err);
}

static enum chex_status collect_facts(struct prediction *p, struct chex_error *err) {
    const struct chex_deployment *d = p->network.deployment;
    p->facts =
        chex_result(CHEX_FIELD("schema", "chexnet-predict"), CHEX_FIELD("version", 1),
                    CHEX_MEMBER(p->s, checkpoint), CHEX_MEMBER(p, checkpoint_digest),
                    CHEX_MEMBER(p->network.net, model), CHEX_FIELD("resize", CHEX_RESIZE_NAME),
                    CHEX_FIELD("stored_size_px", p->stored_px),
                    CHEX_FIELD("image_size_px", p->image_px), CHEX_FIELD("engine", p->engine.spec),
                    CHEX_FIELD("precision", chex_precision_names[p->engine.precision]),
                    CHEX_FIELD("decisions", (bool)(d != NULL)),
                    CHEX_FIELD_IF(d != NULL, "threshold_rule", d->rule),
                    CHEX_FIELD_IF(d != NULL, "recalibration", d->recalibration),
                    CHEX_FIELD("feature_distance", (bool)(d && d->features)),
                    CHEX_FIELD("tool_version", "chexnet " CHEXNET_VERSION));
    if (p->network.networks > 1) {
        chex_json_set(&p->facts, "ensemble", json_string(chex_ensemble_names[p->network.mean]));
        chex_json_set(&p->facts, "members", json_incref(p->network.facts));
    }
    return p->facts ? CHEX_OK : chex_error_memory(err, NULL);
}

/* Collective. */
static enum chex_status prepare(struct prediction *p, struct chex_error *err) {
    const struct chex_eval_settings *s = p->s;
    struct chex_group *g = p->group;
    enum chex_status st = CHEX_OK;
    CHEX_TRY(chex_eval_engine_choose(&p->engine, p->set, s, &p->world, err));
    p->workers = s->workers ? (int)s->workers : p->world.binding.threads;
    CHEX_TRY(chex_group_agree(g, open_network(p, err), err));
    CHEX_TRY(compare_checkpoints(p, err));
    CHEX_TRY(chex_image_list_create(p->names, p->name_count, s->output, g, &p->list, err));
    CHEX_TRY(chex_group_agree(g,
                              chex_eval_engine_open(&p->engine, s, &p->world, &p->network,
                                                    p->image_px, (int)s->batch_size, err),
                              err));
    if (g->rank == 0 && (st = collect_facts(p, err)) == CHEX_OK)
        st = begin_output(p, err);
    return chex_group_follow(g, 0, st, err);
}

/* ---- the results ---- */

static struct chex_eval_output output_of(const struct chex_eval_settings *s) {
    static const char *const files[] = {"predictions.csv", "rejected.csv", KEY_FILE,
                                        "contact-sheet.html", NULL};
    static const char *const dirs[] = {"maps", NULL};
    return chex_eval_output_of(s, KEY_FILE, files, dirs);
}

/* Gives the heat maps a second name in the folder that is published: a killed run still has them.
 */
static enum chex_status add_maps(const char *out, const char *folder, struct chex_error *err) {
    const struct chex_path from = chex_path(out, CHEX_PARTIAL_NAME "/maps");
    const struct chex_path to = chex_path(folder, "maps");
    CHEX_TRY(chex_fs_mkdirs(to.text, err));
    DIR *d = opendir(from.text);
    if (!d)
        return chex_error_errno(err, CHEX_E_ENV, errno, "cannot read folder %s", from.text);
    enum chex_status st = CHEX_OK;
    for (struct dirent *e; st == CHEX_OK && (e = readdir(d));)
        if (e->d_name[0] != '.' && !chex_fs_is_temp(e->d_name, NULL))
            st = chex_fs_alias(chex_path(from.text, e->d_name).text,
                               chex_path(to.text, e->d_name).text, err);
    closedir(d);
    return st;
}

/* The facts and the counts, without times: equal runs give equal files. */
static json_t *result_of(const json_t *facts, const struct chex_predict_result *r) {
    json_t *flags = json_object(), *o = json_copy((json_t *)(uintptr_t)facts);
    for (int i = 0; i < CHEX_FLAG_COUNT; i++)
        json_object_set_new(flags, chex_image_flag_names[i], chex_json_unsigned(r->flags[i]));
    json_object_set_new(o, "images", chex_json_unsigned(r->images));
    json_object_set_new(o, "rejected", chex_json_unsigned(r->rejected));
    json_object_set_new(o, "flags", flags);
    return o;
}

static enum chex_status write_files(const struct chex_eval_settings *s,
                                    const struct chex_predict_config *config, const char *folder,
                                    const json_t *facts, struct chex_predict_result *result,
                                    struct chex_error *err) {
    CHEX_TRY(chex_predict_write(config, folder, result, err));
    if (config->pictures)
        CHEX_TRY(add_maps(s->output, folder, err));
    struct chex_textfile t;
    CHEX_TRY(chex_textfile_open_in(folder, KEY_FILE, &t, err));
    const enum chex_status st =
        chex_result_print(t.f, result_of(facts, result), NULL, JSON_INDENT(1), err);
    return chex_textfile_close(&t, st, err);
}

/* Writes all result files or none, then removes the unfinished results. */
static enum chex_status publish_results(const struct chex_eval_settings *s,
                                        const struct chex_predict_config *config,
                                        const json_t *facts, struct chex_predict_result *result,
                                        struct chex_error *err) {
    struct chex_publish publish;
    CHEX_TRY(chex_publish_begin(s->output, KEY_FILE, &publish, err));
    enum chex_status st = write_files(s, config, publish.path, facts, result, err);
    if (st == CHEX_OK)
        st = chex_publish_replace(&publish, "maps", err);
    if (st == CHEX_OK)
        st = chex_publish_replace(&publish, "contact-sheet.html", err);
    st = chex_publish_end(&publish, st, err);
    if (st != CHEX_OK && result->images)
        return st;
    /* Without a usable image there is nothing to go on with. */
    struct chex_error ignored = {0};
    chex_fs_remove_tree(chex_path(s->output, CHEX_PARTIAL_NAME).text, &ignored);
    return st;
}

/* Prints the counts and warns about flags. */
static enum chex_status print_results(const struct chex_eval_settings *s, const json_t *facts,
                                      const struct chex_predict_result *r, FILE *out,
                                      struct chex_error *err) {
    json_t *o = result_of(facts, r);
    const size_t made = r->images + r->rejected - r->kept;
    for (int i = 0; i < CHEX_FLAG_COUNT; i++)
        if (r->flags[i])
            chex_warn("%zu image%s with flag %s: %s", r->flags[i], chex_text_s(r->flags[i]),
                      chex_image_flag_names[i], chex_image_flag_texts[i]);
    json_object_set_new(o, "kept", chex_json_unsigned(r->kept));
    json_object_set_new(o, "seconds", chex_json_real(r->seconds));
    json_object_set_new(o, "images_per_s",
                        chex_json_real(r->seconds > 0 ? (double)made / r->seconds : 0));
    json_object_set_new(o, "output", chex_json_text(s->output));
    return chex_result_print(
        out, o,
        s->common.json ? NULL
                       : "{rejected?{rejected file} cannot be used: {output}/rejected.csv\n}"
                         "{output}/predictions.csv: {images image}{kept?, {kept} of them kept from "
                         "the interrupted run,} in {seconds:t}, {images_per_s:.1f} img/s\n",
        JSON_COMPACT, err);
}

/* ---- the run ---- */

/* Says which checks are not possible, and whether the thresholds belong to other inputs. */
static void warn_about_deployment(const struct prediction *p) {
    const struct chex_deployment *d = p->network.deployment;
    const char *path = p->s->checkpoint;
    if (!d || !d->features)
        chex_warn("%s has no feature statistics, so images that are far from the training images "
                  "are not found: chex-eval deploy writes a file that has them",
                  path);
    if (!d)
        return;
    const int image = (int)json_integer_value(json_object_get(d->provenance, "image_size_px"));
    const int stored = p->network.about.stored_size;
    if ((image && image != p->image_px) || (stored && stored != p->stored_px))
        chex_warn("%s: its thresholds and statistics are for %d of %d px, and the images are "
                  "predicted at %d of %d px",
                  path, image, stored, p->image_px, p->stored_px);
}

/* Collective. */
static enum chex_status predict(struct prediction *p, FILE *out, struct chex_error *err) {
    const struct chex_eval_settings *s = p->s;
    struct chex_predict_result result;
    CHEX_TRY(prepare(p, err));
    const struct chex_predict_config config = {.list = p->list,
                                               .engine = p->engine.engine,
                                               .ensemble = &p->engine.ensemble,
                                               .group = p->group,
                                               .deployment = p->network.deployment,
                                               .class_names = p->network.about.class_names,
                                               .out = s->output,
                                               .stored_px = p->stored_px,
                                               .workers = p->workers,
                                               .threads = p->engine.threads,
                                               .pictures = p->pictures,
                                               .thumbs = s->sheet ? SHEET_IMAGES : 0,
                                               .max_bad =
                                                   s->max_bad < 0 ? SIZE_MAX : (size_t)s->max_bad,
                                               .progress = !s->common.quiet};
    const int ranks = p->group->size;
    chex_info("%s at %d of %d px, engine %s, %s, %d rank%s, %d thread%s and %d decoder%s each; "
              "%zu file%s",
              p->network.net->model, p->image_px, p->stored_px, p->engine.spec,
              chex_precision_names[p->engine.precision], ranks, chex_text_s((uint64_t)ranks),
              p->engine.threads, chex_text_s((uint64_t)p->engine.threads), p->workers,
              chex_text_s((uint64_t)p->workers), p->list->count, chex_text_s(p->list->count));
    if (p->group->rank == 0)
        warn_about_deployment(p);
    enum chex_status st = chex_predict_images(&config, &result, err);
    if (st == CHEX_OK && p->group->rank == 0)
        st = publish_results(s, &config, p->facts, &result, err);
    st = chex_group_follow(p->group, 0, st, err);
    if (st == CHEX_OK && p->group->rank == 0)
        st = print_results(s, p->facts, &result, out, err);
    return st;
}

static void release(struct prediction *p) {
    chex_image_list_destroy(p->list);
    chex_eval_engine_close(&p->engine);
    chex_eval_network_release(&p->network);
    json_decref(p->facts);
    chex_group_destroy(p->group);
    free(p->names);
}

enum chex_status chex_evaluate_predict(const struct chex_opt_set *set,
                                       const struct chex_eval_settings *s, FILE *out,
                                       struct chex_error *err) {
    struct prediction p = {.s = s, .set = set, .output = output_of(s)};
    CHEX_TRY(check_options(&p, err));
    CHEX_TRY(take_names(&p, set, err));
    enum chex_status st = chex_world_open(&p.world, err);
    if (st != CHEX_OK) {
        free(p.names);
        return st;
    }
    st = chex_group_of_launch(&p.world.launch, CHEX_GROUP_WORK_MS, &p.group, err);
    bool together = false;
    if (st == CHEX_OK) {
        st = predict(&p, out, err);
        together = !p.world.group->broken && !p.group->broken;
        chex_eval_output_end(&p.output, st);
    }
    /* If all ranks fail together, only rank 0 reports the cause. */
    if (st != CHEX_OK && (!together || p.world.launch.rank == 0))
        chex_err("%s", err->text);
    err->text[0] = '\0';
    release(&p);
    chex_world_close(&p.world, st, together);
    return st;
}
