/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of the log before the first step: network, engine, data, schedule, and what is unusual
 * about them.
 */
#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "train/layer_rates.h"
#include "train/loop.h"
#include "train/loss_setup.h"

/* The average of a short run still holds a part of the first parameters: after T updates, decay^T.
 */
static void warn_of_short_average(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    uint64_t updates = chex_session_all_steps(s);
    updates -= s->at.ema_step < updates ? s->at.ema_step : updates;
    const double first = c->ema_decay > 0 ? pow(c->ema_decay, (double)updates) : 0;
    char since[32] = "of this run";
    if (s->at.ema_step)
        snprintf(since, sizeof since, "since step %llu", (unsigned long long)s->at.ema_step);
    if (first > 0.01)
        chex_warn(
            "--ema %g: after the %llu update%s %s, %.2g %% of the average are still the first "
            "parameters: lower it, or train longer",
            c->ema_decay, (unsigned long long)updates, chex_text_s(updates), since, 100 * first);
}

/* --max-steps belongs to a start, and the schedule to the run. */
static void warn_of_cut_cosine(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    const uint64_t all = (uint64_t)c->epochs * s->steps, end = c->max_steps;
    if (c->schedule.kind == CHEX_SCHED_COSINE && end && end < all)
        chex_warn(
            "--sched cosine: the rate falls over the %llu steps of --epochs %lld; at the end "
            "of --max-steps %llu it is %.3g: to end there, give --epochs %.3g",
            (unsigned long long)all, (long long)c->epochs, (unsigned long long)end,
            chex_schedule_lr(&c->schedule, (end - 1) / s->steps, (end - 1) % s->steps, s->steps),
            ceil((double)end / (double)s->steps));
}

static void warn_of_labels(const struct chex_label_gaps *gaps) {
    if (gaps->train[0])
        chex_warn("%s", gaps->train);
    if (gaps->val[0])
        chex_warn("%s", gaps->val);
    if (gaps->no_auroc)
        chex_warn("%s", CHEX_NO_AUROC);
}

/* Logs the augmentations that are on. */
static void describe_augmentation(const struct chex_augment_options *a, bool by_engine) {
    char text[160] = "";
    struct chex_text_line l = {text, sizeof text, 0};
    if (a->antialias)
        chex_text_append(&l, ", antialiased");
    if (a->hflip > 0)
        chex_text_append(&l, ", flip with probability %g", a->hflip);
    if (a->rotate > 0)
        chex_text_append(&l, ", rotation up to %g degree%s", a->rotate, a->rotate == 1 ? "" : "s");
    if (a->brightness > 0)
        chex_text_append(&l, ", brightness %g", a->brightness);
    if (a->contrast > 0)
        chex_text_append(&l, ", contrast %g", a->contrast);
    chex_info("augmentation: crops of %g of the area or more%s (%s kernels)", a->crop_scale, text,
              by_engine ? "the engine's" : chex_augment_kernels_name());
}

static void describe_sync_bn(const struct chex_session *s, int images) {
    const int engines = chex_sync_bn_engines(s->sync_bn);
    char shared[96] = "";
    if (!s->config.sync_bn)
        return;
    if (!s->sync_bn) {
        chex_info("--sync-bn: one logical rank: its batch is the whole step already");
        return;
    }
    if (engines > 1)
        snprintf(shared, sizeof shared,
                 "; this rank has %d engines, which share its memory and %d thread%s", engines,
                 s->config.threads, s->config.threads == 1 ? "" : "s");
    chex_info("--sync-bn: batch norms use the %d images of a step; gradients are reduced after "
              "backward%s%s",
              images, shared,
              s->engine->impl->device
                  ? "; kernels are launched one by one, not as CUDA graphs, which is slower"
                  : "");
}

/* Network, engine, data, schedule. The memory is that of all engines of this rank. */
static void describe_run(const struct chex_session *s) {
    const struct chex_train_config *c = &s->config;
    const struct chex_train_needs *n = &s->needs;
    const int engines = chex_sync_bn_engines(s->sync_bn);
    char bytes[32], shares[32] = "";
    if (engines > 1)
        snprintf(shares, sizeof shares, " in %d engines", engines);
    if (!c->features) /* head_only.c describes the classifier */
        chex_info("%s, %d finding%s, %.2f M parameters, %d px, %.2f GFLOP an image (forward and "
                  "backward)",
                  s->net->model, s->net->classes, s->net->classes == 1 ? "" : "s",
                  (double)s->net->param_count / 1e6, c->image_size,
                  6 * chex_net_macs(s->net, c->image_size) / 1e9);
    chex_info("engine %s (%s), %s, %d thread%s, %s of memory%s", s->engine_name, s->engine_variant,
              chex_precision_names[c->precision], c->threads, c->threads == 1 ? "" : "s",
              chex_format_bytes(bytes, sizeof bytes,
                                n->on_device ? n->device : n->params + n->moments + n->work),
              shares);
    const size_t val = s->input.val ? s->input.val->rows : 0;
    const int images = c->batch * s->config.logical_ranks;
    chex_info("%zu training image%s, %zu validation image%s; batch %d x %d logical rank%s = %d "
              "image%s a step, %zu step%s an epoch",
              s->input.train->rows, chex_text_s(s->input.train->rows), val, chex_text_s(val),
              c->batch, s->config.logical_ranks, chex_text_s((uint64_t)s->config.logical_ranks),
              images, chex_text_s((uint64_t)images), s->steps, chex_text_s(s->steps));
    describe_sync_bn(s, images);
    chex_train_input_describe(&s->input);
    char clip[48] = "", average[48] = "";
    if (c->update.clip_norm > 0)
        snprintf(clip, sizeof clip, ", gradients clipped at norm %g", c->update.clip_norm);
    if (c->ema_decay > 0)
        snprintf(average, sizeof average, ", moving average of decay %g", c->ema_decay);
    chex_info("%s%s, lr %g (not scaled by ranks), %s%s%s", chex_optim_names[c->update.optim],
              c->update.nesterov ? " with Nesterov's momentum" : "", c->schedule.lr,
              chex_sched_names[c->schedule.kind], clip, average);
    char loss[512];
    chex_loss_weights_text(&s->loss, chex_set_class_names(s->input.train), s->net->classes, loss,
                           sizeof loss);
    if (loss[0])
        chex_info("%s; validation reports the plain bce", loss);
    if (s->lr_scales) {
        char rates[160] = "";
        chex_layer_rates_text(s->net, s->lr_scales, rates, sizeof rates);
        chex_info("%s", rates);
    }
    if (!c->head_only)
        describe_augmentation(&c->augment, s->input.resident.raw);
    const json_t *origins = json_object_get(c->options, "origins");
    const char *origin = json_string_value(json_object_get(origins, "hflip"));
    if (!s->at.step && !c->head_only && c->augment.hflip > 0 && origin &&
        strcmp(origin, "default") == 0)
        chex_info("--hflip %g is the default: a flip puts the heart on the other side; --hflip 0 "
                  "keeps the sides",
                  c->augment.hflip);
    if (s->at.step)
        chex_info("going on from step %llu (epoch %llu)", (unsigned long long)s->at.step,
                  (unsigned long long)s->at.epoch + 1);
}

void chex_session_describe(const struct chex_session *s) {
    describe_run(s);
    warn_of_labels(&s->gaps);
    if (s->rank == 0) {
        warn_of_short_average(s);
        warn_of_cut_cosine(s);
    }
}
