/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the roofline of a measured step.
 */
#include "train_layers.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"

static const char *const bound_names[] = {[CHEX_BOUND_FLOP] = "flop", [CHEX_BOUND_BYTES] = "bytes"};

static double per_s(double amount, const struct chex_layer_time *t) {
    return t->seconds > 0 ? amount / t->seconds * 1e-9 : 0;
}

static void print_time(const struct chex_layer_time *t) {
    printf(" %9.3f %9.1f %8.1f", t->seconds * 1e3, per_s(t->work.flop, t), per_s(t->work.bytes, t));
    if (t->least_s > 0 && t->seconds > 0)
        printf(" %4.0f %-5s", chex_layer_limit_percent(t), bound_names[t->bound]);
    else
        printf(" %4s %-5s", "-", "-");
}

static void print_table(const struct chex_bench *b, const struct chex_engine_limits *limits,
                        const struct chex_layer *layers, int count) {
    if (limits->flop_per_s > 0)
        printf("limits of this machine: %.1f GFLOP/s, %.1f GB/s; %% is of whichever binds\n",
               limits->flop_per_s * 1e-9, limits->bytes_per_s * 1e-9);
    else
        printf("limits of this machine: not measured by this engine\n");
    const char *columns = "       ms   GFLOP/s     GB/s    % bound";
    bool training = b->config.training;
    printf("%-28s  %-41s%s\n", "", "forward", training ? "backward" : "");
    printf("%-28s  %s%s%s\n", "operation", columns, training ? "  " : "", training ? columns : "");
    for (int i = 0; i < count; i++) {
        printf("%-28s ", layers[i].name);
        print_time(&layers[i].forward);
        if (training)
            print_time(&layers[i].backward);
        putchar('\n');
    }
}

static void add_time(json_t *o, const char *direction, const struct chex_layer_time *t) {
    bool known = t->least_s > 0 && t->seconds > 0;
    json_t *values =
        json_pack("{s:f,s:f,s:f,s:f,s:f,s:o,s:o}", "ms", t->seconds * 1e3, "gflop",
                  t->work.flop * 1e-9, "gb", t->work.bytes * 1e-9, "gflop_per_s",
                  per_s(t->work.flop, t), "gb_per_s", per_s(t->work.bytes, t), "limit_percent",
                  known ? json_real(chex_layer_limit_percent(t)) : json_null(), "bound",
                  known ? json_string(bound_names[t->bound]) : json_null());
    json_object_set_new(o, direction, values);
}

static void add_json(json_t *o, const struct chex_bench *b, const struct chex_engine_limits *limits,
                     const struct chex_layer *layers, int count) {
    bool known = limits->flop_per_s > 0;
    json_object_set_new(o, "limit_gflop_per_s",
                        known ? json_real(limits->flop_per_s * 1e-9) : json_null());
    json_object_set_new(o, "limit_gb_per_s",
                        known ? json_real(limits->bytes_per_s * 1e-9) : json_null());
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        json_t *layer = json_pack("{s:s}", "name", layers[i].name);
        add_time(layer, "forward", &layers[i].forward);
        if (b->config.training)
            add_time(layer, "backward", &layers[i].backward);
        json_array_append_new(list, layer);
    }
    json_object_set_new(o, "layers", list);
}

enum chex_status train_layers_print(const struct chex_bench *bench,
                                    const struct chex_bench_result *r, json_t *o,
                                    struct chex_error *err) {
    if (!r->forward_s || !r->backward_s) {
        chex_log(CHEX_LOG_WARN, "--bench-layers: engine %s does not time its operations",
                 bench->engine);
        return CHEX_OK;
    }
    int count = r->net->op_count + 1;
    struct chex_layer *layers = chex_alloc_zeroed((size_t)count, sizeof *layers);
    if (!layers)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    enum chex_status st = chex_bench_layers(bench, r, layers, err);
    if (st == CHEX_OK && o)
        add_json(o, bench, &r->limits, layers, count);
    else if (st == CHEX_OK)
        print_table(bench, &r->limits, layers, count);
    free(layers);
    return st;
}
