/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard audit: patients and images that two sources share.
 */
#include "shard_commands.h"

#include <stdio.h>

#include "data/split.h"
#include "data/verify.h"

static const struct chex_opt plain_opts[] = {CHEX_OPT_COMMON};

static const struct chex_opt_program audit_program = {
    .name = "chex-shard audit",
    .summary = "patients and images that two sources share; exit status 3 where there are any",
    .usage = "chex-shard audit A B [--json]",
    .opts = plain_opts,
    .count = COUNT(plain_opts),
    .epilog = "A and B are sets, folders of one split, shards, label files or lists of file "
              "names.\n\nExamples\n"
              "  chex-shard audit shards/train shards/test\n"
              "  chex-shard audit train_val_list.txt test_list.txt\n\n" SHARD_EXIT_STATUS};
static enum chex_status run_audit(const struct chex_opt_set *set, const void *settings,
                                  struct chex_error *err) {
    const struct chex_opt_common *s = settings;
    struct chex_audit a;
    if (chex_opt_word_count(set) != 2)
        return chex_error_set(err, CHEX_E_USAGE,
                              "chex-shard audit takes two sources; try "
                              "'chex-shard audit --help'");
    CHEX_TRY(chex_audit_paths(chex_opt_word(set, 0), chex_opt_word(set, 1), &a, err));
    if (s->json)
        CHEX_TRY(shard_print_json(
            json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "schema",
                      "chexnet-shard-audit", "version", 1, "images_a", (json_int_t)a.images_a,
                      "images_b", (json_int_t)a.images_b, "patients_a", (json_int_t)a.patients_a,
                      "patients_b", (json_int_t)a.patients_b, "shared_images",
                      (json_int_t)a.shared_images, "shared_patients", (json_int_t)a.shared_patients,
                      "shared_patient_images_a", (json_int_t)a.shared_patient_images_a,
                      "shared_patient_images_b", (json_int_t)a.shared_patient_images_b),
            err));
    else
        printf("%-10s %9s %9s\n%-10s %9zu %9zu\n%-10s %9zu %9zu\n%-10s %9zu %9zu\n", "", "A", "B",
               "images", a.images_a, a.images_b, "patients", a.patients_a, a.patients_b,
               "of shared", a.shared_patient_images_a, a.shared_patient_images_b);
    if (!a.shared_patients && !a.shared_images)
        return CHEX_OK;
    if (!a.shared_patients)
        return chex_error_set(err, CHEX_E_DATA, "%zu images are in both, the first is %s",
                              a.shared_images, a.first_image);
    return chex_error_set(err, CHEX_E_DATA,
                          "%zu patients are in both, the first is %s; %zu images are in both",
                          a.shared_patients, a.first_patient, a.shared_images);
}

const struct shard_command shard_command_audit = {"audit", &audit_program,
                                                  sizeof(struct chex_opt_common), run_audit};
