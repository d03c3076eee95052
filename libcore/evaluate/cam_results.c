/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the result of chex-eval cam, as a table or as JSON.
 */
#include <math.h>
#include <stdio.h>

#include "base/result.h"
#include "base/text.h"
#include "evaluate/cam_run.h"
#include "infer/cam_picture.h"

static bool is_drawn(const struct chex_eval_cam *m, int c) {
    for (int i = 0; i < m->count; i++)
        if (m->drawn[i] == c)
            return true;
    return false;
}

/* (side) pixel coordinates of the map's positions, along one axis of the file's image. */
static json_t *places(const struct chex_eval_cam *m, const struct chex_cam_view *view, bool down) {
    json_t *list = json_array();
    for (int i = 0; i < m->maps->side; i++) {
        const double at = m->maps->first_px + i * m->maps->step_px;
        double x, y;
        chex_cam_to_file(view, at, at, &x, &y);
        json_array_append_new(list, json_real(down ? y : x));
    }
    return list;
}

static json_t *map_of(const struct chex_eval_cam *m, int c) {
    const size_t side = (size_t)m->maps->side, classes = (size_t)m->maps->classes;
    json_t *rows = json_array();
    for (size_t y = 0; y < side; y++) {
        json_t *row = json_array();
        for (size_t x = 0; x < side; x++)
            json_array_append_new(
                row, json_real((double)m->maps->local[(y * side + x) * classes + (size_t)c]));
        json_array_append_new(rows, row);
    }
    return rows;
}

/* The peak is the pixel of the file there. */
static json_t *class_object(const struct chex_eval_cam *m, const struct chex_cam_view *view,
                            int c) {
    const struct chex_cam_peak peak = chex_cam_peak(m->maps, c);
    double x, y;
    chex_cam_to_file(view, peak.x, peak.y, &x, &y);
    const int x_px = (int)fmin(fmax(round(x), 0), view->width - 1),
              y_px = (int)fmin(fmax(round(y), 0), view->height - 1);
    return chex_result(
        CHEX_FIELD("name", m->network.about.class_names[c]),
        CHEX_FIELD("probability", m->probabilities[c]), CHEX_FIELD("logit", m->maps->logit[c]),
        CHEX_FIELD("peak", chex_result(CHEX_FIELD("x_px", x_px), CHEX_FIELD("y_px", y_px),
                                       CHEX_FIELD("local_logit", peak.local))),
        CHEX_FIELD("drawn", is_drawn(m, c)), CHEX_FIELD("local_logits", map_of(m, c)));
}

static json_t *result_of(const struct chex_eval_cam *m, const struct chex_cam_view *view) {
    json_t *classes = json_array();
    for (int c = 0; c < m->maps->classes; c++)
        json_array_append_new(classes, class_object(m, view, c));
    return chex_result(
        CHEX_FIELD("schema", 1), CHEX_MEMBER(m->s, image), CHEX_MEMBER(m->s, checkpoint),
        CHEX_MEMBER(m->network.net, model), CHEX_FIELD("engine", m->engine.spec),
        CHEX_FIELD("precision", chex_precision_names[m->engine.precision]),
        CHEX_FIELD("image_size_px", m->image_px), CHEX_FIELD("stored_size_px", m->stored_px),
        CHEX_FIELD("width_px", view->width), CHEX_FIELD("height_px", view->height),
        CHEX_FIELD("positions_x_px", places(m, view, false)),
        CHEX_FIELD("positions_y_px", places(m, view, true)),
        CHEX_FIELD("too_coarse", (bool)(m->maps->side < CHEX_CAM_FEWEST_POSITIONS)),
        CHEX_FIELD("classes", classes));
}

static void print_table(const json_t *o, FILE *out) {
    const json_t *classes = json_object_get(o, "classes"), *class;
    int wide = 5;
    size_t i;
    json_array_foreach(classes, i, class) {
        const int n = chex_text_columns(json_string_value(json_object_get(class, "name")));
        wide = n > wide ? n : wide;
    }
    fprintf(out, "%-*s  probability    logit  at peak  peak x, y (px)\n", wide, "finding");
    json_array_foreach(classes, i, class) {
        const char *name = json_string_value(json_object_get(class, "name"));
        chex_text_printf(out, "%-*s", chex_text_field(name, wide), name);
        chex_result_text(out, class,
                         "  {probability:11.4f}  {logit:7.3f}  {peak.local_logit:7.3f}  "
                         "{peak.x_px}, {peak.y_px}{drawn?  drawn}\n");
    }
    const size_t side = json_array_size(json_object_get(o, "positions_x_px"));
    fprintf(out, "map: %zu x %zu position%s", side, side, chex_text_s(side));
    chex_result_text(out, o,
                     "{too_coarse?, too coarse to say where a finding is}\n"
                     "for research, not for clinical use\n");
}

enum chex_status chex_eval_cam_print(const struct chex_eval_cam *m,
                                     const struct chex_cam_view *view, FILE *out,
                                     struct chex_error *err) {
    json_t *o = result_of(m, view);
    if (m->s->common.json || !o)
        return chex_result_print(out, o, NULL, JSON_COMPACT | JSON_REAL_PRECISION(9), err);
    print_table(o, out);
    json_decref(o);
    return CHEX_OK;
}
