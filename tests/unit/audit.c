/* SPDX-License-Identifier: Apache-2.0
 *
 * What two sides share: images, patients, and positives of the classes that both have.
 */
#include "shard/audit.h"

#include "tap.h"

static struct chex_error err;
static const char *const classes_a[] = {"Mass", "Odd", "Edema"}, *const classes_b[] = {"Edema",
                                                                                       "Mass"};
static const int8_t labels_a[][3] = {{1, 1, 0}, {1, 0, -2}, {1, 0, -1}, {0, 1, 1}};
static const int8_t labels_b[][2] = {{1, 1}, {1, 1}, {1, 0}, {0, 0}, {0, 1}};

int main(void) {
    struct chex_audit_row rows[] = {{"p_0.png", "p", labels_a[0]},
                                    {"p_1.png", "p", labels_a[1]},
                                    {"q_0.png", "q", labels_a[2]},
                                    {"r_0.png", "r", labels_a[3]}};
    const struct chex_audit_row others[] = {{"s_0.png", "s", labels_b[0]},
                                            {"r_0.png", "r", labels_b[1]},
                                            {"p_2.png", "p", labels_b[2]},
                                            {"t_0.png", "t", labels_b[3]},
                                            {"t_1.png", "t", labels_b[4]}},
                                stranger[] = {{"x_0.png", "x", NULL}};
    const struct chex_audit_side a = {rows, 4, classes_a, 3}, b = {others, 5, classes_b, 2},
                                 x = {stranger, 1, NULL, 0}, none = {0};
    struct chex_audit audit;
    OK_CALL(chex_audit_compare(&a, &b, &audit, &err));
    OK(audit.images_a == 4 && audit.images_b == 5 && audit.patients_a == 3 && audit.patients_b == 4,
       "distinct images and patients are counted");
    OK(audit.shared_images == 1 && audit.shared_patients == 2 &&
           audit.shared_patient_images_a == 3 && audit.shared_patient_images_b == 2,
       "shared images, patients, and the images of those are counted");
    OK(!strcmp(audit.first_image, "r_0.png") && !strcmp(audit.first_patient, "p"),
       "the first shared image and patient are named");
    const struct chex_audit_class *k = audit.classes;
    OK(audit.class_count == 2 && !strcmp(k[0].name, "Mass") && k[0].positives_a == 3 &&
           k[0].positives_b == 3 && k[0].shared_a == 2 && k[0].shared_b == 1,
       "positives of Mass are counted, and those of shared patients");
    OK(!strcmp(k[1].name, "Edema") && k[1].positives_a == 1 && k[1].positives_b == 3 &&
           k[1].shared_a == 1 && k[1].shared_b == 2,
       "Edema is compared by its name, although its columns differ in place");
    chex_audit_release(&audit);
    rows[0].labels = NULL;
    OK_CALL(chex_audit_compare(&a, &b, &audit, &err));
    OK(audit.classes[0].positives_a == 2, "a row without known labels does not count");
    chex_audit_release(&audit);
    OK_CALL(chex_audit_compare(&a, &x, &audit, &err));
    OK(!audit.shared_images && !audit.shared_patients && !audit.first_patient && !audit.class_count,
       "sides may share nothing, and one may have no labels");
    OK_CALL(chex_audit_compare(&none, &none, &audit, &err));
    OK(!audit.images_a && !audit.shared_images, "two empty sides share nothing");
    return tap_done();
}
