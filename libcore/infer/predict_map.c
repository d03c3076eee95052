/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws heat maps of predicted images (predict_images.h).
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "infer/cam_picture.h"
#include "infer/predict_images.h"
#include "infer/split_run.h"

static const double opacity = 0.55; /* of the strongest evidence, as in chex-eval cam */

/* The classes to draw, (count). */
static int choose(const struct chex_predict_config *c, const double *p, int classes, int *drawn) {
    const struct chex_deployment *d = c->deployment;
    int count = 0, best = 0;
    for (int k = 0; k < classes; k++) {
        best = p[k] > p[best] ? k : best;
        if (d && chex_calibrate(&d->calibration[k], p[k]) >= d->threshold[k])
            drawn[count++] = k;
    }
    if (!count)
        drawn[count++] = best;
    return count;
}

static char *path_of(const struct chex_predict_config *c, size_t index) {
    char name[64];
    snprintf(name, sizeof name, "%s", chex_fs_name(c->list->images[index].id));
    char *dot = strrchr(name, '.');
    if (dot)
        *dot = '\0';
    for (char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("._-", *at))
            *at = '_';
    return chex_fs_format("%s/" CHEX_PARTIAL_NAME "/maps/%07zu-%s.png", c->out, index + 1, name);
}

static enum chex_status write_map(const struct chex_cam_picture *picture, const char *path,
                                  const char *source, struct chex_error *err) {
    struct chex_cam_sheet sheet = {0};
    CHEX_AUTO_FREE char *title = chex_cam_title(picture);
    const char *texts[] = {"Title",
                           title,
                           "Source",
                           source,
                           "Description",
                           "class activation map: local logit above the image's; for research, "
                           "not for clinical use",
                           "Software",
                           "chexnet " CHEXNET_VERSION,
                           NULL};
    CHEX_TRY(title ? chex_cam_draw(picture, &sheet, err) : chex_error_memory(err, "a heat map"));
    const enum chex_status st = chex_cam_write_png(&sheet, path, texts, err);
    free(sheet.rgb);
    return st;
}

enum chex_status chex_predict_draw(const struct chex_predict_config *c, size_t index,
                                   const struct chex_image *picture, int image, const float *logits,
                                   struct chex_error *err) {
    const int classes = c->engine->config.net->classes;
    struct chex_cam *cam = NULL;
    CHEX_AUTO_FREE double *p = chex_alloc_zeroed((size_t)classes, sizeof *p);
    CHEX_AUTO_FREE int *drawn = chex_alloc_zeroed((size_t)classes, sizeof *drawn);
    CHEX_AUTO_FREE char *path = path_of(c, index);
    CHEX_ALLOCATED(p && drawn && path, err, "a heat map");
    CHEX_TRY(chex_cam_of_batch(c->engine, image, logits, &cam, err));
    for (int k = 0; k < classes; k++)
        p[k] = chex_eval_as_written(chex_eval_probability((double)logits[k]));
    const struct chex_cam_picture map = {.cam = cam,
                                         .image = picture,
                                         .view = chex_cam_view_of(picture->width, picture->height,
                                                                  c->stored_px,
                                                                  c->engine->config.image_size),
                                         .class_names = (const char *const *)c->class_names,
                                         .probabilities = p,
                                         .drawn = drawn,
                                         .count = choose(c, p, classes, drawn),
                                         .alpha = opacity};
    const enum chex_status st = write_map(&map, path, chex_fs_name(c->list->images[index].id), err);
    chex_cam_destroy(cam);
    return st;
}
