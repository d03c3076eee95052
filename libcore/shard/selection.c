/* SPDX-License-Identifier: Apache-2.0
 *
 * Resolves the options of a selection, chooses its rows and opens it as a set (selection.h).
 */
#include "shard/selection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/search.h"
#include "base/units.h"
#include "label/classes.h"

/* Neighbouring rows of a set that stay together in a selection of several sets. Large enough for a
 * disk with slow seeks (3 MB at 224 px), small enough to mix sets of a few thousand images. */
enum { PIECE_ROWS = 64, MOST_USES = 1000, NO_PART = -2 };

static void release_map(struct chex_row_map *m) {
    CHEX_FREE(m->first, m->source, m->shard, m->in_shard);
}

void chex_selection_destroy(struct chex_selection *s) {
    if (!s)
        return;
    for (int i = 0; s->source && i < s->sources.count; i++) {
        chex_manifest_free(s->source[i].manifest);
        free(s->source[i].class_at);
    }
    for (int c = 0; s->class_names && c < s->classes; c++)
        free(s->class_names[c]);
    for (int c = 0; s->unions && c < s->classes; c++)
        free(s->unions[c]);
    free(s->unions);
    for (int k = 0; k < CHEX_PART_COUNT; k++)
        release_map(&s->map[k]);
    chex_sources_release(&s->sources);
    chex_where_free(s->where);
    CHEX_FREE(s->source, s->class_names, s->source_digest, s->policies, s->uncertain_target,
              s->keep, s);
}

/* ---- the sets ---- */

static enum chex_status choose_splits(struct chex_selection *s, int at, struct chex_error *err) {
    struct chex_selection_source *source = &s->source[at];
    const struct chex_manifest_split *splits = source->manifest->splits;
    struct chex_splits train = chex_splits_one(splits[CHEX_TRAIN].rows ? CHEX_TRAIN : CHEX_ALL);
    if (s->fold.folds && train.from == CHEX_TRAIN)
        train.to = CHEX_VAL + 1;
    source->splits[CHEX_PART_TRAIN] = s->evaluation ? (struct chex_splits){0, 0} : train;
    source->splits[CHEX_PART_VAL] = s->fold.folds ? train : s->val;
    for (int k = 0; k < CHEX_PART_COUNT; k++) {
        for (int i = source->splits[k].from; i < source->splits[k].to; i++)
            source->rows[k] += splits[i].rows;
        s->total[k] += source->rows[k];
    }
    if (source->rows[s->evaluation ? CHEX_PART_VAL : CHEX_PART_TRAIN] == 0)
        return chex_error_data(err, "%s: neither train nor all has any row: nothing to train on",
                               s->sources.set[at].dir);
    return CHEX_OK;
}

static enum chex_status compare_sets(const struct chex_selection *s, int at,
                                     struct chex_error *err) {
    const struct chex_manifest *first = s->source[0].manifest, *m = s->source[at].manifest;
    const struct chex_source *set = s->sources.set;
    if (m->size != first->size)
        return chex_error_data(err,
                               "--data: %s has images of %d px and %s of %d px: shard them at one "
                               "size to train on both",
                               set[0].dir, first->size, set[at].dir, m->size);
    if (strcmp(m->resize, first->resize) != 0)
        return chex_error_data(
            err,
            "--data: %s was resized by %.60s and %s by %.60s: shard them alike to train on both",
            set[0].dir, first->resize, set[at].dir, m->resize);
    for (int i = 0; i < at; i++)
        if (strcmp(m->source_digest, s->source[i].manifest->source_digest) == 0)
            return chex_error_data(err, "--data: %s and %s are the same set (source digest %s)",
                                   set[i].dir, set[at].dir, m->source_digest);
    return CHEX_OK;
}

static enum chex_status read_sets(struct chex_selection *s, struct chex_error *err) {
    size_t bytes = 1;
    s->source = chex_alloc_zeroed((size_t)s->sources.count, sizeof *s->source);
    if (!s->source)
        return chex_error_memory(err, "--data");
    for (int i = 0; i < s->sources.count; i++) {
        CHEX_TRY(chex_manifest_read(s->sources.set[i].dir, &s->source[i].manifest, err));
        CHEX_TRY(choose_splits(s, i, err));
        CHEX_TRY(compare_sets(s, i, err));
        s->source[i].admitted = chex_where_admits_source(s->where, i);
        for (int k = 0; k < CHEX_PART_COUNT; k++)
            s->source[i].uses[k] = 1;
        bytes += strlen(s->source[i].manifest->source_digest) + 1;
    }
    s->size = s->source[0].manifest->size;
    s->source_digest = chex_alloc_zeroed(bytes, 1);
    if (!s->source_digest)
        return chex_error_memory(err, "--data");
    for (int i = 0; i < s->sources.count; i++) {
        strcat(s->source_digest, i ? "+" : "");
        strcat(s->source_digest, s->source[i].manifest->source_digest);
    }
    return CHEX_OK;
}

/* ---- the findings ---- */

static enum chex_status add_class(struct chex_selection *s, const char *name,
                                  struct chex_error *err) {
    if (s->classes == CHEX_MAX_CLASSES)
        return chex_error_data(err, "--data: more than %d findings: choose some with --findings",
                               CHEX_MAX_CLASSES);
    if (!(s->class_names[s->classes] = strdup(name)))
        return chex_error_memory(err, "findings");
    s->classes++;
    return CHEX_OK;
}

/* The findings of all sets. */
static enum chex_status unite_findings(struct chex_selection *s, struct chex_error *err) {
    for (int i = 0; i < s->sources.count; i++)
        for (size_t c = 0; c < s->source[i].manifest->class_count; c++) {
            const char *name = s->source[i].manifest->classes[c];
            if (i == 0 ||
                chex_class_in_list(name, (const char *const *)s->class_names, s->classes) < 0)
                CHEX_TRY(add_class(s, name, err));
        }
    return CHEX_OK;
}

/* Adds a word of --findings: one of all findings, or NAME=A|B. */
static enum chex_status add_word(struct chex_selection *s, char *word, const char *const *all,
                                 int count, struct chex_error *err) {
    const int c = chex_class_in_list(word, all, count);
    char *parts = c < 0 ? strchr(word, '=') : NULL;
    if (s->evaluation && !parts)
        return CHEX_OK;
    if (c < 0 && !parts)
        return chex_class_not_in_list("--findings", "the data", word, all, count, err);
    if (parts)
        *parts++ = '\0';
    const bool own = parts && chex_class_in_list(word, all, count) >= 0;
    if (own && s->evaluation) /* a set that states it */
        return CHEX_OK;
    if (own || (parts && chex_class_name_fault(word)))
        return chex_error_set(err, CHEX_E_USAGE, "--findings: '%.60s': %s (expected a new name)",
                              word,
                              own ? "it is a finding of the data" : chex_class_name_fault(word));
    const char *name = c < 0 ? word : all[c];
    if (chex_class_in_list(name, (const char *const *)s->class_names, s->classes) >= 0)
        return chex_error_set(err, CHEX_E_USAGE, "--findings: %s is listed twice", name);
    CHEX_TRY(add_class(s, name, err));
    char **text = &s->unions[s->classes - 1];
    if (!parts)
        return CHEX_OK;
    if (!(*text = strdup(parts)))
        return chex_error_memory(err, "--findings");
    int n = 0;
    for (char *part; (part = strsep(&parts, "|")) != NULL; n++)
        if (!s->evaluation && chex_class_in_list(part, all, count) < 0)
            return chex_class_not_in_list("--findings", "the data", part, all, count, err);
    s->parts = n > s->parts ? n : s->parts;
    return CHEX_OK;
}

/* Replaces the findings of all sets by those of --findings; an evaluation adds to them. */
static enum chex_status choose_findings(struct chex_selection *s, const char *text,
                                        struct chex_error *err) {
    char **all = s->class_names;
    const int count = s->classes;
    enum chex_status st = CHEX_OK;
    s->class_names = chex_alloc_zeroed(CHEX_MAX_CLASSES, sizeof *s->class_names);
    s->classes = 0;
    if (!s->class_names)
        st = chex_error_memory(err, "--findings");
    for (int c = 0; st == CHEX_OK && s->evaluation && c < count; c++)
        st = add_class(s, all[c], err);
    for (const char *at = text; st == CHEX_OK && at;) {
        const size_t n = strcspn(at, ",");
        CHEX_AUTO_FREE char *word = strndup(at, n);
        st = word ? add_word(s, word, (const char *const *)all, count, err)
                  : chex_error_memory(err, "--findings");
        at = at[n] ? at + n + 1 : NULL;
    }
    for (int c = 0; c < count; c++)
        free(all[c]);
    free(all);
    return st;
}

/* The classes of a set that make finding `c`. */
static enum chex_status align_class(const struct chex_selection *s, int c,
                                    struct chex_selection_source *source, struct chex_error *err) {
    const struct chex_manifest *m = source->manifest;
    CHEX_AUTO_FREE char *text = strdup(s->unions[c] ? s->unions[c] : s->class_names[c]);
    char *rest = text;
    for (int p = 0; text && p < s->parts; p++) {
        const char *part = strsep(&rest, s->unions[c] ? "|" : "");
        source->class_at[c * s->parts + p] =
            part ? chex_class_in_list(part, (const char *const *)m->classes, (int)m->class_count)
                 : NO_PART;
    }
    return text ? CHEX_OK : chex_error_memory(err, "findings");
}

/* Which class of each set is which finding. */
static enum chex_status align_findings(struct chex_selection *s, struct chex_error *err) {
    for (int i = 0; i < s->sources.count; i++) {
        struct chex_selection_source *source = &s->source[i];
        const int count = (int)source->manifest->class_count;
        int common = 0;
        source->class_at =
            chex_alloc_zeroed((size_t)(s->classes * s->parts), sizeof *source->class_at);
        if (!source->class_at)
            return chex_error_memory(err, "findings");
        s->own_labels = s->own_labels || count != s->classes;
        for (int c = 0; c < s->classes; c++) {
            CHEX_TRY(align_class(s, c, source, err));
            s->own_labels = s->own_labels || s->unions[c] || source->class_at[c * s->parts] != c;
            for (int p = 0; p < s->parts; p++)
                common += source->class_at[c * s->parts + p] >= 0;
        }
        if (!common)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--findings: %s has none of them: leave it out of --data",
                                  s->sources.set[i].dir);
    }
    return CHEX_OK;
}

static enum chex_status choose_policies(struct chex_selection *s, const char *text,
                                        struct chex_error *err) {
    bool smooth = false;
    s->policies = chex_alloc_zeroed((size_t)s->classes, sizeof *s->policies);
    if (!s->policies)
        return chex_error_memory(err, "--uncertain");
    CHEX_TRY(chex_uncertain_policy_parse(text, (const char *const *)s->class_names, s->classes,
                                         s->policies, err));
    for (int c = 0; c < s->classes; c++) {
        s->own_labels = s->own_labels || s->policies[c].label != CHEX_LABEL_UNCERTAIN;
        smooth = smooth || s->policies[c].target >= 0;
    }
    if (!smooth)
        return CHEX_OK;
    s->uncertain_target = chex_alloc_zeroed((size_t)s->classes, sizeof *s->uncertain_target);
    if (!s->uncertain_target)
        return chex_error_memory(err, "--uncertain");
    for (int c = 0; c < s->classes; c++)
        s->uncertain_target[c] = s->policies[c].target;
    return CHEX_OK;
}

/* --data-weights: a number for each set. */
static enum chex_status choose_weights(struct chex_selection *s, const char *text,
                                       struct chex_error *err) {
    const int sets = s->sources.count;
    int count = 0;
    for (const char *at = text; at; count++) {
        const size_t n = strcspn(at, ",");
        char word[32];
        uint64_t uses = 0;
        snprintf(word, sizeof word, "%.*s", n < sizeof word ? (int)n : 0, at);
        if (!chex_parse_u64(word, &uses) || uses < 1 || uses > MOST_USES)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--data-weights '%.200s': '%.*s' is no whole number from 1 to %d",
                                  text, (int)(n < 40 ? n : 40), at, MOST_USES);
        if (count < sets)
            s->source[count].uses[CHEX_PART_TRAIN] = (size_t)uses;
        at = at[n] ? at + n + 1 : NULL;
    }
    return count == sets
               ? CHEX_OK
               : chex_error_set(err, CHEX_E_USAGE,
                                "--data-weights '%.200s': %d numbers (expected %d, one for each "
                                "set of --data)",
                                text, count, sets);
}

static enum chex_status check_fold(struct chex_fold f, int sets, struct chex_error *err) {
    if ((f.folds || f.number) &&
        (f.folds < 2 || f.folds > CHEX_FOLDS_MOST || f.number < 1 || f.number > f.folds))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--folds %d --fold %d: expected 2 to %d folds, and one of them",
                              f.folds, f.number, CHEX_FOLDS_MOST);
    return sets == 1 || !f.folds
               ? CHEX_OK
               : chex_error_set(err, CHEX_E_USAGE, "--folds: --data names %d sets (expected one)",
                                sets);
}

static enum chex_status resolve(struct chex_selection *s, const struct chex_selection_config *c,
                                struct chex_error *err) {
    s->fold = c->fold;
    s->evaluation = c->evaluated != NULL;
    s->val = c->evaluated ? *c->evaluated : chex_splits_one(CHEX_VAL);
    CHEX_TRY(chex_sources_parse(c->data, &s->sources, err));
    CHEX_TRY(check_fold(s->fold, s->sources.count, err));
    CHEX_TRY(chex_where_parse(c->where, s->evaluation ? NULL : &s->sources, &s->where, err));
    CHEX_TRY(read_sets(s, err));
    if (c->weights && *c->weights)
        CHEX_TRY(choose_weights(s, c->weights, err));
    s->class_names = chex_alloc_zeroed(CHEX_MAX_CLASSES, sizeof *s->class_names);
    s->unions = chex_alloc_zeroed(CHEX_MAX_CLASSES, sizeof *s->unions);
    s->parts = 1;
    if (!s->class_names || !s->unions)
        return chex_error_memory(err, "findings");
    CHEX_TRY(unite_findings(s, err));
    if (c->findings && *c->findings)
        CHEX_TRY(choose_findings(s, c->findings, err));
    CHEX_TRY(align_findings(s, err));
    return choose_policies(s, c->uncertain, err);
}

enum chex_status chex_selection_create(const struct chex_selection_config *config,
                                       struct chex_selection **out, struct chex_error *err) {
    CHEX_AUTO(chex_selection_destroy_at) struct chex_selection *s = calloc(1, sizeof *s);
    if (!s)
        return chex_error_memory(err, "--data");
    CHEX_TRY(resolve(s, config, err));
    *out = CHEX_TAKE(s);
    return CHEX_OK;
}

/* ---- the rows ---- */

/* Rows [from, to) of all splits of all sources, one after another, as they lie in `keep`. */
struct stretch {
    size_t from, to;
};

/* Folds divide the rows of the part VAL. The part TRAIN has the same, or no rows. */
static int first_part(const struct chex_selection *s) {
    return s->fold.folds ? CHEX_PART_VAL : CHEX_PART_TRAIN;
}

/* What a rank finds out about a row: whether the conditions admit it, and more for folds. */
static size_t record_bytes(const struct chex_selection *s) {
    return s->fold.folds ? CHEX_FOLD_RECORD_HEAD + s->source[0].manifest->class_count : 1;
}

/* Judges the rows of one part that lie in the stretch. `before`: rows of earlier parts. */
static enum chex_status judge_part(const struct chex_selection *s, int at, int part, size_t before,
                                   struct stretch own, uint8_t *records,
                                   const struct chex_selection_ranks *ranks,
                                   struct chex_error *err) {
    const struct chex_selection_source *source = &s->source[at];
    const size_t rows = source->rows[part];
    const size_t from = own.from > before ? own.from - before : 0;
    const size_t to = own.to < before + rows ? own.to > before ? own.to - before : 0 : rows;
    CHEX_AUTO(chex_set_close_at) struct chex_set *set = NULL;
    if (from >= to || !source->admitted)
        return CHEX_OK;
    CHEX_TRY(chex_set_open_splits(s->sources.set[at].dir, source->splits[part], from, to,
                                  ranks->opened, ranks->arg, &set, err));
    for (size_t row = from, in_shard; row < to; row++) {
        const struct chex_shard *shard = chex_set_locate(set, row, &in_shard);
        uint8_t *record = records + (before + row - own.from) * record_bytes(s);
        record[0] = chex_where_admits_row(s->where, shard, in_shard);
        if (!s->fold.folds)
            continue;
        const char *patient = chex_shard_patient_id(shard, in_shard);
        const uint64_t hash = chex_hash64(patient, strlen(patient));
        memcpy(record + 1, &hash, sizeof hash);
        memcpy(record + CHEX_FOLD_RECORD_HEAD, chex_shard_labels(shard, in_shard),
               record_bytes(s) - CHEX_FOLD_RECORD_HEAD);
    }
    return CHEX_OK;
}

static enum chex_status judge(const struct chex_selection *s, struct stretch own, uint8_t *records,
                              const struct chex_selection_ranks *ranks, struct chex_error *err) {
    size_t before = 0;
    for (int i = 0; i < s->sources.count; i++)
        for (int k = first_part(s); k < CHEX_PART_COUNT; before += s->source[i].rows[k++])
            CHEX_TRY(judge_part(s, i, k, before, own, records, ranks, err));
    return CHEX_OK;
}

static enum chex_status agree(const struct chex_selection_ranks *ranks, enum chex_status st,
                              struct chex_error *err) {
    if (ranks->waits)
        ranks->waits(ranks->arg);
    return chex_group_agree(ranks->group, st, err);
}

/* Rank 0: the fold of each row that the conditions admit, and 0 for the others. */
static enum chex_status divide(struct chex_selection *s, const uint8_t *records, uint8_t *judged,
                               struct chex_error *err) {
    const struct chex_manifest *m = s->source[0].manifest;
    const size_t rows = s->total[CHEX_PART_VAL];
    CHEX_TRY(chex_folds_assign(records, rows, m->class_count, s->fold, m->seed, judged,
                               &s->fold_facts, err));
    for (size_t row = 0; row < rows; row++)
        judged[row] *= records[row * record_bytes(s)];
    return CHEX_OK;
}

/* From the folds of the rows: which rows each part keeps. */
static void keep_folds(struct chex_selection *s) {
    uint8_t *val = s->keep + s->total[CHEX_PART_TRAIN];
    for (size_t row = 0; row < s->total[CHEX_PART_TRAIN]; row++)
        s->keep[row] = val[row] && val[row] != s->fold.number;
    for (size_t row = 0; row < s->total[CHEX_PART_VAL]; row++)
        val[row] = val[row] == s->fold.number;
}

/* Fills s->keep on all ranks. Each rank judges an equal share of the rows. */
static enum chex_status share_rows(struct chex_selection *s,
                                   const struct chex_selection_ranks *ranks,
                                   struct chex_error *err) {
    const size_t before = s->fold.folds ? s->total[CHEX_PART_TRAIN] : 0; /* in `keep` */
    const size_t every = s->total[CHEX_PART_TRAIN] + s->total[CHEX_PART_VAL], rows = every - before;
    const size_t rank = (size_t)ranks->group->rank, size = (size_t)ranks->group->size;
    const struct stretch own = {rows * rank / size, rows * (rank + 1) / size};
    const size_t own_bytes = (own.to - own.from) * record_bytes(s);
    CHEX_AUTO_FREE uint8_t *mine = chex_alloc_zeroed(own_bytes, 1);
    CHEX_AUTO_FREE void *all = NULL;
    size_t bytes;
    s->keep = chex_alloc_zeroed(every, 1);
    enum chex_status st =
        mine && s->keep ? judge(s, own, mine, ranks, err) : chex_error_memory(err, "--where");
    CHEX_TRY(agree(ranks, st, err));
    st = chex_group_gather(ranks->group, mine, own_bytes, &all, &bytes, err);
    if (st == CHEX_OK && all && s->fold.folds)
        st = divide(s, all, s->keep + before, err);
    else if (st == CHEX_OK && all)
        memcpy(s->keep, all, rows);
    CHEX_TRY(chex_group_follow(ranks->group, 0, st, err));
    CHEX_TRY(chex_group_broadcast(ranks->group, s->keep + before, rows, 0, err));
    if (s->fold.folds)
        keep_folds(s);
    return CHEX_OK;
}

static size_t count_kept(const struct chex_selection_source *source, int part) {
    size_t kept = 0;
    if (!source->admitted)
        return 0;
    if (!source->keep[part])
        return source->rows[part];
    for (size_t row = 0; row < source->rows[part]; row++)
        kept += source->keep[part][row];
    return kept;
}

static void count_rows(struct chex_selection *s) {
    const uint8_t *at = s->keep;
    for (int i = 0; i < s->sources.count; i++)
        for (int k = 0; k < CHEX_PART_COUNT; k++) {
            struct chex_selection_source *source = &s->source[i];
            source->keep[k] = at;
            at = at ? at + source->rows[k] : NULL;
            source->kept[k] = count_kept(source, k);
            s->rows[k] += source->kept[k] * source->uses[k];
        }
}

size_t chex_selection_images(const struct chex_selection *s, enum chex_part part) {
    size_t images = 0;
    for (int i = 0; i < s->sources.count; i++)
        images += s->source[i].kept[part];
    return images;
}

/* ---- the map of the rows ---- */

/* Walks over the chosen rows of one split of a source, once for each of their uses. */
struct walk {
    const struct chex_selection_source *source;
    int part;
    size_t row;             /* the next row of the split */
    size_t done, total;     /* row numbers that are given; all */
    size_t shard, in_shard; /* of `row` */
};

static size_t shard_count(const struct chex_selection_source *source, int part) {
    size_t count = 0;
    for (int k = source->splits[part].from; k < source->splits[part].to; k++)
        count += source->manifest->splits[k].shard_count;
    return count;
}

static size_t shard_rows(const struct chex_selection_source *source, int part, size_t shard) {
    const struct chex_manifest_split *split = &source->manifest->splits[source->splits[part].from];
    for (; shard >= split->shard_count; split++)
        shard -= split->shard_count;
    return split->shards[shard].rows;
}

/* Moves to the next chosen row, from `row` on, and to its shard. */
static void settle(struct walk *w) {
    const size_t shards = shard_count(w->source, w->part);
    const uint8_t *keep = w->source->keep[w->part];
    while (w->done < w->total) {
        if (w->shard == shards) { /* the next use */
            w->row = w->shard = w->in_shard = 0;
        } else if (w->in_shard == shard_rows(w->source, w->part, w->shard)) {
            w->shard++;
            w->in_shard = 0;
        } else if (keep && !keep[w->row]) {
            w->row++;
            w->in_shard++;
        } else {
            return;
        }
    }
}

/* Adds the next piece of the source: chosen rows of one shard, in order, at most `most`. */
static void add_piece(struct chex_row_map *m, struct walk *w, int source, size_t most) {
    const size_t shard = w->shard;
    size_t *end = &m->first[m->pieces + 1], last, n = 0;
    m->source[m->pieces] = source;
    m->shard[m->pieces] = shard;
    *end = m->first[m->pieces++];
    do {
        last = w->in_shard;
        m->in_shard[(*end)++] = (uint32_t)last;
        w->done++;
        w->row++;
        w->in_shard++;
        settle(w);
    } while (++n < most && w->done < w->total && w->shard == shard && w->in_shard > last);
}

/* The source whose next piece begins earliest, relative to its length; -1: all are done. */
static int next_source(const struct walk *walks, int count) {
    int best = -1;
    double least = 2;
    for (int i = 0; i < count; i++) {
        const size_t total = walks[i].total;
        const double at = total ? (double)walks[i].done / (double)total : 1;
        if (walks[i].done < total && at < least) {
            best = i;
            least = at;
        }
    }
    return best;
}

/* More pieces than this cannot be: each full one has `most` rows, and a shard may end in a shorter
 * one, at each use. */
static size_t most_pieces(const struct chex_selection *s, int part, size_t most) {
    size_t pieces = s->rows[part] / most;
    for (int i = 0; i < s->sources.count; i++)
        pieces += shard_count(&s->source[i], part) * s->source[i].uses[part];
    return pieces;
}

static enum chex_status map_rows(struct chex_selection *s, int part, struct chex_error *err) {
    const int count = s->sources.count;
    const size_t most = count > 1 ? PIECE_ROWS : SIZE_MAX, pieces = most_pieces(s, part, most);
    struct chex_row_map *m = &s->map[part];
    CHEX_AUTO_FREE struct walk *walks = chex_alloc_zeroed((size_t)count, sizeof *walks);
    m->first = chex_alloc_zeroed(pieces + 1, sizeof *m->first);
    m->source = chex_alloc_zeroed(pieces, sizeof *m->source);
    m->shard = chex_alloc_zeroed(pieces, sizeof *m->shard);
    m->in_shard = chex_alloc_zeroed(s->rows[part], sizeof *m->in_shard);
    if (!walks || !m->first || !m->source || !m->shard || !m->in_shard)
        return chex_error_memory(err, "%zu chosen rows", s->rows[part]);
    for (int i = 0; i < count; i++) {
        walks[i] = (struct walk){.source = &s->source[i],
                                 .part = part,
                                 .total = s->source[i].kept[part] * s->source[i].uses[part]};
        settle(&walks[i]);
    }
    for (int next; (next = next_source(walks, count)) >= 0;)
        add_piece(m, &walks[next], next, most);
    return CHEX_OK;
}

enum chex_status chex_selection_choose(struct chex_selection *s,
                                       const struct chex_selection_ranks *ranks,
                                       struct chex_error *err) {
    const bool by_row = s->fold.folds || chex_where_has_row_conditions(s->where);
    const enum chex_part needed = s->evaluation ? CHEX_PART_VAL : CHEX_PART_TRAIN;
    enum chex_status st = CHEX_OK;
    if (by_row)
        CHEX_TRY(share_rows(s, ranks, err));
    count_rows(s);
    if (s->rows[needed] == 0)
        return chex_error_data(err, "--where: none of the %zu %simages meets the conditions",
                               s->total[needed], s->evaluation ? "" : "training ");
    s->mapped = by_row || s->sources.count > 1 || s->source[0].uses[CHEX_PART_TRAIN] > 1;
    for (int k = 0; s->mapped && st == CHEX_OK && k < CHEX_PART_COUNT; k++)
        st = map_rows(s, k, err);
    return agree(ranks, st, err);
}

/* ---- opening ---- */

int chex_selection_source_of(const struct chex_selection *s, enum chex_part part, size_t row) {
    const struct chex_row_map *m = &s->map[part];
    return s->mapped ? m->source[chex_search_run(m->first, m->pieces, row)] : 0;
}

void chex_selection_span(const struct chex_selection *s, enum chex_part part, int source,
                         size_t from, size_t to, size_t *first_out, size_t *end_out) {
    const struct chex_row_map *m = &s->map[part];
    *first_out = s->mapped ? SIZE_MAX : from;
    *end_out = s->mapped ? 0 : to;
    size_t before = 0, shard = 0; /* rows of the shards before `shard` */
    for (size_t i = 0; s->mapped && i < m->pieces && m->first[i] < to; i++) {
        const size_t first = m->first[i] > from ? m->first[i] : from;
        const size_t last = (m->first[i + 1] < to ? m->first[i + 1] : to) - 1;
        if (m->source[i] != source || m->first[i + 1] <= from)
            continue;
        if (m->shard[i] < shard) /* the next use */
            shard = before = 0;
        for (; shard < m->shard[i]; shard++)
            before += shard_rows(&s->source[source], part, shard);
        if (before + m->in_shard[first] < *first_out)
            *first_out = before + m->in_shard[first];
        if (before + m->in_shard[last] + 1 > *end_out)
            *end_out = before + m->in_shard[last] + 1;
    }
    if (*first_out >= *end_out)
        *first_out = *end_out = 0;
}

/* The label of a finding: the strongest of its parts, in the order 1, uncertain, not stated, 0. */
static int8_t unite_labels(const int *at, int parts, const int8_t *stated) {
    int8_t label = 0;
    for (int p = 0; p < parts && at[p] != NO_PART; p++) {
        const int8_t y = at[p] < 0 ? CHEX_LABEL_NOT_STATED : stated[at[p]];
        if (label != 1 && y != 0 && (label == 0 || y > label))
            label = y;
    }
    return label;
}

/* The labels of rows [from, to), aligned by name, after the policies. */
static enum chex_status make_labels(const struct chex_selection *s, enum chex_part part,
                                    size_t from, size_t to, struct chex_set *set,
                                    struct chex_error *err) {
    const size_t classes = (size_t)s->classes;
    int8_t *labels = chex_alloc_zeroed(to - from, classes), *out = labels;
    if (!labels)
        return chex_error_memory(err, "the labels of %zu rows", to - from);
    for (size_t row = from, at; row < to; row++, out += classes) {
        const struct chex_shard *shard = chex_set_locate(set, row, &at);
        const int8_t *stated = chex_shard_labels(shard, at);
        const int *class_at = s->source[chex_selection_source_of(s, part, row)].class_at;
        for (size_t c = 0; c < classes; c++) {
            out[c] = unite_labels(class_at + c * (size_t)s->parts, s->parts, stated);
            if (out[c] == CHEX_LABEL_UNCERTAIN)
                out[c] = s->policies[c].label;
        }
    }
    set->labels = labels;
    set->labels_first = from;
    return CHEX_OK;
}

/* Gives the set the findings of the selection. */
static enum chex_status name_classes(const struct chex_selection *s, struct chex_set *set,
                                     struct chex_error *err) {
    for (int c = 0; set->class_names && c < set->classes; c++)
        free(set->class_names[c]);
    free(set->class_names);
    set->classes = 0;
    set->class_names = chex_alloc_zeroed((size_t)s->classes, sizeof *set->class_names);
    for (; set->class_names && set->classes < s->classes; set->classes++)
        if (!(set->class_names[set->classes] = strdup(s->class_names[set->classes])))
            break;
    return set->classes == s->classes ? CHEX_OK : chex_error_memory(err, "findings");
}

/* Where the shards are read. */
static const char *dir_of(const struct chex_selection *s, int source, const char *const *dirs) {
    return dirs ? dirs[source] : s->sources.set[source].dir;
}

/* Opens the part of each source, and lists the pieces. */
static enum chex_status open_mapped(const struct chex_selection *s, enum chex_part part,
                                    size_t from, size_t to, const char *const *dirs,
                                    void (*opened)(void *arg), void *arg, struct chex_set *set,
                                    struct chex_error *err) {
    const struct chex_row_map *m = &s->map[part];
    set->parts = chex_alloc_zeroed((size_t)s->sources.count, sizeof(struct chex_set *));
    set->shards = chex_alloc_zeroed(m->pieces, sizeof(struct chex_shard *));
    set->first = chex_alloc_zeroed(m->pieces + 1, sizeof *set->first);
    set->dir = strdup(s->sources.set[0].dir);
    set->source_digest = strdup(s->source_digest);
    set->resize = strdup(s->source[0].manifest->resize);
    if (!set->parts || !set->shards || !set->first || !set->dir || !set->source_digest ||
        !set->resize)
        return chex_error_memory(err, "--data");
    set->part_count = s->sources.count;
    const struct chex_splits splits = s->source[0].splits[part];
    set->split = splits.to == splits.from + 1 ? (enum chex_split)splits.from : CHEX_ALL;
    set->size = s->size;
    set->rows = s->rows[part];
    set->shard_count = m->pieces;
    set->in_shard = m->in_shard;
    memcpy(set->first, m->first, (m->pieces + 1) * sizeof *set->first);
    for (int i = 0; i < set->part_count; i++) {
        size_t first, end;
        chex_selection_span(s, part, i, from, to, &first, &end);
        if (first < end)
            CHEX_TRY(chex_set_open_splits(dir_of(s, i, dirs), s->source[i].splits[part], first, end,
                                          opened, arg, &set->parts[i], err));
    }
    for (size_t i = 0; i < m->pieces; i++)
        if (set->parts[m->source[i]])
            set->shards[i] = set->parts[m->source[i]]->shards[m->shard[i]];
    return name_classes(s, set, err);
}

enum chex_status chex_selection_open(const struct chex_selection *s, enum chex_part part,
                                     size_t from, size_t to, const char *const *dirs,
                                     void (*opened)(void *arg), void *arg,
                                     struct chex_set **set_out, struct chex_error *err) {
    CHEX_AUTO(chex_set_close_at) struct chex_set *set = s->mapped ? calloc(1, sizeof *set) : NULL;
    if (s->mapped && !set)
        return chex_error_memory(err, "--data");
    CHEX_TRY(s->mapped ? open_mapped(s, part, from, to, dirs, opened, arg, set, err)
                       : chex_set_open_splits(dir_of(s, 0, dirs), s->source[0].splits[part], from,
                                              to, opened, arg, &set, err));
    if (s->own_labels)
        CHEX_TRY(make_labels(s, part, from, to, set, err));
    if (s->own_labels && !s->mapped)
        CHEX_TRY(name_classes(s, set, err));
    *set_out = CHEX_TAKE(set);
    return CHEX_OK;
}
