/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a plan as text: reads the values out of the JSON object by their paths, one print_*
 * function per subject.
 */
#include "train_plan.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"

enum { RANKS_SHOWN = 8, TEXT = 32 };

/* ---- values by path, such as "steps.steps_an_epoch" ---- */

static const json_t *at(const json_t *o, const char *path) {
    char key[64];
    for (size_t n; o && *path; path += n + (path[n] == '.')) {
        n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        o = json_object_get(o, key);
    }
    return o;
}

static const char *text(const json_t *o, const char *path) {
    const char *s = json_string_value(at(o, path));
    return s ? s : "";
}
static long long count(const json_t *o, const char *path) {
    return (long long)json_integer_value(at(o, path));
}
static const char *plural(const json_t *o, const char *path) {
    return chex_text_s((uint64_t)count(o, path));
}
static double real(const json_t *o, const char *path) { return json_number_value(at(o, path)); }
static bool known(const json_t *o, const char *path) {
    const json_t *v = at(o, path);
    return v && !json_is_null(v);
}

/* Returns one of 16 static buffers in turn, so one printf can have several calls. */
static const char *bytes(const json_t *o, const char *path) {
    static char buf[16][TEXT];
    static unsigned next;
    char *mine = buf[next++ % 16];
    if (!known(o, path))
        return "unknown";
    return chex_format_bytes(mine, TEXT, (uint64_t)count(o, path));
}
static const char *duration(const json_t *o, const char *path) {
    static char buf[4][TEXT];
    static unsigned next;
    return chex_format_duration(buf[next++ % 4], TEXT, real(o, path));
}

static void row(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void row(const char *name, const char *fmt, ...) {
    va_list ap;
    printf("%-14s", name);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

/* ---- the rows ---- */

static void print_data(const json_t *p) {
    size_t i;
    const json_t *split;
    const size_t classes = json_array_size(at(p, "data.classes"));
    row("data", "%s: %zu class%s, images of %lld px (%s)", text(p, "data.folder"), classes,
        classes == 1 ? "" : "es", count(p, "data.stored_px"), text(p, "data.resize"));
    json_array_foreach(at(p, "data.splits"), i, split) {
        row("", "%s%s: %lld image%s of %lld patient%s in %lld shard%s, %s", text(split, "name"),
            strcmp(text(split, "name"), text(p, "data.trained_on")) == 0 ? " (trained on)" : "",
            count(split, "rows"), plural(split, "rows"), count(split, "patients"),
            plural(split, "patients"), count(split, "shards"), plural(split, "shards"),
            bytes(split, "bytes"));
    }
    if (known(p, "data.stage"))
        row("", "copied to %s of each node first", text(p, "data.stage"));
}

static void print_rank(const json_t *r) {
    const json_t *logical = at(r, "logical_ranks"), *rows = at(r, "train_rows");
    const long long from = json_integer_value(json_array_get(logical, 0)),
                    to = json_integer_value(json_array_get(logical, 1)) - 1;
    char who[64] = "", part[80];
    snprintf(part, sizeof part, "logical rank%s %lld", to > from ? "s" : "", from);
    if (to > from)
        snprintf(part, sizeof part, "logical ranks %lld-%lld", from, to);
    if (text(r, "gpu_pci_bus_id")[0])
        snprintf(who, sizeof who, ", GPU %s", text(r, "gpu_pci_bus_id"));
    row("",
        "rank %lld on %s, cores %s%s: %s, images %lld to %lld; reads %s in its first epoch, %s "
        "in each later one",
        count(r, "rank"), text(r, "host"), text(r, "cpus"), who, part,
        (long long)json_integer_value(json_array_get(rows, 0)),
        (long long)json_integer_value(json_array_get(rows, 1)) - 1,
        bytes(r, "first_epoch_read_bytes"), bytes(r, "later_epoch_read_bytes"));
}

static void print_ranks(const json_t *p) {
    size_t i;
    const json_t *r;
    const long long ranks = count(p, "launch.ranks"), nodes = count(p, "launch.nodes");
    row("ranks", "%lld on %lld node%s (%s%s%s), for %lld logical rank%s", ranks, nodes,
        chex_text_s((uint64_t)nodes), text(p, "launch.method"),
        text(p, "launch.job_id")[0] ? ", job " : "", text(p, "launch.job_id"),
        count(p, "steps.logical_ranks"), plural(p, "steps.logical_ranks"));
    json_array_foreach(at(p, "ranks"), i, r) {
        if (i < RANKS_SHOWN)
            print_rank(r);
    }
    if (ranks > RANKS_SHOWN)
        row("", "and %lld more (--json has all)", ranks - RANKS_SHOWN);
}

static void print_steps(const json_t *p) {
    row("batch", "%lld image%s a logical rank, %lld image%s a step", count(p, "steps.batch_images"),
        plural(p, "steps.batch_images"), count(p, "steps.step_images"),
        plural(p, "steps.step_images"));
    row("steps", "%lld an epoch, %lld in all, %lld to do; %lld image%s left out of each epoch",
        count(p, "steps.steps_an_epoch"), count(p, "steps.steps_in_all"),
        count(p, "steps.steps_to_do"), count(p, "steps.rows_left_out_an_epoch"),
        count(p, "steps.rows_left_out_an_epoch") == 1 ? " is" : "s are");
    row("order", "%s, shuffle %lld images wide; pipeline %s", text(p, "order.order"),
        count(p, "order.shuffle_rows"), text(p, "order.pipeline"));
    if (text(p, "order.cache")[0])
        row("", "%s", text(p, "order.cache"));
    if (text(p, "order.resident")[0])
        row("", "%s", text(p, "order.resident"));
}

static void print_engine(const json_t *p) {
    row("network", "%s, %lld classes, %.2f M parameters, %lld px, %.2f GFLOP an image",
        text(p, "network.model"), count(p, "network.classes"), real(p, "network.parameters") / 1e6,
        count(p, "network.image_px"), real(p, "network.image_gflop"));
    row("engine", "%s (%s): %s", text(p, "engine.name"), text(p, "engine.variant"),
        text(p, "engine.why"));
    row("precision", "%s (%s)", text(p, "engine.precision"), text(p, "engine.precision_why"));
    row("threads", "%lld compute, %lld input; the rank has %lld core%s", count(p, "engine.threads"),
        count(p, "engine.input_threads"), count(p, "engine.cores"), plural(p, "engine.cores"));
}

static void print_memory(const json_t *p) {
    const json_t *m = at(p, "memory.rank_0");
    const bool device = known(m, "device_bytes");
    row("memory",
        "of rank 0: parameters %s, optimiser %s, activations and work space %s, gradients "
        "%s%s",
        bytes(m, "parameters_bytes"), bytes(m, "optimizer_bytes"), bytes(m, "work_bytes"),
        bytes(m, "gradients_bytes"), device ? ": on the GPU" : "");
    row("", "input ring %s, kept images %s, checkpoint being written %s, program %s",
        bytes(m, "input_ring_bytes"), bytes(m, "kept_rows_bytes"), bytes(m, "snapshot_bytes"),
        bytes(m, "program_bytes"));
    if (device)
        row("", "%s of the GPU's memory, %s are free besides", bytes(m, "device_bytes"),
            bytes(m, "device_left_bytes"));
    row("", "%s in all; a rank's part of the node is %s allowed (%s) and %s free",
        bytes(m, "host_bytes"), bytes(m, "host_allowed_bytes"), text(p, "memory.node_allowed_by"),
        bytes(m, "host_free_bytes"));
    const long long largest = count(p, "memory.largest_batch");
    if (known(p, "memory.largest_batch"))
        row("", largest ? "the largest --batch-size that fits is %lld" : "not even one image fits",
            largest);
}

static void print_training(const json_t *p) {
    const bool plateau = strcmp(text(p, "schedule.schedule"), "plateau") == 0;
    row("learning rate", "%s, %s: %g at the next step, %s%g at the last; warm-up of %lld step%s",
        text(p, "schedule.optimizer"), text(p, "schedule.schedule"),
        real(p, "schedule.next_step_lr"), plateau ? "at most " : "",
        real(p, "schedule.last_step_lr"), count(p, "schedule.warmup_steps"),
        plural(p, "schedule.warmup_steps"));
    row("start", "epoch %lld, %lld step%s done%s%s", count(p, "start.epoch"),
        count(p, "start.steps_done"), plural(p, "start.steps_done"),
        known(p, "start.file")                       ? ", from "
        : strcmp(text(p, "start.from"), "seed") == 0 ? ", from new parameters by seed"
                                                     : "",
        text(p, "start.file"));
    row("checkpoints",
        "%s each, at the end of each epoch and every %s, %lld kept; %s more needed in "
        "%s, which has %s free",
        bytes(p, "checkpoints.file_bytes"), text(p, "checkpoints.every"),
        count(p, "checkpoints.keep"), bytes(p, "checkpoints.more_bytes"),
        text(p, "checkpoints.folder"), bytes(p, "checkpoints.free_bytes"));
}

static void print_gradients(const json_t *p) {
    const char *way = text(p, "gradients.way");
    if (!known(p, "gradients.carrier"))
        row("gradients", "%s, not sent (%s)", bytes(p, "gradients.bytes"), way);
    else if (count(p, "gradients.step_summed_bytes"))
        row("gradients", "%s a step by %s (%s), in %lld buckets of up to %s",
            bytes(p, "gradients.step_summed_bytes"), text(p, "gradients.carrier"), way,
            count(p, "gradients.buckets"), bytes(p, "gradients.bucket_bytes"));
    else
        row("gradients",
            "by %s (%s), in %lld buckets of up to %s; rank 0 sends %s, receives %s and broadcasts "
            "%s a step",
            text(p, "gradients.carrier"), way, count(p, "gradients.buckets"),
            bytes(p, "gradients.bucket_bytes"), bytes(p, "gradients.step_sent_bytes"),
            bytes(p, "gradients.step_received_bytes"), bytes(p, "gradients.step_broadcast_bytes"));
}

static void print_seconds(const char *name, const char *how, const json_t *t) {
    row(name, "%s%s a step, %s an epoch, %s for the run (%.1f images/s)", how,
        duration(t, "step_s"), duration(t, "epoch_s"), duration(t, "run_s"),
        real(t, "images_per_s"));
    row("", "from: %s", text(t, "from"));
}

static void print_time(const json_t *p) {
    if (known(p, "time.measured"))
        print_seconds("time", "", at(p, "time.measured"));
    if (known(p, "time.at_least"))
        print_seconds(known(p, "time.measured") ? "" : "time", "at least ", at(p, "time.at_least"));
    if (!known(p, "time.measured") && !known(p, "time.at_least"))
        row("time", "no estimate: no limits are measured by this engine, or with so little "
                    "memory, and the run has no epoch yet");
}

void train_plan_print(const json_t *p, bool json) {
    size_t i;
    const json_t *warning;
    if (json) {
        json_dumpf(p, stdout, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
        putchar('\n');
        return;
    }
    const bool nothing = strcmp(text(p, "action"), "nothing") == 0;
    printf("chex-train would %s%s %s; nothing was done\n",
           nothing ? "do nothing" : text(p, "action"),
           nothing                                   ? ": the run is complete in"
           : strcmp(text(p, "action"), "start") == 0 ? " a run in"
                                                     : " with the run in",
           text(p, "output"));
    if (!nothing) {
        print_data(p);
        print_ranks(p);
        print_steps(p);
        print_engine(p);
        print_memory(p);
        print_training(p);
        print_gradients(p);
        print_time(p);
    }
    json_array_foreach(at(p, "warnings"), i, warning)
        row("warning", "%s", json_string_value(warning));
}
