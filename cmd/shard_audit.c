/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard audit: patients, images and positives that two sides share. With --near: images
 * that are in two splits or sets.
 */
#include "shard_commands.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/result.h"
#include "base/text.h"
#include "label/labels.h"
#include "shard/audit.h"
#include "shard/near.h"

struct audit_settings {
    struct chex_opt_common common;
    const char *labels, *columns;
    int format;
    int64_t near, workers;
};

#define AT(field) offsetof(struct audit_settings, field)
static const struct chex_opt audit_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Labels"),
    OPTION("labels", STRING, AT(labels), .metavar = "FILE",
           .help = "label file in which lists of file names find their labels and patients"),
    OPTION("format", CHOICE, AT(format), .def = "auto", .metavar = "FORMAT",
           .choices = chex_label_format_names, .help = "format of label files"),
    OPTION("columns", STRING, AT(columns), .metavar = "ROLE=NAME,...",
           .help = "which column is what in label files that are plain CSV, as for create"),
    OPTION_GROUP("Images"),
    OPTION("near", INT, AT(near), .def = "-1", .metavar = "BITS", .min = -1,
           .max = CHEX_NEAR_MAX_BITS,
           .help = "compare the pixels of one or more sets, across splits and sets: images whose "
                   "64-bit perceptual hashes differ in at most BITS, 4 being usual; -1: do not"),
    SHARD_WORKERS_ROW(AT(workers)),
};
#undef AT

/* ---- patients of two sides ---- */

static json_t *audit_json(const struct chex_audit *a) {
    json_t *classes = json_array();
    for (size_t c = 0; c < a->class_count; c++) {
        const struct chex_audit_class *k = &a->classes[c];
        json_array_append_new(classes,
                              chex_result(CHEX_MEMBER(k, name), CHEX_MEMBER(k, positives_a),
                                          CHEX_MEMBER(k, positives_b),
                                          CHEX_FIELD("shared_patient_positives_a", k->shared_a),
                                          CHEX_FIELD("shared_patient_positives_b", k->shared_b)));
    }
    return chex_result(CHEX_FIELD("schema", "chexnet-shard-audit"), CHEX_FIELD("version", 1),
                       CHEX_MEMBER(a, images_a), CHEX_MEMBER(a, images_b),
                       CHEX_MEMBER(a, patients_a), CHEX_MEMBER(a, patients_b),
                       CHEX_MEMBER(a, shared_images), CHEX_MEMBER(a, shared_patients),
                       CHEX_MEMBER(a, shared_patient_images_a),
                       CHEX_MEMBER(a, shared_patient_images_b), CHEX_FIELD("classes", classes));
}

static void print_line(int width, const char *name, size_t a, size_t b, size_t shared_a,
                       size_t shared_b) {
    chex_text_printf(stdout, "%-*s %9zu %9zu %9zu %9zu\n", chex_text_field(name, width), name, a, b,
                     shared_a, shared_b);
}

static void print_audit(const struct chex_audit *a) {
    int width = 26;
    for (size_t c = 0; c < a->class_count; c++)
        if (chex_text_columns(a->classes[c].name) > width)
            width = chex_text_columns(a->classes[c].name);
    chex_text_printf(stdout, "%-*s %9s %9s %9s %9s\n", width, "", "A", "B", "A shared", "B shared");
    print_line(width, "patients", a->patients_a, a->patients_b, a->shared_patients,
               a->shared_patients);
    print_line(width, "images", a->images_a, a->images_b, a->shared_patient_images_a,
               a->shared_patient_images_b);
    print_line(width, "same images", a->images_a, a->images_b, a->shared_images, a->shared_images);
    for (size_t c = 0; c < a->class_count; c++) {
        const struct chex_audit_class *k = &a->classes[c];
        print_line(width, k->name, k->positives_a, k->positives_b, k->shared_a, k->shared_b);
    }
    if (!a->class_count)
        chex_text_printf(stdout, "positives are not known of both\n");
}

static enum chex_status judge(const struct chex_audit *a, struct chex_error *err) {
    if (!a->shared_patients && !a->shared_images)
        return CHEX_OK;
    if (!a->shared_patients)
        return chex_error_set(err, CHEX_E_DATA, "%zu image%s in both, the first is %s",
                              a->shared_images, a->shared_images == 1 ? " is" : "s are",
                              a->first_image);
    return chex_error_set(
        err, CHEX_E_DATA, "%zu patient%s in both, the first is %s; %zu image%s in both",
        a->shared_patients, a->shared_patients == 1 ? " is" : "s are", a->first_patient,
        a->shared_images, a->shared_images == 1 ? " is" : "s are");
}

/* ---- --near ---- */

enum { SHOWN_PAIRS = 50 };

/* Where an image is: set, split and id. */
struct place {
    const char *dir, *split, *image;
};

static struct place place_of(const struct chex_near_audit *a, size_t image) {
    const struct chex_near_image *i = &a->images[image];
    const struct chex_near_group *g = &a->groups[i->group];
    size_t row;
    const struct chex_shard *shard = chex_set_locate(g->set, i->row, &row);
    return (struct place){g->dir, chex_split_names[g->set->split], chex_shard_image_id(shard, row)};
}

static json_t *place_json(struct place p) {
    return chex_result(CHEX_FIELD("set", p.dir), CHEX_FIELD("split", p.split),
                       CHEX_FIELD("image", p.image));
}

static size_t count_same(const struct chex_near_audit *a) {
    size_t same = 0;
    for (size_t i = 0; i < a->found.count; i++)
        same += a->found.pairs[i].same;
    return same;
}

static json_t *images_json(const struct chex_near_audit *a, int bits) {
    json_t *pairs = json_array();
    for (size_t i = 0; i < a->found.count; i++) {
        const struct chex_near_pair *p = &a->found.pairs[i];
        json_array_append_new(pairs, chex_result(CHEX_FIELD("a", place_json(place_of(a, p->a))),
                                                 CHEX_FIELD("b", place_json(place_of(a, p->b))),
                                                 CHEX_MEMBER(p, distance),
                                                 CHEX_FIELD("same_pixels", p->same)));
    }
    return chex_result(
        CHEX_FIELD("schema", "chexnet-shard-audit-images"), CHEX_FIELD("version", 1),
        CHEX_FIELD("near_bits", bits), CHEX_FIELD("images", a->count), CHEX_MEMBER(a, read_s),
        CHEX_MEMBER(a, search_s), CHEX_FIELD("same_pixels", count_same(a)),
        CHEX_FIELD("pairs_complete", (bool)!a->found.more), CHEX_FIELD("pairs", pairs));
}

static void print_images(const struct chex_near_audit *a, json_t *o) {
    for (size_t i = 0; i < a->found.count && i < SHOWN_PAIRS; i++) {
        const struct chex_near_pair *p = &a->found.pairs[i];
        const struct place x = place_of(a, p->a), y = place_of(a, p->b);
        if (p->same)
            printf("same pixels: ");
        else
            printf("%2d bits:     ", p->distance);
        chex_text_printf(stdout, "%s %s %s, %s %s %s\n", x.dir, x.split, x.image, y.dir, y.split,
                         y.image);
    }
    if (a->found.count > SHOWN_PAIRS)
        printf("and %zu more pairs; --json lists them\n", a->found.count - SHOWN_PAIRS);
    chex_result_text(stdout, o,
                     "{images image} compared up to {near_bits} of 64 bits: {pairs pair}, "
                     "{same_pixels} with equal pixels; read in {read_s:t}, searched in "
                     "{search_s:t}\n");
}

static enum chex_status judge_images(const struct chex_near_audit *a, struct chex_error *err) {
    if (!a->found.count)
        return CHEX_OK;
    const struct chex_near_pair *p = &a->found.pairs[0];
    const struct place x = place_of(a, p->a), y = place_of(a, p->b);
    return chex_error_set(
        err, CHEX_E_DATA,
        "%s%zu pair%s of images in two splits or sets, %zu with equal pixels; the first is %s (%s "
        "%s) and %s (%s %s)",
        a->found.more ? "more than " : "", a->found.count, a->found.count == 1 ? "" : "s",
        count_same(a), x.image, x.dir, x.split, y.image, y.dir, y.split);
}

/* Compares the images of the sets, and prints the pairs. CHEX_E_DATA: there are pairs. */
static enum chex_status audit_images(const struct chex_opt_set *set, const struct audit_settings *s,
                                     struct chex_error *err) {
    const size_t count = chex_opt_word_count(set);
    const bool json = s->common.json;
    struct chex_near_audit a;
    CHEX_AUTO_FREE const char **sets = chex_alloc_zeroed(count, sizeof *sets);
    CHEX_ALLOCATED(sets, err, "audit");
    for (size_t i = 0; i < count; i++) {
        sets[i] = chex_opt_word(set, i);
        if (json)
            CHEX_TRY(chex_text_for_json("SET", sets[i], "--json", err));
    }
    enum chex_status st =
        chex_near_audit(sets, count, (int)s->near, shard_threads(s->workers), true, &a, err);
    if (st == CHEX_OK) {
        json_t *o = images_json(&a, (int)s->near);
        if (json || !o)
            st = chex_result_print(stdout, o, NULL, JSON_INDENT(1), err);
        else {
            print_images(&a, o);
            json_decref(o);
        }
    }
    if (st == CHEX_OK)
        st = judge_images(&a, err);
    chex_near_release(&a);
    return st;
}

/* ---- the command ---- */

static enum chex_status run_audit(struct chex_opt_set *set, void *settings,
                                  struct chex_error *err) {
    const struct audit_settings *s = settings;
    if (s->near >= 0 && s->labels)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--near compares images of sets: give no --labels");
    if (s->near >= 0)
        return audit_images(set, s, err);
    if (chex_opt_word_count(set) != 2)
        return chex_error_set(err, CHEX_E_USAGE, "%zu side%s, expected two, or --near BITS",
                              chex_opt_word_count(set), chex_opt_word_count(set) == 1 ? "" : "s");
    struct chex_audit_labels labels = {s->labels, chex_label_format_names[s->format], s->columns};
    struct chex_audit a;
    CHEX_TRY(chex_audit_run(chex_opt_word(set, 0), chex_opt_word(set, 1), &labels, &a, err));
    enum chex_status st = CHEX_OK;
    if (s->common.json)
        st = chex_result_print(stdout, audit_json(&a), NULL, JSON_INDENT(1), err);
    else
        print_audit(&a);
    if (st == CHEX_OK)
        st = judge(&a, err);
    chex_audit_release(&a);
    return st;
}

const struct chex_opt_program shard_audit_program = {
    .name = "chex-shard audit",
    .summary = "patients, images and positives that two sides share; exit status 3 where there "
               "are any",
    .usage = "chex-shard audit A B [--labels FILE] [--json]\n"
             "chex-shard audit SET [SET...] --near BITS [--json]",
    .opts = audit_opts,
    .count = COUNT(audit_opts),
    .epilog =
        "A and B are sets, folders of one split, shards, label files or lists of file names.\n"
        "The columns 'shared' count the images, and their positives, of patients in both.\n"
        "With --near the images of all splits of the sets are compared with each other: equal\n"
        "pixels, and near duplicates by perceptual hash.\n\n"
        "Examples\n"
        "  chex-shard audit shards/train shards/test\n"
        "  chex-shard audit shards/ other-hospital/ --near 4\n"
        "  chex-shard audit train_val_list.txt test_list.txt --labels "
        "Data_Entry_2017.csv\n\n" SHARD_EXIT_STATUS,
    .words = "two sides, or sets with --near",
    .min_words = 1,
    .max_words = 64,
    .settings_size = sizeof(struct audit_settings),
    .run = run_audit,
    .alone = true,
    .listed = "patients that two sides share",
    .word = "audit",
};
