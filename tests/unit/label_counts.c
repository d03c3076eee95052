/* SPDX-License-Identifier: Apache-2.0
 *
 * Findings without positives or negatives.
 */
#include "label/label_counts.h"
#include "shard/shard.h"
#include "tap.h"

static struct chex_error err;
static const char *const names[] = {"Mass", "Nodule", "Edema", "Hernia", "COVID", "F",
                                    "G",    "H",      "I",     "J",      "K"};

int main(void) {
    static const int8_t rows[][5] = {{1, 0, 1, -1, -2}, {0, 0, 1, -2, -2}, {1, 0, 1, -1, -2}};
    struct chex_label_counts n[11] = {{0}};
    char warning[512];
    for (size_t i = 0; i < 3; i++)
        chex_label_counts_add(n, rows[i], 5);
    OK(n[0].positive == 2 && n[0].negative == 1 && n[1].negative == 3 && n[2].positive == 3 &&
           n[3].uncertain == 2 && n[3].not_stated == 1 && n[4].not_stated == 3,
       "labels are counted by kind");
    OK_CALL(
        chex_label_counts_judge("split train", names, n, 5, true, warning, sizeof warning, &err));
    OK(!strcmp(warning, "split train: no positives of Nodule; no negatives of Edema; neither "
                        "positives nor negatives of Hernia, COVID"),
       "one line names all gaps: %s", warning);
    OK_CALL(
        chex_label_counts_judge("split train", names, n, 1, true, warning, sizeof warning, &err));
    OK(!*warning, "a finding with both is no gap");
    OK_STATUS(chex_label_counts_judge("split train", names + 1, n + 1, 4, true, warning,
                                      sizeof warning, &err),
              CHEX_E_DATA, err,
              "split train: nothing can be learned: no finding has both positives and negatives (4 "
              "findings, 3 positive and 3 negative labels)");
    OK(!*warning, "an error is no warning");
    OK_CALL(chex_label_counts_judge("split test", names + 1, n + 1, 4, false, warning,
                                    sizeof warning, &err));
    OK(strstr(warning, "split test: nothing can be learned and no AUROC computed: no finding has"),
       "a part that is not learned from gets a warning: %s", warning);
    struct chex_label_counts none[11] = {{0}};
    none[0].positive = none[0].negative = 1;
    chex_label_counts_judge("all", names, none, 11, true, warning, sizeof warning, &err);
    OK(!strcmp(warning, "all: neither positives nor negatives of Nodule, Edema, Hernia, COVID, F, "
                        "G, H, I and 2 more"),
       "many names are counted: %s", warning);
    chex_label_counts_judge("all", names, none, 11, true, warning, 40, &err);
    OK(strlen(warning) == 39 && !strcmp(warning + 36, "..."), "a long line is cut: %s", warning);
    return tap_done();
}
