/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest, a set of shards that it lists, and the plan of rows.
 */
#include <unistd.h>

#include "base/fs.h"
#include "ingest/folder.h"
#include "ingest/layout.h"
#include "label/split.h"
#include "shard/manifest.h"
#include "shard/members.h"
#include "shard/shard_write.h"
#include "shard/verify.h"
#include "tap.h"

enum { SIZE = 16, PIXELS = SIZE * SIZE, CLASSES = 2 };
static const char *const class_names[] = {"Mass", "Edema"};
static char dir[] = "/tmp/chex-unit-manifest.XXXXXX";

static char *path_of(const char *name) {
    char *p = chex_fs_join(dir, name);
    BAIL_UNLESS(p, "out of memory");
    return p;
}

/* Shard k of train has rows k*10 .. k*10 + n; one patient a row. */
struct part {
    size_t from;
    char image[32], patient[32];
    int8_t labels[CLASSES];
};

static void get_row(const void *arg, size_t i, struct chex_shard_row *out) {
    static struct part p;
    size_t row = *(const size_t *)arg + i;
    snprintf(p.image, sizeof p.image, "i%03zu.png", row);
    snprintf(p.patient, sizeof p.patient, "p%03zu", row);
    p.labels[0] = row % 2 == 0;
    p.labels[1] = (int8_t)(row % 3 == 0 ? -1 : 0);
    *out = (struct chex_shard_row){
        .image_id = p.image, .patient_id = p.patient, .labels = p.labels, .age_years = -1};
}

static void make_shard(const char *file, const char *split, size_t from, size_t rows) {
    struct chex_error err = {0};
    struct chex_shard_writer *w = NULL;
    struct chex_shard_spec spec = {.rows = rows,
                                   .size = SIZE,
                                   .classes = CLASSES,
                                   .class_names = class_names,
                                   .resize = "pillow-bilinear",
                                   .split = split,
                                   .tool_version = "t",
                                   .row = get_row,
                                   .arg = &from};
    char *path = path_of(file);
    BAIL_UNLESS(chex_shard_create(path, &spec, &w, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < rows; i++) {
        uint8_t pixels[PIXELS];
        memset(pixels, (int)(from + i), sizeof pixels);
        BAIL_UNLESS(chex_shard_put(w, i, pixels, &err) == CHEX_OK, "%s", err.text);
    }
    BAIL_UNLESS(chex_shard_finish(w, "0123456789abcdef0123456789abcdef", &err) == CHEX_OK, "%s",
                err.text);
    free(path);
}

static struct chex_shard *open_shard(const char *file) {
    struct chex_error err = {0};
    struct chex_shard *s = NULL;
    char *path = path_of(file);
    BAIL_UNLESS(chex_shard_open(path, &s, &err) == CHEX_OK, "%s", err.text);
    free(path);
    return s;
}

static uint64_t digest_of(const char *file) {
    struct chex_shard *s = open_shard(file);
    uint64_t digest = chex_shard_digest(s);
    chex_shard_close(s);
    return digest;
}

static uint64_t members_of(const char *file) {
    struct chex_shard *s = open_shard(file);
    const uint64_t members = chex_members_sum(s);
    chex_shard_close(s);
    return members;
}

/* A template in JSON with the first shard's rows and digest open. */
static void write_text(const char *text) {
    struct chex_error err = {0};
    char *path = path_of(CHEX_MANIFEST_NAME);
    BAIL_UNLESS(chex_fs_write(path, text, strlen(text), &err) == CHEX_OK, "%s", err.text);
    free(path);
}

static char *text_of(const char *extra_shard) {
    return chex_fs_format(
        "{\"schema\":\"chexnet-manifest\",\"version\":1,\"tool_version\":\"t\","
        "\"classes\":[\"Mass\",\"Edema\"],\"size\":16,\"resize\":\"pillow-bilinear\","
        "\"label_format\":\"nih\",\"uncertain\":\"keep\",\"split_mode\":\"patient\",\"seed\":3,"
        "\"source_digest\":\"d\",\"labels_digest\":\"d\",\"rejected\":0,\"splits\":{\"train\":{"
        "\"rows\":15,"
        "\"patients\":15,\"positives\":{\"Mass\":8,\"Edema\":0},"
        "\"uncertain\":{\"Mass\":0,\"Edema\":5},\"members\":\"%016llx\",\"shards\":["
        "{\"file\":\"train/a.h5\",\"rows\":8,\"digest\":\"%016llx\"},"
        "{\"file\":\"train/b.h5\",\"rows\":7,\"digest\":\"%016llx\"}%s]}}}",
        (unsigned long long)(members_of("train/a.h5") + members_of("train/b.h5")),
        (unsigned long long)digest_of("train/a.h5"), (unsigned long long)digest_of("train/b.h5"),
        extra_shard);
}

/* Replaces `from` by `to` in the good text and looks at the fault. */
static void check_edit(const char *from, const char *to, const char *fault) {
    struct chex_error err = {0};
    struct chex_manifest *m = NULL;
    char *text = text_of(""), *hit = strstr(text, from);
    BAIL_UNLESS(hit, "no %s", from);
    char *edited = chex_fs_format("%.*s%s%s", (int)(hit - text), text, to, hit + strlen(from));
    write_text(edited);
    OK_STATUS(chex_manifest_read(dir, &m, &err), CHEX_E_DATA, err, fault);
    free(edited);
    free(text);
}

static void check_edits(void) {
    check_edit("{\"schema\"", "{schema", "manifest.json line 1 column 7");
    check_edit("chexnet-manifest", "something", "'schema' is not");
    check_edit("\"version\":1", "\"version\":2",
               "version 2, this program reads version 1: a newer");
    check_edit("\"version\":1,", "", "no 'version'");
    check_edit("\"size\":16", "\"size\":\"16\"", "'size' is not an integer");
    check_edit("\"size\":16", "\"size\":0", "size is 0 px");
    check_edit("\"seed\":3", "\"seed\":-3", "'seed' is -3");
    check_edit("[\"Mass\",\"Edema\"]", "[]", "0 findings");
    check_edit("[\"Mass\",\"Edema\"]", "[\"Mass\",7]", "finding 1 is not text");
    check_edit("\"train\":{", "\"training\":{", "split 'training'");
    check_edit("\"rows\":15", "\"rows\":16", "rows is 16, but its shards have 15");
    check_edit("train/a.h5", "../a.h5", "'../a.h5' is not inside the folder");
    check_edit("train/a.h5", "/a.h5", "not inside the folder");
    check_edit("train/a.h5", "train/../../a.h5", "not inside the folder");
    check_edit("\"Mass\":8,", "", "no 'Mass'");
    check_edit("\"digest\":\"", "\"digest\":\"z", "'digest' is not 16 hex digits");
    check_edit("\"size\":16", "\"size\":16,\"size\":17", "duplicate");
}

static void check_set(void) {
    struct chex_error err = {0};
    struct chex_set *set = NULL;
    size_t rows = 99, at = 0;
    char *text = text_of("");
    write_text(text);
    free(text);
    OK_STATUS(chex_set_open(dir, CHEX_TRAIN, 0, SIZE_MAX, &set, &err), CHEX_OK, err, NULL);
    BAIL_UNLESS(set, "no set");
    OK(set->rows == 15 && set->shard_count == 2 && set->first[1] == 8 && set->first[2] == 15,
       "rows are numbered through");
    bool right = true;
    for (size_t row = 0; row < 15; row++) {
        const struct chex_shard *s = chex_set_locate(set, row, &at);
        char want[16];
        snprintf(want, sizeof want, "i%03zu.png", row < 8 ? row : row + 2);
        right = right && s && strcmp(chex_shard_image_id(s, at), want) == 0;
    }
    OK(right, "every row is found in its shard");
    OK(!strcmp(chex_set_class_names(set)[1], "Edema") &&
           !strcmp(chex_set_source_digest(set), "d") &&
           !strcmp(chex_set_resize(set), "pillow-bilinear"),
       "names, digest and kernel come from the manifest");
    chex_set_close(set);
    OK_STATUS(chex_set_open(dir, CHEX_TRAIN, 8, 15, &set, &err), CHEX_OK, err, NULL);
    OK(!set->shards[0] && set->shards[1], "only the shards of the rows asked for are open");
    chex_set_close(set);
    OK_STATUS(chex_set_rows(dir, CHEX_TRAIN, &rows, &err), CHEX_OK, err, NULL);
    OK(rows == 15, "rows of train");
    OK_STATUS(chex_set_rows(dir, CHEX_TEST, &rows, &err), CHEX_OK, err, NULL);
    OK(rows == 0, "rows of a split that is not there");
    OK_STATUS(chex_set_open(dir, CHEX_VAL, 0, SIZE_MAX, &set, &err), CHEX_E_DATA, err,
              "no split 'val'");
    /* The same two shards as two splits. */
    static const char cut[] =
        "}]},\"test\":{\"rows\":7,\"patients\":7,\"positives\":"
        "{\"Mass\":3,\"Edema\":0},\"uncertain\":{\"Mass\":0,\"Edema\":2},"
        "\"members\":\"0123456789abcdef\",\"shards\":[{\"file\":\"train/b.h5\"";
    text = text_of("");
    const char *rows_at = strstr(text, "\"rows\":15"),
               *b_at = strstr(text, "},{\"file\":\"train/b");
    BAIL_UNLESS(rows_at && b_at, "the text has no two shards");
    char *two = chex_fs_format("%.*s\"rows\":8%.*s%s%s", (int)(rows_at - text), text,
                               (int)(b_at - rows_at - 9), rows_at + 9, cut,
                               b_at + strlen("},{\"file\":\"train/b.h5\""));
    write_text(two);
    const struct chex_splits every = {0, CHEX_SPLIT_COUNT};
    OK_STATUS(chex_set_open_splits(dir, every, 0, SIZE_MAX, NULL, NULL, &set, &err), CHEX_E_DATA,
              err, "b.h5: of split 'train', the manifest says 'test'");
    OK_STATUS(chex_set_open_splits(dir, every, 0, 8, NULL, NULL, &set, &err), CHEX_OK, err, NULL);
    OK(set->rows == 15 && set->shard_count == 2 && set->first[1] == 8 && set->split == CHEX_ALL &&
           set->shards[0] && !set->shards[1],
       "all splits as one: rows are numbered through, and only the shards asked for are open");
    chex_set_close(set);
    free(two);
    write_text(text);
    free(text);
    struct chex_manifest *m = NULL;
    struct chex_verify_result result;
    BAIL_UNLESS(chex_manifest_read(dir, &m, &err) == CHEX_OK, "%s", err.text);
    OK(m->altered, "a manifest without its digest counts as changed");
    OK_STATUS(chex_manifest_write(dir, m, &err), CHEX_OK, err, NULL);
    chex_manifest_free(m);
    OK_STATUS(chex_verify(dir, NULL, 2, false, &result, &err), CHEX_OK, err, NULL);
    OK(result.rows == 15 && result.shards == 2 && result.bytes == 15 * PIXELS, "verify reads all");
}

static void check_mismatch(const char *from, const char *to, const char *fault) {
    struct chex_error err = {0};
    struct chex_set *set = NULL;
    char *text = text_of(""), *hit = strstr(text, from);
    BAIL_UNLESS(hit, "no %s", from);
    char *edited = chex_fs_format("%.*s%s%s", (int)(hit - text), text, to, hit + strlen(from));
    write_text(edited);
    OK_STATUS(chex_set_open(dir, CHEX_TRAIN, 0, SIZE_MAX, &set, &err), CHEX_E_DATA, err, fault);
    free(edited);
    free(text);
}

static void check_mismatches(void) {
    struct chex_error err = {0};
    struct chex_set *set = NULL;
    struct chex_verify_result result;
    check_mismatch("\"size\":16", "\"size\":17", "images of 16 px, the manifest says 17");
    check_mismatch("\"resize\":\"pillow-bilinear\"", "\"resize\":\"area\"", "resized by");
    check_mismatch("train/b.h5", "train/c.h5", "c.h5");
    check_mismatch("train/b.h5", "train/a.h5", "shard train/a.h5 is listed twice");
    char *text = text_of("");
    char *hit = strstr(text, "\"digest\":\"") + 10;
    *hit = *hit == '0' ? '1' : '0';
    write_text(text);
    OK_STATUS(chex_set_open(dir, CHEX_TRAIN, 0, SIZE_MAX, &set, &err), CHEX_E_DATA, err,
              "changed since the set was made");
    free(text);
    text = text_of("");
    hit = strstr(text, "\"patients\":15");
    memcpy(hit, "\"patients\":14", 13);
    write_text(text);
    OK_STATUS(chex_verify(dir, NULL, 1, false, &result, &err), CHEX_E_DATA, err,
              "15 patients, the manifest says 14");
    OK(result.fault_count == 1 && !result.faults[0].file && result.rows == 15,
       "a fault of the set has no file, and the shards were read");
    chex_verify_release(&result);
    free(text);
    char *path = path_of(CHEX_MANIFEST_NAME);
    unlink(path);
    free(path);
    OK_STATUS(chex_set_open(dir, CHEX_TRAIN, 0, SIZE_MAX, &set, &err), CHEX_E_DATA, err,
              "no manifest.json");
    OK_STATUS(chex_set_open("/nonexistent", CHEX_TRAIN, 0, SIZE_MAX, &set, &err), CHEX_E_DATA, err,
              "no such folder");
}

static void check_round_trip(void) {
    struct chex_error err = {0};
    struct chex_manifest *a = NULL, *b = NULL;
    char *text = text_of("");
    write_text(text);
    free(text);
    OK_STATUS(chex_manifest_read(dir, &a, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_manifest_write(dir, a, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_manifest_read(dir, &b, &err), CHEX_OK, err, NULL);
    OK(a && b && a->seed == b->seed && a->size == b->size &&
           a->splits[CHEX_TRAIN].shards[1].digest == b->splits[CHEX_TRAIN].shards[1].digest &&
           b->splits[CHEX_TRAIN].positives[0] == 8 && b->splits[CHEX_TRAIN].uncertain[1] == 5,
       "what is written is read");
    OK(!b->altered, "the digest matches what was written");
    chex_manifest_free(b);
    char *path = path_of(CHEX_MANIFEST_NAME), *seed;
    BAIL_UNLESS(chex_fs_read(path, 1 << 20, &text, NULL, &err) == CHEX_OK, "%s", err.text);
    free(path);
    BAIL_UNLESS((seed = strstr(text, "\"seed\": 3")), "%s", text);
    seed[8] = '4';
    write_text(text);
    free(text);
    OK_STATUS(chex_manifest_read(dir, &b, &err), CHEX_OK, err, NULL);
    OK(b && b->altered, "a changed number does not match the digest");
    chex_manifest_free(a);
    chex_manifest_free(b);
    chex_manifest_free(NULL);
}

enum { IMAGES = 1003 };
static struct chex_label_row rows[IMAGES];
static enum chex_split splits[IMAGES];
static bool left_out[IMAGES];
static char names[IMAGES][16];

/* Where each row went: shard number + 1, 0 for nowhere. False where one is there twice. */
static bool places(const struct chex_layout *plan, size_t *place) {
    memset(place, 0, IMAGES * sizeof *place);
    for (size_t s = 0; s < plan->shard_count; s++)
        for (size_t i = 0; i < plan->shards[s].row_count; i++) {
            size_t row = plan->shards[s].rows[i];
            if (place[row] || plan->shards[s].split != splits[row])
                return false;
            place[row] = s + 1;
        }
    return true;
}

static bool balanced(const struct chex_layout *plan) {
    for (size_t a = 0; a < plan->shard_count; a++)
        for (size_t b = 0; b < plan->shard_count; b++)
            if (plan->shards[a].split == plan->shards[b].split &&
                plan->shards[a].row_count > plan->shards[b].row_count + 1)
                return false;
    return true;
}

static void check_plan(void) {
    struct chex_error err = {0};
    struct chex_label_table table = {.rows = rows, .count = IMAGES};
    struct chex_layout *plan = NULL, *again = NULL;
    static size_t first[IMAGES], second[IMAGES];
    for (size_t i = 0; i < IMAGES; i++) {
        snprintf(names[i], sizeof names[i], "%05zu.png", i);
        rows[i].image_id = names[i];
        splits[i] = i % 10 == 0 ? CHEX_VAL : i % 10 == 1 ? CHEX_TEST : CHEX_TRAIN;
    }
    splits[5] = (enum chex_split)CHEX_SPLIT_UNUSED;
    OK_STATUS(chex_layout_create(&table, splits, NULL, 16, 9, &plan, &err), CHEX_OK, err, NULL);
    OK(plan->shard_count == 48 && plan->rows[CHEX_TRAIN] == 800 && plan->rows[CHEX_ALL] == 0,
       "16 shards of each split, none of a split without rows");
    OK(places(plan, first) && balanced(plan) && !first[5], "each row once, shards balanced");
    size_t runs = 0;
    for (size_t i = 1; i < plan->shards[0].row_count; i++)
        runs += plan->shards[0].rows[i] > plan->shards[0].rows[i - 1];
    OK(runs > 10 && runs < 40, "rows are shuffled: %zu of 49 steps go up", runs);

    left_out[77] = left_out[512] = true;
    OK_STATUS(chex_layout_create(&table, splits, left_out, 16, 9, &again, &err), CHEX_OK, err,
              NULL);
    OK(places(again, second) && balanced(again) && !second[77] && !second[512],
       "without two rows: each other row once, shards balanced");
    size_t changed = 0;
    for (size_t s = 0; s < plan->shard_count; s++)
        changed += plan->shards[s].row_count != again->shards[s].row_count ||
                   memcmp(plan->shards[s].rows, again->shards[s].rows,
                          plan->shards[s].row_count * sizeof(size_t)) != 0;
    OK(changed >= 1 && changed <= 4, "two rows left out change %zu of 48 shards", changed);
    chex_layout_free(again);

    OK_STATUS(chex_layout_create(&table, splits, NULL, 16, 10, &again, &err), CHEX_OK, err, NULL);
    places(again, second);
    OK(memcmp(first, second, sizeof first) != 0, "another seed, another plan");
    chex_layout_free(again);
    chex_layout_free(plan);
    OK_STATUS(chex_layout_create(&table, splits, NULL, 700, 9, &plan, &err), CHEX_OK, err, NULL);
    OK(plan->shard_count == 700 + 101 + 101, "never a shard without a row");
    char *name = chex_layout_shard_name(&plan->shards[3]);
    OK(name && !strcmp(name, "train-00003-of-00700"), "%s", name);
    free(name);
    chex_layout_free(plan);
}

static void check_folder(void) {
    struct chex_error err = {0};
    struct chex_folder *f = NULL;
    const struct chex_folder_file *hit, *rival;
    static const char *const files[] = {"im/a/x.png", "im/b/x.png", "im/b/y.png", "im/z.png"};
    for (size_t i = 0; i < 4; i++) {
        char *p = path_of(files[i]), *folder = strdup(p);
        *strrchr(folder, '/') = '\0';
        chex_fs_mkdirs(folder, &err);
        chex_fs_write(p, "12345", 5, &err);
        free(folder);
        free(p);
    }
    char *top = path_of("im");
    OK_STATUS(chex_folder_open(top, &f, &err), CHEX_OK, err, NULL);
    OK(chex_folder_count(f) == 4, "four files below the folder");
    hit = chex_folder_find(f, "y.png", &rival);
    OK(hit && strstr(hit->path, "im/b/y.png") && !rival && hit->bytes == 5, "found by its name");
    hit = chex_folder_find(f, "x.png", &rival);
    OK(hit && rival && rival != hit, "two files of one name are rivals");
    hit = chex_folder_find(f, "b/x.png", &rival);
    OK(hit && strstr(hit->path, "im/b/x.png") && !rival, "a path tells them apart");
    hit = chex_folder_find(f, "other/y.png", &rival);
    OK(hit && strstr(hit->path, "im/b/y.png"), "another folder's name is no obstacle");
    OK(!chex_folder_find(f, "q.png", NULL) && !chex_folder_find(f, "", NULL), "none such");
    chex_folder_close(f);
    OK_STATUS(chex_folder_open("/nonexistent", &f, &err), CHEX_E_DATA, err,
              "cannot read image folder /nonexistent");
    free(top);
}

int main(void) {
    struct chex_error err = {0};
    BAIL_UNLESS(mkdtemp(dir), "no scratch folder");
    char *train = path_of("train");
    BAIL_UNLESS(chex_fs_mkdirs(train, &err) == CHEX_OK, "%s", err.text);
    free(train);
    make_shard("train/a.h5", "train", 0, 8);
    make_shard("train/b.h5", "train", 10, 7);
    check_edits();
    check_set();
    check_mismatches();
    check_round_trip();
    check_plan();
    check_folder();
    chex_fs_remove_tree(dir, &err);
    return tap_done();
}
