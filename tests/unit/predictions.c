/* SPDX-License-Identifier: Apache-2.0
 *
 * predictions.csv there and back to the bit, and every refusal of its reader.
 */
#include "stats/predictions.h"

#include "base/rng.h"
#include "dir.h"
#include "tap.h"

static struct chex_error err;
static const char *path;

static void test_round_trip(void) {
    enum { N = 500 };
    static const char *const names[] = {"Mass", "A, \"odd\" one", "Hernia"};
    struct chex_predictions *p = NULL, *q = NULL;
    MUST(chex_predictions_create(N, 3, names, &p, &err));
    for (size_t i = 0; i < N; i++) {
        p->image_id[i] = chex_fs_format("%08zu_%03zu.png", i / 3, i % 3);
        p->patient_id[i] = i == 7 ? strdup("O'Neil, \"Pat\"") : chex_fs_format("%zu", i / 3);
        for (size_t c = 0; c < 3; c++) {
            struct chex_rng4 r = chex_rng(1, CHEX_RNG_TEST, i, (uint32_t)c);
            uint32_t bits = r.v[0] & 0xbfffffffu; /* finite: every exponent but the largest */
            float score;
            memcpy(&score, &bits, sizeof score);
            p->score[i * 3 + c] = (double)score;
            p->label[i * 3 + c] = (int8_t)((int)chex_rng_below(r.v[1], 4) - 2);
        }
    }
    OK_CALL(chex_predictions_write(path, p, &err));
    OK_CALL(chex_predictions_read(path, CHEX_SCORE_ANY, &q, &err));
    if (q) {
        bool ids = q->rows == N && q->classes == 3;
        for (size_t i = 0; ids && i < N; i++)
            ids = !strcmp(p->image_id[i], q->image_id[i]) &&
                  !strcmp(p->patient_id[i], q->patient_id[i]);
        for (int c = 0; ids && c < 3; c++)
            ids = !strcmp(q->class_names[c], names[c]);
        OK(ids, "classes, images and patients come back, quotes and commas too");
        OK(!memcmp(p->label, q->label, 3 * N), "labels come back");
        size_t same = 0;
        for (size_t i = 0; i < 3 * N; i++)
            same += (float)p->score[i] == (float)q->score[i];
        OK(same == 3 * N, "fp32 scores, to the bit");
    }
    chex_predictions_destroy(p);
    chex_predictions_destroy(q);
    OK_STATUS(chex_predictions_write("/proc/none/predictions.csv", NULL, &err), CHEX_E_ENV, err,
              "cannot create");
}

static enum chex_status read_text(const char *text, struct chex_predictions **p) {
    *p = NULL;
    BAIL_UNLESS(chex_fs_write(path, text, strlen(text), &err) == CHEX_OK, "%s", err.text);
    return chex_predictions_read(path, CHEX_SCORE_PROBABILITY, p, &err);
}

static void test_forms(void) {
    struct chex_predictions *p;
    OK_CALL(read_text("\xef\xbb\xbfp_B,note,y_A,image_id,p_A,y_B,patient_id\r\n"
                      "0.5,x,1,i1,1e-3,0,p1\r\n\r\n"
                      ".25,,,\"i2\",1,-1,\"p,2\"",
                      &p));
    OK(p && p->rows == 2 && p->classes == 2 && !strcmp(p->class_names[0], "B") &&
           !strcmp(p->class_names[1], "A"),
       "columns go by name, in any order, with other columns between");
    OK(p && p->score[0] == 0.5 && p->score[1] == 0.001 && p->label[0] == 0 && p->label[1] == 1 &&
           p->score[2] == 0.25 && p->label[2] == -1 && p->label[3] == -2,
       "CRLF, a byte order mark, blank lines and no newline at the end; a blank label is masked");
    OK(p && !strcmp(p->image_id[1], "i2") && !strcmp(p->patient_id[1], "p,2"), "quoted fields");
    chex_predictions_destroy(p);
    OK_CALL(read_text("image_id,y_A,p_A\ni,1.0,1\n", &p));
    OK(p && !p->patient_id && p->label[0] == 1, "without patients; labels as data frames write");
    chex_predictions_destroy(p);
    OK_CALL(read_text("image_id;y_A;p_A;age_years;brightness\ni;NA;0,25;NA;0,5\n"
                      "j;nan;1E-1;58,0;\n",
                      &p));
    OK(p && p->score[0] == 0.25 && p->score[1] == 0.1 && p->label[0] == -2 && p->label[1] == -2 &&
           p->facts[0].brightness == 0.5 && p->facts[0].age_years < 0 &&
           p->facts[1].age_years == 58,
       "semicolons with decimal commas, as European spreadsheets write; NA and NaN are not stated");
    chex_predictions_destroy(p);
}

/* Data frames write truth values in several ways, and other tools write logits. */
static void test_foreign(void) {
    static const char logits[] = "image_id,y_A,p_A\ni,True,-2.5\nj,FALSE,40\nk,true,0\nl,false,1\n";
    struct chex_predictions *p = NULL;
    dir_put_text("predictions.csv", logits);
    OK_CALL(chex_predictions_read(path, CHEX_SCORE_ANY, &p, &err));
    OK(p && p->label[0] == 1 && p->label[1] == 0 && p->label[2] == 1 && p->label[3] == 0,
       "true and false are 1 and 0, in any case of letters");
    OK(p && p->score[0] == -2.5 && p->score[1] == 40, "any finite number, if that is asked for");
    chex_predictions_destroy(p);
    static const char bad[] = "image_id,y_A,p_A\ni,1,inf\n";
    p = NULL;
    dir_put_text("predictions.csv", bad);
    OK_STATUS(chex_predictions_read(path, CHEX_SCORE_ANY, &p, &err), CHEX_E_DATA, err, "'inf'");
    OK(!p, "infinity is no score");
}

static void test_refusals(void) {
    static const struct {
        const char *text, *needle;
    } cases[] = {
        {"", "empty"},
        {"patient_id,y_A,p_A\np,1,0.5\n", "line 1: no column image_id"},
        {"image_id,patient_id\ni,p\n", "line 1: no finding"},
        {"image_id,p_A\ni,0.5\n", "line 1: column p_A has no column y_A"},
        {"image_id,y_A,p_A,y_B\ni,1,0.5,1\n", "line 1: column y_B has no column p_B"},
        {"image_id,y_A,p_A,p_A\ni,1,0.5,1\n", "line 1: column p_A appears twice, at 3 and 4"},
        {"image_id,image_id,y_A,p_A\ni,i,1,1\n", "line 1: column image_id appears twice"},
        {"image_id,y_A,p_A\n", "a header and no row"},
        {"image_id,y_A,p_A\ni,1,0.5\nj,1\n", "line 3: 2 columns, the header has 3"},
        {"image_id,y_A,p_A\ni,1,0.5\n\nj,1,0.5,\n", "line 4: 4 columns, the header has 3"},
        {"image_id,y_A,p_A\ni,3,0.5\n",
         "line 2, column y_A: '3', expected 1, 0, -1, -2, NA, true or false"},
        {"image_id,y_A,p_A\ni,yes,0.5\n", "line 2, column y_A: 'yes'"},
        {"image_id,y_B\xFCrde,p_B\xFCrde\ni,1,1\n", "byte 0xFC, as in Windows-1252"},
        {"image_id,y_A,p_A\nR\xF6ntgen,1,1\n", "line 2: image 'R\\xF6ntgen': byte 0xF6"},
        {"image_id,patient_id,y_A,p_A\ni,J\xE4ger,1,1\n", "line 2: patient 'J\\xE4ger': byte 0xE4"},
        {"image_id,study_id,y_A,p_A\ni,\xDC\x31,1,1\n", "line 2: study '\\xDC1': byte 0xDC"},
        {"image_id,source,y_A,p_A\ni,K\xF6ln,1,1\n", "line 2: source 'K\\xF6ln': byte 0xF6"},
        {"image_id,y_A,p_A\ni,1,\"0,5\"\n", "line 2, column p_A: '0,5', expected a number"},
        {"image_id,y_A,p_A\ni,1,nan\n", "line 2, column p_A: 'nan', expected a number"},
        {"image_id,y_A,p_A\ni,1,1e999\n", "line 2, column p_A: '1e999'"},
        {"image_id,y_A,p_A\ni,1,\n", "line 2, column p_A: ''"},
        {"image_id,y_A,p_A\ni,1,0.5\nj,0,1.0000001\n",
         "line 3, column p_A: '1.0000001', expected a "
         "probability from 0 to 1; for other scores"},
        {"image_id,y_A,p_A\ni,1,-2.5\n", "line 2, column p_A: '-2.5'"},
        {"image_id,y_A,p_A\n,1,0.5\n", "line 2: image_id is empty"},
        {"image_id,y_A,p_A\ni,1,0.5\nj,1,0.5\ni,0,0.1\n", "line 4: image i is already on line 2"},
        {"image_id,y_A,p_A\n\"i,1,0.5\n", "line 2, column 1: a quote opens here"},
        {"image_id,y_A,p_A\n\"i\"x,1,0.5\n", "line 2, column 1: text after a closing quote"},
    };
    struct chex_predictions *p;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OK_STATUS(read_text(cases[i].text, &p), CHEX_E_DATA, err, cases[i].needle);
        if (p || !strstr(err.text, path))
            OK(false, "case %zu: nothing handed out, and the file is named", i);
    }
    static const char zero[] = "image_id,y_A,p_A\0\ni,1,0.5\n";
    dir_put("predictions.csv", zero, sizeof zero - 1);
    OK_STATUS(chex_predictions_read(path, CHEX_SCORE_ANY, &p, &err), CHEX_E_DATA, err,
              "a NUL byte");
    OK_STATUS(chex_predictions_read("/nowhere/p.csv", CHEX_SCORE_ANY, &p, &err), CHEX_E_DATA, err,
              "cannot open");
}

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static bool same_facts(const struct chex_row_facts *a, const struct chex_row_facts *b) {
    return same_text(a->study_id, b->study_id) && same_text(a->source, b->source) &&
           a->view == b->view && a->age_years == b->age_years && a->sex == b->sex &&
           a->width_px == b->width_px && a->height_px == b->height_px &&
           ((float)a->brightness == (float)b->brightness ||
            (isnan(a->brightness) && isnan(b->brightness)));
}

/* A fact of each kind is known in some rows and unknown in others. */
static void test_facts(void) {
    enum { N = 60 };
    static const char *const names[] = {"Mass"};
    static const char sexes[] = {'M', 'F', 0};
    struct chex_predictions *p = NULL, *q = NULL;
    MUST(chex_predictions_create(N, 1, names, &p, &err));
    MUST(chex_predictions_add_facts(p, &err));
    for (size_t i = 0; i < N; i++) {
        struct chex_row_facts *f = &p->facts[i];
        p->image_id[i] = chex_fs_format("%zu.png", i);
        p->patient_id[i] = chex_fs_format("%zu", i / 3);
        f->study_id = i % 4 ? chex_fs_format("=s,%zu", i / 2) : NULL;
        f->view = (enum chex_view)(i % 4);
        f->age_years = (int)i - 1;
        f->sex = sexes[i % 3];
        f->width_px = i % 5 ? 65535 - (int)i : 0;
        f->brightness = i % 7 ? (double)(float)((double)i / 61) : NAN;
    }
    OK_CALL(chex_predictions_write(path, p, &err));
    OK_CALL(chex_predictions_read(path, CHEX_SCORE_ANY, &q, &err));
    bool same = q && q->facts;
    for (size_t i = 0; same && i < N; i++)
        same = same_facts(&p->facts[i], &q->facts[i]);
    OK(same, "facts come back, known and unknown");
    char *text = NULL;
    size_t size;
    MUST(chex_fs_read(path, 1 << 20, &text, &size, &err));
    text[strcspn(text, "\n")] = '\0';
    OK(!strcmp(text, "image_id,patient_id,y_Mass,p_Mass,study_id,view,age_years,sex,width_px,"
                     "brightness"),
       "facts that no row has are left out: %s", text);
    free(text);
    chex_predictions_destroy(p);
    chex_predictions_destroy(q);
}

static void test_foreign_facts(void) {
    struct chex_predictions *p;
    OK_CALL(read_text("image_id,y_A,p_A,sex,age_years,view\n"
                      "i,1,1,Female,45.0,pa\nj,1,1,x,4.5,Frontal\nk,1,1,,,\n",
                      &p));
    OK(p && p->facts && p->facts[0].sex == 'F' && p->facts[0].age_years == 45 &&
           p->facts[0].view == CHEX_VIEW_PA,
       "facts as data frames write them");
    OK(p && p->facts && p->facts[1].sex == 0 && p->facts[1].age_years == -1 &&
           p->facts[1].view == CHEX_VIEW_UNKNOWN && p->facts[2].sex == 0,
       "cells that cannot be read count as unknown");
    chex_predictions_destroy(p);
    OK_STATUS(read_text("image_id,sex,y_A,p_A,sex\ni,M,1,1,F\n", &p), CHEX_E_DATA, err,
              "line 1: column sex appears twice, at 2 and 5");
}

int main(void) {
    dir_make();
    path = dir_put_text("predictions.csv", "");
    test_round_trip();
    test_forms();
    test_foreign();
    test_refusals();
    test_facts();
    test_foreign_facts();
    dir_remove();
    return tap_done();
}
