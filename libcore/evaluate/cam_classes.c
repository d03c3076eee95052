/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the classes of chex-eval cam --class. For an unknown name it suggests the names with the
 * smallest edit distance.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "evaluate/cam_run.h"

enum { NAME_BYTES = 64, SHOWN = 3 };

/* Edit distance (Levenshtein 1966) without regard to case. Compares the first NAME_BYTES bytes. */
static size_t edit_distance(const char *a, const char *b) {
    size_t row[NAME_BYTES + 1];
    const size_t n = strnlen(a, NAME_BYTES), m = strnlen(b, NAME_BYTES);
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const bool same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            size_t best = corner + !same;
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            corner = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

/* 0 if `typed` is the start of `name`, else the edit distance. */
static size_t distance(const char *typed, const char *name) {
    return strncasecmp(typed, name, strlen(typed)) == 0 ? 0 : edit_distance(typed, name);
}

/* The SHOWN names nearest to `typed`, nearest first, separated by commas. */
static void list_nearest(const char *typed, const struct chex_eval_network *n, char *buf,
                         size_t size) {
    int chosen[SHOWN], count = 0;
    buf[0] = '\0';
    while (count < SHOWN && count < n->about.classes) {
        int best = -1;
        for (int c = 0; c < n->about.classes; c++) {
            bool listed = false;
            for (int k = 0; k < count; k++)
                listed = listed || chosen[k] == c;
            if (!listed && (best < 0 || distance(typed, n->about.class_names[c]) <
                                            distance(typed, n->about.class_names[best])))
                best = c;
        }
        const size_t at = strlen(buf);
        snprintf(buf + at, size - at, "%s%s", count ? ", " : "", n->about.class_names[best]);
        chosen[count++] = best;
    }
}

static int find(const char *typed, const struct chex_eval_network *n) {
    for (int c = 0; c < n->about.classes; c++)
        if (strcasecmp(typed, n->about.class_names[c]) == 0)
            return c;
    return -1;
}

static enum chex_status add(const char *typed, const struct chex_eval_network *n, int *drawn_out,
                            int *count_out, struct chex_error *err) {
    char near[200];
    const int c = find(typed, n);
    if (c < 0) {
        list_nearest(typed, n, near, sizeof near);
        return chex_error_set(err, CHEX_E_USAGE,
                              "--class '%s': the network has no such finding; nearest: %s", typed,
                              near);
    }
    for (int k = 0; k < *count_out; k++)
        if (drawn_out[k] == c)
            return CHEX_OK;
    drawn_out[(*count_out)++] = c;
    return CHEX_OK;
}

enum chex_status chex_eval_cam_classes(const char *list, const struct chex_eval_network *n,
                                       int *drawn_out, int *count_out, struct chex_error *err) {
    char name[256];
    *count_out = 0;
    if (strcasecmp(list, "all") == 0 && find(list, n) < 0) {
        for (int c = 0; c < n->about.classes; c++)
            drawn_out[c] = c;
        *count_out = n->about.classes;
        return CHEX_OK;
    }
    for (const char *at = list;; at++) {
        at += strspn(at, " ");
        size_t length = strcspn(at, ",");
        const char *end = at + length;
        while (length && at[length - 1] == ' ')
            length--;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        CHEX_TRY(add(name, n, drawn_out, count_out, err));
        at = end;
        if (!*at)
            return CHEX_OK;
    }
}
