/* SPDX-License-Identifier: Apache-2.0
 *
 * A network as a list of operations over buffers. Every engine executes this list.
 *
 * Buffers. A buffer is one feature map (n, H, W, channels). An operation reads the channels
 * [0, in_channels) of a buffer, usually through batch norm and ReLU, and writes the channels
 * [out_first, out_first + out_channels) of another. So a dense block is one buffer that grows, and
 * concatenation costs nothing. "Batch norm, ReLU, convolution" is one operation, which an engine
 * may fuse.
 *
 * Batch statistics belong to the channels of a buffer. All batch norms that read a channel share
 * its mean and variance.
 *
 * Parameters have torchvision's names and shapes. They form one flat vector: first the trainable
 * ones in forward order, elements [0, param_count); then the running statistics of all batch norms,
 * elements [param_count, state_count). A gradient vector has the same layout; its second part holds
 * the batch statistics of the pass, from which the running ones are updated.
 *
 * This header does not depend on the engines. To add a network, add a file that fills struct
 * chex_net, and one line in networks.h.
 */
#ifndef CHEX_MODEL_NET_H
#define CHEX_MODEL_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { CHEX_NET_NAME_BYTES = 96 };

enum chex_op_kind {
    /* In all but RESIDUAL_ADD the operand is ReLU(in_bn(in)), or `in` itself if in_bn is NONE. */
    CHEX_OP_CONV,         /* convolution without bias; the padding is zeros of the operand */
    CHEX_OP_MAXPOOL,      /* kernel, stride, pad; padding is never the maximum */
    CHEX_OP_AVGPOOL,      /* kernel = stride, no padding, incomplete windows are dropped */
    CHEX_OP_RESIDUAL_ADD, /* out = ReLU(in_bn(in) + side), side = side_bn(side_in) or side_in */
    CHEX_OP_HEAD,         /* logits = linear(global average of the operand) */
};

enum { CHEX_NET_IMAGE = -1, CHEX_NET_NONE = -1 };

enum chex_param_kind {
    CHEX_PARAM_CONV,      /* (out, in, kernel, kernel) */
    CHEX_PARAM_BN_WEIGHT, /* gamma (channels) */
    CHEX_PARAM_BN_BIAS,   /* beta (channels) */
    CHEX_PARAM_FC_WEIGHT, /* (classes, features) */
    CHEX_PARAM_FC_BIAS,   /* (classes) */
    CHEX_PARAM_BN_MEAN,   /* running mean (channels); not trained */
    CHEX_PARAM_BN_VAR,    /* running variance (channels), unbiased; not trained */
};

struct chex_param {
    char name[CHEX_NET_NAME_BYTES]; /* "features.denseblock1.denselayer1.conv1.weight" */
    enum chex_param_kind kind;
    int dims[4]; /* row-major, dims[rank..3] are 1 */
    int rank;
    size_t offset, count; /* elements of the flat vector */
    int layer; /* depth: 0 is the stem, then one for each dense layer (with the transition after it)
                  or bottleneck block; the last one is the head with its batch norm */
};

static inline bool chex_param_is_head(const struct chex_param *p) {
    return p->kind == CHEX_PARAM_FC_WEIGHT || p->kind == CHEX_PARAM_FC_BIAS;
}

struct chex_bn {
    char name[CHEX_NET_NAME_BYTES]; /* "features.norm0" */
    int channels;
    int buffer;                  /* normalises the channels [0, channels) of this buffer */
    int weight, bias, mean, var; /* indices into params */
};

struct chex_buffer {
    int channels;
    int from_op; /* the operation that first writes it */
};

struct chex_op {
    enum chex_op_kind kind;
    char name[CHEX_NET_NAME_BYTES]; /* for timings: "denseblock1.denselayer1.conv1" */
    int in;                         /* buffer, or CHEX_NET_IMAGE (three channels, normalised) */
    int in_channels;
    int in_bn; /* index into bns, or CHEX_NET_NONE */
    int out;   /* buffer; CHEX_NET_NONE for the head */
    int out_first, out_channels;
    int kernel, stride, pad;
    int side_in, side_bn; /* RESIDUAL_ADD */
    int weight, bias;     /* CONV, HEAD: indices into params, or CHEX_NET_NONE */
    size_t final_from;    /* after the backward of this op and of all later ops, gradient elements
                             [final_from, param_count) are final */
};

/* Rules of torchvision for initial values; chex_net_init_state explains them. A network must
 * choose: chex_net_finish refuses 0. */
enum chex_net_init { CHEX_INIT_RESNET = 1, CHEX_INIT_DENSENET };

struct chex_net {
    const char *model; /* "densenet121" */
    char own_name[24]; /* what `model` points to if the name has a number */
    enum chex_net_init init;
    int classes;
    struct chex_op *ops;
    int op_count;
    struct chex_buffer *buffers;
    int buffer_count;
    struct chex_bn *bns;
    int bn_count;
    struct chex_param *params; /* in order of offset: trainable ones first */
    int param_total;           /* entries of params */
    size_t param_count;        /* trainable elements */
    size_t state_count;        /* all elements: with the running statistics */
    float mean[3], std[3];     /* pixel normalisation: (grey / 255 - mean[c]) / std[c] */
    float bn_eps, bn_momentum;
    int layer; /* of the parameters that are added now; at the end, of the head */
    size_t op_capacity, buffer_capacity, bn_capacity, param_capacity;
};

/* Names of the known networks, NULL-terminated, for the option table. Help lists the first
 * chex_net_count; those after them exist only in builds with tests (networks.h). */
extern const char *const chex_net_names[];
extern const size_t chex_net_count;

/* A classifier alone, for features of other programs: this prefix and their number, "features-768".
 * Only the engine `head` runs it (engine/ref/head_engine.h). */
#define CHEX_NET_FEATURES "features-"
enum { CHEX_NET_FEATURES_MOST = 65536 };
bool chex_net_is_features(const char *model);

/* Builds the network with `classes` outputs. CHEX_E_USAGE for an unknown name. */
enum chex_status chex_net_create(const char *model, int classes, struct chex_net **net_out,
                                 struct chex_error *err);
void chex_net_destroy(struct chex_net *net); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_net, chex_net_destroy)

/* The parameters of several networks as those of one without operations, for files. Their names
 * begin with CHEX_NET_MEMBER; the state is that of each network, one after the other. The caller
 * destroys *net_out, after an error too. */
#define CHEX_NET_MEMBER "members.%d."
enum chex_status chex_net_join(struct chex_net *const *nets, int count, struct chex_net **net_out,
                               struct chex_error *err);

/* Computes the height (= width) of every buffer for an image of `size` pixels. hw_out has
 * buffer_count entries. CHEX_E_USAGE: the size is outside the network's range, which err gives. */
enum chex_status chex_net_shapes(const struct chex_net *net, int size, int *hw_out,
                                 struct chex_error *err);

/* Multiply-adds of the forward pass of one image: all operations, or one. */
double chex_net_macs(const struct chex_net *net, int size);
double chex_op_macs(const struct chex_net *net, int op, int size);

/* Index of a parameter by name, or -1. */
int chex_net_find_param(const struct chex_net *net, const char *name);

/* Fills state (state_count elements, row-major parameters) with torchvision's initial values:
 * - convolutions: Kaiming normal (CHEX_INIT_DENSENET: fan in; CHEX_INIT_RESNET: fan out, ReLU
 *   gain)
 * - batch norms: weight 1, bias 0, running mean 0, running variance 1
 * - linear layer: weight uniform in +-1/sqrt(fan in); bias the same (RESNET) or 0 (DENSENET)
 * The values depend on the seed, not on the number of threads (>= 1, the caller included). */
void chex_net_init_state(const struct chex_net *net, uint64_t seed, int threads, float *state);
/* The same values for the linear layer alone; the rest of state is not touched. */
void chex_net_init_head(const struct chex_net *net, uint64_t seed, float *state);

/* ---- for the files that build networks; see densenet.c ---- */
struct chex_net *chex_net_new(const char *model, int classes);
int chex_net_add_buffer(struct chex_net *net, int channels);
int chex_net_add_bn(struct chex_net *net, const char *name, int buffer, int channels);
/* Channels [0, channels) of a buffer (or CHEX_NET_IMAGE) through a batch norm (or CHEX_NET_NONE).
 */
struct chex_operand {
    int buffer, channels, bn;
};
#define CHEX_IMAGE_OPERAND ((struct chex_operand){CHEX_NET_IMAGE, 3, CHEX_NET_NONE})
/* Adds a convolution with a padding of kernel / 2 into channels [first, first + channels) of buffer
 * `out`, and its weight "MODULE.weight". name: of the operation. */
void chex_net_add_conv(struct chex_net *net, const char *name, const char *module,
                       struct chex_operand in, int out, int first, int channels, int kernel,
                       int stride);
/* Adds a pooling into the first channels of `out`: the maximum of 3x3 pixels with stride 2 and
 * padding 1, or the average of 2x2. */
void chex_net_add_pool(struct chex_net *net, const char *name, enum chex_op_kind kind,
                       struct chex_operand in, int out);
/* The end of a residual block, into all channels of `out`. */
void chex_net_add_residual(struct chex_net *net, const char *name, struct chex_operand in,
                           struct chex_operand side, int out);
/* Adds the head, and its parameters "NAME.weight" and "NAME.bias". */
void chex_net_add_head(struct chex_net *net, const char *name, struct chex_operand in);
/* Assigns the offsets of the flat vector. Also reports out of memory in any call before. */
enum chex_status chex_net_finish(struct chex_net *net, struct chex_error *err);

#endif
