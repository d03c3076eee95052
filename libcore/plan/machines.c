/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the description of a cluster and predicts steps on it.
 */
#include "plan/machines.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"

enum { FILE_BYTES = 1 << 20, PROCESSES_MAX = 1 << 20 };

/* Two thirds of the products of a step belong to backward. */
static const double usual_backward_share = 2.0 / 3;

/* ---- the file ---- */

/* One number of an object. */
struct field {
    const char *name;
    double *to;
    double least, most;
    bool whole, optional;
};

struct reader {
    const char *path;
    struct chex_error *err;
};

static enum chex_status wrong(const struct reader *r, const char *part, const char *name,
                              const char *what) {
    return chex_error_set(r->err, CHEX_E_USAGE, "--machines %s: %s%s%s: %s", r->path, part,
                          part[0] ? "." : "", name, what);
}

static enum chex_status check_names(const struct reader *r, const char *part, const json_t *object,
                                    const struct field *fields, size_t count,
                                    const char *const *others) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        bool known = false;
        for (size_t i = 0; i < count; i++)
            known = known || strcmp(fields[i].name, name) == 0;
        for (size_t i = 0; others && others[i]; i++)
            known = known || strcmp(others[i], name) == 0;
        if (!known)
            return wrong(r, part, name, "unknown (doc/scale.md lists the names)");
    }
    return CHEX_OK;
}

static enum chex_status read_fields(const struct reader *r, const char *part, const json_t *object,
                                    const struct field *fields, size_t count,
                                    const char *const *others) {
    char what[96];
    if (!json_is_object(object))
        return chex_error_set(r->err, CHEX_E_USAGE, "--machines %s: %s: expected an object",
                              r->path, part[0] ? part : "the file");
    CHEX_TRY(check_names(r, part, object, fields, count, others));
    for (size_t i = 0; i < count; i++) {
        const struct field *f = &fields[i];
        const json_t *value = json_object_get(object, f->name);
        if (!value && f->optional)
            continue;
        if (!value)
            return wrong(r, part, f->name, "missing");
        const double v = json_number_value(value);
        if (!json_is_number(value) || !(v >= f->least && v <= f->most) ||
            (f->whole && v != floor(v))) {
            char text[32];
            snprintf(text, sizeof text, "%.6g", v);
            snprintf(what, sizeof what, "%s (expected %s from %g to %g)",
                     json_is_number(value) ? text : "not a number",
                     f->whole ? "a whole number" : "a number", f->least, f->most);
            return wrong(r, part, f->name, what);
        }
        *f->to = v;
    }
    return CHEX_OK;
}

static enum chex_status read_link(const struct reader *r, const char *name, const json_t *links,
                                  bool needed, struct chex_machines_link *out) {
    char part[32];
    const json_t *link = json_object_get(links, name);
    const struct field fields[] = {{"bytes_per_s", &out->bytes_per_s, 1, 1e15, false, false},
                                   {"latency_s", &out->latency_s, 0, 1, false, true}};
    snprintf(part, sizeof part, "links.%s", name);
    if (!link && !needed)
        return CHEX_OK;
    return read_fields(r, part, link, fields, 2, NULL);
}

static enum chex_status read_several(const struct reader *r, const json_t *root,
                                     struct chex_machines *out) {
    const json_t *several = json_object_get(root, "measured");
    double processes = 0;
    const struct field fields[] = {
        {"processes", &processes, 2, PROCESSES_MAX, true, false},
        {"images_per_s", &out->several_images_per_s, 1e-6, 1e12, false, false}};
    if (!several)
        return CHEX_OK;
    if (json_object_get(root, "wait_s"))
        return wrong(r, "", "measured", "expected either this or wait_s");
    CHEX_TRY(read_fields(r, "measured", several, fields, 2, NULL));
    out->several_processes = (int)processes;
    if (out->several_processes > out->nodes * out->node_processes)
        return wrong(r, "measured", "processes", "more than the cluster has");
    return CHEX_OK;
}

static enum chex_status read_root(const struct reader *r, const json_t *root,
                                  struct chex_machines *out) {
    static const char *const others[] = {"links", "measured", "comment", NULL},
                             *const link_names[] = {"local", "network", NULL};
    struct chex_machines c = {.backward_share = usual_backward_share};
    double schema = 0, nodes = 0, processes = 0, batch = 0;
    const struct field fields[] = {
        {"schema", &schema, 1, 1, true, false},
        {"nodes", &nodes, 1, 1 << 16, true, false},
        {"processes_a_node", &processes, 1, 1 << 10, true, false},
        {"images_per_s", &c.images_per_s, 1e-6, 1e12, false, false},
        {"batch_images", &batch, 1, 1 << 20, true, true},
        {"backward_share", &c.backward_share, 0, 1, false, true},
        {"wait_s", &c.wait_s, 0, 1e6, false, true},
    };
    CHEX_TRY(read_fields(r, "", root, fields, CHEX_COUNT(fields), others));
    c.nodes = (int)nodes;
    c.node_processes = (int)processes;
    c.batch_images = (int)batch;
    const json_t *links = json_object_get(root, "links");
    if (links || c.nodes * c.node_processes > 1) {
        CHEX_TRY(read_fields(r, "links", links, NULL, 0, link_names));
        CHEX_TRY(read_link(r, "local", links, c.node_processes > 1, &c.local));
        CHEX_TRY(read_link(r, "network", links, c.nodes > 1, &c.network));
    }
    CHEX_TRY(read_several(r, root, &c));
    *out = c;
    return CHEX_OK;
}

enum chex_status chex_machines_read(const char *path, struct chex_machines *out,
                                    struct chex_error *err) {
    const struct reader r = {path, err};
    CHEX_AUTO_FREE char *text = NULL;
    size_t size = 0;
    json_error_t where;
    enum chex_status st = chex_fs_read(path, FILE_BYTES, &text, &size, err);
    if (st != CHEX_OK)
        return chex_error_prefix(err, st == CHEX_E_RESOURCE ? st : CHEX_E_USAGE, "--machines");
    json_auto_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &where);
    return root ? read_root(&r, root, out)
                : chex_error_set(err, CHEX_E_USAGE, "--machines %s line %d: %s", path, where.line,
                                 where.text);
}

/* ---- the model ---- */

static double pass_s(const struct chex_machines *c, const struct chex_machines_work *w) {
    return w->batch_images / c->images_per_s;
}

static double harmonic(int n) {
    double sum = 0;
    for (int k = n; k > 0; k--)
        sum += 1.0 / k;
    return sum;
}

/* Probability that the sum of `passes` delays of mean 1 is at most t. */
static double erlang(int passes, double t) {
    double term = exp(-t), above = 0;
    for (int k = 0; k < passes; term *= t / ++k)
        above += term;
    return 1 - above;
}

/* The mean of the largest of n such sums, less the mean of one: the integral of 1 - erlang^n, by
 * Simpson's rule. */
static double mean_wait(int n, int passes) {
    enum { PARTS = 1000, PASSES_MOST = 256 /* exp(-t) must not vanish */ };
    if (n == 1)
        return 0;
    if (passes == 1)
        return harmonic(n) - 1;
    if (passes > PASSES_MOST) /* nearly normal: the delays grow with the square root */
        return sqrt((double)passes / PASSES_MOST) * mean_wait(n, PASSES_MOST);
    const double end = passes + 10 * sqrt(passes) + 2 * log(n) + 30, width = end / PARTS;
    double sum = 0;
    for (int i = 0; i <= PARTS; i++)
        sum += (i == 0 || i == PARTS ? 1 : 2 + i % 2 * 2) *
               (1 - pow(fmax(0, erlang(passes, i * width)), n));
    return sum * width / 3 - passes;
}

static int rounds(int n) { return n > 1 ? (int)ceil(log2(n)) : 0; }

static double link_s(const struct chex_machines_link *l, int n, double bytes) {
    return n > 1 ? 2.0 * (n - 1) / n * bytes / l->bytes_per_s + 2 * rounds(n) * l->latency_s : 0;
}

static int nodes_of(const struct chex_machines *c, int processes) {
    return (processes + c->node_processes - 1) / c->node_processes;
}

static int local_of(const struct chex_machines *c, int processes) {
    return processes < c->node_processes ? processes : c->node_processes;
}

/* What the reduction takes after backward. hidden: gradients become ready during backward. */
static double exposed_s(const struct chex_machines *c, const struct chex_machines_work *w,
                        int processes, bool hidden) {
    const int nodes = nodes_of(c, processes), local = local_of(c, processes);
    const double backward_s = hidden ? c->backward_share * pass_s(c, w) : 0;
    const double total = (double)w->gradient_bytes;
    double free_s = 0; /* when the link is free, since the start of backward */
    if (processes == 1)
        return 0;
    for (double done = 0; done < total;) {
        const double bytes = fmin((double)w->bucket_bytes, total - done);
        done += bytes;
        free_s = fmax(free_s, backward_s * done / total) + link_s(&c->local, local, bytes) +
                 link_s(&c->network, nodes, bytes);
    }
    return free_s - backward_s;
}

/* All sums of a step over one kind of link, up and down the tree of n. */
static double sums_s(const struct chex_machines_link *l, int n,
                     const struct chex_machines_work *w) {
    return n > 1 ? 2 * rounds(n) *
                       (w->sync_sums * l->latency_s + (double)w->sync_bytes / l->bytes_per_s)
                 : 0;
}

void chex_machines_fit(struct chex_machines *c, const struct chex_machines_work *w) {
    const int n = c->several_processes;
    if (n == 0)
        return;
    const double step_s = (double)n * w->batch_images / c->several_images_per_s;
    c->wait_s = fmax(0, step_s - pass_s(c, w) - exposed_s(c, w, n, true)) / mean_wait(n, 1);
}

void chex_machines_predict(const struct chex_machines *c, const struct chex_machines_work *w,
                           int processes, struct chex_machines_row *out) {
    const int n = processes, V = w->logical_ranks;
    struct chex_machines_row r = {
        .processes = n, .nodes = nodes_of(c, n), .passes = V ? (V + n - 1) / n : w->process_passes};
    const double images = (double)(V ? V : n * r.passes) * w->batch_images;
    const double in_the_open_s = exposed_s(c, w, n, false);
    r.wait_s = c->wait_s * mean_wait(n, r.passes);
    r.exposed_s = w->sync_sums ? in_the_open_s : exposed_s(c, w, n, true);
    r.sync_s = sums_s(&c->local, local_of(c, n), w) + sums_s(&c->network, r.nodes, w);
    if (w->audit_steps)
        r.audit_s = (pass_s(c, w) + in_the_open_s - r.exposed_s) / (double)w->audit_steps;
    r.step_s = r.passes * pass_s(c, w) + r.wait_s + r.exposed_s + r.sync_s + r.audit_s;
    r.images_per_s = images / r.step_s;
    r.efficiency = r.images_per_s / (n * c->images_per_s);
    r.epoch_s = floor((double)w->rows / images) * r.step_s;
    *out = r;
}

/* 1, 2, 3, ... up to 8, then doubled, up to `last`, which is always there. */
static int add_counts(int last, int times, int first, int *counts, int n) {
    for (int k = first; k < last; k = k < 8 ? k + 1 : 2 * k)
        counts[n++] = k * times;
    counts[n++] = last * times;
    return n;
}

int chex_machines_counts(const struct chex_machines *c, int counts_out[CHEX_MACHINES_COUNTS]) {
    const int n = add_counts(c->node_processes, 1, 1, counts_out, 0);
    return c->nodes > 1 ? add_counts(c->nodes, c->node_processes, 2, counts_out, n) : n;
}
