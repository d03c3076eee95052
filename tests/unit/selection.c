/* SPDX-License-Identifier: Apache-2.0
 *
 * A selection numbers the chosen rows of one or several sets, aligns their findings by name and
 * applies the policies for uncertain labels. Each row's pixels and id name its set and its number,
 * so every row that a selection returns is compared with the definition.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/text.h"
#include "shard/selection.h"
#include "shard/shard_write.h"
#include "tap.h"
#include "thread_ranks.h"

enum { SIZE = 8, PIXELS = SIZE * SIZE, SETS = 2, CLASSES = 3, RANKS = 3 };
static char dir[] = "/tmp/chex-unit-selection.XXXXXX";

/* Set 1 has the findings of set 0 in another order and spelling, and one of its own. */
static const char *const class_names[SETS][CLASSES] = {{"Mass", "Edema", "Effusion"},
                                                       {"effusion", "Hernia", "Mass"}};
static const struct {
    const char *split, *file;
    size_t rows;
} files[SETS][3] = {
    {{"train", "train/a.h5", 130}, {"train", "train/b.h5", 71}, {"val", "val/a.h5", 40}},
    {{"train", "train/a.h5", 500}, {"train", "train/b.h5", 1}, {"val", "val/a.h5", 9}}};

struct facts {
    int8_t labels[CLASSES];
    enum chex_view view;
    int age;
    char sex;
};

/* What row `row` of a file of a set states. */
static struct facts facts_of(int set, int file, size_t row) {
    struct facts f = {.view = (enum chex_view)(row % 4),
                      .age = row % 10 ? (int)(row * 7 % 90) : -1,
                      .sex = row % 5 == 0 ? 0
                             : row % 2    ? 'F'
                                          : 'M'};
    for (int c = 0; c < CLASSES; c++)
        f.labels[c] = (int8_t)((row + (size_t)(set + file + c)) % 4) - 2;
    return f;
}

struct file {
    int set, number;
};

static void get_row(const void *arg, size_t i, struct chex_shard_row *out) {
    static char image[32];
    static struct facts f;
    const struct file *of = arg;
    f = facts_of(of->set, of->number, i);
    snprintf(image, sizeof image, "%d-%d-%zu", of->set, of->number, i);
    *out = (struct chex_shard_row){.image_id = image,
                                   .patient_id = image,
                                   .labels = f.labels,
                                   .view = f.view,
                                   .age_years = f.age,
                                   .sex = f.sex};
}

static void pixels_of(int set, int file, size_t row, uint8_t *out) {
    memset(out, set * 3 + file, PIXELS);
    out[0] = (uint8_t)(row >> 8);
    out[1] = (uint8_t)row;
}

static char *path_of(int set, const char *name) {
    char *p = chex_fs_format("%s/%c/%s", dir, 'a' + set, name);
    BAIL_UNLESS(p, "out of memory");
    return p;
}

static uint64_t make_shard(int set, int number) {
    struct chex_error err = {0};
    struct chex_shard_writer *w = NULL;
    struct chex_shard *s = NULL;
    const struct file of = {set, number};
    const struct chex_shard_spec spec = {.rows = files[set][number].rows,
                                         .size = SIZE,
                                         .classes = CLASSES,
                                         .class_names = class_names[set],
                                         .resize = "pillow-bilinear",
                                         .split = files[set][number].split,
                                         .tool_version = "t",
                                         .row = get_row,
                                         .arg = &of};
    char *path = path_of(set, files[set][number].file);
    BAIL_UNLESS(chex_shard_create(path, &spec, &w, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < spec.rows; i++) {
        uint8_t pixels[PIXELS];
        pixels_of(set, number, i, pixels);
        BAIL_UNLESS(chex_shard_put(w, i, pixels, &err) == CHEX_OK, "%s", err.text);
    }
    BAIL_UNLESS(chex_shard_finish(w, "0123456789abcdef0123456789abcdef", &err) == CHEX_OK, "%s",
                err.text);
    BAIL_UNLESS(chex_shard_open(path, &s, &err) == CHEX_OK, "%s", err.text);
    const uint64_t digest = chex_shard_digest(s);
    chex_shard_close(s);
    free(path);
    return digest;
}

static void write_manifest(int set, const uint64_t digests[3], int size, const char *source) {
    struct chex_error err = {0};
    struct chex_manifest_shard shards[3];
    size_t none[CLASSES] = {0};
    struct chex_manifest m = {.classes = (char **)class_names[set],
                              .class_count = CLASSES,
                              .size = size,
                              .resize = (char[]){"pillow-bilinear"},
                              .tool_version = (char[]){"t"},
                              .label_format = (char[]){"csv"},
                              .uncertain = (char[]){"keep"},
                              .split_mode = (char[]){"patient"},
                              .source_digest = (char *)source,
                              .labels_digest = (char[]){"d"}};
    for (int i = 0; i < 3; i++)
        shards[i] = (struct chex_manifest_shard){(char *)files[set][i].file, files[set][i].rows,
                                                 digests[i]};
    for (int k = 0; k < CHEX_SPLIT_COUNT; k++)
        m.splits[k] = (struct chex_manifest_split){.positives = none, .uncertain = none};
    m.splits[CHEX_TRAIN].shards = shards;
    m.splits[CHEX_TRAIN].shard_count = 2;
    m.splits[CHEX_TRAIN].rows = m.splits[CHEX_TRAIN].patients = shards[0].rows + shards[1].rows;
    m.splits[CHEX_VAL].shards = shards + 2;
    m.splits[CHEX_VAL].shard_count = 1;
    m.splits[CHEX_VAL].rows = m.splits[CHEX_VAL].patients = shards[2].rows;
    char *path = path_of(set, "");
    BAIL_UNLESS(chex_manifest_write(path, &m, &err) == CHEX_OK, "%s", err.text);
    free(path);
}

static uint64_t digests[SETS][3];

static void make_sets(void) {
    struct chex_error err = {0};
    BAIL_UNLESS(mkdtemp(dir), "no scratch folder");
    for (int set = 0; set < SETS; set++) {
        for (int i = 0; i < 2; i++) {
            char *folder = path_of(set, i ? "val" : "train");
            BAIL_UNLESS(chex_fs_mkdirs(folder, &err) == CHEX_OK, "%s", err.text);
            free(folder);
        }
        for (int i = 0; i < 3; i++)
            digests[set][i] = make_shard(set, i);
        write_manifest(set, digests[set], SIZE, set ? "digest-b" : "digest-a");
    }
}

/* ---- selections ---- */

/* --data: the sets of the mask. */
static char *data_of(int mask) {
    char *text = mask == 3 ? chex_fs_format("%s/a,%s/b", dir, dir)
                           : chex_fs_format("%s/%c", dir, mask == 1 ? 'a' : 'b');
    BAIL_UNLESS(text, "out of memory");
    return text;
}

static enum chex_status create(int mask, const char *findings, const char *uncertain,
                               const char *where, struct chex_selection **out,
                               struct chex_error *err) {
    char *data = data_of(mask);
    const struct chex_selection_config c = {data, findings, uncertain, where};
    *out = NULL;
    const enum chex_status st = chex_selection_create(&c, out, err);
    free(data);
    return st;
}

struct rank {
    struct chex_selection *s;
    enum chex_status status;
    struct chex_error err;
};

static void choose(struct chex_group *group, void *arg) {
    struct rank *r = arg;
    const struct chex_selection_ranks ranks = {.group = group};
    r->status = chex_selection_choose(r->s, &ranks, &r->err);
}

static struct chex_selection *selection(int mask, const char *findings, const char *uncertain,
                                        const char *where) {
    struct rank r = {0};
    BAIL_UNLESS(create(mask, findings, uncertain, where, &r.s, &r.err) == CHEX_OK, "%s",
                r.err.text);
    ranks_run(1, choose, &r, sizeof r);
    BAIL_UNLESS(r.status == CHEX_OK, "%s", r.err.text);
    return r.s;
}

static struct chex_set *open_rows(const struct chex_selection *s, enum chex_part part, size_t from,
                                  size_t to) {
    struct chex_error err = {0};
    struct chex_set *set = NULL;
    BAIL_UNLESS(chex_selection_open(s, part, from, to, NULL, NULL, NULL, &set, &err) == CHEX_OK,
                "%s", err.text);
    return set;
}

/* The row of a set that row `row` of the selection is. */
struct origin {
    int set, file;
    size_t row;
};

static struct origin origin_of(const struct chex_set *set, size_t row) {
    struct origin o;
    size_t at;
    const struct chex_shard *shard = chex_set_locate(set, row, &at);
    BAIL_UNLESS(
        shard && sscanf(chex_shard_image_id(shard, at), "%d-%d-%zu", &o.set, &o.file, &o.row) == 3,
        "row %zu has no image id", row);
    return o;
}

/* Whether rows [from, to) have the pixels of their origin. Reads runs of neighbours. */
static bool has_pixels(const struct chex_set *set, size_t from, size_t to, size_t *longest) {
    static uint8_t got[512 * PIXELS];
    uint8_t want[PIXELS];
    struct chex_error err = {0};
    bool good = true;
    for (size_t row = from, n; row < to; row += n) {
        size_t at;
        const struct chex_shard *shard = chex_set_locate(set, row, &at);
        n = chex_set_neighbours(set, shard, at, row, to - row < 512 ? to - row : 512);
        *longest = n > *longest ? n : *longest;
        good = good && chex_shard_read(shard, at, n, true, got, &err) == CHEX_OK;
        for (size_t i = 0; good && i < n; i++) {
            const struct origin o = origin_of(set, row + i);
            pixels_of(o.set, o.file, o.row, want);
            good = memcmp(got + i * PIXELS, want, PIXELS) == 0;
        }
    }
    return good;
}

/* The label of a finding by its name; -2: the set does not have it. */
static int8_t stated(struct origin o, const char *name) {
    for (int c = 0; c < CLASSES; c++)
        if (strcasecmp(class_names[o.set][c], name) == 0)
            return facts_of(o.set, o.file, o.row).labels[c];
    return CHEX_LABEL_NOT_STATED;
}

static bool has_labels(const struct chex_set *set, size_t from, size_t to, int8_t uncertain) {
    bool good = true;
    for (size_t row = from; row < to; row++)
        for (int c = 0; c < set->classes; c++) {
            int8_t want = stated(origin_of(set, row), set->class_names[c]);
            want = want == CHEX_LABEL_UNCERTAIN ? uncertain : want;
            good = good && chex_set_labels(set, row)[c] == want;
        }
    return good;
}

static void check_plain(void) {
    struct chex_selection *s = selection(1, NULL, NULL, NULL);
    struct chex_set *set = open_rows(s, CHEX_PART_TRAIN, 0, 201);
    size_t longest = 0;
    OK(!s->mapped && !s->own_labels && !s->uncertain_target,
       "without options nothing is in the way");
    OK(!set->in_shard && !set->labels && !set->parts, "the set is the set itself");
    OK(set->rows == 201 && set->classes == 3 && !strcmp(set->source_digest, "digest-a"),
       "its header");
    OK(has_pixels(set, 0, 201, &longest) && longest == 130, "rows are read to the end of a shard");
    chex_set_close(set);
    chex_selection_destroy(s);
}

static void check_findings(void) {
    struct chex_selection *s = selection(1, "edema,MASS", "Edema=ones", NULL);
    struct chex_set *set = open_rows(s, CHEX_PART_TRAIN, 100, 150);
    bool good = set->classes == 2 && !strcmp(set->class_names[0], "Edema") &&
                !strcmp(set->class_names[1], "Mass");
    OK(good, "the findings are those of the list, in its order, with the set's spelling");
    for (size_t row = 100; good && row < 150; row++) {
        const struct origin o = origin_of(set, row);
        const int8_t edema = stated(o, "Edema"), mass = stated(o, "Mass");
        good = chex_set_labels(set, row)[0] == (edema == -1 ? 1 : edema) &&
               chex_set_labels(set, row)[1] == mass;
    }
    OK(good, "a policy of one finding changes its labels only");
    OK(s->own_labels && !s->mapped && !set->in_shard, "the rows stay those of the set");
    chex_set_close(set);
    chex_selection_destroy(s);
    s = selection(1, NULL, "zeros,Mass=smooth,effusion=smooth:0.25", NULL);
    OK(s->uncertain_target && s->uncertain_target[0] == CHEX_SMOOTH_DEFAULT &&
           s->uncertain_target[1] < 0 && s->uncertain_target[2] == 0.25f,
       "smooth gives the loss a target");
    OK(s->policies[0].label == -1 && s->policies[1].label == 0 && s->policies[2].label == -1,
       "and leaves the label uncertain");
    chex_selection_destroy(s);
}

/* An epoch uses each row of set b three times: each use has a number, and its own piece. */
static void check_weights(void) {
    struct rank r = {0};
    char *data = data_of(3);
    struct chex_selection_config c = {.data = data, .weights = "1,3"};
    BAIL_UNLESS(chex_selection_create(&c, &r.s, &r.err) == CHEX_OK, "%s", r.err.text);
    ranks_run(1, choose, &r, sizeof r);
    const size_t rows = r.s->rows[CHEX_PART_TRAIN], third = rows / 3;
    OK(rows == 201 + 3 * 501 && r.s->rows[CHEX_PART_VAL] == 49 && r.s->total[0] == 702,
       "weights 1,3: %zu training rows, and each validation row once", rows);
    struct chex_set *set = open_rows(r.s, CHEX_PART_TRAIN, 0, rows);
    static int uses[SETS][2][512], early;
    size_t longest = 0;
    for (size_t row = 0; row < rows; row++) {
        const struct origin o = origin_of(set, row);
        uses[o.set][o.file][o.row]++;
        early += o.set == 0 && row < third;
    }
    bool good = true;
    for (int s = 0; s < SETS; s++)
        for (int f = 0; f < 2; f++)
            for (size_t i = 0; i < files[s][f].rows; i++)
                good = good && uses[s][f][i] == (s ? 3 : 1);
    OK(good, "each row of the second set has three numbers, each of the first one");
    OK(early > 201 / 3 - 64 && early < 201 / 3 + 64, "a third of the rows has a third of each set");
    OK(has_pixels(set, 0, rows, &longest) && has_labels(set, 0, rows, CHEX_LABEL_UNCERTAIN),
       "all have their pixels and labels");
    chex_set_close(set);
    set = open_rows(r.s, CHEX_PART_TRAIN, third, 2 * third);
    OK(has_pixels(set, third, 2 * third, &longest), "a range over the end of a use is read too");
    chex_set_close(set);
    chex_selection_destroy(r.s);
    static const char *const bad[] = {"1", "1,2,3", "1,0", "1,x", "1,", "1,1.5", "1,1001"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        c.weights = bad[i];
        OK(chex_selection_create(&c, &r.s, &r.err) == CHEX_E_USAGE, "%s", r.err.text);
    }
    free(data);
}

/* The number of rows of the split of a set that `view=PA,age>=18` admits. */
static size_t count_adults(int set, int from_file, int to_file) {
    size_t count = 0;
    for (int f = from_file; f < to_file; f++)
        for (size_t row = 0; row < files[set][f].rows; row++) {
            const struct facts k = facts_of(set, f, row);
            count += k.view == CHEX_VIEW_PA && k.age >= 18;
        }
    return count;
}

static void check_where(void) {
    struct chex_selection *s = selection(1, NULL, NULL, "view=PA,age>=18");
    const size_t want = count_adults(0, 0, 2), val = count_adults(0, 2, 3);
    struct chex_set *set = open_rows(s, CHEX_PART_TRAIN, 0, want);
    size_t longest = 0, before = 0;
    bool good = set->rows == want && s->rows[CHEX_PART_VAL] == val && s->total[0] == 201;
    OK(good, "as many rows as meet the conditions: %zu of %zu, and %zu of val", set->rows,
       s->total[0], s->rows[1]);
    for (size_t row = 0; good && row < want; row++) {
        const struct origin o = origin_of(set, row);
        const struct facts f = facts_of(o.set, o.file, o.row);
        const size_t place = (size_t)o.file * 1000 + o.row;
        good = f.view == CHEX_VIEW_PA && f.age >= 18 && (row == 0 || place > before);
        before = place;
    }
    OK(good, "all rows meet them, in the order of the set");
    OK(has_pixels(set, 0, want, &longest) && longest == 1, "rows with gaps are no neighbours");
    OK(has_labels(set, 0, want, -1) && !set->labels, "their labels are those of the shards");
    chex_set_close(set);
    chex_selection_destroy(s);
}

/* The rows that a condition admits, against a count by hand. */
static void check_conditions(void) {
    static const struct {
        const char *where;
        size_t rows;
    } cases[] = {{"view=unknown", 0}, {"view!=PA", 0},       {"view=PA|AP", 0}, {"sex=F", 0},
                 {"sex!=f", 0},       {"sex=unknown", 0},    {"age<18", 0},     {"age!=unknown", 0},
                 {"age=unknown", 0},  {"age>17,age<=40", 0}, {"source=a", 0}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct chex_selection *s = selection(1, NULL, NULL, cases[k].where);
        size_t want = 0;
        for (int f = 0; f < 2; f++)
            for (size_t row = 0; row < files[0][f].rows; row++) {
                const struct facts x = facts_of(0, f, row);
                const bool met[] = {x.view == CHEX_VIEW_UNKNOWN,
                                    x.view == CHEX_VIEW_AP || x.view == CHEX_VIEW_LATERAL,
                                    x.view == CHEX_VIEW_PA || x.view == CHEX_VIEW_AP,
                                    x.sex == 'F',
                                    x.sex == 'M',
                                    x.sex == 0,
                                    x.age >= 0 && x.age < 18,
                                    x.age >= 0,
                                    x.age<0, x.age> 17 && x.age <= 40,
                                    true};
                want += met[k];
            }
        OK(s->rows[CHEX_PART_TRAIN] == want, "%s: %zu rows of %zu", cases[k].where, s->rows[0],
           want);
        chex_selection_destroy(s);
    }
}

/* Two sets: every row once, the findings by name, and a mixture in every range. */
static void check_two_sets(void) {
    static bool seen[SETS][2][500];
    struct chex_selection *s = selection(3, NULL, "zeros", NULL);
    const size_t rows = 201 + 501;
    struct chex_set *set = open_rows(s, CHEX_PART_TRAIN, 0, rows);
    size_t longest = 0, of_first_half = 0;
    bool once = set->rows == rows, sources = true;
    for (size_t row = 0; once && row < rows; row++) {
        const struct origin o = origin_of(set, row);
        once = !seen[o.set][o.file][o.row];
        seen[o.set][o.file][o.row] = true;
        sources = sources && chex_selection_source_of(s, CHEX_PART_TRAIN, row) == o.set;
        of_first_half += row < rows / 2 && o.set == 0;
    }
    OK(once, "every row of both sets is there once");
    OK(sources, "each row has its source");
    OK(of_first_half >= 64 && of_first_half <= 137,
       "half of the rows has %zu of 201 rows of the first set", of_first_half);
    OK(set->classes == 4 && !strcmp(set->class_names[2], "Effusion") &&
           !strcmp(set->class_names[3], "Hernia"),
       "the findings are the union");
    OK(has_labels(set, 0, rows, 0), "labels are aligned by name, and missing ones are not stated");
    OK(has_pixels(set, 0, rows, &longest) && longest == 64, "pieces are read whole");
    OK(!strcmp(set->source_digest, "digest-a+digest-b"), "%s", set->source_digest);
    chex_set_close(set);
    /* A part of the rows: only its shards are open, and it has the same rows. */
    set = open_rows(s, CHEX_PART_TRAIN, 300, 320);
    OK(has_labels(set, 300, 320, 0) && has_pixels(set, 300, 320, &longest),
       "a range of rows alone");
    chex_set_close(set);
    set = open_rows(s, CHEX_PART_VAL, 0, 49);
    OK(set->rows == 49 && has_labels(set, 0, 49, 0), "the validation rows");
    chex_set_close(set);
    chex_selection_destroy(s);
    s = selection(3, NULL, NULL, "source=b");
    set = open_rows(s, CHEX_PART_TRAIN, 0, 501);
    OK(set->rows == 501 && origin_of(set, 0).set == 1 && !set->parts[0],
       "a condition on the source");
    chex_set_close(set);
    chex_selection_destroy(s);
}

/* Rows of a span hold what the range of rows needs, for all ranges. */
static void check_spans(void) {
    struct chex_selection *s = selection(3, NULL, NULL, "view=PA|AP");
    const size_t rows = s->rows[CHEX_PART_TRAIN];
    struct chex_set *set = open_rows(s, CHEX_PART_TRAIN, 0, rows);
    bool good = true;
    for (size_t from = 0; from < rows; from += 13)
        for (size_t to = from; to <= rows; to += 29)
            for (int k = 0; k < SETS; k++) {
                size_t first, end, low = SIZE_MAX, high = 0;
                chex_selection_span(s, CHEX_PART_TRAIN, k, from, to, &first, &end);
                for (size_t row = from; row < to; row++) {
                    const struct origin o = origin_of(set, row);
                    const size_t at = (o.file ? files[k][0].rows : 0) + o.row;
                    low = o.set == k && at < low ? at : low;
                    high = o.set == k && at + 1 > high ? at + 1 : high;
                }
                good = good && (high ? first == low && end == high : first == end);
            }
    OK(good, "a span holds the rows of a range, and no more");
    chex_set_close(set);
    chex_selection_destroy(s);
}

/* Three ranks judge a third of the rows each, and get the rows of one. */
static void check_ranks(void) {
    static const char where[] = "age>=18,sex=F|unknown";
    struct chex_selection *alone = selection(3, NULL, NULL, where);
    struct rank ranks[RANKS] = {0};
    bool same = true;
    for (int r = 0; r < RANKS; r++)
        BAIL_UNLESS(create(3, NULL, NULL, where, &ranks[r].s, &ranks[r].err) == CHEX_OK, "%s",
                    ranks[r].err.text);
    ranks_run(RANKS, choose, ranks, sizeof *ranks);
    for (int r = 0; r < RANKS; r++) {
        const struct chex_selection *s = ranks[r].s;
        same = same && ranks[r].status == CHEX_OK && s->rows[0] == alone->rows[0] &&
               s->rows[1] == alone->rows[1] &&
               !memcmp(s->map[0].in_shard, alone->map[0].in_shard, s->rows[0] * sizeof(uint32_t)) &&
               !memcmp(s->map[0].source, alone->map[0].source, s->map[0].pieces * sizeof(int));
        chex_selection_destroy(ranks[r].s);
    }
    OK(same, "three ranks choose the rows that one chooses");
    chex_selection_destroy(alone);
}

/* ---- errors ---- */

static enum chex_status try(int mask, const char *findings, const char *uncertain,
                            const char *where, struct chex_error *err) {
    struct rank r = {0};
    r.status = create(mask, findings, uncertain, where, &r.s, &r.err);
    if (r.status == CHEX_OK)
        ranks_run(1, choose, &r, sizeof r);
    chex_selection_destroy(r.s);
    *err = r.err;
    return r.status;
}

static void check_refused(int mask, const char *findings, const char *uncertain, const char *where,
                          enum chex_status status, const char *text) {
    struct chex_error err = {0};
    OK_STATUS(try(mask, findings, uncertain, where, &err), status, err, text);
}

static void check_errors(void) {
    check_refused(1, "Mas", NULL, NULL, CHEX_E_USAGE, "no finding 'Mas'; did you mean Mass?");
    check_refused(1, "Pneumonia", NULL, NULL, CHEX_E_USAGE, "it has Mass, Edema, Effusion");
    check_refused(1, "Mass,,Edema", NULL, NULL, CHEX_E_USAGE, "no finding ''");
    check_refused(1, "Mass,mass", NULL, NULL, CHEX_E_USAGE, "Mass is listed twice");
    check_refused(3, "Hernia", NULL, NULL, CHEX_E_USAGE, "/a has none of them");
    check_refused(1, NULL, "maybe", NULL, CHEX_E_USAGE, "'maybe', expected ignore, zeros");
    check_refused(1, NULL, "smooth:2", NULL, CHEX_E_USAGE, "'smooth:2', expected");
    check_refused(1, NULL, "Edema=ones,zeros", NULL, CHEX_E_USAGE, "only the first policy");
    check_refused(1, NULL, "Edema=ones,edema=zeros", NULL, CHEX_E_USAGE, "Edema has two policies");
    check_refused(1, "Mass", "Edema=ones", NULL, CHEX_E_USAGE, "no finding 'Edema'");
    check_refused(1, NULL, NULL, "view", CHEX_E_USAGE, "expected conditions such as view=PA");
    check_refused(1, NULL, NULL, "views=PA", CHEX_E_USAGE,
                  "'views', expected view, age, sex or source");
    check_refused(1, NULL, NULL, "view>PA", CHEX_E_USAGE, "'view', expected = or !=");
    check_refused(1, NULL, NULL, "view=side", CHEX_E_USAGE, "'side', expected PA, AP, lateral");
    check_refused(1, NULL, NULL, "age>=x", CHEX_E_USAGE, "'x', expected an age");
    check_refused(1, NULL, NULL, "age>=18,,sex=F", CHEX_E_USAGE, "'', expected conditions");
    check_refused(3, NULL, NULL, "source=c", CHEX_E_USAGE, "'c' is no set of --data");
    check_refused(1, NULL, NULL, "age>150", CHEX_E_DATA, "none of the 201 training images");
    write_manifest(1, digests[1], SIZE, "digest-a");
    check_refused(3, NULL, NULL, NULL, CHEX_E_DATA, "are the same set (source digest digest-a)");
    write_manifest(1, digests[1], SIZE + 1, "digest-b");
    check_refused(3, NULL, NULL, NULL, CHEX_E_DATA, "images of 8 px and");
    write_manifest(1, digests[1], SIZE, "digest-b");
}

int main(void) {
    struct chex_error err = {0};
    make_sets();
    check_plain();
    check_findings();
    check_weights();
    check_where();
    check_conditions();
    check_two_sets();
    check_spans();
    check_ranks();
    check_errors();
    chex_fs_remove_tree(dir, &err);
    return tap_done();
}
