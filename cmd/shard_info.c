/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard info: what a set or a shard holds.
 */
#include "shard_commands.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/fs.h"
#include "base/result.h"
#include "base/text.h"
#include "report/table.h"
#include "shard/manifest.h"
#include "shard/shard.h"

static const struct chex_opt plain_opts[] = {CHEX_OPT_COMMON};

static bool any(const struct chex_manifest *m, bool uncertain) {
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        for (size_t c = 0; m->splits[s].shard_count && c < m->class_count; c++)
            if ((uncertain ? m->splits[s].uncertain : m->splits[s].positives)[c])
                return true;
    return false;
}

static void print_classes(const struct chex_manifest *m, int width, bool uncertain) {
    chex_text_printf(stdout, "\n%s:%s", uncertain ? "uncertain" : "positive",
                     any(m, uncertain) ? "" : " none");
    for (size_t c = 0; any(m, uncertain) && c < m->class_count; c++) {
        chex_text_printf(stdout, "\n  %-*s", chex_text_field(m->classes[c], width), m->classes[c]);
        for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
            const struct chex_manifest_split *p = &m->splits[s];
            if (p->shard_count)
                chex_text_printf(stdout, " %9zu", (uncertain ? p->uncertain : p->positives)[c]);
        }
    }
}

static void print_set(const char *dir, const struct chex_manifest *m) {
    chex_text_printf(stdout, "%s: %d x %d px, %s, by %s\n", dir, m->size, m->size, m->resize,
                     m->tool_version);
    chex_text_printf(stdout,
                     "labels %s, uncertain %s, split %s, seed %llu, rejected %zu\nsource %s\n\n",
                     m->label_format, m->uncertain, m->split_mode, (unsigned long long)m->seed,
                     m->rejected, m->source_digest);
    static const char *const rows[] = {"images", "patients", "shards"};
    const int width = chex_names_width(m->classes, (int)m->class_count, 18);
    chex_text_printf(stdout, "%-*s", width + 2, "");
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (m->splits[s].shard_count)
            chex_text_printf(stdout, " %9s", chex_split_names[s]);
    for (int line = 0; line < 3; line++) {
        chex_text_printf(stdout, "\n%-*s", width + 2, rows[line]);
        for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
            const struct chex_manifest_split *p = &m->splits[s];
            size_t value[] = {p->rows, p->patients, p->shard_count};
            if (p->shard_count)
                chex_text_printf(stdout, " %9zu", value[line]);
        }
    }
    print_classes(m, width, false);
    print_classes(m, width, true);
    chex_text_printf(stdout, "\n");
}

static json_t *set_json(const struct chex_manifest *m) {
    json_t *splits = json_object();
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        const struct chex_manifest_split *p = &m->splits[s];
        if (p->shard_count)
            json_object_set_new(
                splits, chex_split_names[s],
                chex_result(CHEX_MEMBER(p, rows), CHEX_MEMBER(p, patients),
                            CHEX_FIELD("shards", p->shard_count),
                            CHEX_FIELD("positives", chex_result_counts(m->classes, p->positives,
                                                                       m->class_count)),
                            CHEX_FIELD("uncertain", chex_result_counts(m->classes, p->uncertain,
                                                                       m->class_count))));
    }
    return chex_result(CHEX_FIELD("schema", "chexnet-shard-info"), CHEX_FIELD("version", 1),
                       CHEX_FIELD("kind", "set"), CHEX_MEMBER(m, size), CHEX_MEMBER(m, resize),
                       CHEX_MEMBER(m, label_format), CHEX_MEMBER(m, split_mode),
                       CHEX_MEMBER(m, seed), CHEX_MEMBER(m, source_digest),
                       CHEX_MEMBER(m, tool_version), CHEX_MEMBER(m, rejected),
                       CHEX_FIELD("classes", chex_result_texts(m->classes, m->class_count)),
                       CHEX_FIELD("splits", splits));
}

static enum chex_status info_set(const char *dir, bool json, struct chex_error *err) {
    struct chex_manifest *m = NULL;
    enum chex_status st = CHEX_OK;
    CHEX_TRY(chex_manifest_read(dir, &m, err));
    if (json)
        st = chex_result_print(stdout, set_json(m), NULL, JSON_INDENT(1), err);
    else
        print_set(dir, m);
    chex_manifest_free(m);
    return st;
}

/* Label counts of one shard. */
struct counts {
    char **names;                  // (classes), borrowed from the shard
    size_t *positives, *uncertain; // (classes)
    size_t studies, sizes;         // rows with a study, with the size of the image file
};

static json_t *shard_json(const struct chex_shard *s, const struct counts *n) {
    char digest[17];
    size_t classes = (size_t)chex_shard_classes(s);
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)chex_shard_digest(s));
    return chex_result(
        CHEX_FIELD("schema", "chexnet-shard-info"), CHEX_FIELD("version", 1),
        CHEX_FIELD("kind", "shard"), CHEX_FIELD("split", chex_shard_split(s)),
        CHEX_FIELD("rows", chex_shard_rows(s)), CHEX_FIELD("size", chex_shard_size(s)),
        CHEX_FIELD("resize", chex_shard_resize(s)),
        CHEX_FIELD("source_digest", chex_shard_source_digest(s)),
        CHEX_FIELD("tool_version", chex_shard_tool_version(s)), CHEX_FIELD("digest", digest),
        CHEX_FIELD("study_ids", n->studies), CHEX_FIELD("original_sizes", n->sizes),
        CHEX_FIELD("positives", chex_result_counts(n->names, n->positives, classes)),
        CHEX_FIELD("uncertain", chex_result_counts(n->names, n->uncertain, classes)));
}

static void print_shard(const struct chex_shard *s, const struct counts *n) {
    size_t classes = (size_t)chex_shard_classes(s);
    const int width = chex_names_width(n->names, (int)classes, 18);
    chex_text_printf(
        stdout,
        "%s: %zu images of split %s, %d x %d px, %s, by %s\nsource %s, digest %016llx\n"
        "rows with a study id: %zu, with the size of the image file: %zu\n\n"
        "%-*s %9s %9s\n",
        chex_shard_path(s), chex_shard_rows(s), chex_shard_split(s), chex_shard_size(s),
        chex_shard_size(s), chex_shard_resize(s), chex_shard_tool_version(s),
        chex_shard_source_digest(s), (unsigned long long)chex_shard_digest(s), n->studies, n->sizes,
        width + 2, "", "positive", "uncertain");
    for (size_t c = 0; c < classes; c++)
        chex_text_printf(stdout, "  %-*s %9zu %9zu\n", chex_text_field(n->names[c], width),
                         n->names[c], n->positives[c], n->uncertain[c]);
}

static void count(const struct chex_shard *s, struct counts *n) {
    for (size_t i = 0; i < chex_shard_rows(s); i++) {
        n->studies += chex_shard_study_id(s, i) != NULL;
        n->sizes += chex_shard_original_width(s, i) > 0;
    }
    for (int c = 0; c < chex_shard_classes(s); c++) {
        n->names[c] = (char *)chex_shard_class(s, c);
        for (size_t i = 0; i < chex_shard_rows(s); i++) {
            n->positives[c] += chex_shard_labels(s, i)[c] == 1;
            n->uncertain[c] += chex_shard_labels(s, i)[c] == CHEX_LABEL_UNCERTAIN;
        }
    }
}

static enum chex_status info_shard(const char *path, bool json, struct chex_error *err) {
    struct chex_shard *s = NULL;
    CHEX_TRY(chex_shard_open(path, &s, err));
    size_t classes = (size_t)chex_shard_classes(s);
    struct counts n = {.names = calloc(classes, sizeof *n.names),
                       .positives = calloc(classes, sizeof *n.positives),
                       .uncertain = calloc(classes, sizeof *n.uncertain)};
    enum chex_status st = CHEX_OK;
    if (!n.names || !n.positives || !n.uncertain)
        st = chex_error_memory(err, "%s", path);
    else
        count(s, &n);
    if (st == CHEX_OK && json)
        st = chex_result_print(stdout, shard_json(s, &n), NULL, JSON_INDENT(1), err);
    else if (st == CHEX_OK)
        print_shard(s, &n);
    free(n.names);
    free(n.positives);
    free(n.uncertain);
    chex_shard_close(s);
    return st;
}

static enum chex_status run_info(struct chex_opt_set *set, void *settings, struct chex_error *err) {
    const struct chex_opt_common *s = settings;
    const char *path = chex_opt_word(set, 0);
    bool is_file = chex_fs_exists(path) && !chex_fs_is_dir(path);
    return is_file ? info_shard(path, s->json, err) : info_set(path, s->json, err);
}

const struct chex_opt_program shard_info_program = {
    .name = "chex-shard info",
    .summary = "what a set or a shard holds",
    .usage = "chex-shard info DIR|FILE [--json]",
    .opts = plain_opts,
    .count = COUNT(plain_opts),
    .epilog = "Examples\n  chex-shard info shards/\n"
              "  chex-shard info shards/val/val-00000-of-00016.h5 --json\n\n" SHARD_EXIT_STATUS,
    .words = "one folder or file",
    .min_words = 1,
    .max_words = 1,
    .settings_size = sizeof(struct chex_opt_common),
    .run = run_info,
    .alone = true,
    .word = "info",
};
