/* SPDX-License-Identifier: Apache-2.0
 *
 * Class activation maps: runs the engine, places the positions, interpolates. infer/cam.h explains
 * the method.
 */
#include "infer/cam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "input/augment.h"

static const struct chex_op *head_of(const struct chex_net *net) {
    return &net->ops[net->op_count - 1];
}

/* Walks from the head to the image. Output i of a window is centred on input
 * i * stride + (kernel - 1) / 2 - pad. It is enough to follow one path: all operations that write
 * the same buffer, and both inputs of a residual add, have the same positions. */
void chex_cam_place(const struct chex_net *net, double *first_px_out, double *step_px_out) {
    double first = 0, step = 1;
    for (int b = head_of(net)->in; b != CHEX_NET_IMAGE;) {
        const struct chex_op *op = &net->ops[net->buffers[b].from_op];
        if (op->kind != CHEX_OP_RESIDUAL_ADD) {
            first = first * op->stride + (op->kernel - 1) / 2.0 - op->pad;
            step *= op->stride;
        }
        b = op->in;
    }
    *first_px_out = first;
    *step_px_out = step;
}

enum chex_status chex_cam_side(const struct chex_engine *e, int *side_out, struct chex_error *err) {
    const struct chex_net *net = e->config.net;
    CHEX_AUTO_FREE int *hw = chex_alloc_zeroed((size_t)net->buffer_count, sizeof *hw);
    CHEX_TRY(hw ? chex_net_shapes(net, e->config.image_size, hw, err)
                : chex_error_memory(err, "class maps"));
    *side_out = hw[head_of(net)->in];
    return CHEX_OK;
}

static enum chex_status fill(struct chex_engine *engine, int image, const float *logit,
                             struct chex_cam *cam, struct chex_error *err) {
    cam->classes = engine->config.net->classes;
    CHEX_TRY(chex_cam_side(engine, &cam->side, err));
    chex_cam_place(engine->config.net, &cam->first_px, &cam->step_px);
    const size_t positions = (size_t)cam->side * (size_t)cam->side, classes = (size_t)cam->classes;
    cam->local = chex_alloc_zeroed(positions * classes, sizeof *cam->local);
    cam->logit = chex_alloc_zeroed(classes, sizeof *cam->logit);
    CHEX_ALLOCATED(cam->local && cam->logit, err, "class maps");
    memcpy(cam->logit, logit, classes * sizeof *logit);
    return chex_engine_class_maps(engine, image, cam->local, err);
}

enum chex_status chex_cam_of_batch(struct chex_engine *engine, int image, const float *logit,
                                   struct chex_cam **cam_out, struct chex_error *err) {
    struct chex_cam *cam = chex_alloc_zeroed(1, sizeof *cam);
    CHEX_ALLOCATED(cam, err, "class maps");
    enum chex_status st = fill(engine, image, logit, cam, err);
    if (st != CHEX_OK)
        chex_cam_destroy(cam);
    else
        *cam_out = cam;
    return st;
}

enum chex_status chex_cam_create(struct chex_engine *engine, const float *pixels,
                                 struct chex_cam **cam_out, struct chex_error *err) {
    const struct chex_batch batch = {.n = 1, .pixels = pixels};
    CHEX_AUTO_FREE float *logit =
        chex_alloc_zeroed((size_t)engine->config.net->classes, sizeof *logit);
    CHEX_TRY(logit ? chex_engine_infer(engine, &batch, logit, err)
                   : chex_error_memory(err, "class maps"));
    return chex_cam_of_batch(engine, 0, logit, cam_out, err);
}

void chex_cam_destroy(struct chex_cam *cam) {
    if (!cam)
        return;
    free(cam->local);
    free(cam->logit);
    free(cam);
}

/* The position at or before `px` on one axis. *part_out: the fraction of the way to the next. */
static size_t before(const struct chex_cam *cam, double px, double *part_out) {
    const double last = cam->side - 1;
    const double at = fmin(fmax((px - cam->first_px) / cam->step_px, 0), last);
    const double whole = fmin(floor(at), fmax(last - 1, 0));
    *part_out = at - whole;
    return (size_t)whole;
}

double chex_cam_local(const struct chex_cam *cam, int class_index, double x, double y) {
    const size_t side = (size_t)cam->side, classes = (size_t)cam->classes;
    const size_t next = side > 1 ? classes : 0;
    double right, down;
    const size_t column = before(cam, x, &right), row = before(cam, y, &down);
    const float *p = cam->local + (row * side + column) * classes + class_index;
    const float *q = p + side * next;
    return (1 - down) * ((1 - right) * (double)p[0] + right * (double)p[next]) +
           down * ((1 - right) * (double)q[0] + right * (double)q[next]);
}

struct chex_cam_peak chex_cam_peak(const struct chex_cam *cam, int class_index) {
    const size_t side = (size_t)cam->side, classes = (size_t)cam->classes;
    size_t best = 0;
    for (size_t p = 1; p < side * side; p++)
        if (cam->local[p * classes + (size_t)class_index] >
            cam->local[best * classes + (size_t)class_index])
            best = p;
    return (struct chex_cam_peak){.x = cam->first_px + (double)(best % side) * cam->step_px,
                                  .y = cam->first_px + (double)(best / side) * cam->step_px,
                                  .local =
                                      (double)cam->local[best * classes + (size_t)class_index]};
}

struct chex_cam_view chex_cam_view_of(int width, int height, int stored_px, int image_px) {
    const struct chex_crop crop = chex_augment_centre(stored_px, image_px);
    return (struct chex_cam_view){width, height, stored_px, image_px, crop.left, crop.top};
}

void chex_cam_to_network(const struct chex_cam_view *v, double x, double y, double *x_out,
                         double *y_out) {
    *x_out = (x + 0.5) * v->stored_px / v->width - 0.5 - v->left;
    *y_out = (y + 0.5) * v->stored_px / v->height - 0.5 - v->top;
}

void chex_cam_to_file(const struct chex_cam_view *v, double x, double y, double *x_out,
                      double *y_out) {
    *x_out = (x + v->left + 0.5) * v->width / v->stored_px - 0.5;
    *y_out = (y + v->top + 0.5) * v->height / v->stored_px - 0.5;
}
