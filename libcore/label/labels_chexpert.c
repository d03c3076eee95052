/* SPDX-License-Identifier: Apache-2.0
 *
 * Label format of CheXpert's train.csv and valid.csv, or both concatenated:
 *   Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,...
 *   CheXpert-v1.0/train/patient00001/study1/view1_frontal.jpg,Female,68,Frontal,AP,1.0,,...
 * and of its val_labels.csv and test_labels.csv, which have only the path and the findings.
 * 1 is positive, 0 negative, -1 uncertain, an empty field not stated. The folder above the
 * patient's folder (train, valid, test) is the split.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/fs.h"
#include "label/labels_format.h"

#define EXPECTS "CheXpert's columns 'Path' and 14 findings"

enum column { PATH, SEX, AGE, SIDE, VIEW, COLUMNS };
static const char *const column_names[COLUMNS] = {"Path", "Sex", "Age", "Frontal/Lateral", "AP/PA"};

struct layout {
    int at[COLUMNS]; /* column numbers; -1: the file does not have it (never for PATH) */
    struct chex_label_flags flags;
};

static bool detect(const struct chex_label_header *h, char *why, size_t why_size) {
    const char *with = chex_label_header_has(h, "Frontal/Lateral") ? "Frontal/Lateral"
                                                                   : "Enlarged Cardiomediastinum";
    if (!chex_label_header_has(h, "Path") || !chex_label_header_has(h, with))
        return false;
    snprintf(why, why_size, "a header with 'Path' and '%s'", with);
    return true;
}

/* The column AP/PA also has LL and RL, on lateral images and by mistake on frontal ones. */
static bool parse_view(const char *side, const char *view, enum chex_view *view_out) {
    if (!strcasecmp(side, "Lateral"))
        *view_out = CHEX_VIEW_LATERAL;
    else if (strcasecmp(side, "Frontal") != 0)
        return false;
    else
        *view_out = !strcmp(view, "AP")   ? CHEX_VIEW_AP
                    : !strcmp(view, "PA") ? CHEX_VIEW_PA
                                          : CHEX_VIEW_UNKNOWN;
    return true;
}

/* The view in a file without view columns, from the name: view1_frontal.jpg, view2_lateral.jpg. */
static enum chex_view view_of_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && strstr(slash, "_lateral") ? CHEX_VIEW_LATERAL : CHEX_VIEW_UNKNOWN;
}

/* Returns the split of ".../train/patient00001/...". `tail` is the part of the path from the
 * patient's folder on. */
static int8_t parse_split(const char *path, const char *tail) {
    char folder[16] = "";
    int8_t split = CHEX_SPLIT_NOT_STATED;
    if (tail == path)
        return split;
    const char *end = tail - 1, *from = end;
    while (from > path && from[-1] != '/')
        from--;
    if ((size_t)(end - from) >= sizeof folder)
        return split;
    memcpy(folder, from, (size_t)(end - from));
    chex_field_split(folder, &split);
    return split;
}

static enum chex_status parse_row(struct chex_label_table *t, const struct chex_csv *csv,
                                  const struct layout *l, struct chex_error *err) {
    struct chex_label_row *row;
    int8_t *labels;
    const char *path = csv->fields[l->at[PATH]];
    CHEX_TRY(chex_labels_add_row(t, csv->line, &row, &labels, err));
    CHEX_TRY(chex_labels_set_image(t, row, path, (size_t)l->at[PATH] + 1, err));
    if (row->image_id == chex_fs_name(path)) /* not in CheXpert's folders */
        return chex_csv_fault(csv, l->at[PATH],
                              "a path such as train/patient00001/study1/view1_frontal.jpg", err);
    row->split = parse_split(path, row->path);
    if (row->split != CHEX_SPLIT_NOT_STATED)
        t->split_from = "the folders of its paths";
    if (l->at[SEX] >= 0 && !chex_field_sex(csv->fields[l->at[SEX]], &row->sex))
        return chex_csv_fault(csv, l->at[SEX], "Male or Female", err);
    if (l->at[AGE] >= 0 && !chex_field_age(csv->fields[l->at[AGE]], &row->age_years))
        return chex_csv_fault(csv, l->at[AGE], CHEX_AGE_EXPECTED, err);
    if (l->at[SIDE] < 0)
        row->view = view_of_name(path);
    else if (!parse_view(csv->fields[l->at[SIDE]], l->at[VIEW] < 0 ? "" : csv->fields[l->at[VIEW]],
                         &row->view))
        return chex_csv_fault(csv, l->at[SIDE], "Frontal or Lateral", err);
    return chex_label_flags_read(&l->flags, csv, labels, err);
}

static void release(struct layout *l) { chex_label_flags_release(&l->flags); }

static enum chex_status parse(struct chex_label_table *t, const struct chex_label_input *input,
                              struct chex_error *err) {
    CHEX_AUTO(release) struct layout l = {0};
    struct chex_csv *csv = input->csv;
    CHEX_TRY(chex_csv_header(csv, err));
    for (int c = 0; c < COLUMNS; c++)
        CHEX_TRY(chex_csv_find(csv, column_names[c], c == PATH ? EXPECTS : NULL, &l.at[c], err));
    CHEX_TRY(chex_label_flags_init(&l.flags, t, csv, chex_class_chexpert, CHEX_CHEXPERT_COUNT,
                                   EXPECTS, err));
    CHEX_TRY(chex_label_flags_list_ignored(&l.flags, t, &chex_label_format_chexpert, csv, l.at,
                                           COLUMNS, err));
    for (bool more;;) {
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            return CHEX_OK;
        CHEX_TRY(parse_row(t, csv, &l, err));
    }
}

const struct chex_label_format chex_label_format_chexpert = {
    .name = "chexpert",
    .expects = "'Path' and its findings",
    .mined = "CheXpert's training labels",
    .detect = detect,
    .parse = parse,
};
