/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the page of contact_sheet.h. Texts of files are escaped. A cell's colour repeats its
 * number; a decision is also written as a word.
 */
#include "report/contact_sheet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "base/textfile.h"

enum { THUMB_LIMIT_BYTES = 1 << 20, TEXT_BYTES = 1024 };

/* contact_sheet.css. libcore/CMakeLists.txt compiles it in. */
extern const unsigned char chex_contact_sheet_css[];
extern const unsigned long chex_contact_sheet_css_bytes;

struct page {
    const struct chex_predict_config *c;
    FILE *to;
    int classes;
    size_t shown;
};

/* A text of a file, in printable form and escaped. */
static void put_text(FILE *to, const char *text) {
    char printable[TEXT_BYTES];
    chex_put_xml(to, chex_text_printable(text, printable, sizeof printable));
}

static void put_head(const struct page *p, const struct chex_predict_result *r) {
    FILE *to = p->to;
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<title>Predictions</title>\n<style>\n",
          to);
    fwrite(chex_contact_sheet_css, 1, chex_contact_sheet_css_bytes, to);
    fputs("</style>\n</head>\n<body>\n<main>\n<h1>Predictions</h1>\n", to);
    fprintf(to, "<p>%zu image%s predicted, %zu file%s not usable. ", r->images,
            chex_text_s(r->images), r->rejected, chex_text_s(r->rejected));
    if (p->shown < p->c->list->count)
        fprintf(to, "This page shows the first %zu; predictions.csv has all. ", p->shown);
    fputs("Numbers are probabilities in percent", to);
    fputs(p->c->deployment ? "; <b style=\"display:inline\">yes</b> is a decision at the "
                             "threshold that was fixed on validation images.</p>\n"
                           : ". The file of parameters has no thresholds, so there are no "
                             "decisions.</p>\n",
          to);
    fputs("<p class=\"mut\">For research, not for clinical use.</p>\n"
          "<div class=\"wide\" role=\"region\" aria-label=\"Predictions\" tabindex=\"0\">\n"
          "<table>\n<thead><tr><th scope=\"col\">Image and flags</th>",
          to);
    for (int k = 0; k < p->classes; k++) {
        chex_put_name_between(to, "<th scope=\"col\" class=\"k\"><span>", p->c->class_names[k],
                              "</span></th>");
    }
    fputs("</tr></thead>\n<tbody>\n", to);
}

/* The thumbnail as a data URI. A missing one is no fault: a killed run may have lost it. */
static void put_thumb(const struct page *p, size_t index) {
    CHEX_AUTO_FREE char *path =
        chex_fs_format("%s/" CHEX_PARTIAL_NAME "/thumbs/%zu.png", p->c->out, index);
    struct chex_error ignored = {0};
    CHEX_AUTO_FREE char *data = NULL;
    size_t bytes = 0;
    if (path && chex_fs_read(path, THUMB_LIMIT_BYTES, &data, &bytes, &ignored) == CHEX_OK) {
        fputs("<img loading=\"lazy\" alt=\"\" src=\"data:image/png;base64,", p->to);
        chex_put_base64(p->to, (const unsigned char *)data, bytes);
        fputs("\">", p->to);
    }
}

/* Cell `k`; "" past the end. */
static const char *cell_at(char **cells, int count, int k) { return k < count ? cells[k] : ""; }

static void put_classes(const struct page *p, char *text) {
    enum { MOST = 512 };
    char *cells[MOST];
    int count = 0;
    for (char *at = text; at && *at == ',' && count < MOST; count++) {
        *at++ = '\0';
        cells[count] = at;
        at = strchr(at, ',');
    }
    for (int k = 0; k < p->classes; k++) {
        const double percent = 100 * atof(cell_at(cells, count, k));
        const char *decision = p->c->deployment ? cell_at(cells, count, p->classes + k) : "";
        fprintf(p->to, "<td class=\"p\" style=\"--p:%.0f\">%.1f%s</td>", percent, percent,
                *decision == '1' ? "<b>yes</b>" : "");
    }
}

static void put_flags(const struct page *p, const char *flags) {
    fputs("<small>", p->to);
    for (; *flags; flags++)
        if (*flags == ';')
            fputs("<br>", p->to);
        else
            putc(*flags == '_' ? ' ' : *flags, p->to);
    fputs("</small>", p->to);
}

static void put_row(const struct page *p, size_t index, struct chex_predict_line *line) {
    fputs("<tr><th scope=\"row\">", p->to);
    if (line->predicted)
        put_thumb(p, index);
    put_text(p->to, p->c->list->images[index].id);
    if (line->predicted)
        put_flags(p, line->flags);
    fputs("</th>", p->to);
    if (line->predicted) {
        put_classes(p, line->cells);
    } else {
        fprintf(p->to, "<td class=\"r\" colspan=\"%d\">not usable: ", p->classes);
        put_text(p->to, chex_predict_line_unquote(line->reason));
        fputs("</td>", p->to);
    }
    fputs("</tr>\n", p->to);
}

static enum chex_status put_rows(const struct page *p, struct chex_partial_reader *reader,
                                 struct chex_error *err) {
    for (size_t i = 0; i < p->shown; i++) {
        struct chex_predict_line line;
        char *text = NULL;
        CHEX_TRY(chex_partial_read(reader, i, &text, err));
        if (text && chex_predict_line_split(text, &line))
            put_row(p, i, &line);
    }
    return CHEX_OK;
}

enum chex_status chex_contact_sheet_write(const struct chex_predict_config *config,
                                          struct chex_partial_reader *reader,
                                          const struct chex_predict_result *result,
                                          const char *folder, struct chex_error *err) {
    struct chex_textfile t;
    CHEX_TRY(chex_textfile_open_in(folder, "contact-sheet.html", &t, err));
    const struct page p = {.c = config,
                           .to = t.f,
                           .classes = config->engine->config.net->classes,
                           .shown = config->thumbs < config->list->count ? config->thumbs
                                                                         : config->list->count};
    put_head(&p, result);
    enum chex_status st = put_rows(&p, reader, err);
    fputs("</tbody>\n</table>\n</div>\n</main>\n</body>\n</html>\n", p.to);
    return chex_textfile_close(&t, st, err);
}
