/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers and factors of the learning rate. The numbers of layers and the factors are those of timm
 * 1.0's param_groups_layer_decay for densenet121 and resnet50.
 */
#include "train/layer_rates.h"
#include "tap.h"

static struct chex_error err;

static struct chex_net *make(const char *model) {
    struct chex_net *net = NULL;
    MUST(chex_net_create(model, 14, &net, &err));
    return net;
}

static void check_factor(const struct chex_net *net, const double *scales, const char *name,
                         int layers_to_head) {
    const int i = chex_net_find_param(net, name);
    OK(i >= 0 && fabs(scales[i] - pow(0.75, layers_to_head)) < 1e-15, "%s: 0.75 to the power of %d",
       name, layers_to_head);
}

static void check_decay(void) {
    static const struct {
        const char *model, *name;
        int layers;
    } want[] = {
        {"densenet121", "features.conv0.weight", 59},
        {"densenet121", "features.norm0.bias", 59},
        {"densenet121", "features.denseblock1.denselayer1.norm1.weight", 58},
        {"densenet121", "features.denseblock1.denselayer6.conv2.weight", 53},
        {"densenet121", "features.transition1.conv.weight", 53},
        {"densenet121", "features.denseblock2.denselayer1.norm1.weight", 52},
        {"densenet121", "features.denseblock4.denselayer16.conv2.weight", 1},
        {"densenet121", "features.norm5.weight", 0},
        {"densenet121", "classifier.bias", 0},
        {"resnet50", "conv1.weight", 17},
        {"resnet50", "bn1.weight", 17},
        {"resnet50", "layer1.0.conv1.weight", 16},
        {"resnet50", "layer1.0.downsample.1.weight", 16},
        {"resnet50", "layer4.2.bn3.bias", 1},
        {"resnet50", "fc.weight", 0},
    };
    for (size_t k = 0; k < sizeof want / sizeof want[0]; k++) {
        struct chex_net *net = make(want[k].model);
        double *scales = NULL;
        OK_CALL(chex_layer_rates(net, 0.75, NULL, &scales, &err));
        check_factor(net, scales, want[k].name, want[k].layers);
        free(scales);
        chex_net_destroy(net);
    }
}

static void check_freeze(void) {
    struct chex_net *net = make("densenet121");
    double *scales = NULL;
    char text[160];
    OK_CALL(chex_layer_rates(net, 1, "", &scales, &err));
    OK(!scales, "without options there is no table");
    OK_CALL(chex_layer_rates(net, 0.75, "features.conv0.*,*denseblock[1-3]*", &scales, &err));
    bool right = true;
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        const bool frozen =
            p->offset < net->param_count &&
            (strstr(p->name, "conv0") || (strstr(p->name, "denseblock") && p->layer <= 42));
        right = right && (scales[i] > 0) == !frozen;
    }
    OK(right, "exactly the parameters that match are frozen, and no running statistic is");
    chex_layer_rates_text(net, scales, text, sizeof text);
    OK(strstr(text, "frozen: 253 of 364 parameter tensors") && strstr(text, "; layer decay: "),
       "%s", text);
    free(scales);
    static const struct {
        const char *patterns, *needle;
    } bad[] = {
        {"feature.*", "'feature.*' matches no trained parameter of densenet121"},
        {"features.*,", "'' matches no"},
        {"*running_mean", "matches no trained parameter"},
        {"*", "no parameter is left to train"},
        {"features.*,classifier.*", "no parameter is left to train"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++)
        OK_STATUS(chex_layer_rates(net, 1, bad[k].patterns, &scales, &err), CHEX_E_USAGE, err,
                  bad[k].needle);
    chex_net_destroy(net);
}

int main(void) {
    check_decay();
    check_freeze();
    return tap_done();
}
