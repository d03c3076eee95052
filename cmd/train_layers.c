/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the roofline of a measured step.
 */
#include "train_layers.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/result.h"

static const char *const bound_names[] = {[CHEX_BOUND_FLOP] = "flop", [CHEX_BOUND_BYTES] = "bytes"};

static double per_s(double amount, const struct chex_layer_time *t) {
    return t->seconds > 0 ? amount / t->seconds * 1e-9 : 0;
}

static json_t *time_json(const struct chex_layer_time *t) {
    const bool known = t->min_s > 0 && t->seconds > 0;
    return chex_result(CHEX_FIELD("ms", t->seconds * 1e3), CHEX_FIELD("gflop", t->work.flop * 1e-9),
                       CHEX_FIELD("gb", t->work.bytes * 1e-9),
                       CHEX_FIELD("gflop_per_s", per_s(t->work.flop, t)),
                       CHEX_FIELD("gb_per_s", per_s(t->work.bytes, t)),
                       CHEX_FIELD_IF(known, "limit_percent", chex_layer_limit_percent(t)),
                       CHEX_FIELD_IF(known, "bound", bound_names[t->bound]));
}

static void add(json_t *o, const struct chex_bench *b, const struct chex_engine_limits *limits,
                const struct chex_layer *layers, int count) {
    const bool known = limits->flop_per_s > 0;
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        json_t *layer = chex_result(CHEX_MEMBER(&layers[i], name),
                                    CHEX_FIELD("forward", time_json(&layers[i].forward)));
        if (b->config.training)
            json_object_set_new(layer, "backward", time_json(&layers[i].backward));
        json_array_append_new(list, layer);
    }
    json_object_update_new(
        o, chex_result(CHEX_FIELD_IF(known, "limit_gflop_per_s", limits->flop_per_s * 1e-9),
                       CHEX_FIELD_IF(known, "limit_gb_per_s", limits->bytes_per_s * 1e-9),
                       CHEX_FIELD("layers", list)));
}

enum chex_status train_layers_add(const struct chex_bench *bench, const struct chex_bench_result *r,
                                  json_t *o, struct chex_error *err) {
    if (!r->forward_s || !r->backward_s) {
        chex_log(CHEX_LOG_WARN, "--bench-layers: engine %s does not time its operations",
                 bench->engine);
        return CHEX_OK;
    }
    int count = r->net->op_count + 1;
    struct chex_layer *layers = chex_alloc_zeroed((size_t)count, sizeof *layers);
    if (!layers)
        return chex_error_memory(err, NULL);
    enum chex_status st = chex_bench_layers(bench, r, layers, err);
    if (st == CHEX_OK)
        add(o, bench, &r->limits, layers, count);
    free(layers);
    return st;
}

static const char limits_text[] =
    "{limit_gflop_per_s?limits of this machine: {limit_gflop_per_s:.1f} GFLOP/s, "
    "{limit_gb_per_s:.1f} GB/s; % is of whichever binds\n}"
    "{limit_gflop_per_s!limits of this machine: not measured by this engine\n}";

static const char time_text[] = " {ms:9.3f} {gflop_per_s:9.1f} {gb_per_s:8.1f}"
                                "{bound? {limit_percent:4.0f} {bound:-5s}}{bound!    - -    }";

void train_layers_print(const json_t *o) {
    static const char columns[] = "       ms   GFLOP/s     GB/s    % bound";
    const json_t *layers = json_object_get(o, "layers"), *layer;
    const bool training = json_object_get(json_array_get(layers, 0), "backward");
    size_t i;
    if (!layers)
        return;
    chex_result_text(stdout, o, limits_text);
    printf("%-28s  %-41s%s\n", "", "forward", training ? "backward" : "");
    printf("%-28s  %s%s%s\n", "operation", columns, training ? "  " : "", training ? columns : "");
    json_array_foreach(layers, i, layer) {
        chex_result_text(stdout, layer, "{name:-28s} ");
        chex_result_text(stdout, json_object_get(layer, "forward"), time_text);
        if (training)
            chex_result_text(stdout, json_object_get(layer, "backward"), time_text);
        putchar('\n');
    }
}
