/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-eval cam: draws the class activation map of one image, which shows where the network sees a
 * finding.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/choose.h"
#include "eval_cam.h"
#include "image/convert.h"
#include "infer/cam_picture.h"
#include "input/augment.h"
#include "launch/world.h"

static const struct chex_opt cam_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("What is looked at"),
    OPTION("image", STRING, EVAL_AT(image), .letter = 'i', .metavar = "FILE",
           .help = "radiograph: PNG, JPEG or DICOM"),
    EVAL_CHECKPOINT_ROWS,
    OPTION("class", STRING, EVAL_AT(class_list), .metavar = "NAMES",
           .help = "findings to draw, with commas between, or all; by default the most "
                   "probable one"),
    OPTION_GROUP("Network"),
    EVAL_NETWORK_ROWS,
    EVAL_STORED_SIZE_ROW,
    EVAL_THREADS_ROW("compute threads; 0: the cores of the process"),
    OPTION_GROUP("Picture"),
    OPTION("alpha", FLOAT, EVAL_AT(alpha), .def = "0.55", .metavar = "SHARE", .min = 0, .max = 1,
           .help = "opacity of the strongest evidence, 0 to 1"),
    OPTION("scale", FLOAT, EVAL_AT(scale), .def = "0", .metavar = "LOGIT", .min = 0, .max = 1000,
           .help = "evidence at the top of the scale, to compare pictures; 0: the most of each "
                   "finding, at least 1"),
    OPTION_GROUP("Results"),
    EVAL_OUTPUT_ROW("FILE",
                    "the picture; its name ends in .png. The same picture with text is beside "
                    "it, in .svg"),
    EVAL_FORCE_ROW,
};

/* ---- checks of the options ---- */

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static enum chex_status check_output(const struct eval_settings *s, const char *path,
                                     struct chex_error *err) {
    if (same_file(path, s->image) || same_file(path, s->checkpoint))
        return chex_error_set(err, CHEX_E_USAGE, "--output %s is what is read: name another file",
                              path);
    if (chex_fs_is_dir(path))
        return chex_error_set(err, CHEX_E_USAGE, "--output %s is a folder: name a file in it",
                              path);
    if (chex_fs_exists(path) && !s->force)
        return chex_error_set(err, CHEX_E_USAGE, "--output %s exists: say --force to replace it",
                              path);
    return chex_fs_check_create(path, err);
}

/* "DIR/NAME.svg" for "DIR/NAME.png" in a fresh string. NULL: out of memory. */
static char *svg_of(const char *png) {
    return chex_fs_format("%.*s.svg", (int)(strlen(png) - 4), png);
}

static enum chex_status check_options(const struct eval_settings *s, struct chex_error *err) {
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
    char *svg = svg_of(s->output);
    if (!svg)
        return chex_error_memory(err, NULL);
    enum chex_status st = check_output(s, s->output, err);
    if (st == CHEX_OK)
        st = check_output(s, svg, err);
    free(svg);
    return st;
}

/* ---- the network ---- */

static enum chex_status open_network(struct eval_cam *m, struct chex_error *err) {
    const struct eval_settings *s = m->s;
    CHEX_TRY(eval_network_open(s, 0, &m->network, err));
    const size_t classes = (size_t)m->network.about.classes;
    m->drawn = chex_alloc_zeroed(classes, sizeof *m->drawn);
    m->probabilities = chex_alloc_zeroed(classes, sizeof *m->probabilities);
    if (!m->drawn || !m->probabilities)
        return chex_error_memory(err, "%zu findings", classes);
    if (s->class_list)
        CHEX_TRY(eval_cam_classes(s->class_list, &m->network, m->drawn, &m->count, err));
    return eval_network_sizes(s, &m->network, true, &m->stored_px, &m->image_px, err);
}

static enum chex_status open_engine(struct eval_cam *m, struct chex_error *err) {
    struct chex_gpu gpu;
    bool has_gpu;
    CHEX_TRY(chex_choose_engine(m->s->engine, &m->world.gpu, &m->engine_spec, err));
    CHEX_TRY(chex_choose_gpu(&m->world.launch, m->world.group, &m->world.binding, &m->world.gpu,
                             m->engine_spec, &gpu, &has_gpu, err));
    m->precision = (enum chex_precision)m->s->precision;
    CHEX_TRY(chex_choose_precision(m->world.group, m->engine_spec, m->precision_asked,
                                   &m->precision, err));
    m->threads = m->s->threads ? (int)m->s->threads : m->world.binding.threads;
    const struct chex_engine_config config = {.net = m->network.net,
                                              .image_size = m->image_px,
                                              .batch = 1,
                                              .precision = m->precision,
                                              .threads = m->threads,
                                              .device = has_gpu ? &gpu : NULL};
    CHEX_TRY(chex_engine_create(m->engine_spec, &config, &m->engine, err));
    return chex_engine_set(m->engine, CHEX_STATE_PARAMS, m->network.state, err);
}

/* ---- the image ---- */

/* Makes the network's input from a row in the format of a shard, with the evaluation's centre crop.
 */
static enum chex_status crop_row(struct eval_cam *m, const uint8_t *row, struct chex_error *err) {
    const struct chex_crop crop = chex_augment_centre(m->stored_px, m->image_px);
    const size_t px = (size_t)m->image_px;
    m->pixels = chex_alloc_aligned(px * px, sizeof *m->pixels);
    void *scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(m->stored_px, m->image_px));
    if (m->pixels && scratch)
        chex_augment_apply(row, m->stored_px, &crop, m->image_px, false, m->pixels, scratch);
    free(scratch);
    return m->pixels && scratch ? CHEX_OK : chex_error_memory(err, NULL);
}

/* Decodes the image twice: for the network as chex-shard does (a JPEG may then be decoded at a
 * reduced size), and at full size for the picture. */
static enum chex_status convert(struct eval_cam *m, struct chex_convert_worker *w,
                                struct chex_error *err) {
    const uint8_t *data;
    size_t bytes;
    CHEX_TRY(chex_image_read(w->reader, m->s->image, &data, &bytes, err));
    CHEX_TRY(chex_convert_image(w, data, bytes, m->s->image, false, err));
    CHEX_TRY(crop_row(m, w->row, err));
    chex_image_reader_set_target(w->reader, 0);
    return chex_image_decode(w->reader, data, bytes, m->s->image, &m->image, err);
}

static enum chex_status read_image(struct eval_cam *m, struct chex_error *err) {
    struct chex_convert_worker *worker = NULL;
    CHEX_TRY(chex_convert_workers(1, m->stored_px, &worker, err));
    enum chex_status st = convert(m, worker, err);
    chex_convert_workers_free(worker, 1);
    return st;
}

/* ---- the maps ---- */

/* Computes the maps and the probabilities, rounded to float as in predictions.csv. */
static enum chex_status score(struct eval_cam *m, struct chex_error *err) {
    int best = 0;
    CHEX_TRY(chex_cam_create(m->engine, m->pixels, &m->maps, err));
    for (int c = 0; c < m->maps->classes; c++) {
        const double z = (double)m->maps->logit[c], e = exp(-fabs(z));
        if (!isfinite(z))
            return chex_error_set(err, CHEX_E_DIVERGED,
                                  "image %s, finding %s: the logit is %g, expected a finite number",
                                  m->s->image, m->network.about.class_names[c],
                                  isnan(z) ? (double)NAN : z);
        m->probabilities[c] = (double)(float)(z < 0 ? e / (1 + e) : 1 / (1 + e));
        if (z > (double)m->maps->logit[best])
            best = c;
    }
    if (!m->s->class_list)
        m->drawn[m->count++] = best;
    return CHEX_OK;
}

/* "Mass 0.812, Nodule 0.204" */
static char *title_of(const struct eval_cam *m) {
    char *title = chex_fs_format("%s", "");
    for (int i = 0; i < m->count && title; i++) {
        const int c = m->drawn[i];
        char *longer = chex_fs_format("%s%s%s %.4f", title, i ? ", " : "",
                                      m->network.about.class_names[c], m->probabilities[c]);
        free(title);
        title = longer;
    }
    return title;
}

static enum chex_status write_picture(const struct eval_cam *m,
                                      const struct chex_cam_picture *picture,
                                      const struct chex_cam_sheet *sheet, struct chex_error *err) {
    char *title = title_of(m), *svg = svg_of(m->s->output);
    char *how = chex_fs_format("class activation map of %s (%s, %d of %d px): local logit above "
                               "the image's; for research, not for clinical use",
                               chex_fs_name(m->s->checkpoint), m->network.net->model, m->image_px,
                               m->stored_px);
    const char *texts[] = {"Title",       title, "Source",   chex_fs_name(m->s->image),
                           "Description", how,   "Software", "chexnet " CHEXNET_VERSION,
                           NULL};
    int lock = -1;
    enum chex_status st = title && how && svg ? eval_file_lock(m->s->output, &lock, err)
                                              : chex_error_memory(err, NULL);
    if (st == CHEX_OK) {
        chex_fs_remove_temps(svg);
        st = chex_cam_write_png(sheet, m->s->output, texts, err);
    }
    if (st == CHEX_OK)
        st = chex_cam_write_svg(picture, sheet, m->s->output, svg, err);
    eval_file_unlock(m->s->output, lock);
    free(title);
    free(how);
    free(svg);
    return st;
}

static enum chex_status draw(const struct eval_cam *m, const struct chex_cam_view *view,
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

static enum chex_status make_cam(struct eval_cam *m, struct chex_error *err) {
    CHEX_TRY(open_network(m, err));
    CHEX_TRY(read_image(m, err));
    CHEX_TRY(open_engine(m, err));
    CHEX_TRY(score(m, err));
    const struct chex_cam_view view =
        chex_cam_view_of(m->image.width, m->image.height, m->stored_px, m->image_px);
    CHEX_TRY(draw(m, &view, err));
    return eval_cam_print(m, &view, err);
}

static enum chex_status run_cam(struct chex_opt_set *set, void *settings, struct chex_error *err) {
    const struct eval_settings *s = settings;
    struct eval_cam m = {.s = s,
                         .precision_asked = chex_opt_origin(set, "precision") != CHEX_FROM_DEFAULT};
    CHEX_TRY(check_options(s, err));
    CHEX_TRY(chex_world_open_alone(&m.world, err));
    enum chex_status st = make_cam(&m, err);
    chex_cam_destroy(m.maps);
    chex_engine_destroy(m.engine);
    eval_network_release(&m.network);
    chex_image_release(&m.image);
    free(m.pixels);
    free(m.probabilities);
    free(m.drawn);
    chex_world_close(&m.world, st, true);
    return st;
}

const struct chex_opt_program eval_cam_program = {
    .name = "chex-eval cam",
    .summary = "where in an image the network sees a finding, as a picture",
    .usage = "chex-eval cam --image FILE --checkpoint FILE --output FILE.png [options]",
    .opts = cam_opts,
    .count = COUNT(cam_opts),
    .epilog = "Examples\n"
              "  chex-eval cam --image chest.png --checkpoint run/best.h5 --output cam.png\n"
              "  chex-eval cam --image chest.dcm --checkpoint run/best.h5 --class "
              "Effusion,Mass --output two.png\n\n" EVAL_EXIT_STATUS,
    .settings_size = sizeof(struct eval_settings),
    .run = run_cam,
    .alone = true,
    .word = "cam",
};
