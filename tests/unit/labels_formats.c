/* SPDX-License-Identifier: Apache-2.0
 *
 * The label formats besides nih and list.
 */
#include "dir.h"
#include "label/classes.h"
#include "label/labels.h"
#include "tap.h"

static struct chex_error err;

static void refuses_as(const char *text, const char *format, const char *columns,
                       enum chex_status status, const char *needle) {
    struct chex_label_table *t = NULL;
    const char *path = dir_put_text("mimic-cxr-2.0.0-chexpert.csv", text);
    OK_STATUS(chex_labels_load(path, format, columns, &t, &err), status, err, needle);
    OK(!t, "and there is no table");
}

static void refuses(const char *text, const char *needle) {
    refuses_as(text, "auto", NULL, CHEX_E_DATA, needle);
}

static struct chex_label_table *loads(const char *text, const char *format, const char *columns) {
    struct chex_label_table *t = NULL;
    const char *path = dir_put_text("mimic-cxr-2.0.0-chexpert.csv", text);
    OK_CALL(chex_labels_load(path, format, columns, &t, &err));
    BAIL_UNLESS(t, "nothing to look at");
    printf("# detected: %s\n", t->detected);
    return t;
}

static int label(const struct chex_label_table *t, size_t row, const char *class) {
    for (size_t c = 0; c < t->class_count; c++)
        if (!strcmp(t->classes[c], class))
            return t->rows[row].labels[c];
    return 99;
}

static bool says(const struct chex_label_table *t, const char *format, const char *needle) {
    return !strcmp(t->format, format) && strstr(t->detected, needle);
}

#define FINDINGS                                                                                   \
    "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,"           \
    "Consolidation,Pneumonia,Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,"    \
    "Support Devices"
#define CHEXPERT "Path,Sex,Age,Frontal/Lateral,AP/PA," FINDINGS "\n"
#define VIEW_PATH "CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg"

static void check_chexpert(void) {
    struct chex_label_table *t = loads(
        CHEXPERT VIEW_PATH
        ",Female,68,Frontal,AP,1.0,,,,,,,,,0.0,,,,1.0\n"
        "CheXpert-v1.0-small/train/patient00002/study2/view1_frontal.jpg,Male,87.0,Frontal,PA,,,"
        "-1.0,1.0,,-1.0,-1.0,,-1.0,,-1.0,,1.0,\n"
        "x/valid/patient64541/study1/view2_lateral.jpg,Unknown,,Lateral,LL,"
        "0,0,1,0,0,0,0,0,0,0,1,0,0,0\n"
        "patient3/study1/view1.jpg,Male,5,Frontal,,0,0,1,0,0,0,0,0,0,0,0,0,0,0\n",
        "auto", NULL);
    const struct chex_label_row *r = t->rows;
    OK(says(t, "chexpert", "'Path' and 'Frontal/Lateral'") && t->count == 4 && t->class_count == 14,
       "4 rows, 14 classes");
    OK(!strcmp(t->classes[0], "Atelectasis") && !strcmp(t->classes[2], "Effusion") &&
           !strcmp(t->classes[7], "No_Finding") &&
           !strcmp(t->classes[8], "Enlarged_Cardiomediastinum") &&
           !strcmp(t->classes[13], "Support_Devices"),
       "ours first and in our order, then the others");
    OK(label(t, 0, "No_Finding") == 1 && label(t, 0, "Pneumothorax") == 0 &&
           label(t, 0, "Effusion") == CHEX_LABEL_NOT_STATED && label(t, 0, "Support_Devices") == 1,
       "1, 0 and blanks");
    OK(label(t, 1, "Effusion") == CHEX_LABEL_UNCERTAIN && label(t, 1, "Lung_Opacity") == 1 &&
           label(t, 1, "Fracture") == 1 && label(t, 1, "Mass") == 99,
       "-1 is uncertain");
    OK(!strcmp(r[0].image_id, "patient00001_study1_view1_frontal.jpg") &&
           !strcmp(r[0].path, "patient00001/study1/view1_frontal.jpg") &&
           !strcmp(r[0].patient_id, "patient00001") &&
           !strcmp(r[0].study_id, "patient00001/study1"),
       "the image, its path, its patient and its study");
    OK(r[0].sex == 'F' && r[1].sex == 'M' && !r[2].sex && r[0].age_years == 68 &&
           r[1].age_years == 87 && r[2].age_years == CHEX_AGE_UNKNOWN,
       "sex and age");
    OK(r[0].view == CHEX_VIEW_AP && r[1].view == CHEX_VIEW_PA && r[2].view == CHEX_VIEW_LATERAL &&
           r[3].view == CHEX_VIEW_UNKNOWN,
       "views");
    OK(r[0].split == CHEX_TRAIN && r[2].split == CHEX_VAL && r[3].split == CHEX_SPLIT_NOT_STATED &&
           t->split_from,
       "splits by folder");
    chex_labels_free(t);
    t = loads(
        "Path," FINDINGS "\n"
        "CheXpert-v1.0/test/patient64741/study1/view1_frontal.jpg,0,1,0,0,0,0,0,0,0,0,0,0,0,0\n"
        "test/patient64741/study1/view2_lateral.jpg,1.0,0,0,0,0,0,0,0,0,0,0,0,0,0\n",
        "auto", NULL);
    r = t->rows;
    OK(says(t, "chexpert", "'Path' and 'Enlarged Cardiomediastinum'") && t->class_count == 14 &&
           r[0].split == CHEX_TEST && label(t, 0, "Enlarged_Cardiomediastinum") == 1 &&
           label(t, 1, "No_Finding") == 1 && !strcmp(r[1].patient_id, "patient64741"),
       "the files of its test set: a path and the findings");
    OK(r[0].view == CHEX_VIEW_UNKNOWN && r[1].view == CHEX_VIEW_LATERAL, "views by name");
    chex_labels_free(t);

    const char *path =
        dir_put_text("names.txt", VIEW_PATH "\ntrain/patient00002/study2/view1_frontal.jpg\n"
                                            "files/p10/p10000032/s50414267/02aa-1.jpg\n");
    OK_CALL(chex_labels_load_names(path, &t, &err));
    OK(!strcmp(t->rows[1].image_id, "patient00002_study2_view1_frontal.jpg") &&
           !strcmp(t->rows[1].patient_id, "patient00002"),
       "lists name images alike");
    OK(!strcmp(t->rows[2].patient_id, "10000032") && !strcmp(t->rows[2].image_id, "02aa-1.jpg"),
       "MIMIC's too");
    chex_labels_free(t);

#define BLANK ",,,,,,,,,,,,,"
    refuses(CHEXPERT VIEW_PATH ",Female,68,Frontal,AP,2.0" BLANK "\n",
            "line 2, column 6 (No Finding): '2.0', expected 1, 0, -1 or nothing");
    refuses(CHEXPERT "a.jpg,Female,68,Frontal,AP," BLANK "\n",
            "line 2, column 1 (Path): 'a.jpg', expected a path such as train/patient00001");
    refuses(CHEXPERT VIEW_PATH ",X,68,Frontal,AP," BLANK "\n", "(Sex): 'X', expected Male or");
    refuses(CHEXPERT VIEW_PATH ",Male,6x8,Frontal,AP," BLANK "\n", "(Age): '6x8', expected");
    refuses(CHEXPERT VIEW_PATH ",Male,68,Side,AP," BLANK "\n",
            "column 4 (Frontal/Lateral): 'Side', expected Frontal or Lateral");
    refuses(CHEXPERT VIEW_PATH ",Male,68,Frontal,AP\n", "line 2: 5 columns, expected 19");
    refuses(CHEXPERT VIEW_PATH ",Male,68,Frontal,AP," BLANK "\n" VIEW_PATH
                               ",Male,68,Frontal,AP," BLANK "\n",
            "line 3, column 1: image 'patient00001_study1_view1_frontal.jpg' is on line 2");
    refuses("Path,Frontal/Lateral,AP/PA,Edema\nx,Frontal,AP,1\n",
            "the header has no column 'No Finding', expected CheXpert's columns");
    refuses(CHEXPERT, "no rows");
}

#define META "dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition,Rows\n"
static void check_mimic(void) {
    const char *studies = "subject_id,study_id," FINDINGS "\n"
                          "10000032,50414267,1.0,,,,,,,,,,,,,\n"
                          "10000764,57375967,,,1.0,,,,-1.0,,,,0.0,,,\n";
    dir_put_text("mimic-cxr-2.0.0-metadata.csv",
                 META "02aa-1,10000032,50414267,CHEST (PA AND LAT),PA,3056\n"
                      "02aa-2,10000032,50414267,\"CHEST, LAT\",LATERAL,3056\n"
                      "09ff-3,10000764,57375967,CHEST,AP AXIAL,10\n"
                      "0aaa-4,10000764,57375967,CHEST,LAO,10\n"
                      "0bbb-5,10000764,99999999,CHEST,XTABLE LATERAL,10\n");
    struct chex_label_table *t = loads(studies, "auto", NULL);
    const struct chex_label_row *r = t->rows;
    OK(says(t, "mimic", "2 studies, images by their metadata, no split file") && t->count == 4,
       "4 images of 2 studies");
    OK(strstr(t->warning, "1 image of the metadata belongs to studies without labels"), "%s",
       t->warning);
    OK(!strcmp(r[0].path, "files/p10/p10000032/s50414267/02aa-1.jpg") &&
           !strcmp(r[0].image_id, "02aa-1.jpg") && !strcmp(r[0].patient_id, "10000032") &&
           !strcmp(r[0].study_id, "50414267"),
       "the image's place, patient and study");
    OK(r[0].view == CHEX_VIEW_PA && r[1].view == CHEX_VIEW_LATERAL && r[2].view == CHEX_VIEW_AP &&
           r[3].view == CHEX_VIEW_UNKNOWN,
       "views");
    OK(label(t, 0, "No_Finding") == 1 && label(t, 1, "No_Finding") == 1 &&
           label(t, 2, "Cardiomegaly") == 1 && label(t, 3, "Effusion") == 0 &&
           label(t, 3, "Consolidation") == CHEX_LABEL_UNCERTAIN &&
           label(t, 2, "Edema") == CHEX_LABEL_NOT_STATED,
       "every image has its study's labels");
    OK(!t->split_from && r[3].line == 5 && strstr(t->rows_path, "metadata.csv"),
       "rows are the metadata's lines");
    chex_labels_free(t);

    dir_put_text("mimic-cxr-2.0.0-split.csv",
                 "dicom_id,study_id,subject_id,split\n02aa-1,50414267,10000032,train\n"
                 "02aa-2,50414267,10000032,train\n0aaa-4,57375967,10000764,test\n"
                 "zzzz-9,57375967,10000764,validate\n");
    t = loads(studies, "mimic", NULL);
    r = t->rows;
    OK(t->split_from && r[0].split == CHEX_TRAIN && r[3].split == CHEX_TEST &&
           r[2].split == CHEX_SPLIT_NOT_STATED && strstr(t->detected, "with splits"),
       "splits: %s", t->split_from);
    OK(strstr(t->warning, "; 1 image is not in the split file"), "%s", t->warning);
    chex_labels_free(t);

    dir_put_text("mimic-cxr-2.0.0-split.csv", "dicom_id,split\n02aa-1,train\n02aa-1,test\n");
    refuses(studies, "split.csv: line 3, column 1 (dicom_id): '02aa-1', expected each image once");
    dir_put_text("mimic-cxr-2.0.0-split.csv", "dicom_id,split\n02aa-1,all\n");
    refuses(studies, "split.csv: line 2, column 2 (split): 'all', expected train, validate or");
    dir_put_text("mimic-cxr-2.0.0-split.csv", "dicom_id,study_id\n");
    refuses(studies, "split.csv: line 1: the header has no column 'split'");
    unlink(dir_path("mimic-cxr-2.0.0-split.csv"));
    refuses("subject_id,study_id," FINDINGS "\n1000,2000,,,,,,,,,,,,,,\n1000,2000,,,,,,,,,,,,,,\n",
            "chexpert.csv: line 3, column 2 (study_id): '2000', expected each study once (it is "
            "on line 2)");
    refuses("subject_id,study_id," FINDINGS "\np1,2000,,,,,,,,,,,,,,\n",
            "(subject_id): 'p1', expected a number of 3 to 18 digits");
    refuses("subject_id,study_id," FINDINGS "\n1000,2000,yes,,,,,,,,,,,,,\n",
            "line 2, column 3 (No Finding): 'yes', expected 1, 0, -1");
    refuses("subject_id,study_id," FINDINGS "\n1000,2000,,,,,,,,,,,,,,\n",
            "metadata.csv: no image of a study of ");
    dir_put_text("mimic-cxr-2.0.0-metadata.csv", META "a,1111,50414267,,PA,1\n");
    refuses(studies,
            "metadata.csv: line 2, column 2 (subject_id): '1111', expected 10000032 as for "
            "study 50414267 in the label file");
    dir_put_text("mimic-cxr-2.0.0-metadata.csv",
                 META "a,10000032,50414267,,PA,1\na,10000032,50414267,,PA,1\n");
    refuses(studies, "metadata.csv: line 3, column 1: image 'files/p10/p10000032/s50414267/a.jpg' "
                     "is on line 2 already");
    dir_put_text("mimic-cxr-2.0.0-metadata.csv", META "a/b,10000032,50414267,,PA,1\n");
    refuses(studies, "column 1 (dicom_id): 'a/b', expected an id");
    dir_put_text("mimic-cxr-2.0.0-metadata.csv", META "a,10000032,50414267\n");
    refuses(studies, "metadata.csv: line 2: 3 columns, expected 6");
    dir_put_text("mimic-cxr-2.0.0-metadata.csv", "dicom_id,study_id\n");
    refuses(studies, "metadata.csv: line 1: the header has no column 'subject_id'");
    unlink(dir_path("mimic-cxr-2.0.0-metadata.csv"));
    refuses(studies, "metadata.csv beside it, expected MIMIC-CXR's metadata file there");
}

static void check_vindr(void) {
    struct chex_label_table *t =
        loads("image_id,rad_id,Aortic enlargement,Pleural effusion,Nodule/Mass,No finding\n"
              "abc,R1,1,0,0,0\nabc,R2,1,1,0,0\nabc,R3,0,1,1,0\ndef,R1,0,0,0,1\ndef,R4,0,1,0,0\n",
              "auto", NULL);
    OK(says(t, "vindr", "4 readers") && t->count == 2 && t->class_count == 4, "2 images");
    OK(label(t, 0, "Aortic_enlargement") == 1 && label(t, 0, "Effusion") == 1 &&
           label(t, 0, "Nodule_Mass") == 0 && label(t, 0, "No_Finding") == 0,
       "two of three readers");
    OK(label(t, 1, "Effusion") == 0 && label(t, 1, "No_Finding") == 0, "one of two is no majority");
    OK(!strcmp(t->rows[0].image_id, "abc") && !strcmp(t->rows[0].patient_id, "abc"), "its patient");
    chex_labels_free(t);
    t = loads("image_id,Aortic enlargement,Pneumonia\nabc,1,0\ndef,0,1\n", "auto", NULL);
    OK(label(t, 0, "Aortic_enlargement") == 1 && label(t, 1, "Pneumonia") == 1, "the test set's");
    chex_labels_free(t);
    t = loads("image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max\n"
              "abc,No finding,14,R1,,,,\nabc,No finding,14,R2,,,,\nabc,Cardiomegaly,3,R3,1,2,3,4\n"
              "def,Cardiomegaly,3,R1,1,2,3,4\ndef,Cardiomegaly,3,R1,1,2,3,4\n"
              "def,Cardiomegaly,3,R2,1,2,3,4\ndef,ILD,5,R3,1,2,3,4\n",
              "auto", NULL);
    OK(says(t, "vindr", "boxes") && t->count == 2 && t->class_count == 3, "boxes");
    OK(label(t, 0, "No_Finding") == 1 && label(t, 0, "Cardiomegaly") == 0 &&
           label(t, 1, "Cardiomegaly") == 1 && label(t, 1, "ILD") == 0,
       "two boxes of one reader are one vote");
    chex_labels_free(t);
    refuses("image_id,rad_id,Aortic enlargement\na,R1,1\na,R1,1\n",
            "line 3, column 1 (image_id): 'a', expected each image once by each reader");
    refuses("image_id,Aortic enlargement\na,1\na,1\n", "expected each image once if there is no");
    refuses("image_id,Aortic enlargement\na,-1\n", "(Aortic enlargement): '-1', expected 1 or 0");
    refuses("image_id,Aortic enlargement,Effusion,Pleural effusion\na,1,1,1\n",
            "'Effusion' and 'Pleural effusion' are the same finding, expected each once");
    refuses("image_id,class_name,rad_id\na,\"x,y\",R1\n",
            "'x,y' cannot be the name of a finding: it has a quote or a comma");
}

#define PADCHEST                                                                                   \
    ",ImageID,ImageDir,StudyDate_DICOM,PatientID,PatientBirth,PatientSex_DICOM,Projection,"        \
    "Labels\n"
static void check_padchest(void) {
    struct chex_label_table *t =
        loads(PADCHEST
              "0,2_a.png,0,20140915,839860488,1930.0,F,L,\"['pulmonary edema', 'normal']\"\n"
              "1,2_b.png,0,20140915,12,,M,AP_horizontal,\"[ 'laminar atelectasis' ,\"\"crohn's\"\","
              "' pleural effusion']\"\n2,2_c.png,1,20140915,13,1930,,COSTAL,['normal']\n"
              "3,2_d.png,1,,13,1930,O,PA,\n",
              "auto", NULL);
    const struct chex_label_row *r = t->rows;
    OK(says(t, "padchest", "'Projection'") && t->count == 4 && t->class_count == 14, "4 rows");
    OK(label(t, 0, "Edema") == 1 && label(t, 1, "Atelectasis") == 1 &&
           label(t, 1, "Effusion") == 1 && label(t, 2, "Edema") == 0 &&
           label(t, 3, "Edema") == CHEX_LABEL_NOT_STATED,
       "findings, kinds of them, and none");
    OK(strstr(t->warning, "only the 14 findings are kept; 1 mention of 1 other is left out "
                          "(crohn's: 1); 1 image states no finding"),
       "%s", t->warning);
    OK(r[0].age_years == 84 && r[1].age_years == CHEX_AGE_UNKNOWN && r[0].sex == 'F' &&
           !strcmp(r[0].patient_id, "839860488") && !strcmp(r[1].patient_id, "00000012"),
       "age, sex, patient");
    OK(r[0].view == CHEX_VIEW_LATERAL && r[1].view == CHEX_VIEW_AP &&
           r[2].view == CHEX_VIEW_UNKNOWN && r[3].view == CHEX_VIEW_PA,
       "views");
    chex_labels_free(t);
    t = loads(PADCHEST "0,a.png,0,,1,,F,PA,\"['hydropneumothorax']\"\n"
                       "1,b.png,0,,2,,F,PA,\"['atelectasis basal', 'empyema']\"\n"
                       "2,c.png,0,,3,,F,PA,['segmental atelectasis']\n",
              "padchest", NULL);
    OK(label(t, 0, "Effusion") == 1 && label(t, 0, "Pneumothorax") == 1 &&
           label(t, 1, "Atelectasis") == 1 && label(t, 1, "Effusion") == 1 &&
           label(t, 2, "Atelectasis") == 1 && label(t, 2, "Effusion") == 0 && !t->warning[0],
       "a kind of two findings, and kinds named otherwise");
    chex_labels_free(t);
    static const char *const lists[] = {"nodule",   "['nodule'", "['nodule", "['nodule',]",
                                        "[nodule]", "['a' 'b']", "[]]"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, PADCHEST "0,a.png,0,20140915,1,1930,F,PA,\"%s\"\n", lists[i]);
        refuses(text, "line 2, column 9 (Labels): ");
    }
    refuses(PADCHEST "0,a.png,0,20140915,1,2030,F,PA,[]\n", "(PatientBirth): '2030', expected");
    refuses(PADCHEST "0,a.png,0,20140915,,1930,F,PA,[]\n", "a patient id");
    refuses(PADCHEST "0,a.png,0,20140915,1,1930,7,PA,[]\n", "(PatientSex_DICOM): '7'");
}

/* Columns that are not of the 14: findings where their values say so. */
static void check_own_findings(void) {
    struct chex_label_table *t =
        loads("Image,Effusion,COVID,Width,Grade,Note,Empty,Follow-up,patient_age,TB\r\n"
              "1.png,1,0,1,0,x,,0,1,1.0\r\n2.png,0,1,0,2,y,,1,0,-1\r\n3.png,,,1,1,,,0,1,\r\n",
              "auto", NULL);
    OK(t->class_count == 3 && !strcmp(t->classes[0], "Effusion") &&
           !strcmp(t->classes[1], "COVID") && !strcmp(t->classes[2], "TB"),
       "a column of 1, 0, -1 or nothing is a finding of its own, after the known ones");
    OK(label(t, 0, "COVID") == 0 && label(t, 1, "COVID") == 1 &&
           label(t, 2, "COVID") == CHEX_LABEL_NOT_STATED &&
           label(t, 1, "TB") == CHEX_LABEL_UNCERTAIN && label(t, 0, "Effusion") == 1,
       "with its labels");
    OK(t->ignored && !strcmp(t->ignored, "Width, Grade, Note, Empty, Follow-up, patient_age"),
       "columns with other values or names are ignored: %s", t->ignored ? t->ignored : "none");
    OK(says(t, "csv", "3 findings, own findings: COVID, TB"), "the log names both: %s",
       t->detected);
    chex_labels_free(t);
    t = loads("image,Zeta,Alpha,Hernia,Mass\n1.png,1,0,1,0\n2.png,0,1,0,1\n", "auto", NULL);
    OK(t->class_count == 4 && !strcmp(t->classes[0], "Mass") && !strcmp(t->classes[1], "Hernia") &&
           !strcmp(t->classes[2], "Zeta") && !strcmp(t->classes[3], "Alpha") && !t->ignored,
       "the order is that of the 14, then that of the columns");
    chex_labels_free(t);
    t = loads("image,COVID\n1.png,1\n2.png,0\n", "auto", NULL);
    OK(t->class_count == 1 && label(t, 0, "COVID") == 1, "findings may all be one's own");
    chex_labels_free(t);
    t = loads("image,findings,COVID\n1.png,Mass,1\n2.png,No Finding,0\n", "auto", NULL);
    OK(t->class_count == 14 && t->ignored && !strcmp(t->ignored, "COVID"),
       "beside a column of findings, other columns are ignored");
    chex_labels_free(t);
    refuses_as("image,Mass,COVID\n1.png,1\n", "csv", NULL, CHEX_E_DATA,
               "line 2: 2 columns, expected 3 as in the header");
    refuses_as("image,Mass\n1.png,7\n", "csv", NULL, CHEX_E_DATA,
               "line 2, column 2 (Mass): '7', expected 1, 0, -1 or nothing");
    t = loads("image,COVID,TB,Mass,age,view,split,study\n1.png,NA,True,NaN,NA,NaN,NA,NA\n"
              "2.png,1,False,nan,,,,\n",
              "auto", NULL);
    OK(t->class_count == 3 && label(t, 0, "COVID") == CHEX_LABEL_NOT_STATED &&
           label(t, 0, "TB") == 1 && label(t, 1, "TB") == 0 &&
           label(t, 1, "Mass") == CHEX_LABEL_NOT_STATED,
       "NA of R and NaN of pandas are labels that are not stated; True and False are labels");
    OK(t->rows[0].age_years == CHEX_AGE_UNKNOWN && t->rows[0].view == CHEX_VIEW_UNKNOWN &&
           t->rows[0].split == CHEX_SPLIT_NOT_STATED && !t->rows[0].study_id,
       "NA is no age, view, split or study");
    chex_labels_free(t);
    refuses("image,Mass,patient\nq.png,1,NA\n", "(patient): 'NA', expected a patient id");
}

/* A finding must not disappear because of a few odd cells. */
static void check_odd_cells(void) {
    static const char *const odd[] = {"n/a", "2", "?", "-"};
    char text[2048], needle[160];
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        size_t at = (size_t)snprintf(text, sizeof text, "image,Mass,TB\n");
        for (int i = 0; i < 10; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%d.png,1,%s\n", i,
                                   i == 6  ? odd[k]
                                   : i % 2 ? "1"
                                           : "0");
        snprintf(needle, sizeof needle,
                 "line 8, column 3 (TB): '%s', expected 1, 0, -1 or nothing (NA) as in 9 other "
                 "rows; if the column is no finding, name the findings with --columns",
                 odd[k]);
        refuses(text, needle);
    }
    struct chex_label_table *t = loads(text, "auto", "labels=Mass");
    OK(t->class_count == 1 && t->ignored && !strcmp(t->ignored, "TB"),
       "--columns labels= leaves the column out");
    chex_labels_free(t);
    t = loads("image,Mass,Priors\n1.png,1,0\n2.png,0,1\n3.png,0,2\n", "auto", NULL);
    OK(t->class_count == 1 && strstr(t->warning, "column 'Priors' is not read as a finding: 1 of 3 "
                                                 "values are not 1, 0 or -1 (line 4: '2')"),
       "a column with a majority of labels is left out with a warning: %s", t->warning);
    chex_labels_free(t);
    refuses("image,TB\n", "a header and no row, expected one for each image");
    refuses("image,TB\n1.png,\n", "no column holds labels: every cell of column 'TB' is empty");
    refuses("image, TB \n1.png,1\n2.png,0\n",
            "line 1: ' TB ' cannot be the name of a finding: it begins or ends with a blank");
}

/* Tables as spreadsheets of other countries write them. */
static void check_separators(void) {
    struct chex_label_table *t =
        loads("\xEF\xBB\xBFimage;patient;age;Mass;COVID\r\n1.png;7;58,5;1,0;0\r\n"
              "2.png;\"8;9\";;-1;1\r\n",
              "auto", NULL);
    OK(says(t, "csv", "fields separated by semicolons") && t->class_count == 2 &&
           t->rows[0].age_years == 58 && label(t, 0, "Mass") == 1 &&
           label(t, 1, "Mass") == CHEX_LABEL_UNCERTAIN && label(t, 1, "COVID") == 1 &&
           !strcmp(t->rows[1].patient_id, "8;9"),
       "semicolons and decimal commas are read: %s", t->detected);
    chex_labels_free(t);
    t = loads("image\tMass\n1.png\t1\n", "auto", NULL);
    OK(says(t, "csv", "fields separated by tabs") && label(t, 0, "Mass") == 1, "tabs are read");
    chex_labels_free(t);
    t = loads("Image Index;Finding Labels;Follow-up #;Patient ID;Patient Age;Patient Gender;"
              "View Position;OriginalImage[Width,Height];OriginalImagePixelSpacing[x,y]\n"
              "1.png;Mass|Edema;0;1;58;M;PA;2682;2749;0,143;0,143\n",
              "auto", NULL);
    OK(!strcmp(t->format, "nih") && label(t, 0, "Edema") == 1 && t->rows[0].age_years == 58,
       "the table of the NIH with semicolons: %s", t->detected);
    chex_labels_free(t);
    t = loads("image,a;b;c,Mass\n1.png,x,1\n", "csv", "labels=Mass");
    OK(t->count == 1 && label(t, 0, "Mass") == 1,
       "of equally frequent separators, the comma is it");
    chex_labels_free(t);
    refuses("image,patient,Mass\n1.png,M\xFCller,1\n",
            "line 2: patient 'M\\xFCller': byte 0xFC, as in Windows-1252 or Latin-1, expected "
            "UTF-8: convert the file with iconv -f WINDOWS-1252 -t UTF-8");
    refuses("image,Mass\nM\xFCller.png,1\n", "the name of the image file must be UTF-8, too");
    refuses("image,Mass,B\xFCrde\n1.png,1,0\n", "line 1: finding 'B\\xFCrde': byte 0xFC");
}

static void check_csv(void) {
    struct chex_label_table *t =
        loads("Image,patient_id,View,age,Sex,split,Mass,pleural effusion,Note,Study ID\n"
              "d/1.png,7,PA,44,f,train,1,0,x,7/3\n2.png,8,,,,TEST,-1,,,\n",
              "auto", NULL);
    const struct chex_label_row *r = t->rows;
    OK(says(t, "csv",
            "(a header with 'Image'), image in 'Image', patient in 'patient_id', 2 "
            "findings") &&
           t->ignored && !strcmp(t->ignored, "Note"),
       "columns that go by their own names");
    OK(!strcmp(t->classes[0], "Effusion") && label(t, 0, "Mass") == 1 &&
           label(t, 0, "Effusion") == 0 && label(t, 1, "Mass") == CHEX_LABEL_UNCERTAIN &&
           label(t, 1, "Effusion") == CHEX_LABEL_NOT_STATED,
       "labels");
    OK(!strcmp(r[0].image_id, "1.png") && !strcmp(r[0].patient_id, "00000007") &&
           r[0].view == CHEX_VIEW_PA && r[0].age_years == 44 && r[0].sex == 'F' &&
           r[0].split == CHEX_TRAIN && r[1].split == CHEX_TEST && t->split_from &&
           !strcmp(r[0].study_id, "7/3") && !r[1].study_id,
       "the rest");
    chex_labels_free(t);
    t = loads("ImageID, Patient-ID,Age Years,Mass\na_1.png,x,44,1\na_2.png,y,,0\n", "auto", NULL);
    OK(says(t, "csv", "image in 'ImageID', patient in ' Patient-ID'") &&
           !strcmp(t->rows[1].patient_id, "y") && t->rows[0].age_years == 44,
       "names in other spellings: %s", t->detected);
    chex_labels_free(t);
    t = loads("file,who,Tuberculosis,Mass,odd\nq_1.png,p,1,0,zzz\n", "auto",
              "image=file,patient=who,labels=Tuberculosis:Mass");
    OK(t->class_count == 2 && !strcmp(t->classes[0], "Mass") && label(t, 0, "Tuberculosis") == 1 &&
           !strcmp(t->rows[0].patient_id, "p"),
       "columns that are named: %s", t->detected);
    chex_labels_free(t);
    t = loads("file,dx\nq_1.png,Mass|pleural effusion\nr_1.png,No Finding\n", "csv",
              "image=file,findings=dx");
    OK(t->class_count == 14 && label(t, 0, "Effusion") == 1 && label(t, 0, "Mass") == 1 &&
           label(t, 1, "Mass") == 0 && !strcmp(t->rows[0].patient_id, "q"),
       "names with '|' between");
    chex_labels_free(t);
    t = loads("image,dx\nq_1.png,Mass|Lung Cavity\n", "csv",
              "findings=dx,labels=Mass:Lung Cavity:Edema");
    OK(t->class_count == 3 && label(t, 0, "Lung_Cavity") == 1 && label(t, 0, "Edema") == 0,
       "findings other than the 14");
    chex_labels_free(t);
    refuses_as("image,dx\nq.png,Mass|Odd\n", "csv", "findings=dx,labels=Mass", CHEX_E_DATA,
               "line 2, column 2 (dx): 'Odd', expected 'No Finding' or some of these with '|' "
               "between: Mass");
    refuses_as(
        "image,dx\nq.png,Masss\n", "csv", "findings=dx", CHEX_E_DATA,
        "(dx): 'Masss', expected 'No Finding' or known findings with '|' between (perhaps Mass)");
    refuses("image,Mass\nq.png,5\n", "line 2, column 2 (Mass): '5', expected 1, 0, -1 or nothing");
    refuses("image,Mass,split\nq.png,1,holdout\n", "(split): 'holdout', expected train, val or");
    refuses("image,Mass,view\nq.png,1,up\n", "(view): 'up', expected PA, AP or LL");
    t = loads("image,Mass,age\nq.png,1,58.75\nr.png,1,0.5\n", "auto", NULL);
    OK(t->rows[0].age_years == 58 && t->rows[1].age_years == 0, "years that are not whole");
    chex_labels_free(t);
    refuses("image,Mass,age\nq.png,1,5.x\n", "(age): '5.x', expected up to 3 digits");
    refuses("image,Mass,age\nq.png,1,ten\n", "(age): 'ten', expected up to 3 digits");
    refuses("image,Mass,sex\nq.png,1,y\n", "(sex): 'y', expected M or F");
    refuses("image,Mass,patient\nq.png,1,\n", "(patient): '', expected a patient id");
    refuses("image,Mass\n,1\n", "line 2, column 1: '', expected a file name of 1 to 255 bytes");
    refuses("image,Mass\nq.png,1\nd/q.png,0\n", "line 3, column 1: image 'q.png' is on line 2");
    refuses("image,Mass\nq.png\n", "line 2: 1 columns, expected 2 as in the header");
    refuses("image,Mass,image\n", "columns 1 and 3 are both 'image'");
    refuses("PK\x03\x04 and so on", "chexpert.csv: a zip archive or a spreadsheet, expected CSV");
    refuses("\xFF\xFEi",
            "chexpert.csv: UTF-16, expected UTF-8: convert the file with iconv -f UTF-16 -t UTF-8");
    refuses("\x89PNG\r\n", "chexpert.csv: a PNG image, expected CSV");
    refuses("\x1F\x8B\x09", "chexpert.csv: gzip: ");
    refuses_as("a,b\n1,2\n", "csv", NULL, CHEX_E_DATA,
               "line 1: the header has no column for image, expected one named so or by --columns "
               "image=NAME; there are 2: 'a', 'b'");
    refuses_as("image,b\n1,2\n", "csv", NULL, CHEX_E_DATA, "no column holds labels (every value");
    refuses_as("image,b\n1,2\n", "auto", NULL, CHEX_E_DATA, "no column holds labels (every value");
    refuses_as("a,b\n1,2\n", "csv", "image=c", CHEX_E_DATA, "the header has no column 'c'");
    refuses_as("image,b\n1,2\n", "csv", "labels=Mass", CHEX_E_DATA, "has no column 'Mass'");
    refuses_as("a,b\n", "csv", "picture=a", CHEX_E_USAGE,
               "columns 'picture=a': 'picture' is no role, expected a comma-separated");
    refuses_as("a,b\n", "csv", "image", CHEX_E_USAGE, "'image' names no column");
    refuses_as("a,b\n", "csv", "image=a,image=b", CHEX_E_USAGE, "'image' is there twice");
    refuses_as("a,b\n", "nih", "image=a", CHEX_E_USAGE, "--columns is not for label format 'nih'");
}

int main(void) {
    dir_make();
    check_chexpert();
    check_mimic();
    check_vindr();
    check_padchest();
    check_csv();
    check_own_findings();
    check_odd_cells();
    check_separators();
    dir_remove();
    return tap_done();
}
