/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train --bench-input: the result as JSON or text.
 */
#include <stdio.h>

#include "base/result.h"
#include "train/bench_input.h"
#include "train_settings.h"

/* The keys are those of --bench. There is no engine, precision is fp32, and threads are the
 * input's.
 */
static json_t *bench_input_json(const struct chex_train_config *c, const struct train_settings *s,
                                const struct chex_bench_input_result *r) {
    const struct chex_bench_input_rates *all = &r->all;
    return chex_result(
        CHEX_FIELD("schema", 1), CHEX_MEMBER(all, images_per_s_median),
        CHEX_MEMBER(all, images_per_s_best), CHEX_MEMBER(all, images_per_s),
        CHEX_MEMBER(all, bytes_per_s), CHEX_MEMBER(all, stall_share),
        CHEX_FIELD("consume_images_per_s", s->consume), CHEX_MEMBER(all, peak_rss_bytes),
        CHEX_FIELD("engine", "none"), CHEX_FIELD("precision", chex_precision_names[CHEX_FP32]),
        CHEX_FIELD("pipeline", chex_pipeline_names[c->pipeline]), CHEX_FIELD("threads", r->workers),
        CHEX_MEMBER(r, workers), CHEX_MEMBER(c, batch), CHEX_MEMBER(c, image_size),
        CHEX_MEMBER(r, stored_size), CHEX_FIELD("cache", r->keep ? "memory" : "none"),
        CHEX_FIELD("order", chex_order_names[c->order]), CHEX_MEMBER(c, shuffle_block),
        CHEX_MEMBER(r, shuffle_width), CHEX_FIELD("batches", s->bench_input), CHEX_MEMBER(r, ranks),
        CHEX_MEMBER(r, slowest_rank),
        CHEX_FIELD("slowest_images_per_s", r->slowest.images_per_s_median),
        CHEX_FIELD("version", CHEXNET_VERSION));
}

static const char bench_input_text[] =
    "input {pipeline}, {image_size} px of {stored_size} stored, batch {batch}, {workers worker}, "
    "{ranks rank}: {images_per_s_median:.0f} images/s median, {images_per_s_best:.0f} best of "
    "{windows} windows, {bytes_per_s:.3G} GB/s read, peak memory {peak_rss_bytes:B}\n"
    "{consume_images_per_s?consumed at {consume_images_per_s:.0f} images/s a rank: "
    "{reached_images_per_s:.0f} reached, stalled {stall_share:.2%} % of the time\n}"
    "{ranks=1!slowest rank {slowest_rank}: {slowest_images_per_s:.0f} images/s\n}";

enum chex_status train_bench_input(const struct train_settings *s,
                                   const struct chex_train_config *c,
                                   const struct chex_train_world *w, bool *together,
                                   struct chex_error *err) {
    const struct chex_bench_input b = {.batches = s->bench_input, .images_per_s = s->consume};
    struct chex_bench_input_result r;
    CHEX_TRY(chex_bench_input_run(&b, c, w, &r, together, err));
    if (w->launch->rank != 0)
        return CHEX_OK;
    json_t *o = bench_input_json(c, s, &r);
    if (!s->common.json) /* what only the text has */
        json_object_update_new(
            o, chex_result(CHEX_MEMBER(&r, windows),
                           CHEX_FIELD("reached_images_per_s", r.all.images_per_s / r.ranks)));
    return chex_result_print(stdout, o, s->common.json ? NULL : bench_input_text, 0, err);
}
