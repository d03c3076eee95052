/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of class names and the comparison of names (classes.h).
 */
#include "label/classes.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#include "base/text.h"

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

/* Names of the same finding in other data sets. Names of two findings ("Nodule/Mass") or of a wider
 * one ("Lung Opacity", "Enlarged Cardiomediastinum") do not belong here. */
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

const char *chex_class_name_fault(const char *name) {
    const size_t n = strlen(name);
    if (n == 0)
        return "it is empty";
    if (n >= CHEX_CLASS_NAME_BYTES)
        return "it has more than 63 bytes";
    if (name[0] == ' ' || name[n - 1] == ' ')
        return "it begins or ends with a blank";
    if (chex_text_has_control(name))
        return "it has a control character";
    if (strpbrk(name, "\","))
        return "it has a quote or a comma";
    return chex_text_is_formula(name) ? "it begins with = + - or @, as a formula does" : NULL;
}

bool chex_class_canonical(const char *name, char out[CHEX_CLASS_NAME_BYTES]) {
    size_t n;
    int ours = chex_class_find(name);
    out[0] = '\0';
    if (ours >= 0)
        name = chex_class_names[ours];
    else if (chex_names_match(name, "no finding"))
        name = "No_Finding";
    else if (chex_class_name_fault(name))
        return false;
    for (n = 0; name[n]; n++)
        out[n] = name[n] == ' ' || name[n] == '/' ? '_' : name[n];
    out[n] = '\0';
    return true;
}

int chex_class_in_list(const char *typed, const char *const *names, int count) {
    char canonical[CHEX_CLASS_NAME_BYTES];
    const bool known = chex_class_canonical(typed, canonical);
    for (int c = 0; c < count; c++)
        if (chex_names_match(names[c], typed) || (known && chex_names_match(names[c], canonical)))
            return c;
    return -1;
}

enum { WORD_BYTES = 48 };

/* Writes `name` in lower case without blanks, '_' and '-'. False: the result is empty or longer
 * than any class name. */
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

int chex_class_nearest(const char *name) {
    char word[WORD_BYTES], known[WORD_BYTES];
    if (!squeeze(name, word))
        return -1;
    struct chex_text_nearest nearest = {.word = word};
    int best = -1;
    for (int c = 0; c < CHEX_CLASS_COUNT; c++)
        if (squeeze(chex_class_names[c], known) && chex_text_offer(&nearest, known))
            best = c;
    return best;
}

enum chex_status chex_class_not_in_list(const char *option, const char *whose, const char *typed,
                                        const char *const *names, int count,
                                        struct chex_error *err) {
    enum { LISTED = 16 };
    char word[WORD_BYTES] = "", known[WORD_BYTES], list[400] = "", shown[80];
    int best = -1;
    size_t used = 0;
    squeeze(typed, word);
    struct chex_text_nearest nearest = {.word = word};
    for (int c = 0; c < count; c++)
        if (*word && squeeze(names[c], known) && chex_text_offer(&nearest, known))
            best = c;
    for (int c = 0; c < count && c < LISTED && used < sizeof list; c++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", c ? ", " : "", names[c]);
    chex_text_printable(typed, shown, sizeof shown);
    if (best >= 0)
        return chex_error_set(err, CHEX_E_USAGE, "%s: %s has no finding '%s'; did you mean %s?",
                              option, whose, shown, names[best]);
    return chex_error_set(err, CHEX_E_USAGE, "%s: %s has no finding '%s' (it has %s%s)", option,
                          whose, shown, list, count > LISTED ? ", ..." : "");
}
