/* SPDX-License-Identifier: Apache-2.0 */
#include "data/classes.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

const char *const chex_class_names[CHEX_CLASS_COUNT + 1] = {
    "Atelectasis", "Cardiomegaly", "Effusion",           "Infiltration",  "Mass",
    "Nodule",      "Pneumonia",    "Pneumothorax",       "Consolidation", "Edema",
    "Emphysema",   "Fibrosis",     "Pleural_Thickening", "Hernia",        NULL,
};

const char *const chex_class_chexpert[CHEX_CHEXPERT_COUNT + 1] = {
    "No Finding",
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
    NULL,
};

/* Other sets' words for the same finding. Words that cover two findings ("Nodule/Mass") or a wider
 * one ("Lung Opacity", "Enlarged Cardiomediastinum") are not here. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"pleural effusion", "Effusion"},   {"infiltrate", "Infiltration"},
    {"infiltrates", "Infiltration"},    {"pulmonary edema", "Edema"},
    {"pulmonary mass", "Mass"},         {"pulmonary nodule", "Nodule"},
    {"pulmonary fibrosis", "Fibrosis"}, {"hiatal hernia", "Hernia"},
    {"hiatus hernia", "Hernia"},
};

bool chex_names_match(const char *a, const char *b) {
    static const char skipped[] = " _-";
    for (;; a++, b++) {
        a += strspn(a, skipped);
        b += strspn(b, skipped);
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
        if (!*a)
            return true;
    }
}

int chex_class_find(const char *name) {
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (chex_names_match(aliases[i].alias, name))
            name = aliases[i].name;
    for (int c = 0; c < CHEX_CLASS_COUNT; c++)
        if (chex_names_match(chex_class_names[c], name))
            return c;
    return -1;
}

bool chex_class_canonical(const char *name, char out[CHEX_CLASS_NAME_BYTES]) {
    size_t n = strlen(name);
    int ours = chex_class_find(name);
    out[0] = '\0';
    if (ours >= 0)
        name = chex_class_names[ours];
    else if (chex_names_match(name, "no finding"))
        name = "No_Finding";
    else if (n == 0 || n >= CHEX_CLASS_NAME_BYTES || name[0] == ' ' || name[n - 1] == ' ')
        return false;
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p < ' ' || *p == 127 || *p == '"' || *p == ',')
            return false;
    for (n = 0; name[n]; n++)
        out[n] = name[n] == ' ' || name[n] == '/' ? '_' : name[n];
    out[n] = '\0';
    return true;
}

enum { WORD_BYTES = 48 };

/* Lower case without blanks, '_' and '-'; false where that is longer than any name. */
static bool squeeze(const char *name, char out[WORD_BYTES]) {
    int n = 0;
    for (; *name; name++) {
        if (*name == ' ' || *name == '_' || *name == '-')
            continue;
        if (n == WORD_BYTES - 1)
            return false;
        out[n++] = (char)tolower((unsigned char)*name);
    }
    out[n] = '\0';
    return n > 0;
}

/* Letters to insert, drop or change to make b of a. */
static int edit_distance(const char *a, const char *b) {
    int row[WORD_BYTES + 1], n = (int)strlen(b);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 0; a[i]; i++) {
        int corner = row[0];
        row[0] = i + 1;
        for (int j = 0; j < n; j++) {
            int best = corner + (a[i] != b[j]);
            corner = row[j + 1];
            best = best < corner + 1 ? best : corner + 1;
            row[j + 1] = best < row[j] + 1 ? best : row[j] + 1;
        }
    }
    return row[n];
}

int chex_class_nearest(const char *name) {
    char word[WORD_BYTES], known[WORD_BYTES];
    if (!squeeze(name, word))
        return -1;
    int best = -1, best_distance = (int)strlen(word) / 3 + 1;
    for (int c = 0; c < CHEX_CLASS_COUNT; c++) {
        if (!squeeze(chex_class_names[c], known))
            continue;
        int d = edit_distance(word, known);
        if (d < best_distance)
            best = c, best_distance = d;
    }
    return best;
}
