/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: dump_gradient MODEL ENGINE PRECISION WEIGHTS BATCHES OUTPUT
 * One pass of an engine over the first batch of a file that dump_batches wrote, with the parameters
 * of a safetensors file. Prints the loss and writes the gradient as safetensors under the
 * parameters' names; under the running statistics' names stand the batch's mean and variance.
 */
#include "engine/engine.h"
#include "model/safetensors.h"
#include "tool.h"

/* The first batch; size_out, classes_out: of its images. */
static struct chex_batch read_batch(const char *path, int *size_out, int *classes_out) {
    FILE *from = fopen(path, "rb");
    int32_t head[4] = {0};
    bool good = from && fread(head, sizeof *head, 4, from) == 4;
    good = good && head[1] > 0 && head[2] > 0 && head[3] > 0;
    need(good, CHEX_E_DATA, path, "no whole batch");
    const size_t pixels = (size_t)head[1] * (size_t)head[2] * (size_t)head[2];
    const size_t labels = (size_t)head[1] * (size_t)head[3];
    float *values = take(pixels, sizeof *values);
    int8_t *stated = take(labels, 1);
    good = fread(values, sizeof *values, pixels, from) == pixels &&
           fread(stated, 1, labels, from) == labels;
    need(good, CHEX_E_DATA, path, "no whole batch");
    fclose(from);
    *size_out = head[2];
    *classes_out = head[3];
    return (struct chex_batch){head[1], values, stated};
}

static int precision_of(const char *name) {
    for (int i = 0; chex_precision_names[i]; i++)
        if (strcmp(name, chex_precision_names[i]) == 0)
            return i;
    return -1;
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
    struct chex_tensor_set set = {0};
    struct chex_pass_result result = {0};
    bool head = false;
    int size, classes;
    const struct chex_batch batch = read_batch(argv[5], &size, &classes);
    must(chex_net_create(argv[1], classes, &net, &err), &err);
    const struct chex_engine_config config = {.net = net,
                                              .image_size = size,
                                              .batch = batch.n,
                                              .precision = (enum chex_precision)precision,
                                              .threads = 2,
                                              .training = true};
    float *state = take(net->state_count, sizeof *state);
    must(chex_engine_create(argv[2], &config, &e, &err), &err);
    must(chex_safetensors_open(argv[4], &set, NULL, &err), &err);
    must(chex_tensor_set_load(&set, net, state, &head, &err), &err);
    chex_tensor_set_release(&set);
    need(head, CHEX_E_DATA, argv[4], "its head has another number of classes");
    must(chex_engine_set(e, CHEX_STATE_PARAMS, state, &err), &err);
    float *grad = chex_engine_grad_alloc(e);
    need(grad, CHEX_E_RESOURCE, "memory", "out of memory");
    must(chex_engine_pass(e, &batch, grad, NULL, NULL, &result, &err), &err);
    must(e->impl->grad_get(e->self, grad, state, &err), &err);
    must(chex_safetensors_write(argv[6], net, state, 1, NULL, NULL, 0, &err), &err);
    printf("%.9g %s\n", result.loss, e->impl->variant(e->self));
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    chex_net_destroy(net);
    free(state);
    free((void *)batch.pixels);
    free((void *)batch.labels);
    return 0;
}
