/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard relabel: the images of a set with the labels of another file, without the images.
 */
#include "ingest/relabel.h"

#include <stdio.h>

#include "base/text.h"
#include "shard_commands.h"
#include "shard_make.h"

struct relabel_settings {
    struct chex_opt_common common;
    struct chex_relabel_options relabel;
    int format;
};

#define AT(field) offsetof(struct relabel_settings, field)
static const struct chex_opt relabel_opts[] = {
    CHEX_OPT_COMMON,
    OPTION_GROUP("Labels"),
    OPTION("labels", STRING, AT(relabel.create.labels), .metavar = "FILE", .required = true,
           .help = "label file with the new labels, plain or .gz"),
    OPTION("format", CHOICE, AT(format), .def = "auto", .metavar = "FORMAT",
           .choices = chex_label_format_names, .help = "format of the label file"),
    OPTION("columns", STRING, AT(relabel.create.columns), .metavar = "ROLE=NAME,...",
           .help = "which column is what in a CSV file, as for create"),
    OPTION("uncertain", CHOICE, AT(relabel.create.uncertain), .def = "keep", .metavar = "POLICY",
           .choices = chex_uncertain_names, .help = "what becomes of uncertain labels"),
    OPTION("not-stated", CHOICE, AT(relabel.create.not_stated), .def = "keep", .metavar = "POLICY",
           .choices = chex_not_stated_names,
           .help = "what becomes of labels that the file leaves open"),
    OPTION("missing", CHOICE, AT(relabel.missing), .def = "refuse", .metavar = "POLICY",
           .choices = chex_relabel_missing_names,
           .help = "what becomes of images that the label file does not have"),
    OPTION_GROUP("Output"),
    OPTION("output", STRING, AT(relabel.create.output), .letter = 'o', .metavar = "DIR",
           .help = "folder of the new set; required without --plan"),
    OPTION("plan", FLAG, AT(relabel.plan), .help = "only count what would change, by finding"),
    SHARD_WRITE_ROWS(AT(relabel.create)),
};
#undef AT

/* What shard_launched() gets: the plan is filled beside the result. */
struct relabel {
    struct chex_relabel_options options; /* first: its first member is what `make` gets */
    struct chex_relabel_plan *plan;
};

static enum chex_status relabel(const struct chex_create_options *options, struct chex_group *group,
                                struct chex_create_result *result_out, struct chex_error *err) {
    const struct relabel *r = (const struct relabel *)options;
    chex_relabel_release(r->plan);
    return chex_relabel(&r->options, group, r->plan, result_out, err);
}

static json_t *values_json(const size_t v[CHEX_RELABEL_VALUES]) {
    return chex_result(CHEX_FIELD("positive", v[CHEX_RELABEL_POSITIVE]),
                       CHEX_FIELD("negative", v[CHEX_RELABEL_NEGATIVE]),
                       CHEX_FIELD("uncertain", v[CHEX_RELABEL_UNCERTAIN]),
                       CHEX_FIELD("not_stated", v[CHEX_RELABEL_NOT_STATED]));
}

static json_t *findings_json(const struct chex_relabel_plan *p) {
    json_t *findings = json_array();
    for (size_t c = 0; c < p->finding_count; c++) {
        const struct chex_relabel_finding *f = &p->findings[c];
        json_array_append_new(findings,
                              chex_result(CHEX_MEMBER(f, name), CHEX_MEMBER(f, in_set),
                                          CHEX_MEMBER(f, in_file), CHEX_MEMBER(f, changed),
                                          CHEX_FIELD("before", values_json(f->before)),
                                          CHEX_FIELD("after", values_json(f->after))));
    }
    return findings;
}

static json_t *plan_json(const struct chex_relabel_plan *p) {
    return chex_result(
        CHEX_FIELD("images_of_set", p->images), CHEX_FIELD("images_missing", p->images - p->kept),
        CHEX_FIELD("images_changed", p->changed), CHEX_FIELD("images_unused", p->unused),
        CHEX_MEMBER(p, other_patients), CHEX_FIELD("findings", findings_json(p)));
}

/* "12 -> 13", or "12" if nothing changes. */
static void print_change(size_t before, size_t after) {
    char text[48];
    if (before == after)
        snprintf(text, sizeof text, "%zu", before);
    else
        snprintf(text, sizeof text, "%zu -> %zu", before, after);
    printf(" %18s", text);
}

static void print_plan(const struct chex_relabel_plan *p) {
    static const char *const names[] = {"positive", "negative", "uncertain", "not stated"};
    int width = 18;
    for (size_t c = 0; c < p->finding_count; c++)
        if (chex_text_columns(p->findings[c].name) > width)
            width = chex_text_columns(p->findings[c].name);
    printf("%-*s %9s", width, "finding", "changed");
    for (int v = 0; v < CHEX_RELABEL_VALUES; v++)
        printf(" %18s", names[v]);
    printf("\n");
    for (size_t c = 0; c < p->finding_count; c++) {
        const struct chex_relabel_finding *f = &p->findings[c];
        chex_text_printf(stdout, "%-*s %9zu", chex_text_field(f->name, width), f->name, f->changed);
        for (int v = 0; v < CHEX_RELABEL_VALUES; v++)
            print_change(f->before[v], f->after[v]);
        printf("%s\n", !f->in_file ? "  not in the label file" : !f->in_set ? "  new" : "");
    }
    printf("images: %zu of the set, %zu with a changed label, %zu missing in the label file; "
           "%zu only there\n",
           p->images, p->changed, p->images - p->kept, p->unused);
}

static enum chex_status show_plan(const struct chex_relabel_plan *p, bool json,
                                  struct chex_error *err) {
    if (!json) {
        print_plan(p);
        return CHEX_OK;
    }
    json_t *head = chex_result(CHEX_FIELD("schema", "chexnet-shard-relabel"),
                               CHEX_FIELD("version", 1), CHEX_FIELD("output", json_null()));
    json_object_update_missing_new(head, plan_json(p));
    return chex_result_print(stdout, head, NULL, JSON_INDENT(1), err);
}

static enum chex_status show_result(const char *output, const struct chex_relabel_plan *p,
                                    const struct chex_create_result *result, bool json,
                                    struct chex_error *err) {
    json_t *o = shard_result_json("relabel", output, result);
    const double bytes = (double)(p->kept - result->kept_rows) * p->size * p->size;
    json_object_update_missing_new(o, plan_json(p));
    json_object_set_new(
        o, "mb_per_s",
        chex_json_real(result->seconds > 0 && !result->done ? bytes / result->seconds / 1e6 : 0.0));
    if (json || !o)
        return chex_result_print(stdout, o, NULL, JSON_INDENT(1), err);
    if (!result->done)
        print_plan(p);
    shard_print_result(o, 1, result);
    if (!result->done)
        chex_result_text(stdout, o, "{output}: {mb_per_s:.0f} MB/s of pixels\n");
    json_decref(o);
    return CHEX_OK;
}

static enum chex_status run_relabel(struct chex_opt_set *set, void *settings,
                                    struct chex_error *err) {
    const struct relabel_settings *s = settings;
    struct chex_relabel_plan plan = {0};
    struct chex_create_result result = {0};
    struct relabel r = {.options = s->relabel, .plan = &plan};
    struct chex_create_options *o = &r.options.create;
    int rank = 0;
    o->set = chex_opt_word(set, 0);
    o->format = chex_label_format_names[s->format];
    CHEX_TRY(shard_complete(o, NULL, err));
    if (!s->relabel.plan && !o->output)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--output: not given, expected the folder of the new set, or --plan "
                              "to count the changes");
    if (s->common.json && o->output)
        CHEX_TRY(chex_text_for_json("--output", o->output, "--json", err));
    enum chex_status st = shard_launched(relabel, o, &result, &rank, err), shown = CHEX_OK;
    struct chex_error unprinted = {0};
    if (rank != 0)
        err->text[0] = '\0';
    else if (s->relabel.plan && plan.findings)
        shown = show_plan(&plan, s->common.json, &unprinted);
    else if (st == CHEX_OK)
        shown = show_result(o->output, &plan, &result, s->common.json, &unprinted);
    if (st == CHEX_OK && shown != CHEX_OK)
        st = chex_error_set(err, shown, "%s", unprinted.text);
    chex_relabel_release(&plan);
    return st;
}

const struct chex_opt_program shard_relabel_program = {
    .name = "chex-shard relabel",
    .summary = "the images of a set with the labels of another file, without the images",
    .usage = "chex-shard relabel SET --labels FILE --output DIR [options]\n"
             "chex-shard relabel SET --labels FILE --plan",
    .opts = relabel_opts,
    .count = COUNT(relabel_opts),
    .epilog =
        "The findings and labels are those of FILE. Splits, order of rows, patients, views, ages\n"
        "and sexes stay as they are in SET. Pixels are copied and compared with their checksums;\n"
        "no image is decoded. Under srun the ranks share the work.\n\n"
        "Examples\n"
        "  chex-shard relabel shards/ --labels labels-2027.csv --plan\n"
        "  chex-shard relabel shards/ --labels labels-2027.csv --output "
        "shards-2027/\n\n" SHARD_EXIT_STATUS,
    .words = "one folder",
    .min_words = 1,
    .max_words = 1,
    .settings_size = sizeof(struct relabel_settings),
    .run = run_relabel,
    .word = "relabel",
};
