/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints the results of chex-train --bench, --bench-input and --prove as text. A proof has one line
 * for each stretch and for each file that is not what the run recorded, then the sums.
 */
#include "train_print.h"

#include <stdio.h>

#include "base/result.h"

/* ---- --bench and --bench-input ---- */

static const char steps_text[] =
    "{model} {kind}, {image_size} px, batch {batch}, {precision}, engine {engine} ({variant}), "
    "{threads thread}{ranks=1!, {ranks} ranks}: {images_per_s_median:.1f} images/s median, "
    "{images_per_s_best:.1f} best of {steps} steps ({gflop_per_s_median:.1f} GFLOP/s), peak memory "
    "{peak_rss_bytes:B}\n"
    "{ranks=1!slowest rank {slowest_rank}: {slowest_images_per_s:.1f} images/s\n}";

static const char input_text[] =
    "input {pipeline}, {image_size} px of {stored_size} stored, batch {batch}, {workers worker}, "
    "{ranks rank}: {images_per_s_median:.0f} images/s median, {images_per_s_best:.0f} best of "
    "{windows} windows, {bytes_per_s:.3G} GB/s read, peak memory {peak_rss_bytes:B}\n"
    "{consume_images_per_s?consumed at {consume_images_per_s:.0f} images/s a rank: "
    "{reached_images_per_s:.0f} reached, stalled {stall_share:.2%} % of the time\n}"
    "{ranks=1!slowest rank {slowest_rank}: {slowest_images_per_s:.0f} images/s\n}";

static const char limits_text[] =
    "{limit_gflop_per_s?limits of this machine: {limit_gflop_per_s:.1f} GFLOP/s, "
    "{limit_gb_per_s:.1f} GB/s; % is of whichever binds\n}"
    "{limit_gflop_per_s!limits of this machine: not measured by this engine\n}";

static const char time_text[] = " {ms:9.3f} {gflop_per_s:9.1f} {gb_per_s:8.1f}"
                                "{bound? {limit_percent:4.0f} {bound:-5s}}{bound!    - -    }";

/* The roofline of each operation. */
static void print_layers(const json_t *o, const json_t *layers) {
    static const char columns[] = "       ms   GFLOP/s     GB/s    % bound";
    const json_t *layer;
    const bool training = json_object_get(json_array_get(layers, 0), "backward");
    size_t i;
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

void train_bench_print(const json_t *o) {
    const json_t *layers = json_object_get(o, "layers");
    chex_result_text(stdout, o, json_object_get(o, "steps") ? steps_text : input_text);
    if (layers)
        print_layers(o, layers);
}

/* ---- --prove ---- */

static const char stretch_text[] =
    "from step {from_step:8d} to {to_step:8d}: {equal?equal, digest {digest}}{equal!DIFFERENT: "
    "recorded {digest}, repeated {repeated_digest}"
    "{first_other_step?\n  the first other loss is that of step {first_other_step}}"
    "{first_other_parameter?\n  the first other parameter is {first_other_parameter}}}\n";

static const char file_text[] = "{equal!{file}: DIFFERENT: {fault}\n}";

static const char sum_text[] =
    "{run}: {equal_files} of {files} files hold what the run recorded (config.json, "
    "checkpoints with last.h5 and best.h5)\n"
    "{run}: {equal_stretches} of {stretches} repeated stretches are equal to the last bit "
    "({possible_stretches} of {recorded_checkpoints} recorded checkpoints can be repeated)\n";

void train_prove_print(const json_t *proof) {
    const json_t *list = json_object_get(proof, "stretches"),
                 *files = json_object_get(proof, "files");
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one) chex_result_text(stdout, one, stretch_text);
    json_array_foreach(files, i, one) chex_result_text(stdout, one, file_text);
    chex_result_text(stdout, proof, sum_text);
}
