/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the model card: front matter, then the sections. report/card.h says where numbers come
 * from.
 */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "label/labels.h"
#include "model/training_facts.h"
#include "report/card.h"
#include "report/figures_text.h"

/* ---- values of auroc.json ---- */

static const json_t *get(const json_t *o, const char *key) { return json_object_get(o, key); }

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(get(o, key));
    return text ? text : "not stated";
}

static double number_of(const json_t *o, const char *key) {
    const json_t *v = get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static long long count_of(const json_t *o, const char *key) {
    return (long long)json_integer_value(get(o, key));
}

/* ---- Markdown and YAML ---- */

/* Text of the data. Escapes what Markdown or HTML would take as markup. */
static void put_text(FILE *to, const char *text) {
    char shown[4096];
    for (const char *c = chex_text_printable(text, shown, sizeof shown); *c; c++) {
        if (*c == '<')
            fputs("&lt;", to);
        else if (*c == '&')
            fputs("&amp;", to);
        else
            fprintf(to, strchr("\\`*_{}[]()#|~!>", *c) ? "\\%c" : "%c", *c);
    }
}

/* The name of a class, with blanks for underscores. */
static void put_name(FILE *to, const char *name) {
    CHEX_AUTO_FREE char *copy = strdup(name);
    for (char *c = copy; c && *c; c++)
        *c = (char)(*c == '_' ? ' ' : *c);
    put_text(to, copy ? copy : name);
}

/* A YAML string. Every JSON string is one. */
static void put_yaml(FILE *to, const char *text) {
    char shown[4096];
    json_auto_t *v = json_string(chex_text_printable(text, shown, sizeof shown));
    CHEX_AUTO_FREE char *quoted = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    fputs(quoted ? quoted : "\"\"", to);
}

/* A text in one of these ways, between two pieces of markup. */
static void between(FILE *to, const char *before, void (*put)(FILE *to, const char *text),
                    const char *text, const char *after) {
    fputs(before, to);
    put(to, text);
    fputs(after, to);
}

/* "0.812 (0.780 to 0.840)"; a dash if it is undefined. The interval is left out if there is none.
 */
static void put_figure(FILE *to, double value, double low, double high, int digits) {
    if (isnan(value)) {
        fputs("-", to);
        return;
    }
    fprintf(to, "%.*f", digits, value);
    if (!isnan(low) && !isnan(high))
        fprintf(to, " (%.*f to %.*f)", digits, low, digits, high);
}

/* A figure with its interval. */
static void put_cell(FILE *to, const json_t *o, const struct chex_column *c) {
    char low[96], high[96];
    snprintf(low, sizeof low, "%s%sci_low", c->interval, *c->interval ? "_" : "");
    snprintf(high, sizeof high, "%s%sci_high", c->interval, *c->interval ? "_" : "");
    fputs(" | ", to);
    put_figure(to, number_of(o, c->key), number_of(o, low), number_of(o, high), c->digits);
}

/* A row for each class, with the columns that are in the card. inner: the object of a class that
 * has them, or NULL. */
static void put_table(FILE *to, const json_t *o, const char *inner,
                      const struct chex_column *columns, size_t count) {
    const json_t *k;
    size_t i, c;
    fputs("| finding", to);
    for (c = 0; c < count; c++)
        if (columns[c].card)
            fprintf(to, " | %s", columns[c].heading);
    fputs(" |\n| ---", to);
    for (c = 0; c < count; c++)
        fputs(columns[c].card ? " | ---" : "", to);
    fputs(" |\n| `name`", to);
    for (c = 0; c < count; c++)
        if (columns[c].card)
            fprintf(to, " | `%s%s%s`", inner ? inner : "", inner ? "." : "", columns[c].key);
    fputs(" |\n", to);
    json_array_foreach((json_t *)get(o, "classes"), i, k) {
        fputs("| ", to);
        put_name(to, text_of(k, "name"));
        for (c = 0; c < count; c++)
            if (columns[c].card)
                put_cell(to, inner ? get(k, inner) : k, &columns[c]);
        fputs(" |\n", to);
    }
    putc('\n', to);
}

static void ask(FILE *to, const char *question) {
    fprintf(to, "- **" CHEX_CARD_ASK ":** %s\n", question);
}

static const char *model_of(const json_t *o) {
    const char *model = json_string_value(get(get(o, "provenance"), "model"));
    return model ? model : "network without a name";
}

/* ---- front matter ---- */

static void put_metric(FILE *to, const char *type, const char *name, const char *class_name,
                       double value) {
    char title[512];
    if (isnan(value))
        return;
    snprintf(title, sizeof title, "%s%s%s", name, class_name ? " " : "",
             class_name ? class_name : "");
    fprintf(to, "    - type: %s\n      name: ", type);
    put_yaml(to, title);
    fprintf(to, "\n      value: %.6g\n", value);
}

static void put_front_matter(FILE *to, const json_t *o) {
    const json_t *p = get(o, "provenance"), *k;
    size_t i;
    fputs(
        "---\n# license: " CHEX_CARD_ASK "\nlibrary_name: chexnet\npipeline_tag: "
        "image-classification\ntags:\n- medical\n- radiology\n- chest-x-ray\nmetrics:\n- roc_auc\n"
        "model-index:\n- name: ",
        to);
    put_yaml(to, model_of(o));
    between(to,
            "\n  results:\n  - task:\n      type: image-classification\n      name: Chest X-ray "
            "findings\n    dataset:\n      type: ",
            put_yaml, text_of(p, "label_format"), "\n      name: ");
    put_yaml(to, json_string_value(get(p, "data")) ? text_of(p, "data") : text_of(o, "title"));
    between(to, "\n      split: ", put_yaml, text_of(p, "split"), "\n    metrics:\n");
    put_metric(to, "roc_auc", "mean AUROC", NULL, number_of(o, "mean"));
    json_array_foreach((json_t *)get(o, "classes"), i, k) {
        const char *name = text_of(k, "name");
        put_metric(to, "roc_auc", "AUROC", name, number_of(k, "auroc"));
        put_metric(to, "average_precision", "average precision", name,
                   number_of(k, "average_precision"));
    }
    fputs("---\n\n", to);
}

/* ---- sections ---- */

static void put_intended_use(FILE *to) {
    fputs("## Intended use\n\nResearch on the detection of findings in chest radiographs.\n\n", to);
    ask(to, "Who may use it, for what, and on which images (age, view, device, country)?");
    ask(to, "Which uses are out of scope?");
    ask(to, "Who developed it, under which licence, and who answers questions?");
    putc('\n', to);
}

static void put_row(FILE *to, const char *name, const char *value) {
    fprintf(to, "| %s | ", name);
    put_text(to, value);
    fputs(" |\n", to);
}

static void put_data(FILE *to, const json_t *o) {
    const json_t *p = get(o, "provenance");
    fputs("## Evaluation data\n\n| | |\n| --- | --- |\n", to);
    put_row(to, "evaluated", text_of(o, "title"));
    put_row(to, "set", text_of(p, "data"));
    put_row(to, "digest of the set", text_of(p, "source_digest"));
    put_row(to, "split", text_of(p, "split"));
    put_row(to, "label format", text_of(p, "label_format"));
    put_row(to, "overlap with training data", text_of(p, "overlap_with_training"));
    fprintf(to, "| images | %lld |\n", count_of(o, "images"));
    if (json_is_integer(get(o, "patients")))
        fprintf(to, "| patients | %lld |\n", count_of(o, "patients"));
    fputs("\n", to);
    ask(to, "Where and when were the images taken, and how were they selected?");
    ask(to, "How were the labels made, and how often are they wrong?");
    ask(to, "What was the network trained on, and how were its training data selected?");
    putc('\n', to);
}

static void put_mean(FILE *to, const json_t *o) {
    fputs("Mean AUROC ", to);
    put_figure(to, number_of(o, "mean"), number_of(o, "mean_ci_low"), number_of(o, "mean_ci_high"),
               4);
    fprintf(to, ", over %lld of %lld findings (`mean`).", count_of(o, "defined_count"),
            count_of(o, "class_count"));
    const json_t *interval = get(o, "interval");
    if (json_is_object(interval)) {
        between(to, " Intervals in brackets: 95 %, ", put_text, text_of(interval, "method"),
                " by ");
        put_text(to, text_of(interval, "cluster"));
        putc('.', to);
        const json_t *folds = get(o, "folds");
        if (json_is_object(folds)) {
            fputs(" Each fold has a network of its own; over pairs of images of the same fold "
                  "(`folds.mean_within`): ",
                  to);
            put_figure(to, number_of(folds, "mean_within"), number_of(folds, "mean_within_ci_low"),
                       number_of(folds, "mean_within_ci_high"), 4);
            putc('.', to);
        }
        if (json_is_string(get(interval, "sentence"))) {
            fputs("\n\nFor a methods section: ", to);
            put_text(to, text_of(interval, "sentence"));
        }
    }
    fputs("\n\n", to);
}

static void put_ordering(FILE *to, const json_t *o) {
    static const struct chex_column auroc = {"auroc", "", 0, "AUROC", 4, true};
    const json_t *k;
    size_t i;
    fputs("| finding | positives | AUROC | average precision |\n| --- | ---: | --- | --- |\n"
          "| `name` | `positives` | `auroc` | `average_precision` |\n",
          to);
    json_array_foreach((json_t *)get(o, "classes"), i, k) {
        fputs("| ", to);
        put_name(to, text_of(k, "name"));
        fprintf(to, " | %lld", count_of(k, "positives"));
        put_cell(to, k, &auroc);
        put_cell(to, k, &chex_class_columns[0]);
        fputs(" |\n", to);
    }
    putc('\n', to);
}

static bool is_optimistic(const json_t *o) {
    return json_is_true(get(get(o, "operating"), "optimistic"));
}

static void put_decisions(FILE *to, const json_t *o) {
    struct chex_column columns[1 + CHEX_OPERATING_COLUMNS] = {
        {"threshold", "threshold", 0, "threshold", 4, true}};
    const json_t *how = get(o, "operating");
    if (!json_is_object(how) ||
        !json_is_object(get(json_array_get(get(o, "classes"), 0), "operating")))
        return;
    between(to, "### Decisions\n\nThresholds: ", put_text, text_of(how, "source"), "; rule: ");
    put_text(to, text_of(how, "rule"));
    fputs(is_optimistic(o) ? ". They were chosen on the evaluated images, so these figures are "
                             "optimistic.\n\n"
                           : ".\n\n",
          to);
    memcpy(&columns[1], chex_operating_columns, sizeof chex_operating_columns);
    put_table(to, o, "operating", columns, CHEX_COUNT(columns));
}

static void put_calibration(FILE *to, const json_t *o) {
    if (!json_is_number(get(json_array_get(get(o, "classes"), 0), "brier")))
        return;
    fputs("### Calibration\n\n", to);
    put_table(to, o, NULL, &chex_class_columns[1], CHEX_CLASS_COLUMNS - 1); /* after the AP */
    fputs("A calibrated network has slope 1 and 0 in the large.\n\n", to);
}

static void put_gaps(FILE *to, const json_t *attribute) {
    const json_t *k;
    size_t i;
    fputs("| finding | largest gap of the AUROC | from | to |\n| --- | --- | --- | --- |\n"
          "| `name` | `auroc_gap.value` | `auroc_gap.highest` | `auroc_gap.lowest` |\n",
          to);
    json_array_foreach((json_t *)get(attribute, "classes"), i, k) {
        const json_t *gap = get(k, "auroc_gap");
        between(to, "| ", put_name, text_of(k, "name"), " | ");
        if (!json_is_object(gap)) {
            fputs("- | groups too small | |\n", to);
            continue;
        }
        put_figure(to, number_of(gap, "value"), number_of(gap, "ci_low"), number_of(gap, "ci_high"),
                   3);
        between(to, " | ", put_text, text_of(gap, "highest"), " | ");
        put_text(to, text_of(gap, "lowest"));
        fputs(" |\n", to);
    }
    putc('\n', to);
}

static void put_subgroups(FILE *to, const json_t *o) {
    const json_t *s = get(o, "subgroups"), *a, *g;
    size_t i, j;
    fputs("## Subgroups\n\n", to);
    if (json_array_size(get(s, "attributes")) == 0)
        fputs("The evaluation has no facts that divide the images into groups.\n\n", to);
    json_array_foreach((json_t *)get(s, "attributes"), i, a) {
        between(to, "### By ", put_text, text_of(a, "name"), "\n\nImages:");
        json_array_foreach((json_t *)get(a, "groups"), j, g) {
            fputs(j ? ", " : " ", to);
            put_text(to, text_of(g, "name"));
            fprintf(to, " %lld", count_of(g, "images"));
        }
        fprintf(to, "; not stated %lld.\n\n", count_of(a, "unknown_images"));
        put_gaps(to, a);
    }
    ask(to, "Which groups of patients are missing from the data?");
    putc('\n', to);
}

/* Which classes have this flag, as a sentence. */
static void put_classes_with(FILE *to, const json_t *o, const char *key, bool undefined,
                             const char *what) {
    const json_t *k;
    size_t i, n = 0;
    json_array_foreach((json_t *)get(o, "classes"), i, k) {
        if (!(undefined ? json_is_null(get(k, key)) : json_is_true(get(k, key))))
            continue;
        fputs(n++ ? ", " : "- ", to);
        put_name(to, text_of(k, "name"));
    }
    if (n)
        fprintf(to, ": %s\n", what);
}

static void put_limitations(FILE *to, const json_t *o) {
    const char *format = text_of(get(o, "provenance"), "label_format");
    const char *overlap = text_of(get(o, "provenance"), "overlap_with_training");
    const json_t *loss = get(get(o, "provenance"), "training_loss");
    fputs("## Limitations\n\n- For research. Not for clinical use.\n- The figures hold for images, "
          "labels and shares of positives like those of the evaluation data.\n",
          to);
    if (chex_label_format_mined(format))
        fputs("- Labels of this format were mined from radiology reports by a program, at least in "
              "part. Some are wrong.\n",
              to);
    if (strcmp(overlap, "none") != 0) {
        between(to, "- Whether the network was trained on evaluated images: ", put_text, overlap,
                ". If it was, the figures say nothing about new images.\n");
    }
    if (json_is_string(loss)) {
        between(to, "- The training loss (", put_text, json_string_value(loss),
                ") shifts the probabilities: use thresholds chosen on validation images, or "
                "recalibrate.\n");
    }
    if (is_optimistic(o))
        fputs("- Thresholds were chosen on the evaluated images; decisions on new images will be "
              "worse.\n",
              to);
    put_classes_with(to, o, "auroc", true, "no AUROC, because a label does not occur.");
    put_classes_with(to, o, "too_few", false, "too few patients for an interval.");
    ask(to, "Which errors are known, and what harm could they do?");
    putc('\n', to);
}

static void put_json_value(FILE *to, const json_t *v) {
    if (json_is_string(v)) {
        put_text(to, json_string_value(v));
        return;
    }
    if (json_is_array(v)) { /* members of an ensemble */
        for (size_t i = 0; i < json_array_size(v); i++)
            between(to, i ? ", " : "", put_text, text_of(json_array_get(v, i), "file"), "");
        return;
    }
    CHEX_AUTO_FREE char *text = json_is_object(v) ? chex_training_options_text(v)
                                : v && !json_is_null(v)
                                    ? json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6))
                                    : NULL;
    put_text(to, text ? text : "-");
}

static void put_provenance(FILE *to, const struct chex_card *card) {
    const char *key;
    json_t *v;
    fputs("## Provenance\n\n| | |\n| --- | --- |\n", to);
    json_object_foreach((json_t *)get(card->figures, "provenance"), key, v) {
        between(to, "| ", put_name, key, " | ");
        put_json_value(to, v);
        fputs(" |\n", to);
    }
    put_row(to, "evaluated by chexnet", text_of(card->figures, "tool_version"));
    put_row(to, "this card by chexnet", CHEXNET_VERSION);
    fputs(
        "\nEvery number above is a value of `auroc.json`; the second row of a table names its key "
        "(under `classes`, subgroups under `subgroups.attributes[].classes`). The digests are "
        "those of `xxh128sum`.\n\n| file | bytes | XXH3-128 |\n| --- | ---: | --- |\n",
        to);
    for (int i = 0; i < CHEX_CARD_FILES; i++)
        if (card->file[i].digest[0])
            fprintf(to, "| `%s` | %zu | `%s` |\n", card->file[i].name, card->file[i].bytes,
                    card->file[i].digest);
}

void chex_card_write(FILE *to, const struct chex_card *card) {
    const json_t *o = card->figures;
    put_front_matter(to, o);
    between(to, "# ", put_text, model_of(o),
            ": findings in chest radiographs\n\n**For research. Not for clinical use.**\n\n");
    put_intended_use(to);
    put_data(to, o);
    fputs("## Figures\n\n", to);
    put_mean(to, o);
    put_ordering(to, o);
    put_decisions(to, o);
    put_calibration(to, o);
    put_subgroups(to, o);
    put_limitations(to, o);
    put_provenance(to, card);
}
