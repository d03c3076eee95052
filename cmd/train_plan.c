/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints a plan as text: templates over the plan's JSON object (base/result.h), in the order of the
 * lines. Only ranks and splits are loops, because there are several.
 */
#include "train_print.h"

#include <stdio.h>
#include <string.h>

#include "base/result.h"

enum { RANKS_SHOWN = 8 };

#define INDENT "              "

static const char head_text[] =
    "chex-train would {action=nothing?do nothing: the run is complete in}"
    "{action=start?start a run in}{action=go on?go on with the run in} {output}; nothing was "
    "done\n";

static const char data_text[] = "data          {folder}: {classes finding/findings}, images of "
                                "{stored_px} px ({resize})\n";

static const char split_text[] = ": {rows image} of {patients patient} in {shards shard}, "
                                 "{bytes:B}\n";

static const char ranks_text[] =
    "ranks         {launch.ranks} on {launch.nodes node} ({launch.method}"
    "{launch.job_id?, job {launch.job_id}}), for {steps.logical_ranks logical rank}\n";

static const char rank_text[] =
    INDENT "rank {rank} on {host}, cores {cpus}{gpu_pci_bus_id?, GPU {gpu_pci_bus_id}}: ";
static const char reads_text[] = "reads {first_epoch_read_bytes:B} in its first epoch, "
                                 "{later_epoch_read_bytes:B} in each later one\n";

static const char rest_text[] =
    "batch         {steps.batch_images image} a logical rank, {steps.step_images image} a step\n"
    "steps         {steps.steps_an_epoch} an epoch, {steps.steps_in_all} in all, "
    "{steps.steps_to_do} to do; {steps.rows_left_out_an_epoch image is/images are} left out of "
    "each epoch\n"
    "order         {order.order}, shuffle {order.shuffle_rows} images wide; pipeline "
    "{order.pipeline}\n"
    "{order.cache?" INDENT "{order.cache}\n}"
    "{order.resident?" INDENT "{order.resident}\n}"
    "network       {network.model}, {network.classes} findings, {network.parameters:.2M} M "
    "parameters{network.image_px?, {network.image_px} px, {network.image_gflop:.2f} GFLOP an "
    "image}\n"
    "engine        {engine.name} ({engine.variant}): {engine.why}\n"
    "precision     {engine.precision} ({engine.precision_why})\n"
    "threads       {engine.threads} compute, {engine.input_threads} input; the rank has "
    "{engine.cores core}\n"
    "{engine.engines=1!" INDENT "--sync-bn: {engine.engines} engines share them, one for each "
    "logical rank, with activations of their own\n}"
    "memory        of rank 0: parameters {memory.rank_0.parameters_bytes:B}, optimiser "
    "{memory.rank_0.optimizer_bytes:B}, activations and work space {memory.rank_0.work_bytes:B}, "
    "gradients {memory.rank_0.gradients_bytes:B}{memory.rank_0.engine_in=device?: on the "
    "GPU}\n" INDENT "input ring {memory.rank_0.input_ring_bytes:B}, kept images or features "
    "{memory.rank_0.kept_rows_bytes:B}, checkpoint being written {memory.rank_0.snapshot_bytes:B}, "
    "program {memory.rank_0.program_bytes:B}\n"
    "{memory.rank_0.engine_in=device?" INDENT "{memory.rank_0.device_bytes:B} of the GPU's memory, "
    "{memory.rank_0.device_left_bytes:B} are free besides\n}" INDENT
    "{memory.rank_0.host_bytes:B} in all; a rank's part of the node is "
    "{memory.rank_0.host_allowed_bytes:B} allowed ({memory.node_allowed_by}) and "
    "{memory.rank_0.host_free_bytes:B} free\n"
    "{memory.largest_batch?" INDENT "the largest --batch-size that fits is "
    "{memory.largest_batch}\n}"
    "{memory.largest_batch=0?" INDENT "not even one image fits\n}"
    "training      {training.loss}{training.clip_norm?, gradients clipped at norm "
    "{training.clip_norm}}{training.ema_decay?, moving average of decay "
    "{training.ema_decay}}{training.head_only?, of the classifier alone}\n"
    "{training.rates?" INDENT "{training.rates}\n}"
    "learning rate {schedule.optimizer}, {schedule.schedule}: {schedule.next_step_lr} at the next "
    "step, {schedule.schedule=plateau?at most }{schedule.last_step_lr} at the last; warm-up of "
    "{schedule.warmup_steps step}\n"
    "start         epoch {start.epoch}, {start.steps_done step} done"
    "{start.file?, from {start.file}}{start.from=seed?, from new parameters by seed}\n"
    "checkpoints   {checkpoints.file_bytes:B} each, at the end of each epoch and every "
    "{checkpoints.every}, {checkpoints.keep=0?all kept, in }{checkpoints.keep=0!"
    "{checkpoints.keep} kept; {checkpoints.more_bytes:B} more needed in }"
    "{checkpoints.folder}, which has {checkpoints.free_bytes:B} free\n"
    "gradients     "
    "{gradients.carrier!{gradients.bytes:B}, not sent ({gradients.way})}"
    "{gradients.carrier?{gradients.step_summed_bytes?{gradients.step_summed_bytes:B} a step }"
    "by {gradients.carrier} ({gradients.way}), in {gradients.buckets} buckets of up to "
    "{gradients.bucket_bytes:B}{gradients.step_summed_bytes!; rank 0 sends "
    "{gradients.step_sent_bytes:B}, receives {gradients.step_received_bytes:B} and broadcasts "
    "{gradients.step_broadcast_bytes:B} a step}}\n"
    "{audit?audit         every {audit.steps} steps, at least {audit.time_share:.2%} % of the "
    "time\n}"
    "time          {time.measured?{time.measured.step_s:t} a step, {time.measured.epoch_s:t} an "
    "epoch, {time.measured.run_s:t} for the run ({time.measured.images_per_s:.1f} "
    "images/s)\n" INDENT "from: {time.measured.from}\n}"
    "{time.at_least?{time.measured?" INDENT "}at least {time.at_least.step_s:t} a step, "
    "{time.at_least.epoch_s:t} an epoch, {time.at_least.run_s:t} for the run "
    "({time.at_least.images_per_s:.1f} images/s)\n" INDENT "from: {time.at_least.from}\n}"
    "{time.measured!{time.at_least!no estimate: no limits are measured by this engine, or with so "
    "little memory, and the run has no epoch yet\n}}";

static const char set_text[] = INDENT "set {name} ({folder}): {train_images image} of training"
                                      "{uses_an_epoch=1!, each used {uses_an_epoch} times in an "
                                      "epoch}, {val_images image} of validation\n";
static const char where_text[] =
    "{fold?" INDENT "fold {fold}: {train_images image} of training, {val_images image} of "
    "validation\n}{where?" INDENT
    "--where {where}: {train_images image} of training, {val_images image} of "
    "validation\n}{uncertain=ignore!" INDENT "uncertain labels: {uncertain}\n}";

static void print_splits(const json_t *set, const char *trained_on) {
    const json_t *split;
    size_t i;
    json_array_foreach(json_object_get(set, "splits"), i, split) {
        const char *name = json_string_value(json_object_get(split, "name"));
        printf(INDENT "%s%s", name, strstr(trained_on, name) ? " (trained on)" : "");
        chex_result_text(stdout, split, split_text);
    }
}

static void print_data(const json_t *data) {
    const char *trained_on = json_string_value(json_object_get(data, "trained_on"));
    const json_t *sets = json_object_get(data, "sets"), *set;
    size_t i;
    chex_result_text(stdout, data, data_text);
    json_array_foreach(sets, i, set) {
        if (json_array_size(sets) > 1)
            chex_result_text(stdout, set, set_text);
        print_splits(set, trained_on);
    }
    chex_result_text(stdout, data, where_text);
    chex_result_text(stdout, data, "{stage?" INDENT "copied to {stage} of each node first\n}");
}

/* The array `key` of two numbers: the first, and the end, which is not part of the range. */
static void range(const json_t *o, const char *key, long long *first, long long *last) {
    const json_t *both = json_object_get(o, key);
    *first = json_integer_value(json_array_get(both, 0));
    *last = json_integer_value(json_array_get(both, 1)) - 1;
}

static void print_rank(const json_t *r) {
    long long first, last;
    chex_result_text(stdout, r, rank_text);
    range(r, "logical_ranks", &first, &last);
    if (last > first)
        printf("logical ranks %lld-%lld", first, last);
    else
        printf("logical rank %lld", first);
    range(r, "train_rows", &first, &last);
    printf(", images %lld to %lld; ", first, last);
    chex_result_text(stdout, r, reads_text);
}

static void print_ranks(const json_t *plan) {
    const json_t *ranks = json_object_get(plan, "ranks");
    const size_t count = json_array_size(ranks);
    chex_result_text(stdout, plan, ranks_text);
    for (size_t i = 0; i < count && i < RANKS_SHOWN; i++)
        print_rank(json_array_get(ranks, i));
    if (count > RANKS_SHOWN)
        printf(INDENT "and %zu more (--json has all)\n", count - RANKS_SHOWN);
}

static const char cluster_text[] =
    "cluster       {file}: {nodes node} of {processes_a_node process/processes}, "
    "{images_per_s:.1f} images/s on one\n" INDENT
    "a step waits for the slowest of n processes: {wait_s:t} x (1/2 + ... + 1/n) with one pass\n"
    "{logical_ranks?" INDENT "{logical_ranks logical rank} in all, divided among the processes\n}"
    "{sync_sums?" INDENT "--sync-bn: {sync_sums} sums over all processes in each step\n}";

/* A table of the predictions. The columns of sync-bn and audits are there if they take time. */
static const struct {
    const char *key, *title, *cell;
} cluster_columns[] = {
    {NULL, "processes", "{processes:9d}"},          {NULL, "  passes", " {passes:7d}"},
    {NULL, "       step", " {step_s:10t}"},         {NULL, "    waiting", " {wait_s:10t}"},
    {NULL, "  reduction", " {exposed_s:10t}"},      {"sync_s", "    sync-bn", " {sync_s:10t}"},
    {"audit_s", "     audits", " {audit_s:10t}"},   {NULL, "  images/s", " {images_per_s:9.1f}"},
    {NULL, "  efficiency", " {efficiency:9.1%} %"}, {NULL, "      epoch", " {epoch_s:10t}"}};

static void print_cluster(const json_t *cluster) {
    const json_t *rows = json_object_get(cluster, "predictions"), *row;
    const json_t *last = json_array_get(rows, json_array_size(rows) - 1);
    char titles[160] = "", cells[320] = "";
    size_t i;
    for (i = 0; i < CHEX_COUNT(cluster_columns); i++) {
        const char *key = cluster_columns[i].key;
        if (key && !(json_number_value(json_object_get(last, key)) > 0))
            continue;
        strcat(titles, cluster_columns[i].title);
        strcat(cells, cluster_columns[i].cell);
    }
    chex_result_text(stdout, cluster, cluster_text);
    printf(INDENT "%s\n", titles);
    json_array_foreach(rows, i, row) {
        printf(INDENT);
        chex_result_text(stdout, row, cells);
        printf("\n");
    }
}

void train_plan_print(const json_t *plan) {
    const json_t *warning;
    size_t i;
    chex_result_text(stdout, plan, head_text);
    if (json_object_get(plan, "data")) {
        print_data(json_object_get(plan, "data"));
        print_ranks(plan);
        chex_result_text(stdout, plan, rest_text);
    }
    if (json_object_get(plan, "cluster"))
        print_cluster(json_object_get(plan, "cluster"));
    json_array_foreach(json_object_get(plan, "warnings"), i, warning)
        printf("warning       %s\n", json_string_value(warning));
}
