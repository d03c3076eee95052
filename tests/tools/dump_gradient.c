/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: dump_gradient MODEL ENGINE PRECISION WEIGHTS BATCHES OUTPUT
 * One pass of an engine over the first batch of a file that dump_batches wrote, with the parameters
 * of a safetensors file. Prints the loss and writes the gradient as safetensors under the
 * parameters' names; under the running statistics' names stand the batch's mean and variance.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "model/safetensors.h"

struct input {
    int32_t steps, n, size, classes;
    float *pixels;
    int8_t *labels;
};

static enum chex_status read_input(const char *path, struct input *in, struct chex_error *err) {
    FILE *from = fopen(path, "rb");
    int32_t head[4] = {0};
    bool good = from && fread(head, sizeof *head, 4, from) == 4;
    *in = (struct input){head[0], head[1], head[2], head[3], NULL, NULL};
    good = good && in->n > 0 && in->size > 0 && in->classes > 0;
    if (good) {
        size_t pixels = (size_t)in->n * (size_t)in->size * (size_t)in->size;
        size_t labels = (size_t)in->n * (size_t)in->classes;
        in->pixels = chex_alloc_aligned(pixels, sizeof *in->pixels);
        in->labels = chex_alloc_zeroed(labels, 1);
        good = in->pixels && in->labels &&
               fread(in->pixels, sizeof *in->pixels, pixels, from) == pixels &&
               fread(in->labels, 1, labels, from) == labels;
    }
    if (from)
        fclose(from);
    return good ? CHEX_OK : chex_error_set(err, CHEX_E_DATA, "%s: no whole batch", path);
}

static int precision_of(const char *name) {
    for (int i = 0; chex_precision_names[i]; i++)
        if (strcmp(name, chex_precision_names[i]) == 0)
            return i;
    return -1;
}

static enum chex_status pass(struct chex_engine *e, const struct chex_net *net, const char *weights,
                             const struct input *in, const char *output, struct chex_error *err) {
    bool head = false;
    struct chex_tensor_set set = {0};
    struct chex_pass_result result = {0};
    const struct chex_batch batch = {in->n, in->pixels, in->labels};
    float *state = chex_alloc_aligned(net->state_count, sizeof *state);
    float *grad = chex_engine_grad_alloc(e);
    enum chex_status st = CHEX_OK;
    if (!state || !grad)
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    if (st == CHEX_OK)
        st = chex_safetensors_open(weights, &set, NULL, err);
    if (st == CHEX_OK)
        st = chex_tensor_set_load(&set, net, state, &head, err);
    chex_tensor_set_release(&set);
    if (st == CHEX_OK && !head)
        st = chex_error_set(err, CHEX_E_DATA, "%s: no head of %d classes", weights, net->classes);
    if (st == CHEX_OK)
        st = chex_engine_set(e, CHEX_STATE_PARAMS, state, err);
    if (st == CHEX_OK)
        st = chex_engine_pass(e, &batch, grad, NULL, NULL, &result, err);
    if (st == CHEX_OK)
        st = e->impl->grad_get(e->self, grad, state, err);
    if (st == CHEX_OK)
        st = chex_safetensors_write(output, net, state, 1, NULL, NULL, 0, err);
    if (st == CHEX_OK)
        printf("%.9g %s\n", result.loss, e->impl->variant(e->self));
    if (grad)
        chex_engine_grad_free(e, grad);
    free(state);
    return st;
}

int main(int argc, char **argv) {
    const int precision = argc == 7 ? precision_of(argv[3]) : -1;
    if (precision < 0) {
        fprintf(stderr, "usage: dump_gradient MODEL ENGINE PRECISION WEIGHTS BATCHES OUTPUT\n");
        return CHEX_E_USAGE;
    }
    struct chex_error err = {0};
    struct chex_net *net = NULL;
    struct chex_engine *e = NULL;
    struct input in = {0};
    enum chex_status st = read_input(argv[5], &in, &err);
    if (st == CHEX_OK)
        st = chex_net_create(argv[1], in.classes, &net, &err);
    struct chex_engine_config config = {.net = net,
                                        .image_size = in.size,
                                        .batch = in.n,
                                        .precision = (enum chex_precision)precision,
                                        .threads = 2,
                                        .training = true};
    if (st == CHEX_OK)
        st = chex_engine_create(argv[2], &config, &e, &err);
    if (st == CHEX_OK)
        st = pass(e, net, argv[4], &in, argv[6], &err);
    chex_engine_destroy(e);
    chex_net_destroy(net);
    free(in.pixels);
    free(in.labels);
    if (st != CHEX_OK)
        fprintf(stderr, "dump_gradient: %s\n", err.text);
    return (int)st;
}
