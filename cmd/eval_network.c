/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the network of chex-eval, from a checkpoint of chex-train or from a safetensors file.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "eval_commands.h"
#include "image/resize.h"
#include "model/checkpoint.h"

void eval_network_release(struct eval_network *n) {
    free(n->state);
    chex_net_destroy(n->net);
    chex_deployment_destroy(n->deployment);
    chex_safetensors_about_release(&n->about);
}

bool eval_is_safetensors(const char *path) { return chex_safetensors_is_name(path); }

static enum chex_status check_model(const struct eval_settings *s, const struct eval_network *n,
                                    struct chex_error *err) {
    if (s->model && n->about.model && strcmp(s->model, n->about.model) != 0)
        return chex_error_set(err, CHEX_E_DATA, "%s is a %s, --model says %s", s->checkpoint,
                              n->about.model, s->model);
    return CHEX_OK;
}

static enum chex_status open_safetensors(const struct eval_settings *s, int classes,
                                         struct eval_network *n, struct chex_error *err) {
    const struct chex_safetensors_about *about = &n->about;
    bool head = false;
    CHEX_TRY(chex_safetensors_about(s->checkpoint, &n->about, err));
    CHEX_TRY(check_model(s, n, err));
    const char *model = about->model ? about->model : s->model ? s->model : "densenet121";
    if (about->classes)
        classes = about->classes;
    if (!classes)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s does not name its classes: put the list into its metadata "
                              "(classes), as chex-eval export does",
                              s->checkpoint);
    enum chex_status st = chex_net_create(model, classes, &n->net, err);
    if (st == CHEX_E_USAGE && about->model) /* the name comes from the file, not from the user */
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: it says that it is a '%.60s', which is unknown here",
                              s->checkpoint, about->model);
    CHEX_TRY(st);
    n->state = chex_alloc_aligned(n->net->state_count, sizeof *n->state);
    if (!n->state)
        return chex_error_memory(err, "the parameters");
    CHEX_TRY(chex_safetensors_read(s->checkpoint, n->net, n->state, &head, err));
    if (!head)
        return chex_error_set(err, CHEX_E_DATA, "%s: its head is not one of %d classes, which %s",
                              s->checkpoint, classes,
                              about->classes ? "it names itself" : "the data has");
    if (about->deployment)
        return chex_deployment_read(s->checkpoint, n->net, n->state, &n->deployment, err);
    return CHEX_OK;
}

static bool copy_text(const json_t *object, const char *key, char **out) {
    const char *text = json_string_value(json_object_get(object, key));
    return !text || (*out = strdup(text)) != NULL;
}

/* Moves the checkpoint's description into n->about. */
static enum chex_status take_about(struct chex_checkpoint *c, const json_t *meta,
                                   struct eval_network *n, struct chex_error *err) {
    const json_t *identity = json_object_get(meta, "identity");
    struct chex_safetensors_about *about = &n->about;
    about->class_names = c->class_names, c->class_names = NULL;
    about->classes = c->classes, c->classes = 0;
    about->image_size = c->image_size;
    about->stored_size = (int)json_integer_value(json_object_get(meta, "stored_size"));
    n->step = json_integer_value(json_object_get(json_object_get(meta, "position"), "step"));
    about->model = strdup(n->net->model);
    if (!about->model || !copy_text(meta, "resize", &about->resize) ||
        !copy_text(meta, "split", &about->split) ||
        !copy_text(identity, "source_digest", &about->source_digest) ||
        !copy_text(meta, "members", &about->members))
        return chex_error_memory(err, NULL);
    return CHEX_OK;
}

static enum chex_status open_checkpoint(const struct eval_settings *s, struct eval_network *n,
                                        struct chex_error *err) {
    struct chex_checkpoint *c = NULL;
    CHEX_TRY(chex_checkpoint_read(s->checkpoint, false, &n->net, &c, err));
    n->state = c->params, c->params = NULL;
    json_t *meta = c->meta ? json_loads(c->meta, 0, NULL) : NULL;
    enum chex_status st =
        c->meta && !meta
            ? chex_error_set(err, CHEX_E_DATA, "%s: its meta is no JSON", s->checkpoint)
            : take_about(c, meta, n, err);
    if (st == CHEX_OK && c->meta)
        st = chex_checkpoint_check_pixels(s->checkpoint, c->meta, n->net, err);
    json_decref(meta);
    chex_checkpoint_destroy(c);
    return st == CHEX_OK ? check_model(s, n, err) : st;
}

enum chex_status eval_check_class_names(const char *path, char *const *names, int count,
                                        struct chex_error *err) {
    for (int i = 0; i < count; i++)
        if (!chex_text_is_printable(names[i]))
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s: the name of class %d, '%s', has control characters or is no "
                                  "UTF-8",
                                  path, i + 1, names[i]);
    return CHEX_OK;
}

/* A common mistake: --checkpoint is the folder of the run. The error suggests best.h5 or last.h5.
 */
static enum chex_status refuse_folder(const char *path, struct chex_error *err) {
    static const char *const names[] = {"best.h5", "last.h5"};
    if (!chex_fs_is_dir(path))
        return CHEX_OK;
    for (size_t i = 0; i < COUNT(names); i++) {
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

enum chex_status eval_network_open(const struct eval_settings *s, int classes,
                                   struct eval_network *n, struct chex_error *err) {
    CHEX_TRY(refuse_folder(s->checkpoint, err));
    CHEX_TRY(eval_is_safetensors(s->checkpoint) ? open_safetensors(s, classes, n, err)
                                                : open_checkpoint(s, n, err));
    return eval_check_class_names(s->checkpoint, n->about.class_names, n->about.classes, err);
}

int eval_image_size(const struct eval_settings *s, const struct eval_network *n, int stored) {
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

enum chex_status eval_network_sizes(const struct eval_settings *s, const struct eval_network *n,
                                    bool warn, int *stored_out, int *image_out,
                                    struct chex_error *err) {
    const int crop = eval_image_size(s, n, EVAL_IMAGE_PX);
    int stored = s->stored_size ? (int)s->stored_size : n->about.stored_size;
    CHEX_TRY(check_resize(s->checkpoint, n->about.resize, warn, err));
    if (!stored) {
        stored = (crop * 8 + 3) / 7;
        if (warn)
            chex_warn("%s does not say at what size its training images were stored: %d px is "
                      "taken; --stored-size says another",
                      s->checkpoint, stored);
    }
    const int image = eval_image_size(s, n, stored);
    if (image > stored)
        return chex_error_set(err, CHEX_E_USAGE,
                              "a crop of %d px of an image resized to %d px: choose a smaller "
                              "--image-size or a larger --stored-size",
                              image, stored);
    *stored_out = stored;
    *image_out = image;
    return CHEX_OK;
}
