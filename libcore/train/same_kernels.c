/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's choices of kernels (engine/kernel_choices.h), the same on all ranks and for the
 * whole run. Rank 0 decides: the choices of the checkpoint, if it was written on the same kind of
 * device; else measured ones, if they are asked for; else the fixed ones. The other ranks use what
 * rank 0 uses, so the bits do not depend on which rank measured, and checkpoints record it.
 */
#include "train/same_kernels.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/kernel_choices.h"

json_t *chex_session_kernels(const struct chex_session *s, struct chex_error *err) {
    const struct chex_engine_choices *entries = s->engine->impl->choices;
    CHEX_AUTO_FREE char *text = NULL;
    if (!entries || entries->get(s->engine->self, &text, err) != CHEX_OK)
        return NULL;
    json_t *lines = json_array();
    for (const char *line = text; *line;) {
        const size_t n = strcspn(line, "\n");
        json_array_append_new(lines, json_stringn(line, n));
        line += n + (line[n] == '\n');
    }
    return lines;
}

/* The text of recorded lines; NULL: there are none. The caller frees it. */
static char *text_of(const json_t *lines) {
    const json_t *line;
    size_t bytes = 1, i;
    json_array_foreach(lines, i, line) bytes += json_string_length(line) + 1;
    char *text = bytes > 1 ? chex_alloc_zeroed(bytes, 1) : NULL;
    char *end = text;
    json_array_foreach(lines, i, line) if (text && json_is_string(line)) {
        memcpy(end, json_string_value(line), json_string_length(line));
        end += json_string_length(line);
        *end++ = '\n';
    }
    return text;
}

/* The choices of the start that is proven, or of the checkpoint. */
static char *recorded_text(const struct chex_session *s) {
    json_auto_t *meta = s->restored ? json_loads(s->restored->meta, 0, NULL) : NULL;
    return text_of(s->config.proven_kernels ? s->config.proven_kernels
                                            : json_object_get(meta, "cuda_choices"));
}

/* Rank 0: uses the recorded choices if they are of this kind of device. */
static enum chex_status use_recorded(struct chex_session *s, const char *recorded, bool *used_out,
                                     struct chex_error *err) {
    const struct chex_engine_choices *entries = s->engine->impl->choices;
    CHEX_AUTO_FREE char *now = NULL;
    CHEX_TRY(entries->get(s->engine->self, &now, err));
    *used_out = chex_kernel_same_device(recorded, now);
    if (!*used_out)
        chex_warn("%s was written on another kind of GPU (%.*s; here: %.*s): sums are made in "
                  "another order, so the last bits differ from those of a run that went on there",
                  s->newest[0] ? s->newest : s->config.output_dir, (int)strcspn(recorded, "\n"),
                  recorded, (int)strcspn(now, "\n"), now);
    return *used_out ? entries->set(s->engine->self, recorded, err) : CHEX_OK;
}

/* Rank 0. */
static enum chex_status decide(struct chex_session *s, char **text_out, struct chex_error *err) {
    const struct chex_engine_choices *entries = s->engine->impl->choices;
    CHEX_AUTO_FREE char *recorded = recorded_text(s);
    double limit_s = 0;
    bool used = false;
    CHEX_TRY(chex_kernel_measure_limit(&limit_s, err));
    if (recorded)
        CHEX_TRY(use_recorded(s, recorded, &used, err));
    if (used && limit_s > 0)
        chex_info("CHEX_CUDA_MEASURE: not measured again: the run uses the kernels of %s",
                  s->newest);
    if (!used && limit_s > 0 && !s->config.plan_only)
        CHEX_TRY(entries->measure(s->engine->self, limit_s, err));
    return entries->get(s->engine->self, text_out, err);
}

enum chex_status chex_session_choose_kernels(struct chex_session *s, struct chex_error *err) {
    const struct chex_engine_choices *entries = s->engine->impl->choices;
    CHEX_AUTO_FREE char *text = NULL;
    if (!entries)
        return CHEX_OK;
    const enum chex_status st = s->rank == 0 ? decide(s, &text, err) : CHEX_OK;
    CHEX_TRY(chex_session_agree(s, st, err));
    if (s->size > 1)
        CHEX_TRY(chex_session_share_text(s, &text, err));
    return s->rank == 0 ? CHEX_OK : entries->set(s->engine->self, text, err);
}
