/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the network of chex-eval, from a parameter file of any format.
 */
#include "evaluate/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/text.h"
#include "evaluate/ensemble_files.h"
#include "image/resize.h"

const char *const chex_eval_weights_names[] = {"auto", "ema", "last", NULL};

void chex_eval_network_release(struct chex_eval_network *n) {
    for (int k = 0; n->member && k < n->networks; k++)
        chex_net_destroy(n->member[k]);
    free(n->member);
    json_decref(n->facts);
    free(n->state);
    chex_net_destroy(n->net);
    chex_deployment_destroy(n->deployment);
    chex_safetensors_about_release(&n->about);
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
    CHEX_ALLOCATED(about->class_names, err, NULL);
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
    CHEX_AUTO_FREE char *text = strdup(s->classes);
    return text ? cut_classes(text, &n->about, err) : chex_error_memory(err, NULL);
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

static enum chex_status create_net(const struct chex_eval_settings *s, bool from_file,
                                   const char *model, int classes, struct chex_net **out,
                                   struct chex_error *err) {
    enum chex_status st = chex_net_create(model, classes, out, err);
    if (st == CHEX_E_USAGE && from_file)
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: it says that it is a '%.60s', which is unknown here",
                              s->checkpoint, model);
    return st;
}

/* The networks of an ensemble, as its description lists them. */
static enum chex_status create_members(const struct chex_eval_settings *s, int classes,
                                       struct chex_eval_network *n, struct chex_error *err) {
    CHEX_TRY(chex_eval_members_parse(s->checkpoint, n->about.ensemble, &n->mean, &n->facts, err));
    n->networks = (int)json_array_size(n->facts);
    if (s->ensemble != CHEX_MEAN_AUTO && s->ensemble != (int)n->mean)
        return chex_error_set(err, CHEX_E_USAGE, "--ensemble %s: %s is an ensemble by %s",
                              chex_ensemble_names[s->ensemble], s->checkpoint,
                              chex_ensemble_names[n->mean]);
    if (!(n->member = chex_alloc_zeroed((size_t)n->networks, sizeof *n->member)))
        return chex_error_memory(err, "%d networks", n->networks);
    for (int k = 0; k < n->networks; k++) {
        const json_t *model = json_object_get(json_array_get(n->facts, (size_t)k), "model");
        const char *name = json_string_value(model);
        CHEX_TRY(create_net(s, true, name ? name : "", classes, &n->member[k], err));
    }
    return chex_net_join(n->member, n->networks, &n->net, err);
}

static enum chex_status load(const struct chex_eval_settings *s, const struct chex_weights *w,
                             int classes, struct chex_eval_network *n, struct chex_error *err) {
    const char *model = n->about.model ? n->about.model : s->model ? s->model : chex_net_names[0];
    bool head = false;
    CHEX_TRY(n->about.ensemble ? create_members(s, classes, n, err)
                               : create_net(s, n->about.model, model, classes, &n->net, err));
    n->state = chex_alloc_aligned(n->net->state_count, sizeof *n->state);
    CHEX_ALLOCATED(n->state, err, "the parameters");
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
                                     struct chex_eval_files *files, struct chex_weights *w,
                                     struct chex_eval_network *n, struct chex_error *err) {
    int classes;
    CHEX_TRY(chex_eval_files_find(s->checkpoint, files, err));
    n->networks = 1;
    CHEX_TRY(chex_eval_files_open(s, files, w, err));
    n->about = w->about;
    w->about = (struct chex_safetensors_about){0};
    n->step = w->step;
    CHEX_TRY(name_classes(s, n, err));
    CHEX_TRY(count_classes(s, n, chex_tensor_set_outputs(&w->tensors), data, &classes, err));
    CHEX_TRY(load(s, w, classes, n, err));
    return chex_eval_check_class_names(s->checkpoint, n->about.class_names, n->about.classes, err);
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

enum chex_status chex_eval_network_open(const struct chex_eval_settings *s, int classes,
                                        struct chex_eval_network *n, struct chex_error *err) {
    struct chex_eval_files files = {0};
    struct chex_weights w = {0};
    enum chex_status st = open_weights(s, classes, &files, &w, n, err);
    chex_weights_close(&w);
    chex_eval_files_release(&files);
    return st;
}

enum chex_status chex_eval_network_about(const struct chex_eval_network *n,
                                         struct chex_safetensors_about *about,
                                         struct chex_error *err) {
    *about = n->about;
    about->model = (char *)(uintptr_t)n->net->model;
    if (!n->facts)
        return CHEX_OK;
    about->model = about->weights = about->split = about->source_digest = about->members = NULL;
    about->ensemble = chex_eval_members_text(n->mean, n->facts);
    return about->ensemble ? CHEX_OK : chex_error_memory(err, "the members");
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
