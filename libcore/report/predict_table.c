/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the tables of predict_images.h from the lines of the unfinished results. The lines are
 * read one by one, so memory holds the place of each line only. Two passes: the first finds out
 * which optional columns exist.
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "base/textfile.h"
#include "infer/predict_images.h"
#include "report/contact_sheet.h"
#include "stats/predictions.h"

struct table {
    const struct chex_predict_config *c;
    struct chex_predict_result *result;
    struct chex_partial_index index;
    struct chex_partial_reader *reader;
    bool has_study, has_series;
    FILE *predictions, *rejected;
};

static void count_flags(struct chex_predict_result *r, const char *flags) {
    for (const char *at = flags; *at;) {
        const size_t n = strcspn(at, ";");
        for (int i = 0; i < CHEX_FLAG_COUNT; i++)
            r->flags[i] += strlen(chex_image_flag_names[i]) == n &&
                           memcmp(at, chex_image_flag_names[i], n) == 0;
        at += n + (at[n] == ';');
    }
}

/* First pass. */
static void count_line(struct table *t, const struct chex_predict_line *line) {
    struct chex_predict_result *r = t->result;
    if (line->predicted) {
        r->images++;
        t->has_study = t->has_study || line->study[0];
        t->has_series = t->has_series || line->series[0];
        count_flags(r, line->flags);
    } else if (r->rejected++ == 0) {
        snprintf(r->first_bad, sizeof r->first_bad, "%s", chex_predict_line_unquote(line->reason));
    }
}

/* Second pass. */
static void write_line(struct table *t, const struct chex_predict_line *line) {
    if (!line->predicted) {
        fprintf(t->rejected, "%s,%s\n", line->id, line->reason);
        return;
    }
    fputs(line->id, t->predictions);
    if (t->has_study)
        fprintf(t->predictions, ",%s", line->study);
    if (t->has_series)
        fprintf(t->predictions, ",%s", line->series);
    fprintf(t->predictions, "%s,%s\n", line->cells, line->flags);
}

static enum chex_status
each_line(struct table *t, void (*use)(struct table *t, const struct chex_predict_line *line),
          struct chex_error *err) {
    for (size_t i = 0; i < t->index.count; i++) {
        struct chex_predict_line line;
        char *text = NULL;
        CHEX_TRY(chex_partial_read(t->reader, i, &text, err));
        if (!text || !chex_predict_line_split(text, &line))
            return chex_error_set(err, CHEX_E_FAIL,
                                  "%s/" CHEX_PARTIAL_NAME
                                  ": no result of image %s: run the command again",
                                  t->c->out, t->c->list->images[i].id);
        use(t, &line);
    }
    return CHEX_OK;
}

static void write_headers(const struct table *t) {
    const struct chex_deployment *d = t->c->deployment;
    char *const *names = t->c->class_names;
    const int classes = t->c->engine->config.net->classes;
    fprintf(t->predictions, "image_id%s%s", t->has_study ? ",study_id" : "",
            t->has_series ? ",series_id" : "");
    chex_predictions_put_columns(t->predictions, "p_", names, classes);
    if (d)
        chex_predictions_put_columns(t->predictions, "d_", names, classes);
    if (chex_deployment_recalibrates(d))
        chex_predictions_put_columns(t->predictions, "c_", names, classes);
    if (t->c->ensemble->count > 1)
        chex_predictions_put_columns(t->predictions, "s_", names, classes);
    fprintf(t->predictions, "%s,flags\n", d && d->features ? ",distance" : "");
    fputs("image_id,reason\n", t->rejected);
}

static enum chex_status check_counts(const struct table *t, struct chex_error *err) {
    const struct chex_predict_result *r = t->result;
    if (r->rejected > t->c->max_bad)
        return chex_error_set(err, CHEX_E_DATA,
                              "%zu images cannot be used (--max-bad is %zu), such as %s",
                              r->rejected, t->c->max_bad, r->first_bad);
    if (!r->images)
        return chex_error_set(err, CHEX_E_DATA, "none of %zu file%s can be used: %s", r->rejected,
                              chex_text_s(r->rejected), r->first_bad);
    return CHEX_OK;
}

static enum chex_status write_files(struct table *t, const char *folder, struct chex_error *err) {
    struct chex_textfile p = {0}, r = {0};
    enum chex_status st = chex_textfile_open_in(folder, "predictions.csv", &p, err);
    if (st == CHEX_OK)
        st = chex_textfile_open_in(folder, "rejected.csv", &r, err);
    if (st == CHEX_OK) {
        t->predictions = p.f;
        t->rejected = r.f;
        write_headers(t);
        st = each_line(t, write_line, err);
    }
    st = chex_textfile_close(&p, st, err);
    return chex_textfile_close(&r, st, err);
}

enum chex_status chex_predict_write(const struct chex_predict_config *c, const char *folder,
                                    struct chex_predict_result *result, struct chex_error *err) {
    struct table t = {.c = c, .result = result};
    enum chex_status st = chex_partial_scan(c->out, c->list->count, &t.index, err);
    if (st == CHEX_OK)
        st = chex_partial_open(c->out, &t.index, &t.reader, err);
    if (st == CHEX_OK)
        st = each_line(&t, count_line, err);
    if (st == CHEX_OK)
        st = check_counts(&t, err);
    if (st == CHEX_OK)
        st = write_files(&t, folder, err);
    if (st == CHEX_OK && c->thumbs)
        st = chex_contact_sheet_write(c, t.reader, result, folder, err);
    chex_partial_reader_close(t.reader);
    chex_partial_index_release(&t.index);
    return st;
}
