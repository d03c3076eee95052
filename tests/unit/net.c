/* SPDX-License-Identifier: Apache-2.0 */
#include "model/net.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "model/normal.h"
#include "model/tensor_set.h"
#include "tap.h"

static struct chex_error err;

static void check_model(const char *model, size_t params, double macs) {
    struct chex_net *net = NULL;
    MUST(chex_net_create(model, 14, &net, &err));
    OK(net->param_count == params, "%s has %zu parameters (torchvision: %zu)", model,
       net->param_count, params);
    double got = chex_net_macs(net, 224);
    OK(fabs(got / macs - 1) < 0.01, "%s does %.3f GMAC at 224 px (expected %.3f)", model, got / 1e9,
       macs / 1e9);
    size_t end = net->param_count;
    bool falls = true;
    for (int i = net->op_count - 1; i >= 0; i--) {
        falls = falls && net->ops[i].final_from <= end;
        end = net->ops[i].final_from;
    }
    OK(falls && end == 0, "%s: final_from falls to 0 towards the first op", model);
    chex_net_destroy(net);
}

/* A convolution's weights have mean 0 and torchvision's standard deviation: of n draws, the mean
 * lies within 5 standard errors, std / sqrt(n), and the deviation within 5 of its own, std / sqrt(2
 * n). */
static void check_init(const char *model, const char *name, double std) {
    struct chex_net *net = NULL;
    MUST(chex_net_create(model, 14, &net, &err));
    float *alone = chex_alloc_zeroed(net->state_count, sizeof *alone);
    float *shared = chex_alloc_zeroed(net->state_count, sizeof *shared);
    BAIL_UNLESS(alone && shared, "out of memory");
    chex_net_init_state(net, 11, 1, alone);
    chex_net_init_state(net, 11, 3, shared);
    OK(memcmp(alone, shared, net->state_count * sizeof *alone) == 0,
       "%s: initial values are the same with 1 and 3 threads", model);
    const struct chex_op *head = &net->ops[net->op_count - 1];
    const size_t from = net->params[head->weight].offset, count = net->param_count - from;
    memset(shared, 0, net->state_count * sizeof *shared);
    chex_net_init_head(net, 11, shared);
    bool rest = true;
    for (size_t i = 0; i < net->state_count; i++)
        rest = rest && (i - from < count || shared[i] == 0);
    OK(rest && memcmp(alone + from, shared + from, count * sizeof *alone) == 0,
       "%s: the head alone gets the same values", model);
    const struct chex_param *p = &net->params[chex_net_find_param(net, name)];
    double sum = 0, squares = 0, n = (double)p->count;
    for (size_t i = 0; i < p->count; i++) {
        sum += alone[p->offset + i];
        squares += (double)alone[p->offset + i] * alone[p->offset + i];
    }
    OK(fabs(sum / n) < 5 * std / sqrt(n), "%s: mean %g", name, sum / n);
    OK(fabs(sqrt(squares / n) - std) < 5 * std / sqrt(2 * n), "%s: deviation %g (expected %g)",
       name, sqrt(squares / n), std);
    free(alone);
    free(shared);
    chex_net_destroy(net);
}

/* Both round to fp32 twice, the product with the deviation and the value: 2^-23 if they take
 * different sides, once each. */
static void check_normal(void) {
    enum { COUNT = 100001, CUT = 1234 };
    static float whole[COUNT], parts[COUNT];
    chex_normal_fill(5, 1ull << 40, 0.3f, whole, 0, COUNT);
    chex_normal_fill(5, 1ull << 40, 0.3f, parts, CUT, COUNT);
    chex_normal_fill(5, 1ull << 40, 0.3f, parts, 0, CUT);
    OK(memcmp(whole, parts, sizeof whole) == 0, "normal values do not depend on the parts");
    double worst = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const struct chex_rng4 r = chex_rng(5, CHEX_RNG_INIT, 1ull << 40, (uint32_t)(i / 2));
        const long double radius = sqrtl(-2 * logl(((long double)r.v[0] + 1) * 0x1p-32L));
        const long double angle = 2 * 3.14159265358979323846L * r.v[1] * 0x1p-32L;
        const long double want = 0.3f * radius * (i % 2 ? sinl(angle) : cosl(angle));
        const double off = (double)fabsl((whole[i] - want) / want);
        worst = off > worst ? off : worst;
    }
    OK(worst < 0x1p-23, "normal values are within %.2g of Box and Muller's", worst);
}

/* The names of densenet_tiny are all in a file of densenet121: the shapes decide. A file of
 * resnet34 has all parameters of resnet18 in the same shapes: the deeper network decides. */
static void check_recognised(const char *model, bool cut_first) {
    struct chex_net *net = NULL;
    struct chex_tensor_set set = {0};
    MUST(chex_net_create(model, 14, &net, &err));
    MUST(chex_tensor_set_begin(&set, model, NULL, &err));
    for (int i = 0; i < net->param_total; i++) {
        struct chex_param *p = &net->params[i];
        struct chex_tensor t = {.name = p->name, .rank = (size_t)p->rank};
        for (int k = 0; k < p->rank; k++)
            t.dims[k] = (size_t)p->dims[k] - (cut_first && i == 0);
        MUST(chex_tensor_set_add(&set, &t, NULL, &err));
    }
    const char *found = chex_tensor_set_model(&set);
    OK(found && strcmp(found, model) == 0, "the tensors of a %s%s are recognised (%s)", model,
       cut_first ? " with one wrong shape" : "", found ? found : "none");
    chex_tensor_set_release(&set);
    chex_net_destroy(net);
}

int main(void) {
    check_normal();
    /* Published parameter counts less the 1000-class head plus ours; MACs with the pooled-first
     * transitions. */
    check_model("densenet121", 6968206, 2.602e9);
    check_model("densenet161", 26502926, 7.051e9);
    check_model("densenet169", 12507790, 3.084e9);
    check_model("densenet201", 18119822, 3.899e9);
    check_model("resnet18", 11183694, 1.814e9);
    check_model("resnet34", 21291854, 3.664e9);
    check_model("resnet50", 23536718, 4.09e9);
    check_model("resnet101", 42528846, 7.801e9);
    check_model("resnet152", 58172494, 11.514e9);
    /* Fan in of a 1x1 on so many channels; fan out of a 3x3. The other networks of a family follow
     * the same rule. */
    check_init("densenet121", "features.transition1.conv.weight", sqrt(2.0 / 256));
    check_init("densenet161", "features.transition1.conv.weight", sqrt(2.0 / 384));
    check_init("resnet18", "layer2.0.conv1.weight", sqrt(2.0 / (9 * 128)));
    struct chex_net *net = NULL;
    OK_STATUS(chex_net_create("vgg16", 14, &net, &err), CHEX_E_USAGE, err, "vgg16");
    OK(strstr(err.text, "expected one of densenet121, ") && strstr(err.text, ", resnet152") &&
           !strstr(err.text, "tiny"),
       "messages list the networks without those of tests: %s", err.text);
    BAIL_UNLESS((net = chex_net_new("new", 14)), "out of memory");
    OK_STATUS(chex_net_finish(net, &err), CHEX_E_FAIL, err,
              "network new: no rule of initial values");
    chex_net_destroy(net);
    MUST(chex_net_create("features-768", 14, &net, &err));
    OK(net->param_count == 769 * 14 && net->state_count == net->param_count,
       "a classifier of 768 features has %zu parameters", net->param_count);
    chex_net_destroy(net);
    static const char *const wrong[] = {"features-0", "features-65537", "features-123456",
                                        "features-7x", "features-"};
    for (size_t i = 0; i < CHEX_COUNT(wrong); i++)
        OK_STATUS(chex_net_create(wrong[i], 14, &net, &err), CHEX_E_USAGE, err, wrong[i]);
    for (size_t i = 0; chex_net_names[i]; i++)
        check_recognised(chex_net_names[i], false);
    check_recognised("densenet201", true);
    check_recognised("resnet50", true);
    check_recognised("resnet152", true);
    return tap_done();
}
