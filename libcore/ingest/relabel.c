/* SPDX-License-Identifier: Apache-2.0
 *
 * Relabels a set: reshard.c makes the rows of the set; the hook here replaces their labels, marks
 * the rows that the label file does not have, and counts what changes. The number of shards and the
 * order of rows stay.
 */
#include "ingest/relabel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/create_private.h"
#include "ingest/reshard.h"
#include "shard/manifest.h"

enum { SHOWN_MISSING = 5 };

const char *const chex_relabel_missing_names[] = {"refuse", "drop", NULL};

struct relabel {
    const struct chex_relabel_options *o;
    struct chex_relabel_plan *plan;
    struct chex_group *group;
    struct chex_label_table *table; /* of the label file; the new set borrows its labels */
    size_t *row;                    /* (images of the set) its row in the table; SIZE_MAX: none */
    int *class_in_set;              /* (plan->finding_count) -1: the set does not have it */
    const char *missing[SHOWN_MISSING]; /* the first ids */
    size_t missing_count;
    size_t had[CHEX_SPLIT_COUNT],
        has[CHEX_SPLIT_COUNT]; /* images of each split, before and after */
};

void chex_relabel_release(struct chex_relabel_plan *plan) {
    for (size_t f = 0; plan->findings && f < plan->finding_count; f++)
        free(plan->findings[f].name);
    free(plan->findings);
    plan->findings = NULL;
}

static enum chex_status load_labels(struct relabel *r, struct chex_error *err) {
    struct chex_create c = {.o = &r->o->create, .group = r->group};
    if (chex_fs_is_dir(c.o->labels))
        return chex_error_set(err, CHEX_E_USAGE, "--labels %s: a folder, expected a label file",
                              c.o->labels);
    const enum chex_status st = chex_create_load_labels(&c, err);
    r->table = c.table;
    return st;
}

/* Finds the row of the label file for each image of the set. */
static enum chex_status match(struct relabel *r, const struct chex_label_table *set,
                              struct chex_error *err) {
    CHEX_AUTO(chex_label_map_release) struct chex_label_map ids = {0}, paths = {0};
    size_t kept;
    if (!(r->row = chex_alloc_zeroed(set->count, sizeof *r->row)))
        return chex_error_memory(err, "the list of images");
    CHEX_TRY(chex_labels_index(r->table, &ids, err));
    for (size_t i = 0; i < r->table->count; i++)
        CHEX_TRY(chex_label_map_add(&paths, r->table->rows[i].path, i, &kept, err));
    for (size_t i = 0; i < set->count; i++) {
        const char *id = set->rows[i].image_id;
        r->row[i] = chex_label_map_find(&ids, id);
        if (r->row[i] == SIZE_MAX)
            r->row[i] = chex_label_map_find(&paths, id);
        if (r->row[i] == SIZE_MAX && r->missing_count++ < SHOWN_MISSING)
            r->missing[r->missing_count - 1] = id;
    }
    return CHEX_OK;
}

static int find_class(const char *const *names, size_t count, const char *name) {
    for (size_t c = 0; c < count; c++)
        if (strcmp(names[c], name) == 0)
            return (int)c;
    return -1;
}

/* Lists the findings of the file, then those that only the set has. */
static enum chex_status list_findings(struct relabel *r, const struct chex_label_table *set,
                                      struct chex_error *err) {
    struct chex_relabel_plan *p = r->plan;
    const size_t most = r->table->class_count + set->class_count;
    p->findings = chex_alloc_zeroed(most, sizeof *p->findings);
    r->class_in_set = chex_alloc_zeroed(most, sizeof *r->class_in_set);
    if (!p->findings || !r->class_in_set)
        return chex_error_memory(err, "the list of findings");
    for (size_t c = 0; c < most; c++) {
        const bool in_file = c < r->table->class_count;
        const char *name = in_file ? r->table->classes[c] : set->classes[c - r->table->class_count];
        if (!in_file && find_class(r->table->classes, r->table->class_count, name) >= 0)
            continue;
        struct chex_relabel_finding *f = &p->findings[p->finding_count];
        const int at = find_class(set->classes, set->class_count, name);
        r->class_in_set[p->finding_count++] = at;
        *f = (struct chex_relabel_finding){strdup(name), at >= 0, in_file, {0}, {0}, 0};
        if (!f->name)
            return chex_error_memory(err, "the list of findings");
    }
    return CHEX_OK;
}

static enum chex_relabel_value value_of(int label) {
    return label == 1                      ? CHEX_RELABEL_POSITIVE
           : label == 0                    ? CHEX_RELABEL_NEGATIVE
           : label == CHEX_LABEL_UNCERTAIN ? CHEX_RELABEL_UNCERTAIN
                                           : CHEX_RELABEL_NOT_STATED;
}

/* Counts one kept image. */
static void count_row(struct relabel *r, const struct chex_label_row *before,
                      const struct chex_label_row *after) {
    struct chex_relabel_plan *p = r->plan;
    bool changed = false;
    for (size_t c = 0; c < p->finding_count; c++) {
        struct chex_relabel_finding *f = &p->findings[c];
        const int at = r->class_in_set[c];
        const enum chex_relabel_value a = at < 0 ? CHEX_RELABEL_NOT_STATED
                                                 : value_of(before->labels[at]),
                                      b = f->in_file ? value_of(after->labels[c])
                                                     : CHEX_RELABEL_NOT_STATED;
        f->before[a]++;
        f->after[b]++;
        f->changed += a != b;
        changed |= a != b;
    }
    p->kept++;
    p->changed += changed;
    p->other_patients +=
        !after->patient_guessed && strcmp(before->patient_id, after->patient_id) != 0;
}

static enum chex_status refuse_missing(const struct relabel *r, const struct chex_label_table *set,
                                       struct chex_error *err) {
    char names[SHOWN_MISSING * 72] = "", one[68];
    if (!r->missing_count)
        return CHEX_OK;
    if (r->missing_count == set->count)
        return chex_error_data(err,
                               "%s: none of the %zu images of %s (%.100s) is in it; its first "
                               "image is %.100s: is it the label file of another data set?",
                               r->o->create.labels, set->count, r->o->create.set,
                               set->rows[0].image_id,
                               r->table->count ? r->table->rows[0].image_id : "missing too");
    if (r->o->missing == CHEX_RELABEL_DROP)
        return CHEX_OK;
    for (size_t i = 0; i < r->missing_count && i < SHOWN_MISSING; i++) {
        snprintf(one, sizeof one, "%s%.60s", i ? ", " : "", r->missing[i]);
        strcat(names, one);
    }
    return chex_error_data(err,
                           "%s: %zu of the %zu images of %s %s not in it (%s%s): add them, or "
                           "leave them out with --missing drop",
                           r->o->create.labels, r->missing_count, set->count, r->o->create.set,
                           r->missing_count == 1 ? "is" : "are", names,
                           r->missing_count > SHOWN_MISSING ? ", ..." : "");
}

/* Gives each row its new labels, or marks it unused. */
static void replace(struct relabel *r, struct chex_label_table *set, enum chex_split *split) {
    for (size_t i = 0; i < set->count; i++) {
        r->had[split[i]]++;
        if (r->row[i] == SIZE_MAX) {
            split[i] = (enum chex_split)CHEX_SPLIT_UNUSED;
            continue;
        }
        r->has[split[i]]++;
        count_row(r, &set->rows[i], &r->table->rows[r->row[i]]);
        set->rows[i].labels = r->table->rows[r->row[i]].labels;
    }
    set->classes = r->table->classes;
    set->class_count = r->table->class_count;
    r->plan->unused = r->table->count - r->plan->kept;
}

static enum chex_status refuse_empty_split(const struct relabel *r, struct chex_error *err) {
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (r->had[s] && !r->has[s])
            return chex_error_data(err, "%s: none of the %zu images of split %s is in it",
                                   r->o->create.labels, r->had[s], chex_split_names[s]);
    return CHEX_OK;
}

/* Gives the manifest of the old set the new file's digest, format and policy. */
static enum chex_status describe(const struct relabel *r, const uint64_t sum[2],
                                 struct chex_manifest *m, struct chex_error *err) {
    char digest[CHEX_HASH128_HEX_BYTES], labels_digest[CHEX_HASH128_HEX_BYTES];
    CHEX_AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    CHEX_TRY(chex_fs_read(r->o->create.labels, CHEX_LABELS_MAX_BYTES, &text, &bytes, err));
    chex_manifest_source_digest(sum, text, bytes, digest);
    chex_hash128_hex(text, bytes, labels_digest);
    CHEX_FREE(m->source_digest, m->labels_digest, m->label_format, m->uncertain);
    m->source_digest = strdup(digest);
    m->labels_digest = strdup(labels_digest);
    m->label_format = strdup(r->table->format);
    m->uncertain = strdup(chex_uncertain_names[r->o->create.uncertain]);
    return m->source_digest && m->labels_digest && m->label_format && m->uncertain
               ? CHEX_OK
               : chex_error_memory(err, "the manifest");
}

static enum chex_status apply(void *arg, struct chex_label_table *set, enum chex_split *split,
                              const uint64_t sum[2], struct chex_manifest *m,
                              struct chex_error *err) {
    struct relabel *r = arg;
    r->plan->images = set->count;
    r->plan->size = m->size;
    CHEX_TRY(load_labels(r, err));
    CHEX_TRY(match(r, set, err));
    CHEX_TRY(list_findings(r, set, err));
    replace(r, set, split);
    CHEX_TRY(refuse_missing(r, set, err));
    CHEX_TRY(refuse_empty_split(r, err));
    if (r->plan->other_patients && r->group->rank == 0)
        chex_warn("%s: %zu image%s another patient than in %s; the set keeps its patients",
                  r->o->create.labels, r->plan->other_patients,
                  r->plan->other_patients == 1 ? " has" : "s have", r->o->create.set);
    return describe(r, sum, m, err);
}

enum chex_status chex_relabel(const struct chex_relabel_options *o, struct chex_group *group,
                              struct chex_relabel_plan *plan_out,
                              struct chex_create_result *result_out, struct chex_error *err) {
    *plan_out = (struct chex_relabel_plan){0};
    struct relabel r = {.o = o, .plan = plan_out, .group = group};
    const struct chex_reshard_labels labels = {apply, &r};
    const enum chex_status st =
        chex_reshard_with(&o->create, &labels, group, o->plan ? NULL : result_out, err);
    chex_labels_free(r.table);
    free(r.row);
    free(r.class_in_set);
    return st;
}
