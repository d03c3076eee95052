/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of chex-eval predict: checks and locks the folder of --output, publishes all files
 * together, and prints the counts.
 */
#include "evaluate/predict_output.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/result.h"
#include "base/text.h"
#include "base/textfile.h"
#include "report/publish.h"

#define KEY_FILE "predict.json" /* moved last: if it exists, all results exist */

struct chex_eval_output chex_eval_predict_output(const struct chex_eval_settings *s) {
    static const char *const files[] = {"predictions.csv", "rejected.csv", KEY_FILE,
                                        "contact-sheet.html", NULL};
    static const char *const dirs[] = {"maps", NULL};
    return chex_eval_output_of(s, KEY_FILE, files, dirs);
}

/* ---- publishing ---- */

/* Gives the heat maps a second name in the folder that is published: a killed run still has them.
 */
static enum chex_status add_maps(const char *out, const char *folder, struct chex_error *err) {
    char *from = chex_fs_join(out, CHEX_PARTIAL_NAME "/maps"), *to = chex_fs_join(folder, "maps");
    enum chex_status st = from && to ? chex_fs_mkdirs(to, err) : chex_error_memory(err, "%s", out);
    DIR *d = st == CHEX_OK ? opendir(from) : NULL;
    if (st == CHEX_OK && !d)
        st = chex_error_errno(err, CHEX_E_ENV, errno, "cannot read folder %s", from);
    for (struct dirent *e; st == CHEX_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.' || chex_fs_is_temp(e->d_name, NULL))
            continue;
        char *file = chex_fs_join(from, e->d_name), *path = chex_fs_join(to, e->d_name);
        st = file && path ? chex_fs_alias(file, path, err) : chex_error_memory(err, "%s", out);
        free(file);
        free(path);
    }
    if (d)
        closedir(d);
    free(from);
    free(to);
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

enum chex_status chex_eval_predict_publish(const struct chex_eval_settings *s,
                                           const struct chex_predict_config *config, json_t *facts,
                                           struct chex_predict_result *result,
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
    char *partial = chex_fs_join(s->output, CHEX_PARTIAL_NAME);
    if (partial)
        chex_fs_remove_tree(partial, &ignored);
    free(partial);
    return st;
}

/* ---- printing ---- */

enum chex_status chex_eval_predict_print(const struct chex_eval_settings *s, const json_t *facts,
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
