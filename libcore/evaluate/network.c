/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the network of chex-eval, from a parameter file of any format.
 */
#include "evaluate/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "image/resize.h"
#include "model/weights.h"

const char *const chex_eval_weights_names[] = {"auto", "ema", "last", NULL};

void chex_eval_network_release(struct chex_eval_network *n) {
    free(n->state);
    chex_net_destroy(n->net);
    chex_deployment_destroy(n->deployment);
    chex_safetensors_about_release(&n->about);
}

static enum chex_status check_model(const struct chex_eval_settings *s,
                                    const struct chex_eval_network *n, struct chex_error *err) {
    if (s->model && n->about.model && strcmp(s->model, n->about.model) != 0)
        return chex_error_set(err, CHEX_E_DATA, "%s is a %s, --model says %s", s->checkpoint,
                              n->about.model, s->model);
    return CHEX_OK;
}

/* ---- names of the outputs ---- */

static bool has_name(char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Cuts the text of --classes at its commas into about->class_names. */
static enum chex_status cut_classes(char *text, struct chex_safetensors_about *about,
                                    struct chex_error *err) {
    int count = 1;
    for (const char *c = text; *c; c++)
        count += *c == ',';
    about->class_names = chex_alloc_zeroed((size_t)count, sizeof(char *));
    if (!about->class_names)
        return chex_error_memory(err, NULL);
    for (char *name; (name = strsep(&text, ",")) != NULL; about->classes++) {
        if (!*name || has_name(about->class_names, about->classes, name))
            return chex_error_set(err, CHEX_E_USAGE, "--classes: name %d is %s%s%s",
                                  about->classes + 1, *name ? "'" : "empty", name,
                                  *name ? "' again" : "");
        if (!(about->class_names[about->classes] = strdup(name)))
            return chex_error_memory(err, NULL);
    }
    return CHEX_OK;
}

/* Names the outputs as --classes says. A file that names them itself knows better. */
static enum chex_status name_classes(const struct chex_eval_settings *s,
                                     struct chex_eval_network *n, struct chex_error *err) {
    if (!s->classes)
        return CHEX_OK;
    if (n->about.classes)
        return chex_error_set(err, CHEX_E_USAGE, "--classes: %s names its %d findings itself",
                              s->checkpoint, n->about.classes);
    char *text = strdup(s->classes);
    enum chex_status st = text ? cut_classes(text, &n->about, err) : chex_error_memory(err, NULL);
    free(text);
    return st;
}

/* The number of classes, which the file, --classes or the data (`data`, or 0) gives. */
static enum chex_status count_classes(const struct chex_eval_settings *s,
                                      const struct chex_eval_network *n, int outputs, int data,
                                      int *classes_out, struct chex_error *err) {
    const char *who = s->classes         ? "--classes names"
                      : n->about.classes ? "it names itself"
                                         : "the data has";
    const int classes = n->about.classes ? n->about.classes : data;
    if (!classes && outputs)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s does not name its %d findings: name them in the order of its "
                              "outputs by --classes LIST",
                              s->checkpoint, outputs);
    if (!classes)
        return chex_error_set(err, CHEX_E_DATA, "%s does not name its findings, and has no head",
                              s->checkpoint);
    if (outputs && outputs != classes)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: its head is one of %d findings, not of %d, which %s",
                              s->checkpoint, outputs, classes, who);
    *classes_out = classes;
    return CHEX_OK;
}

/* ---- the file ---- */

static enum chex_status load(const struct chex_eval_settings *s, const struct chex_weights *w,
                             int classes, struct chex_eval_network *n, struct chex_error *err) {
    const char *model = n->about.model ? n->about.model : s->model ? s->model : chex_net_names[0];
    bool head = false;
    enum chex_status st = chex_net_create(model, classes, &n->net, err);
    if (st == CHEX_E_USAGE && n->about.model) /* the name comes from the file, not from the user */
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: it says that it is a '%.60s', which is unknown here",
                              s->checkpoint, n->about.model);
    CHEX_TRY(st);
    n->state = chex_alloc_aligned(n->net->state_count, sizeof *n->state);
    if (!n->state)
        return chex_error_memory(err, "the parameters");
    memset(n->state, 0, n->net->state_count * sizeof *n->state);
    CHEX_TRY(chex_tensor_set_load(&w->tensors, n->net, n->state, &head, err));
    CHEX_TRY(chex_tensor_set_warn(&w->tensors, n->net, err));
    if (!head)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: its head is not one linear layer of %d findings", s->checkpoint,
                              classes);
    if (n->about.deployment)
        return chex_deployment_read(s->checkpoint, n->net, n->state, &n->deployment, err);
    return CHEX_OK;
}

static enum chex_status open_weights(const struct chex_eval_settings *s, int data,
                                     struct chex_weights *w, struct chex_eval_network *n,
                                     struct chex_error *err) {
    int classes;
    CHEX_TRY(chex_weights_open(s->checkpoint, s->weights == EVAL_WEIGHTS_LAST, w, err));
    const bool averaged = w->about.weights && strcmp(w->about.weights, "ema") == 0;
    if (s->weights == (averaged ? EVAL_WEIGHTS_LAST : EVAL_WEIGHTS_EMA))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--weights %s: %s has %s (expected a checkpoint of chex-train --ema)",
                              chex_eval_weights_names[s->weights], s->checkpoint,
                              averaged ? "the moving average only" : "no moving average");
    if (averaged && chex_weights_format(s->checkpoint) == CHEX_WEIGHTS_CHECKPOINT)
        chex_info("%s: the moving average of its parameters; --weights last reads those of the "
                  "last update",
                  s->checkpoint);
    n->about = w->about;
    w->about = (struct chex_safetensors_about){0};
    n->step = w->step;
    CHEX_TRY(check_model(s, n, err));
    CHEX_TRY(name_classes(s, n, err));
    CHEX_TRY(count_classes(s, n, chex_tensor_set_outputs(&w->tensors), data, &classes, err));
    return load(s, w, classes, n, err);
}

enum chex_status chex_eval_check_class_names(const char *path, char *const *names, int count,
                                             struct chex_error *err) {
    for (int i = 0; i < count; i++)
        if (!chex_text_is_printable(names[i]))
            return chex_error_set(
                err, CHEX_E_DATA,
                "%s: the name of finding %d, '%s', has control characters or is no UTF-8", path,
                i + 1, names[i]);
    return CHEX_OK;
}

/* A common mistake: --checkpoint is the folder of the run. The error suggests best.h5 or last.h5.
 */
static enum chex_status refuse_folder(const char *path, struct chex_error *err) {
    static const char *const names[] = {"best.h5", "last.h5"};
    if (!chex_fs_is_dir(path))
        return CHEX_OK;
    for (size_t i = 0; i < CHEX_COUNT(names); i++) {
        char *file = chex_fs_join(path, names[i]);
        const bool there = file && chex_fs_exists(file);
        if (there)
            chex_error_set(err, CHEX_E_USAGE,
                           "--checkpoint %s: a folder, expected a file; did you mean %s?", path,
                           file);
        free(file);
        if (there)
            return CHEX_E_USAGE;
    }
    return chex_error_set(
        err, CHEX_E_USAGE,
        "--checkpoint %s: a folder, expected a file such as best.h5 of chex-train", path);
}

enum chex_status chex_eval_network_open(const struct chex_eval_settings *s, int classes,
                                        struct chex_eval_network *n, struct chex_error *err) {
    CHEX_TRY(refuse_folder(s->checkpoint, err));
    struct chex_weights w = {0};
    enum chex_status st = open_weights(s, classes, &w, n, err);
    chex_weights_close(&w);
    CHEX_TRY(st);
    return chex_eval_check_class_names(s->checkpoint, n->about.class_names, n->about.classes, err);
}

int chex_eval_image_size(const struct chex_eval_settings *s, const struct chex_eval_network *n,
                         int stored) {
    const int said = n->about.image_size;
    if (s->image_size)
        return (int)s->image_size;
    return said ? said : stored < EVAL_IMAGE_PX ? stored : EVAL_IMAGE_PX;
}

static enum chex_status check_resize(const char *path, const char *trained, bool warn,
                                     struct chex_error *err) {
    if (!trained && warn)
        chex_warn("%s does not say how its training images were resized: %s is taken", path,
                  CHEX_RESIZE_NAME);
    if (trained && strcmp(trained, CHEX_RESIZE_NAME) != 0)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s was trained on images resized by %s; here is only %s", path,
                              trained, CHEX_RESIZE_NAME);
    return CHEX_OK;
}

enum chex_status chex_eval_network_sizes(const struct chex_eval_settings *s,
                                         const struct chex_eval_network *n, bool warn,
                                         int *stored_out, int *image_out, struct chex_error *err) {
    const int crop = chex_eval_image_size(s, n, EVAL_IMAGE_PX);
    int stored = s->stored_size ? (int)s->stored_size : n->about.stored_size;
    CHEX_TRY(check_resize(s->checkpoint, n->about.resize, warn, err));
    if (!stored) {
        stored = (crop * 8 + 3) / 7;
        if (warn)
            chex_warn("%s does not say at what size its training images were stored: %d px is "
                      "taken; --stored-size says another",
                      s->checkpoint, stored);
    }
    const int image = chex_eval_image_size(s, n, stored);
    if (image > stored)
        return chex_error_set(err, CHEX_E_USAGE,
                              "a crop of %d px of an image resized to %d px: choose a smaller "
                              "--image-size or a larger --stored-size",
                              image, stored);
    *stored_out = stored;
    *image_out = image;
    return CHEX_OK;
}
