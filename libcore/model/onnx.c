/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a network as an ONNX model.
 *
 * The operations of a network become nodes in the same order. A buffer of the network is a value
 * that grows: the first operation that writes it names it, and each later one adds its channels by
 * Concat. So a value always has the channels that the next operation reads. Field numbers are those
 * of onnx/onnx.proto.
 */
#include "model/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "model/protobuf.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ONNX holds little-endian numbers; a big-endian host would have to swap them"
#endif

enum { VALUE_BYTES = CHEX_NET_NAME_BYTES + 16, PREFIX_BYTES = 24, ATTRIBUTES = 4 };

/* Field numbers. */
enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_VERSION = 3, MODEL_DOC = 6, MODEL_GRAPH = 7 };
enum { MODEL_OPSET = 8, MODEL_METADATA = 14, OPSET_VERSION = 2, METADATA_KEY = 1 };
enum { METADATA_VALUE = 2, GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5 };
enum { GRAPH_INPUT = 11, GRAPH_OUTPUT = 12, NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3 };
enum { NODE_TYPE = 4, NODE_ATTRIBUTE = 5, ATTRIBUTE_NAME = 1, ATTRIBUTE_FLOAT = 2 };
enum { ATTRIBUTE_INT = 3, ATTRIBUTE_INTS = 8, ATTRIBUTE_TYPE = 20, TENSOR_DIMS = 1 };
enum { TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9, VALUE_NAME = 1, VALUE_TYPE = 2 };
enum { VALUE_DOC = 3, TYPE_TENSOR = 1, TYPE_ELEMENT = 1, TYPE_SHAPE = 2, SHAPE_DIM = 1 };
enum { DIM_VALUE = 1, DIM_NAME = 2 };

/* Values of enums. */
enum { ELEMENT_FLOAT = 1, ELEMENT_U8 = 2, KIND_FLOAT = 1, KIND_INT = 2, KIND_INTS = 7 };

struct value {
    char name[VALUE_BYTES]; /* "" before the first operation wrote it */
    int channels;
};

struct writer {
    const struct chex_net *net;                /* whose operations are written */
    const struct chex_net *params;             /* of all networks */
    const struct chex_onnx_ensemble *ensemble; /* NULL: one network */
    char prefix[PREFIX_BYTES];                 /* of the names of `net`; "" outside networks */
    const float *state;
    const struct chex_onnx_calibration *calibration; /* NULL: none */
    struct chex_protobuf graph;
    struct value *buffers; /* (buffer_count): what a buffer holds by now */
};

struct attribute {
    const char *name;
    int kind; /* KIND_*; 0: the end of the list */
    int64_t number;
    float real;
    int64_t numbers[4];
    int count;
};

/* ---- messages ---- */

static void add_attribute(struct chex_protobuf *node, const struct attribute *a) {
    struct chex_protobuf m = {0};
    chex_protobuf_text(&m, ATTRIBUTE_NAME, a->name);
    if (a->kind == KIND_FLOAT)
        chex_protobuf_float(&m, ATTRIBUTE_FLOAT, a->real);
    if (a->kind == KIND_INT)
        chex_protobuf_int(&m, ATTRIBUTE_INT, a->number);
    for (int i = 0; i < a->count; i++)
        chex_protobuf_int(&m, ATTRIBUTE_INTS, a->numbers[i]);
    chex_protobuf_int(&m, ATTRIBUTE_TYPE, a->kind);
    chex_protobuf_message(node, NODE_ATTRIBUTE, &m);
}

/* The name in the model. All networks read the same "pixels". */
static const char *full(const struct writer *w, const char *name,
                        char buf[VALUE_BYTES + PREFIX_BYTES]) {
    snprintf(buf, VALUE_BYTES + PREFIX_BYTES, "%s%s", strcmp(name, "pixels") ? w->prefix : "",
             name);
    return buf;
}

/* Adds a node whose output has the node's name. inputs: up to 5, then NULL. attributes: NULL, or
 * up to ATTRIBUTES. */
static void add_node(struct writer *w, const char *type, const char *name,
                     const char *const inputs[], const struct attribute *attributes) {
    struct chex_protobuf m = {0};
    char buf[VALUE_BYTES + PREFIX_BYTES];
    for (int i = 0; inputs[i]; i++)
        chex_protobuf_text(&m, NODE_INPUT, full(w, inputs[i], buf));
    chex_protobuf_text(&m, NODE_OUTPUT, full(w, name, buf));
    chex_protobuf_text(&m, NODE_NAME, buf);
    chex_protobuf_text(&m, NODE_TYPE, type);
    for (int i = 0; attributes && i < ATTRIBUTES && attributes[i].kind; i++)
        add_attribute(&m, &attributes[i]);
    chex_protobuf_message(&w->graph, GRAPH_NODE, &m);
}

static void add_tensor(struct writer *w, const char *name, const int *dims, int rank,
                       const float *values) {
    struct chex_protobuf m = {0};
    size_t count = 1;
    for (int i = 0; i < rank; i++) {
        chex_protobuf_int(&m, TENSOR_DIMS, dims[i]);
        count *= (size_t)dims[i];
    }
    chex_protobuf_int(&m, TENSOR_TYPE, ELEMENT_FLOAT);
    chex_protobuf_text(&m, TENSOR_NAME, name);
    chex_protobuf_bytes(&m, TENSOR_RAW, values, count * sizeof *values);
    chex_protobuf_message(&w->graph, GRAPH_INITIALIZER, &m);
}

/* Declares an input or output (batch, dims...). */
static void add_value(struct writer *w, int field, const char *name, const char *doc, int element,
                      const int *dims, int rank) {
    struct chex_protobuf m = {0}, type = {0}, tensor = {0}, shape = {0}, dim = {0};
    chex_protobuf_text(&dim, DIM_NAME, "batch");
    chex_protobuf_message(&shape, SHAPE_DIM, &dim);
    for (int i = 0; i < rank; i++) {
        chex_protobuf_int(&dim, DIM_VALUE, dims[i]);
        chex_protobuf_message(&shape, SHAPE_DIM, &dim);
    }
    chex_protobuf_int(&tensor, TYPE_ELEMENT, element);
    chex_protobuf_message(&tensor, TYPE_SHAPE, &shape);
    chex_protobuf_message(&type, TYPE_TENSOR, &tensor);
    chex_protobuf_text(&m, VALUE_NAME, name);
    chex_protobuf_message(&m, VALUE_TYPE, &type);
    chex_protobuf_text(&m, VALUE_DOC, doc);
    chex_protobuf_message(&w->graph, field, &m);
}

/* ---- operations ---- */

/* Pixels of 0 to 255 become three normalised channels. */
static void add_pixels(struct writer *w) {
    static const int scalar[] = {1}, channels[] = {1, 3, 1, 1};
    static const float range = 255;
    const struct attribute to_float[ATTRIBUTES] = {
        {.name = "to", .kind = KIND_INT, .number = ELEMENT_FLOAT}};
    add_tensor(w, "pixels.range", scalar, 1, &range);
    add_tensor(w, "pixels.mean", channels, 4, w->net->mean);
    add_tensor(w, "pixels.std", channels, 4, w->net->std);
    add_node(w, "Cast", "pixels.float", (const char *[]){"image", NULL}, to_float);
    add_node(w, "Div", "pixels.grey", (const char *[]){"pixels.float", "pixels.range", NULL}, NULL);
    add_node(w, "Sub", "pixels.centred", (const char *[]){"pixels.grey", "pixels.mean", NULL},
             NULL);
    add_node(w, "Div", "pixels", (const char *[]){"pixels.centred", "pixels.std", NULL}, NULL);
}

/* Adds "OP.PART": the batch norm of a value. */
static void add_bn(struct writer *w, int bn, const char *in, const char *op, const char *part,
                   char out[VALUE_BYTES]) {
    const struct chex_bn *b = &w->net->bns[bn];
    const struct chex_param *params = w->net->params;
    const struct attribute epsilon[ATTRIBUTES] = {
        {.name = "epsilon", .kind = KIND_FLOAT, .real = w->net->bn_eps}};
    snprintf(out, VALUE_BYTES, "%s.%s", op, part);
    add_node(w, "BatchNormalization", out,
             (const char *[]){in, params[b->weight].name, params[b->bias].name,
                              params[b->mean].name, params[b->var].name, NULL},
             epsilon);
}

/* The operand of an operation: ReLU(in_bn(in)), or `in` itself. */
static void add_operand(struct writer *w, const struct chex_op *op, char out[VALUE_BYTES]) {
    const char *in = op->in == CHEX_NET_IMAGE ? "pixels" : w->buffers[op->in].name;
    char norm[VALUE_BYTES];
    if (op->in_bn == CHEX_NET_NONE) {
        snprintf(out, VALUE_BYTES, "%s", in);
        return;
    }
    add_bn(w, op->in_bn, in, op->name, "norm", norm);
    snprintf(out, VALUE_BYTES, "%s.relu", op->name);
    add_node(w, "Relu", out, (const char *[]){norm, NULL}, NULL);
}

static void add_window(struct writer *w, const struct chex_op *op, const char *type, const char *in,
                       const char *out) {
    const int64_t k = op->kernel, s = op->stride, p = op->pad;
    const struct attribute window[ATTRIBUTES] = {
        {.name = "kernel_shape", .kind = KIND_INTS, .numbers = {k, k}, .count = 2},
        {.name = "strides", .kind = KIND_INTS, .numbers = {s, s}, .count = 2},
        {.name = "pads", .kind = KIND_INTS, .numbers = {p, p, p, p}, .count = 4}};
    const char *weight = op->weight >= 0 ? w->net->params[op->weight].name : NULL;
    add_node(w, type, out, (const char *[]){in, weight, NULL}, window);
}

static void add_residual(struct writer *w, const struct chex_op *op, const char *out) {
    char norm[VALUE_BYTES], side[VALUE_BYTES], sum[VALUE_BYTES];
    snprintf(norm, sizeof norm, "%s", w->buffers[op->in].name);
    snprintf(side, sizeof side, "%s", w->buffers[op->side_in].name);
    if (op->in_bn != CHEX_NET_NONE)
        add_bn(w, op->in_bn, w->buffers[op->in].name, op->name, "norm", norm);
    if (op->side_bn != CHEX_NET_NONE)
        add_bn(w, op->side_bn, w->buffers[op->side_in].name, op->name, "side", side);
    snprintf(sum, sizeof sum, "%s.sum", op->name);
    add_node(w, "Add", sum, (const char *[]){norm, side, NULL}, NULL);
    add_node(w, "Relu", out, (const char *[]){sum, NULL}, NULL);
}

static void add_calibration(struct writer *w) {
    add_tensor(w, "calibration.slope", &w->net->classes, 1, w->calibration->slope);
    add_tensor(w, "calibration.intercept", &w->net->classes, 1, w->calibration->intercept);
    add_node(w, "Mul", "calibration", (const char *[]){"logits", "calibration.slope", NULL}, NULL);
    add_node(w, "Add", "calibrated", (const char *[]){"calibration", "calibration.intercept", NULL},
             NULL);
}

static void add_head(struct writer *w, const struct chex_op *op, const char *in) {
    const struct chex_param *params = w->net->params;
    const struct attribute transposed[ATTRIBUTES] = {
        {.name = "transB", .kind = KIND_INT, .number = 1}};
    add_node(w, "GlobalAveragePool", "features.mean", (const char *[]){in, NULL}, NULL);
    add_node(w, "Flatten", "features", (const char *[]){"features.mean", NULL}, NULL);
    add_node(w, "Gemm", "logits",
             (const char *[]){"features", params[op->weight].name, params[op->bias].name, NULL},
             transposed);
}

/* Adds "NAME": the mean over the networks of their values of this name. */
static void add_mean(struct writer *w, const char *name) {
    struct chex_protobuf m = {0};
    char buf[VALUE_BYTES + PREFIX_BYTES];
    for (int k = 0; k < w->ensemble->count; k++) {
        snprintf(buf, sizeof buf, CHEX_NET_MEMBER "%s", k, name);
        chex_protobuf_text(&m, NODE_INPUT, buf);
    }
    chex_protobuf_text(&m, NODE_OUTPUT, name);
    chex_protobuf_text(&m, NODE_NAME, name);
    chex_protobuf_text(&m, NODE_TYPE, "Mean");
    chex_protobuf_message(&w->graph, GRAPH_NODE, &m);
}

/* The logit of the mean p of sigmoid(z) is log p - log (1 - p). The mean of sigmoid(-z) is 1 - p
 * with all its digits. */
static void add_ensemble(struct writer *w) {
    if (w->ensemble->mean_logit) {
        add_mean(w, "logits");
        return;
    }
    add_mean(w, "positive");
    add_mean(w, "negative");
    add_node(w, "Log", "positive.log", (const char *[]){"positive", NULL}, NULL);
    add_node(w, "Log", "negative.log", (const char *[]){"negative", NULL}, NULL);
    add_node(w, "Sub", "logits", (const char *[]){"positive.log", "negative.log", NULL}, NULL);
}

static void add_probabilities(struct writer *w) {
    if (w->calibration)
        add_calibration(w);
    add_node(w, "Sigmoid", "probabilities",
             (const char *[]){w->calibration ? "calibrated" : "logits", NULL}, NULL);
}

/* The value `name` becomes channels of the operation's output buffer. */
static bool extend(struct writer *w, const struct chex_op *op, const char *name) {
    struct value *to = &w->buffers[op->out];
    const struct attribute axis[ATTRIBUTES] = {{.name = "axis", .kind = KIND_INT, .number = 1}};
    if (op->out_first != to->channels)
        return false;
    if (!to->channels) {
        snprintf(to->name, sizeof to->name, "%s", name);
    } else {
        char longer[VALUE_BYTES];
        snprintf(longer, sizeof longer, "%s.concat", op->name);
        add_node(w, "Concat", longer, (const char *[]){to->name, name, NULL}, axis);
        memcpy(to->name, longer, sizeof longer);
    }
    to->channels += op->out_channels;
    return true;
}

/* False: an operation that this file does not know. */
static bool add_op(struct writer *w, const struct chex_op *op) {
    char operand[VALUE_BYTES];
    if (op->in >= 0 && w->buffers[op->in].channels != op->in_channels)
        return false;
    if (op->kind == CHEX_OP_RESIDUAL_ADD) {
        add_residual(w, op, op->name);
        return extend(w, op, op->name);
    }
    add_operand(w, op, operand);
    switch (op->kind) {
    case CHEX_OP_CONV: add_window(w, op, "Conv", operand, op->name); break;
    case CHEX_OP_MAXPOOL: add_window(w, op, "MaxPool", operand, op->name); break;
    case CHEX_OP_AVGPOOL: add_window(w, op, "AveragePool", operand, op->name); break;
    case CHEX_OP_HEAD: add_head(w, op, operand); return true;
    default: return false;
    }
    return extend(w, op, op->name);
}

/* ---- the model ---- */

static const char *probabilities_doc(const struct writer *w) {
    return w->calibration ? "sigmoid of calibration.slope * logit + calibration.intercept"
                          : "sigmoid of the logits";
}

/* False: out of memory, or an operation that this file does not know. */
static bool add_network(struct writer *w, int k) {
    w->net = w->ensemble ? w->ensemble->member[k] : w->params;
    w->buffers = chex_alloc_zeroed((size_t)w->net->buffer_count, sizeof *w->buffers);
    bool known = w->buffers != NULL;
    if (w->ensemble)
        snprintf(w->prefix, sizeof w->prefix, CHEX_NET_MEMBER, k);
    for (int i = 0; known && i < w->net->op_count; i++)
        known = add_op(w, &w->net->ops[i]);
    if (w->ensemble && !w->ensemble->mean_logit) {
        add_node(w, "Sigmoid", "positive", (const char *[]){"logits", NULL}, NULL);
        add_node(w, "Neg", "minus", (const char *[]){"logits", NULL}, NULL);
        add_node(w, "Sigmoid", "negative", (const char *[]){"minus", NULL}, NULL);
    }
    w->prefix[0] = '\0';
    free(w->buffers);
    return known;
}

static bool add_graph(struct writer *w, int image_size) {
    const struct chex_net *net = w->params;
    const int image[] = {1, image_size, image_size}, classes[] = {net->classes};
    bool known = true;
    add_pixels(w);
    for (int k = 0; known && k < (w->ensemble ? w->ensemble->count : 1); k++)
        known = add_network(w, k);
    if (w->ensemble)
        add_ensemble(w);
    add_probabilities(w);
    chex_protobuf_text(&w->graph, GRAPH_NAME, net->model);
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        add_tensor(w, p->name, p->dims, p->rank, w->state + p->offset);
    }
    add_value(w, GRAPH_INPUT, "image", "grey pixels, 0 to 255, after resize and centre crop",
              ELEMENT_U8, image, 3);
    add_value(w, GRAPH_OUTPUT, "logits", "one for each class of the metadata", ELEMENT_FLOAT,
              classes, 1);
    add_value(w, GRAPH_OUTPUT, "probabilities", probabilities_doc(w), ELEMENT_FLOAT, classes, 1);
    return known;
}

/* The description, with what differs from a safetensors file. NULL: out of memory. */
static json_t *metadata_of(const struct writer *w, const struct chex_safetensors_about *about,
                           int image_size) {
    json_auto_t *object = chex_safetensors_metadata(w->net, about);
    char size[16];
    snprintf(size, sizeof size, "%d", image_size);
    json_object_del(object, "format");
    if (json_object_set_new(object, "image_size", json_string(size)) == 0 &&
        json_object_set_new(
            object, "input",
            json_string("grey image of 8 bits, resized to stored_size x stored_size by resize, "
                        "centre crop of image_size; the model divides by 255, repeats in 3 "
                        "channels, subtracts mean and divides by std")) == 0 &&
        json_object_set_new(
            object, "output",
            json_string(w->calibration ? "one logit for each of classes, and its recalibrated "
                                         "probability, on which the thresholds of the key "
                                         "deployment are"
                                       : "one logit for each of classes, and its sigmoid")) == 0)
        return CHEX_TAKE(object);
    return NULL;
}

static bool add_metadata(const struct writer *w, const struct chex_safetensors_about *about,
                         int image_size, struct chex_protobuf *model) {
    json_auto_t *object = metadata_of(w, about, image_size);
    json_t *text;
    const char *key;
    json_object_foreach(object, key, text) {
        struct chex_protobuf m = {0};
        chex_protobuf_text(&m, METADATA_KEY, key);
        chex_protobuf_text(&m, METADATA_VALUE, json_string_value(text));
        chex_protobuf_message(model, MODEL_METADATA, &m);
    }
    return object != NULL;
}

enum chex_status chex_onnx_write(const char *path, const struct chex_net *net, const float *state,
                                 int image_size, const struct chex_safetensors_about *about,
                                 const struct chex_onnx_ensemble *ensemble,
                                 const struct chex_onnx_calibration *calibration,
                                 struct chex_error *err) {
    struct writer w = {.net = ensemble ? ensemble->member[0] : net,
                       .params = net,
                       .ensemble = ensemble,
                       .state = state,
                       .calibration = calibration};
    struct chex_protobuf model = {0}, opset = {0};
    const bool known = add_graph(&w, image_size);
    chex_protobuf_int(&model, MODEL_IR, CHEX_ONNX_IR);
    chex_protobuf_text(&model, MODEL_PRODUCER, "chexnet");
    chex_protobuf_text(&model, MODEL_VERSION, CHEXNET_VERSION);
    chex_protobuf_text(&model, MODEL_DOC,
                       "findings of a chest X-ray; for research, not for clinical use");
    chex_protobuf_message(&model, MODEL_GRAPH, &w.graph);
    chex_protobuf_int(&opset, OPSET_VERSION, CHEX_ONNX_OPSET);
    chex_protobuf_message(&model, MODEL_OPSET, &opset);
    const bool good = add_metadata(&w, about, image_size, &model) && !model.failed;
    CHEX_AUTO_FREE char *data = model.data;
    if (!known)
        return chex_error_set(err, CHEX_E_FAIL,
                              "%s: %s has an operation without an ONNX form, or no "
                              "memory is left",
                              path, net->model);
    return good ? chex_fs_write(path, data, model.bytes, err) : chex_error_memory(err, "%s", path);
}
