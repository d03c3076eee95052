/* SPDX-License-Identifier: Apache-2.0
 *
 * What an ensemble gains over its members, as further columns of the AUROC tables: JSON, CSV, text
 * and report.html.
 */
#include <stddef.h>

#include "base/result.h"
#include "report/html.h"

static const struct chex_column columns[] = {
    {"gain", "gain", offsetof(struct chex_gain, over_mean), "gain over the mean member", 4, false},
    {"gain_over_best", "gain_over_best", offsetof(struct chex_gain, over_best),
     "gain over the best member", 4, false},
};

void chex_gains_set(json_t **object, const struct chex_gains *g, int c) {
    const struct chex_gain *k = &g->gain[c];
    char key[32];
    chex_json_set(object, "variation", chex_json_real(k->variation));
    for (int m = 0; m < g->members; m++) {
        snprintf(key, sizeof key, "member_%d", m + 1);
        chex_json_set(object, key, chex_json_real(k->member_auroc[m]));
    }
    chex_columns_set(object, columns, CHEX_COUNT(columns), k);
}

void chex_gains_names(struct chex_text_line *to, const struct chex_gains *g) {
    chex_text_append(to, ",variation");
    chex_columns_names(to, columns, CHEX_COUNT(columns));
    for (int m = 0; m < g->members; m++)
        chex_text_append(to, ",member_%d", m + 1);
}

void chex_gains_print(FILE *to, const struct chex_gains *g) {
    const struct chex_gain *k = &g->gain[g->classes];
    char mean[64], best[64];
    fprintf(to, "ensemble of %d networks; mean AUROC of each:", g->members);
    for (int m = 0; m < g->members; m++)
        fprintf(to, " %.4f", k->member_auroc[m]);
    fprintf(to,
            "\ngain over the mean member %s, over the best %s; paired\n"
            "members' scores of an image: mean coefficient of variation %.3f\n",
            chex_figure_format(&k->over_mean, true, mean, sizeof mean),
            chex_figure_format(&k->over_best, true, best, sizeof best), k->variation);
}

void chex_html_gain_headings(FILE *to) {
    chex_html_headings(to, columns, CHEX_COUNT(columns));
    chex_html_heading(to, "variation of the members");
}

void chex_html_gain_cells(FILE *to, const struct chex_gain *k) {
    for (size_t i = 0; i < CHEX_COUNT(columns); i++)
        chex_html_figure(to, &columns[i], k, "undefined");
    chex_html_number(to, "variation", k->variation, 4, "undefined");
}
