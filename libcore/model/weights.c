/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises the format of a parameter file and reads it.
 */
#include "model/weights.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "model/checkpoint.h"
#include "model/torch_file.h"
#include "model/training_facts.h"

enum { HEAD_BYTES = 8 };

/* ---- formats ---- */

/* Reads the first bytes of a regular file, with zeros after its end. Returns the number of bytes
 * read; 0 if it cannot be read. */
static size_t read_head(const char *path, unsigned char head[HEAD_BYTES]) {
    CHEX_AUTO(chex_fs_close_at) int fd = -1;
    memset(head, 0, HEAD_BYTES);
    return chex_fs_open(path, &fd, NULL, NULL) == CHEX_OK ? chex_fs_pread(fd, head, HEAD_BYTES, 0)
                                                          : 0;
}

/* Whether the file is a pickle of protocol 2 to 5. A safetensors file may begin with the same two
 * bytes: it starts with the 64-bit length of its header. But that length is less than 2^32, so the
 * upper four bytes are zero. */
static bool is_pickle(const unsigned char head[HEAD_BYTES], size_t n) {
    static const unsigned char zeros[4];
    return n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] <= 5 &&
           (n < HEAD_BYTES || memcmp(head + 4, zeros, sizeof zeros) != 0);
}

enum chex_weights_format chex_weights_format(const char *path) {
    unsigned char head[HEAD_BYTES];
    const size_t n = read_head(path, head);
    if (is_pickle(head, n) || (n >= 4 && memcmp(head, "PK\3\4", 4) == 0))
        return CHEX_WEIGHTS_TORCH;
    return (n == HEAD_BYTES && memcmp(head, "\x89HDF\r\n\x1a\n", HEAD_BYTES) == 0) ||
                   chex_text_ends_with(path, ".h5")
               ? CHEX_WEIGHTS_CHECKPOINT
               : CHEX_WEIGHTS_SAFETENSORS;
}

enum chex_status chex_weights_refuse_torch(const char *path, struct chex_error *err) {
    if (chex_weights_format(path) != CHEX_WEIGHTS_TORCH)
        return CHEX_OK;
    return chex_error_data(err,
                           "%.150s: a PyTorch file, expected a checkpoint of chex-train (to start "
                           "from its parameters: chex-train --init FILE)",
                           path);
}

/* ---- checkpoints ---- */

static bool copy_text(const json_t *object, const char *key, char **out) {
    const char *text = json_string_value(json_object_get(object, key));
    return !text || (*out = strdup(text)) != NULL;
}

/* The options of the loss that differ from the plain one; *out stays NULL if there are none. */
static bool copy_loss(const json_t *options, char **out) {
    static const struct {
        const char *name, *plain;
    } shifting[] = {{"loss", "bce"}, {"pos-weight", "none"}, {"label-smoothing", "0"}};
    bool good = true;
    for (size_t i = 0; good && i < CHEX_COUNT(shifting); i++) {
        const char *text = json_string_value(json_object_get(options, shifting[i].name));
        if (!text || strcmp(text, shifting[i].plain) == 0)
            continue;
        CHEX_AUTO_FREE char *before = *out;
        *out = chex_fs_format("%s%s--%s %s", before ? before : "", before ? " " : "",
                              shifting[i].name, text);
        good = *out != NULL;
    }
    return good;
}

/* Moves the checkpoint's description into w->about. */
static enum chex_status take_about(struct chex_checkpoint *c, const json_t *meta,
                                   struct chex_weights *w, struct chex_error *err) {
    const json_t *identity = json_object_get(meta, "identity");
    struct chex_safetensors_about *about = &w->about;
    about->class_names = CHEX_TAKE(c->class_names);
    about->classes = c->classes, c->classes = 0;
    about->image_size = c->image_size;
    about->stored_size = (int)json_integer_value(json_object_get(meta, "stored_size"));
    w->step = json_integer_value(json_object_get(json_object_get(meta, "position"), "step"));
    about->training = chex_training_facts(meta);
    const char *findings =
        json_string_value(json_object_get(json_object_get(meta, "options"), "findings"));
    if (findings && strchr(findings, '=') && !(about->unions = strdup(findings)))
        return chex_error_memory(err, NULL);
    about->model = strdup(c->model);
    if (!about->model || !copy_text(meta, "resize", &about->resize) ||
        !copy_text(meta, "split", &about->split) ||
        !copy_text(identity, "source_digest", &about->source_digest) ||
        !copy_text(meta, "members", &about->members) || !copy_text(meta, "fold", &about->fold) ||
        !copy_loss(json_object_get(meta, "options"), &about->training_loss))
        return chex_error_memory(err, NULL);
    return CHEX_OK;
}

/* The set takes over the checkpoint's parameters or their average. */
static enum chex_status take_params(const char *path, float **from, const struct chex_net *net,
                                    struct chex_tensor_set *set, struct chex_error *err) {
    float *params = CHEX_TAKE(*from);
    CHEX_TRY(chex_tensor_set_begin(set, path, params, err));
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        struct chex_tensor t = {.name = (char *)p->name,
                                .type_name = "F32",
                                .rank = (size_t)p->rank,
                                .data = (const char *)(params + p->offset)};
        for (int k = 0; k < p->rank; k++)
            t.dims[k] = (size_t)p->dims[k];
        CHEX_TRY(chex_tensor_set_add(set, &t, NULL, err));
    }
    return CHEX_OK;
}

static enum chex_status open_checkpoint(const char *path, bool last, struct chex_weights *w,
                                        struct chex_error *err) {
    CHEX_AUTO(chex_checkpoint_destroy_at) struct chex_checkpoint *c = NULL;
    CHEX_AUTO(chex_net_destroy_at) struct chex_net *net = NULL;
    CHEX_TRY(chex_checkpoint_read(path, false, &net, &c, err));
    json_auto_t *meta = json_loads(c->meta, 0, NULL);
    if (!meta)
        return chex_error_data(err, "%s: its meta is no JSON", path);
    CHEX_TRY(take_about(c, meta, w, err));
    CHEX_TRY(chex_checkpoint_check_pixels(path, meta, net, err));
    const bool averaged = c->ema && !last;
    if (!(w->about.weights = strdup(averaged ? "ema" : "last")))
        return chex_error_memory(err, "%s", path);
    return take_params(path, averaged ? &c->ema : &c->params, net, &w->tensors, err);
}

/* ---- any file ---- */

/* Finds the network by the names of the tensors. */
static enum chex_status find_model(struct chex_weights *w, struct chex_error *err) {
    const char *model = w->about.model ? NULL : chex_tensor_set_model(&w->tensors);
    if (model && !(w->about.model = strdup(model)))
        return chex_error_memory(err, NULL);
    return CHEX_OK;
}

enum chex_status chex_weights_open(const char *path, bool last, struct chex_weights *weights_out,
                                   struct chex_error *err) {
    CHEX_AUTO(chex_weights_close) struct chex_weights w = {0};
    switch (chex_weights_format(path)) {
    case CHEX_WEIGHTS_CHECKPOINT: CHEX_TRY(open_checkpoint(path, last, &w, err)); break;
    case CHEX_WEIGHTS_TORCH: CHEX_TRY(chex_torch_file_open(path, &w.tensors, err)); break;
    case CHEX_WEIGHTS_SAFETENSORS:
        CHEX_TRY(chex_safetensors_open(path, &w.tensors, &w.about, err));
        break;
    }
    CHEX_TRY(find_model(&w, err));
    *weights_out = w;
    w = (struct chex_weights){0};
    return CHEX_OK;
}

void chex_weights_close(struct chex_weights *weights) {
    chex_tensor_set_release(&weights->tensors);
    chex_safetensors_about_release(&weights->about);
    weights->step = 0;
}
