/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's choices of kernels (engine/kernel_choices.h), the same on all ranks and for the
 * whole run. Rank 0 decides: the choices of the checkpoint, if it was written on the same kind of
 * device; else measured ones, if they are asked for; else the fixed ones. The other ranks use what
 * rank 0 uses, so the bits do not depend on which rank measured, and checkpoints record it.
 */
#include "train/same_kernels.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/kernel_choices.h"

json_t *chex_session_kernels(const struct chex_session *s, struct chex_error *err) {
    const struct chex_engine_choices *entries = s->engine->impl->choices;
    char *text = NULL;
    if (!entries || entries->get(s->engine->self, &text, err) != CHEX_OK)
        return NULL;
    json_t *lines = json_array();
    for (const char *line = text; *line;) {
        const size_t n = strcspn(line, "\n");
        json_array_append_new(lines, json_stringn(line, n));
        line += n + (line[n] == '\n');
    }
    free(text);
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
    json_t *meta = s->restored ? json_loads(s->restored->meta, 0, NULL) : NULL;
    char *text = text_of(s->config.proven_kernels ? s->config.proven_kernels
                                                  : json_object_get(meta, "cuda_choices"));
    json_decref(meta);
    return text;
}

/* Rank 0: uses the recorded choices if they are of this kind of device. */
static enum chex_status use_recorded(struct chex_session *s, const char *recorded, bool *used_out,
                                     struct chex_error *err) {
    const struct chex_engine_choices *entries = s->engine->impl->choices;
    char *now = NULL;
    CHEX_TRY(entries->get(s->engine->self, &now, err));
    *used_out = chex_kernel_same_device(recorded, now);
    if (!*used_out)
        chex_warn("%s was written on another kind of GPU (%.*s; here: %.*s): sums are made in "
                  "another order, so the last bits differ from those of a run that went on there",
                  s->newest[0] ? s->newest : s->config.output_dir, (int)strcspn(recorded, "\n"),
                  recorded, (int)strcspn(now, "\n"), now);
    free(now);
    return *used_out ? entries->set(s->engine->self, recorded, err) : CHEX_OK;
}

/* Rank 0. */
static enum chex_status decide(struct chex_session *s, char **text_out, struct chex_error *err) {
    const struct chex_engine_choices *entries = s->engine->impl->choices;
    char *recorded = recorded_text(s);
    double limit_s = 0;
    bool used = false;
    enum chex_status st = chex_kernel_measure_limit(&limit_s, err);
    if (st == CHEX_OK && recorded)
        st = use_recorded(s, recorded, &used, err);
    if (st == CHEX_OK && used && limit_s > 0)
        chex_info("CHEX_CUDA_MEASURE: not measured again: the run uses the kernels of %s",
                  s->newest);
    if (st == CHEX_OK && !used && limit_s > 0 && !s->config.plan_only)
        st = entries->measure(s->engine->self, limit_s, err);
    if (st == CHEX_OK)
        st = entries->get(s->engine->self, text_out, err);
    free(recorded);
    return st;
}

/* Gives rank 0's text to the other ranks. */
static enum chex_status share(struct chex_session *s, char **text, struct chex_error *err) {
    struct chex_group *group = s->world.coll->group;
    uint64_t bytes = *text ? strlen(*text) + 1 : 0;
    CHEX_TRY(chex_group_broadcast(group, &bytes, sizeof bytes, 0, err));
    if (s->rank != 0)
        *text = chex_alloc_zeroed(bytes, 1);
    CHEX_TRY(
        chex_session_agree(s, *text ? CHEX_OK : chex_error_memory(err, "choices of kernels"), err));
    return chex_group_broadcast(group, *text, bytes, 0, err);
}

enum chex_status chex_session_choose_kernels(struct chex_session *s, struct chex_error *err) {
    const struct chex_engine_choices *entries = s->engine->impl->choices;
    char *text = NULL;
    if (!entries)
        return CHEX_OK;
    enum chex_status st = s->rank == 0 ? decide(s, &text, err) : CHEX_OK;
    st = chex_session_agree(s, st, err);
    const enum chex_phase phase = chex_watchdog_wait(s->world.watchdog);
    if (st == CHEX_OK && s->size > 1)
        st = share(s, &text, err);
    chex_watchdog_at(s->world.watchdog, phase);
    if (st == CHEX_OK && s->rank != 0)
        st = entries->set(s->engine->self, text, err);
    free(text);
    return st;
}
