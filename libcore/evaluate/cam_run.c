/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval cam: draws the class activation map of one image, which shows where the network sees a
 * finding.
 */
#include "evaluate/cam_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "evaluate/output.h"
#include "evaluate/subcommands.h"
#include "image/convert.h"
#include "infer/split_run.h"
#include "input/augment.h"
#include "label/classes.h"

/* ---- checks of the options ---- */

/* "DIR/NAME.svg" for "DIR/NAME.png" in a fresh string. NULL: out of memory. */
static char *svg_of(const char *png) {
    return chex_fs_format("%.*s.svg", (int)(strlen(png) - 4), png);
}

static enum chex_status check_options(const struct chex_eval_settings *s, struct chex_error *err) {
    if (!s->image || !s->checkpoint || !s->output)
        return chex_error_set(err, CHEX_E_USAGE, "chex-eval cam needs --%s",
                              !s->image        ? "image FILE"
                              : !s->checkpoint ? "checkpoint FILE"
                                               : "output FILE.png");
    if (s->common.json) {
        CHEX_TRY(chex_text_for_json("--image", s->image, "--json", err));
        CHEX_TRY(chex_text_for_json("--checkpoint", s->checkpoint, "--json", err));
    }
    if (chex_fs_is_dir(s->image))
        return chex_error_set(err, CHEX_E_USAGE, "--image %s: a folder, expected one image",
                              s->image);
    const size_t n = strlen(s->output);
    if (n < 5 || strcasecmp(s->output + n - 4, ".png") != 0)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--output %s: expected the name of a picture that ends in .png",
                              s->output);
    CHEX_AUTO_FREE char *svg = svg_of(s->output);
    const char *const read[] = {s->image, s->checkpoint, NULL};
    CHEX_TRY(chex_eval_file_check(s, s->output, read, err));
    return svg ? chex_eval_file_check(s, svg, read, err) : chex_error_memory(err, NULL);
}

/* ---- --class ---- */

static enum chex_status add_class(const char *typed, const struct chex_eval_network *n,
                                  int *drawn_out, int *count_out, struct chex_error *err) {
    const char *const *names = (const char *const *)n->about.class_names;
    const int c = chex_class_in_list(typed, names, n->about.classes);
    if (c < 0)
        return chex_class_not_in_list("--class", "the network", typed, names, n->about.classes,
                                      err);
    for (int k = 0; k < *count_out; k++)
        if (drawn_out[k] == c)
            return CHEX_OK;
    drawn_out[(*count_out)++] = c;
    return CHEX_OK;
}

/* Finds the classes of a comma-separated list of names, or all for "all".
 *   - Case does not matter; duplicates count once; the order is that of the list.
 *   - drawn_out has space for all classes of the network.
 *   - CHEX_E_USAGE: the network does not have a name; the text gives the nearest one. */
static enum chex_status find_classes(const char *list, const struct chex_eval_network *n,
                                     int *drawn_out, int *count_out, struct chex_error *err) {
    char name[256];
    *count_out = 0;
    if (strcasecmp(list, "all") == 0 &&
        chex_class_in_list(list, (const char *const *)n->about.class_names, n->about.classes) < 0) {
        for (int c = 0; c < n->about.classes; c++)
            drawn_out[c] = c;
        *count_out = n->about.classes;
        return CHEX_OK;
    }
    for (const char *at = list;; at++) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ",");
        const char *end = at + length;
        while (length && at[length - 1] == ' ')
            length--;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        CHEX_TRY(add_class(name, n, drawn_out, count_out, err));
        at = end;
        if (!*at)
            return CHEX_OK;
    }
}

/* ---- the network ---- */

static enum chex_status open_network(struct chex_eval_cam *m, struct chex_error *err) {
    const struct chex_eval_settings *s = m->s;
    CHEX_TRY(chex_eval_network_open(s, 0, &m->network, err));
    if (m->network.networks > 1)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--checkpoint %s: an ensemble of %d networks (expected one, whose "
                              "map is drawn)",
                              s->checkpoint, m->network.networks);
    const size_t classes = (size_t)m->network.about.classes;
    m->drawn = chex_alloc_zeroed(classes, sizeof *m->drawn);
    m->probabilities = chex_alloc_zeroed(classes, sizeof *m->probabilities);
    CHEX_ALLOCATED(m->drawn && m->probabilities, err, "%zu findings", classes);
    if (s->class_list)
        CHEX_TRY(find_classes(s->class_list, &m->network, m->drawn, &m->count, err));
    return chex_eval_network_sizes(s, &m->network, true, &m->stored_px, &m->image_px, err);
}

/* ---- the image ---- */

/* Makes the network's input from a row in the format of a shard, with the evaluation's centre crop.
 */
static enum chex_status crop_row(struct chex_eval_cam *m, const uint8_t *row,
                                 struct chex_error *err) {
    const struct chex_crop crop = chex_augment_centre(m->stored_px, m->image_px);
    const size_t px = (size_t)m->image_px;
    m->pixels = chex_alloc_aligned(px * px, sizeof *m->pixels);
    CHEX_AUTO_FREE void *scratch =
        chex_alloc_aligned(1, chex_augment_scratch_bytes(m->stored_px, m->image_px));
    CHEX_ALLOCATED(m->pixels && scratch, err, NULL);
    chex_augment_apply(row, m->stored_px, &crop, m->image_px, false, m->pixels, scratch);
    return CHEX_OK;
}

/* Decodes the image twice: for the network as chex-shard does (a JPEG may then be decoded at a
 * reduced size), and at full size for the picture. */
static enum chex_status convert(struct chex_eval_cam *m, struct chex_convert_worker *w,
                                struct chex_error *err) {
    const uint8_t *data;
    size_t bytes;
    CHEX_TRY(chex_image_read(w->reader, m->s->image, &data, &bytes, err));
    CHEX_TRY(chex_convert_image(w, data, bytes, m->s->image, false, err));
    CHEX_TRY(crop_row(m, w->row, err));
    chex_image_reader_set_target(w->reader, 0);
    return chex_image_decode(w->reader, data, bytes, m->s->image, &m->image, err);
}

static enum chex_status read_image(struct chex_eval_cam *m, struct chex_error *err) {
    struct chex_convert_worker *worker = NULL;
    CHEX_TRY(chex_convert_workers(1, m->stored_px, &worker, err));
    enum chex_status st = convert(m, worker, err);
    chex_convert_workers_free(worker, 1);
    return st;
}

/* ---- the maps ---- */

/* Computes the maps and the probabilities, rounded to float as in predictions.csv. */
static enum chex_status score(struct chex_eval_cam *m, struct chex_error *err) {
    int best = 0;
    CHEX_TRY(chex_cam_create(m->engine.engine, m->pixels, &m->maps, err));
    for (int c = 0; c < m->maps->classes; c++) {
        const double z = (double)m->maps->logit[c];
        CHEX_TRY(chex_eval_check_logit(z, m->s->image, m->network.about.class_names[c], err));
        m->probabilities[c] = (double)(float)chex_eval_probability(z);
        if (z > (double)m->maps->logit[best])
            best = c;
    }
    if (!m->s->class_list)
        m->drawn[m->count++] = best;
    return CHEX_OK;
}

static enum chex_status write_picture(const struct chex_eval_cam *m,
                                      const struct chex_cam_picture *picture,
                                      const struct chex_cam_sheet *sheet, struct chex_error *err) {
    CHEX_AUTO_FREE char *title = chex_cam_title(picture), *svg = svg_of(m->s->output);
    CHEX_AUTO_FREE char *how = chex_fs_format(
        "class activation map of %s (%s, %d of %d px): local logit above the "
        "image's; for research, not for clinical use",
        chex_fs_name(m->s->checkpoint), m->network.net->model, m->image_px, m->stored_px);
    const char *texts[] = {"Title",       title, "Source",   chex_fs_name(m->s->image),
                           "Description", how,   "Software", "chexnet " CHEXNET_VERSION,
                           NULL};
    int lock = -1;
    enum chex_status st = title && how && svg ? chex_eval_file_lock(m->s->output, &lock, err)
                                              : chex_error_memory(err, NULL);
    if (st == CHEX_OK) {
        chex_fs_remove_temps(svg);
        st = chex_cam_write_png(sheet, m->s->output, texts, err);
    }
    if (st == CHEX_OK)
        st = chex_cam_write_svg(picture, sheet, m->s->output, svg, err);
    chex_eval_file_unlock(m->s->output, lock);
    return st;
}

static enum chex_status draw(const struct chex_eval_cam *m, const struct chex_cam_view *view,
                             struct chex_error *err) {
    const struct chex_cam_picture picture = {.cam = m->maps,
                                             .image = &m->image,
                                             .view = *view,
                                             .class_names =
                                                 (const char *const *)m->network.about.class_names,
                                             .probabilities = m->probabilities,
                                             .drawn = m->drawn,
                                             .count = m->count,
                                             .alpha = m->s->alpha,
                                             .top = m->s->scale};
    struct chex_cam_sheet sheet = {0};
    CHEX_TRY(chex_cam_draw(&picture, &sheet, err));
    enum chex_status st = write_picture(m, &picture, &sheet, err);
    if (st == CHEX_OK)
        chex_info("%s: %d x %d px, %s at %d of %d px, %d x %d positions", m->s->output, sheet.width,
                  sheet.height, m->network.net->model, m->image_px, m->stored_px, m->maps->side,
                  m->maps->side);
    free(sheet.rgb);
    return st;
}

/* ---- the run ---- */

static enum chex_status make_cam(struct chex_eval_cam *m, FILE *out, struct chex_error *err) {
    CHEX_TRY(open_network(m, err));
    CHEX_TRY(read_image(m, err));
    CHEX_TRY(chex_eval_engine_choose(&m->engine, m->set, m->s, &m->world, err));
    CHEX_TRY(chex_eval_engine_open(&m->engine, m->s, &m->world, &m->network, m->image_px, 1, err));
    CHEX_TRY(score(m, err));
    const struct chex_cam_view view =
        chex_cam_view_of(m->image.width, m->image.height, m->stored_px, m->image_px);
    CHEX_TRY(draw(m, &view, err));
    return chex_eval_cam_print(m, &view, out, err);
}

enum chex_status chex_evaluate_cam(const struct chex_opt_set *set,
                                   const struct chex_eval_settings *s, FILE *out,
                                   struct chex_error *err) {
    struct chex_eval_cam m = {.s = s, .set = set};
    CHEX_TRY(check_options(s, err));
    CHEX_TRY(chex_world_open_alone(&m.world, err));
    enum chex_status st = make_cam(&m, out, err);
    chex_cam_destroy(m.maps);
    chex_eval_engine_close(&m.engine);
    chex_eval_network_release(&m.network);
    chex_image_release(&m.image);
    free(m.pixels);
    free(m.probabilities);
    free(m.drawn);
    chex_world_close(&m.world, st, true);
    return st;
}
