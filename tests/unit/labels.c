/* SPDX-License-Identifier: Apache-2.0 */
#include "label/labels.h"

#include "dir.h"
#include "label/classes.h"
#include "tap.h"

static struct chex_error err;
static const char *path;

#define HEAD                                                                                       \
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"  \
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
#define ROW(image, findings, patient, age, sex, view)                                              \
    image "," findings ",0," patient "," age "," sex "," view ",2682,2749,0.143,0.143"
#define GOOD ROW("00000001_000.png", "Mass|Nodule", "1", "58", "M", "PA")

/* The status of loading a file of this text; the table, where it loads, is *t. */
static enum chex_status load(const char *text, const char *format, struct chex_label_table **t) {
    path = dir_put_text("labels.txt", text);
    *t = NULL;
    return chex_labels_load(path, format, NULL, t, &err);
}

static void refuses(const char *text, const char *format, const char *needle) {
    struct chex_label_table *t;
    OK_STATUS(load(text, format, &t), CHEX_E_DATA, err, needle);
    OK(strstr(err.text, path) && !t, "and names the file");
}

static struct chex_label_table *loads(const char *text, const char *what) {
    struct chex_label_table *t;
    enum chex_status st = load(text, "auto", &t);
    OK(st == CHEX_OK, "%s %s", what, err.text);
    BAIL_UNLESS(t, "nothing to look at");
    return t;
}

static int positives(const struct chex_label_row *row) {
    int n = 0;
    for (int c = 0; c < CHEX_CLASS_COUNT; c++)
        n += row->labels[c] == 1;
    return n;
}

static void check_classes(void) {
    bool all = true;
    for (int c = 0; c < CHEX_CLASS_COUNT; c++)
        all = all && chex_class_find(chex_class_names[c]) == c;
    OK(all && !chex_class_names[CHEX_CLASS_COUNT], "every class finds itself");
    OK(chex_class_find("pleural thickening") == 12, "blanks and case do not count");
    OK(chex_class_find("Pleural Effusion") == 2 && chex_class_find("infiltrates") == 3, "aliases");
    OK(chex_class_find("No Finding") < 0 && chex_class_find("") < 0 && chex_class_find("_") < 0 &&
           chex_class_find("Enlarged Cardiomediastinum") < 0 && chex_class_find("Mas") < 0,
       "what is no class is none");
    char endless[300];
    memset(endless, 'e', sizeof endless);
    endless[299] = '\0';
    OK(chex_class_find(endless) < 0 && chex_class_nearest(endless) < 0, "nor is a long word");
    OK(chex_class_nearest("Cardiomegally") == 1 && chex_class_nearest("Pnuemothorax") == 7 &&
           chex_class_nearest("Fracture") < 0,
       "the nearest name is found where one is near");
    char name[CHEX_CLASS_NAME_BYTES];
    OK(chex_class_canonical("Pleural Effusion", name) && !strcmp(name, "Effusion"), "%s", name);
    OK(chex_class_canonical("No finding", name) && !strcmp(name, "No_Finding"), "%s", name);
    OK(chex_class_canonical("Nodule/Mass", name) && !strcmp(name, "Nodule_Mass"), "%s", name);
    OK(!chex_class_canonical("", name) && !chex_class_canonical("a,b", name) && !name[0] &&
           !chex_class_canonical(endless, name) && !chex_class_canonical(" a", name),
       "what cannot be a class name");
}

static void check_nih(void) {
    struct chex_label_table *t = loads(
        HEAD "\n" GOOD "\n" ROW("00000001_001.png", "No Finding", "1", "414", "F", "AP") "\n" ROW(
            "x_2.png", "pleural thickening|Hernia", "P7", "013M", "", "") "\n",
        "the 9 names over 11 fields");
    const struct chex_label_row *r = t->rows;
    OK(t->count == 3 && t->class_count == 14 && !strcmp(t->format, "nih"), "3 rows, nih");
    OK(strstr(t->detected, "9 names over rows of 11"), "detected: %s", t->detected);
    OK(!strcmp(r[0].image_id, "00000001_000.png") && !strcmp(r[0].patient_id, "00000001"),
       "ids, the patient's padded");
    OK(positives(&r[0]) == 2 && r[0].labels[4] == 1 && r[0].labels[5] == 1, "Mass and Nodule");
    OK(r[0].age_years == 58 && r[0].sex == 'M' && r[0].view == CHEX_VIEW_PA && r[0].line == 2,
       "age, sex, view, line");
    OK(positives(&r[1]) == 0 && r[1].age_years == 414 && r[1].view == CHEX_VIEW_AP,
       "No Finding, and an age as stated");
    OK(positives(&r[2]) == 2 && r[2].age_years == 1 && r[2].sex == 0 &&
           r[2].view == CHEX_VIEW_UNKNOWN && !strcmp(r[2].patient_id, "P7"),
       "months, and what is not stated");
    chex_labels_free(t);

    t = loads("\xEF\xBB\xBF" HEAD ",\r\n" ROW("a_0.png", "Mass", "1", "058Y", "M", "PA") ",\r\n",
              "the first edition: BOM, CRLF, a final comma, 058Y");
    OK(t->rows[0].age_years == 58, "58 years");
    chex_labels_free(t);
    t = loads("Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Sex,"
              "View Position,OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]\n" GOOD,
              "the 2020 edition");
    OK(t->rows[0].sex == 'M', "Patient Sex is read");
    chex_labels_free(t);
    t = loads("Patient ID,\"OriginalImage[Width,Height]\",Finding Labels,Image Index\n"
              "12345678,100,200,Edema,q.png\n",
              "quoted names and another order");
    OK(!strcmp(t->rows[0].image_id, "q.png") && t->rows[0].labels[9] == 1 &&
           !strcmp(t->rows[0].patient_id, "12345678") && t->rows[0].age_years == CHEX_AGE_UNKNOWN,
       "columns are found by name");
    chex_labels_free(t);
}

static void check_nih_refuses(void) {
    refuses("", "auto", "empty file");
    refuses("\n \n", "nih", "empty file");
    refuses(HEAD "\n", "auto", "no rows");
    refuses(HEAD "\n" GOOD "\n" ROW("b_0.png", "Mas", "1", "58", "M", "PA"), "auto",
            "line 3, column 2 (Finding Labels): 'Mas', expected 'No Finding' or known findings "
            "with '|' between (perhaps Mass)");
    refuses(HEAD "\n" ROW("b_0.png", "Mass|Fracture", "1", "58", "M", "PA"), "auto",
            "'Fracture', expected 'No Finding' or some of these with '|' between: Atelectasis, "
            "Cardiomegaly");
    refuses(HEAD "\n" ROW("b_0.png", "", "1", "58", "M", "PA"), "auto", "line 2, column 2");
    refuses(HEAD "\n" ROW("b_0.png", "Mass|", "1", "58", "M", "PA"), "auto", "line 2, column 2");
    refuses(HEAD "\n" ROW("b_0.png", "Mass|No Finding", "1", "58", "M", "PA"), "auto", "not both");
    refuses(HEAD "\n" ROW("b_0.png", "Mass", "1", "old", "M", "PA"), "auto",
            "line 2, column 5 (Patient Age): 'old', expected up to 3 digits");
    refuses(HEAD "\n" ROW("b_0.png", "Mass", "1", "1234", "M", "PA"), "auto", "(Patient Age)");
    refuses(HEAD "\n" ROW("b_0.png", "Mass", "1", "58YY", "M", "PA"), "auto", "(Patient Age)");
    refuses(HEAD "\n" ROW("b_0.png", "Mass", "1", "-5", "M", "PA"), "auto", "(Patient Age)");
    refuses(HEAD "\n" ROW("b_0.png", "Mass", "1", "58", "X", "PA"), "auto",
            "line 2, column 6 (Patient Gender): 'X', expected M or F");
    refuses(HEAD "\n" ROW("b_0.png", "Mass", "1", "58", "M", "PB"), "auto",
            "line 2, column 7 (View Position): 'PB', expected PA, AP or LL");
    refuses(HEAD "\n" ROW("b_0.png", "Mass", "", "58", "M", "PA"), "auto", "a patient id");
    refuses(HEAD "\n" ROW("", "Mass", "1", "58", "M", "PA"), "auto", "a file name of 1 to 255");
    refuses(HEAD "\n" ROW("b\t.png", "Mass", "1", "58", "M", "PA"), "auto", "control characters");
    refuses(HEAD "\n" GOOD "\nb_0.png,Mass,0,1\n", "auto", "line 3: 4 columns, expected 11");
    refuses(HEAD "\n" GOOD ",,\n", "auto", "line 2: 13 columns");
    refuses(HEAD "\n" GOOD "\n" ROW("b_0.png", "Mass", "1", "58", "M", "PA") "\n" GOOD "\n", "auto",
            "line 4, column 1: image '00000001_000.png' is on line 2 already");
    refuses("Image Index,Finding Labels,Age\na,Mass,1\n", "auto", "no column 'Patient ID'");
    refuses("a,b\n1,2\n", "nih", "no column 'Image Index'");
    refuses("a,b\n1,2\n", "auto",
            "line 1: 'a,b' is not the first line of a known label format, expected one of: nih "
            "(columns 'Image Index', 'Finding Labels', 'Patient ID'); list (");
    refuses(
        "Image Index,Finding Labels,Path,Frontal/Lateral\n", "auto",
        "line 1: this may be format nih (columns 'Image Index', 'Finding Labels', 'Patient ID') "
        "or chexpert ('Path' and its findings), expected one of them: say which by --format");
    refuses(HEAD "\n\"a,Mass\n", "auto", "line 2, column 1: a quote opens here");
    const char *chexpert = "Path,Sex,Age,Frontal/Lateral,AP/PA,No Finding,Cardiomegaly\n"
                           "CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg,"
                           "Female,68,Frontal,AP,1.0,\n";
    refuses(chexpert, "nih",
            "line 1: this is a label file of format chexpert (a header with 'Path' and "
            "'Frontal/Lateral'), expected nih (columns");
}

#define FLAGS "0 1 0 0 0 0 0 0 0 0 0 0 0 1"
static void check_lists(void) {
    struct chex_label_table *t =
        loads("00001511_000.png " FLAGS "\nimages_006/00011558_003.png\t0 0 0 0 0 0 0 0 0 0 0 0 0 "
              "0\r\n\n  lonely.png " FLAGS " ",
              "a list");
    const struct chex_label_row *r = t->rows;
    OK(t->count == 3 && !strcmp(t->format, "list"), "3 rows: %s", t->detected);
    OK(positives(&r[0]) == 2 && r[0].labels[1] == 1 && r[0].labels[13] == 1, "its flags");
    OK(!strcmp(r[0].patient_id, "00001511") && r[0].view == CHEX_VIEW_UNKNOWN && !r[0].sex &&
           r[0].age_years == CHEX_AGE_UNKNOWN,
       "the patient is in the name; the rest is unknown");
    OK(!strcmp(r[1].image_id, "00011558_003.png") &&
           !strcmp(r[1].path, "images_006/00011558_003.png") && r[1].line == 2,
       "a folder before the name");
    OK(!strcmp(r[2].patient_id, "lonely") && r[2].line == 4, "a name without '_'");
    chex_labels_free(t);
    refuses("a_0.png 0 1\n", "auto", "line 1: 3 columns, expected 15: a file name and 14 flags");
    refuses("a_0.png " FLAGS "\nb_0.png " FLAGS " 1\n", "auto", "line 2: 16 columns");
    refuses("a_0.png " FLAGS "\nb_0.png 0 0 2 0 0 0 0 0 0 0 0 0 0 0\n", "auto",
            "line 2, column 4 (Effusion): '2', expected 0 or 1");
    refuses("a_0.png -1 0 0 0 0 0 0 0 0 0 0 0 0 0\n", "auto", "column 2 (Atelectasis): '-1'");
    refuses("a_0.png " FLAGS "\na_0.png " FLAGS "\n", "auto", "is on line 1 already");
    refuses(HEAD "\n" GOOD "\n", "list", "line 1: ");
}

static void check_names(void) {
    struct chex_label_table *t = NULL;
    const char *text = "a_0.png\n\nimages_001/b_1.png\r\nc_2.png " FLAGS "\n";
    OK_CALL(chex_labels_load_names(dir_put_text("labels.txt", text), &t, &err));
    OK(t && t->count == 3 && t->class_count == 0 && !strcmp(t->rows[1].patient_id, "b") &&
           t->rows[2].line == 4,
       "names, folders and flags");
    struct chex_label_map rows = {0};
    OK_CALL(chex_labels_index(t, &rows, &err));
    OK(chex_label_map_find(&rows, "b_1.png") == 1 &&
           chex_label_map_find(&rows, "images_001/b_1.png") == SIZE_MAX,
       "rows are found by image id");
    chex_label_map_release(&rows);
    chex_labels_free(t);
    t = NULL;
    text = "a_0.png\nb_0.png and more\n";
    path = dir_put_text("labels.txt", text);
    OK_STATUS(chex_labels_load_names(path, &t, &err), CHEX_E_DATA, err,
              "line 2, column 1: 'b_0.png and more', expected one file name a line");
    OK_STATUS(chex_labels_load_names("/nonexistent", &t, &err), CHEX_E_DATA, err, "/nonexistent");
    OK(!t, "no table then");
}

static void check_views_and_uncertain(void) {
    unsigned mask = 0;
    OK_CALL(chex_labels_parse_views("pa,AP", &mask, &err));
    OK(mask == (1u << CHEX_VIEW_PA | 1u << CHEX_VIEW_AP), "PA and AP");
    OK_STATUS(chex_labels_parse_views("PA,", &mask, &err), CHEX_E_USAGE, err, "expected some of");
    OK_STATUS(chex_labels_parse_views("side", &mask, &err), CHEX_E_USAGE, err, "'side'");
    struct chex_label_table *t =
        loads(HEAD "\n" GOOD "\n" ROW("b_0.png", "Mass", "1", "58", "M",
                                      "AP") "\n" ROW("c_0.png", "Edema", "1", "58", "M", "PA") "\n",
              "three rows");
    OK(chex_labels_keep_views(t, 1u << CHEX_VIEW_PA) == 1 && t->count == 2 &&
           t->rows[1].labels[9] == 1 && !strcmp(t->rows[1].image_id, "c_0.png"),
       "AP is dropped, labels stay with their rows");
    OK(t->file_count == 3 && !strcmp(t->rows[2].image_id, "b_0.png"), "and comes after them");
    static const int8_t want[] = {-1, -2, 0, 1};
    bool all = true;
    for (int p = CHEX_UNCERTAIN_KEEP; p <= CHEX_UNCERTAIN_ONES; p++) {
        t->rows[0].labels[0] = t->rows[1].labels[13] = CHEX_LABEL_UNCERTAIN;
        all = all && chex_labels_apply_uncertain(t, (enum chex_uncertain)p) == 2 &&
              t->rows[0].labels[0] == want[p] && t->rows[1].labels[13] == want[p] &&
              t->rows[0].labels[4] == 1;
    }
    OK(all && !chex_uncertain_names[CHEX_UNCERTAIN_ONES + 1], "keep, ignore, zeros, ones");
    t->rows[0].labels[2] = t->rows[1].labels[5] = CHEX_LABEL_NOT_STATED;
    t->rows[0].labels[3] = CHEX_LABEL_UNCERTAIN;
    OK(chex_labels_apply_not_stated(t, CHEX_NOT_STATED_KEEP) == 2 &&
           t->rows[0].labels[2] == CHEX_LABEL_NOT_STATED &&
           chex_labels_apply_not_stated(t, CHEX_NOT_STATED_ZEROS) == 2 &&
           t->rows[0].labels[2] == 0 && t->rows[1].labels[5] == 0 &&
           t->rows[0].labels[3] == CHEX_LABEL_UNCERTAIN,
       "what is not stated: keep, zeros");
    chex_labels_free(t);
}

static void check_sample(void) {
    struct chex_label_table *t = NULL;
    OK_CALL(chex_labels_load(SOURCE_DIR "/datasets/nih-sample/Data_Entry_2017.csv", NULL, NULL, &t,
                             &err));
    BAIL_UNLESS(t, "no sample");
    size_t pa = 0, files = 0;
    for (size_t i = 0; i < t->count; i++) {
        char *file = chex_fs_join(SOURCE_DIR "/datasets/nih-sample/images", t->rows[i].image_id);
        files += chex_fs_exists(file);
        pa += t->rows[i].view == CHEX_VIEW_PA;
        free(file);
    }
    OK(t->count == 1000 && files == 1000 && pa == 637, "the bundled sample: %zu rows, %zu files",
       t->count, files);
    chex_labels_free(t);
}

int main(void) {
    struct chex_label_table *t;
    dir_make();
    check_classes();
    check_nih();
    check_nih_refuses();
    check_lists();
    check_names();
    check_views_and_uncertain();
    check_sample();
    OK_STATUS(load(HEAD "\n" GOOD, "dicom", &t), CHEX_E_USAGE, err,
              "--format 'dicom': expected one of auto, nih, "); /* 0110 has the whole list */
    OK_STATUS(chex_labels_load("/nonexistent.csv", NULL, NULL, &t, &err), CHEX_E_DATA, err,
              "cannot open /nonexistent.csv");
    const char *const *names = chex_label_format_names;
    OK(!strcmp(names[0], "auto") && !strcmp(names[1], "nih") && !strcmp(names[2], "list"),
       "names of the formats");
    OK(chex_label_format_mined("padchest") && !chex_label_format_mined("vindr") &&
           !chex_label_format_mined("auto"),
       "a format says whether a program mined its labels");
    chex_labels_free(NULL);
    dir_remove();
    return tap_done();
}
