/* SPDX-License-Identifier: Apache-2.0 */
#include "model/net.h"

#include "tap.h"

static void check_model(const char *model, size_t params, double macs) {
    struct chex_error err = {0};
    struct chex_net *net = NULL;
    BAIL_UNLESS(chex_net_create(model, 14, &net, &err) == CHEX_OK, "%s", err.text);
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

int main(void) {
    /* Published parameter counts less the 1000-class head plus ours; MACs with the pooled-first
     * transitions. */
    check_model("densenet121", 6968206, 2.602e9);
    check_model("resnet50", 23536718, 4.09e9);
    struct chex_error err;
    struct chex_net *net = NULL;
    OK_STATUS(chex_net_create("vgg16", 14, &net, &err), CHEX_E_USAGE, err, "vgg16");
    return tap_done();
}
