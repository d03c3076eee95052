/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer-wise decay of the learning rate (Clark et al. 2020, ELECTRA) and frozen parameters.
 */
#include "train/layer_rates.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"

static bool is_trained(const struct chex_net *net, int param) {
    return net->params[param].offset < net->param_count;
}

static enum chex_status freeze_matches(const struct chex_net *net, const char *pattern,
                                       double *scales, struct chex_error *err) {
    int matches = 0;
    for (int i = 0; i < net->param_total; i++)
        if (is_trained(net, i) && fnmatch(pattern, net->params[i].name, 0) == 0) {
            scales[i] = 0;
            matches++;
        }
    if (matches)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE,
                          "--freeze: '%s' matches no trained parameter of %s (expected names such "
                          "as %s, with * and ?)",
                          pattern, net->model, net->params[0].name);
}

static enum chex_status freeze_all(const struct chex_net *net, const char *patterns, double *scales,
                                   struct chex_error *err) {
    CHEX_AUTO_FREE char *copy = strdup(patterns);
    CHEX_ALLOCATED(copy, err, NULL);
    for (char *one, *rest = copy; (one = strsep(&rest, ",")) != NULL;)
        CHEX_TRY(freeze_matches(net, one, scales, err));
    bool trains = false;
    for (int i = 0; i < net->param_total; i++)
        trains = trains || (is_trained(net, i) && scales[i] > 0);
    if (!trains)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--freeze %s: no parameter is left to train (expected patterns that "
                              "leave some)",
                              patterns);
    return CHEX_OK;
}

enum chex_status chex_layer_rates(const struct chex_net *net, double decay, const char *freeze,
                                  double **scales_out, struct chex_error *err) {
    const bool freezes = freeze && freeze[0] && strcmp(freeze, "none") != 0;
    *scales_out = NULL;
    if (!freezes && decay >= 1)
        return CHEX_OK;
    CHEX_AUTO_FREE double *scales = chex_alloc_zeroed((size_t)net->param_total, sizeof *scales);
    CHEX_ALLOCATED(scales, err, NULL);
    for (int i = 0; i < net->param_total; i++)
        scales[i] = pow(decay, net->layer - net->params[i].layer);
    if (freezes)
        CHEX_TRY(freeze_all(net, freeze, scales, err));
    *scales_out = scales;
    scales = NULL;
    return CHEX_OK;
}

void chex_layer_rates_text(const struct chex_net *net, const double *scales, char *text,
                           size_t size) {
    size_t tensors = 0, frozen = 0, elements = 0;
    double least = 1;
    for (int i = 0; i < net->param_total; i++) {
        if (!is_trained(net, i))
            continue;
        tensors++;
        if (scales[i] > 0) {
            least = scales[i] < least ? scales[i] : least;
            continue;
        }
        frozen++;
        elements += net->params[i].count;
    }
    struct chex_text_line l = {text, size, 0};
    if (frozen)
        chex_text_append(&l, "frozen: %zu of %zu parameter tensors (%.1f %% of the values)%s",
                         frozen, tensors, 100 * (double)elements / (double)net->param_count,
                         least < 1 ? "; " : "");
    if (least < 1)
        chex_text_append(&l, "layer decay: the rate of the first trained layer is %.3g of --lr",
                         least);
}
