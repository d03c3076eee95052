/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes DIR/manifest.json (doc/shard-format.md).
 *
 * The file may be untrusted. The reader checks the type of every key and the range
 * of counts and sizes. It refuses shard files outside of the set's folder. The key "digest" is the
 * XXH3-128 of the other keys in canonical form. A mismatch is not an error here: it sets `altered`,
 * and `chex-shard verify` reports it.
 */
#include "shard/manifest.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/result.h"
#include "base/text.h"
#include "shard/shard_write.h"

static const char schema[] = "chexnet-manifest";

void chex_manifest_free(struct chex_manifest *m) {
    if (!m)
        return;
    for (size_t i = 0; m->classes && i < m->class_count; i++)
        free(m->classes[i]);
    free(m->classes);
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++) {
        struct chex_manifest_split *split = &m->splits[s];
        for (size_t i = 0; split->shards && i < split->shard_count; i++)
            free(split->shards[i].file);
        CHEX_FREE(split->shards, split->positives, split->uncertain);
    }
    CHEX_FREE(m->resize, m->tool_version, m->label_format, m->uncertain, m->split_mode, m->png16,
              m->source_digest, m->labels_digest, m);
}

void chex_manifest_source_digest(const uint64_t sum[2], const void *labels, size_t bytes,
                                 char out[CHEX_HASH128_HEX_BYTES]) {
    char digits[33];
    snprintf(digits, sizeof digits, "%016llx%016llx", (unsigned long long)sum[0],
             (unsigned long long)sum[1]);
    const struct chex_hash_part parts[] = {{digits, 32}, {labels, bytes}};
    chex_hash128_hex_of_parts(parts, 2, out);
}

/* ---- reading ----
 * `where` is the JSON object in error texts: "DIR/manifest.json" or "...: splits.train". */

/* The error of a manifest that is not valid. */
#define BAD(format, ...) chex_error_data(err, "%s: " format, where, __VA_ARGS__)

static enum chex_status get(const json_t *object, const char *where, const char *key, int type,
                            json_t **out, struct chex_error *err) {
    static const char *const kinds[] = {[JSON_OBJECT] = "an object",
                                        [JSON_ARRAY] = "a list",
                                        [JSON_STRING] = "text",
                                        [JSON_INTEGER] = "an integer"};
    json_t *value = json_object_get(object, key);
    if (!value)
        return BAD("no '%s'", key);
    if ((int)json_typeof(value) != type)
        return BAD("'%s' is not %s", key, kinds[type]);
    *out = value;
    return CHEX_OK;
}

static enum chex_status get_count(const json_t *object, const char *where, const char *key,
                                  size_t *out, struct chex_error *err) {
    json_t *value = NULL;
    CHEX_TRY(get(object, where, key, JSON_INTEGER, &value, err));
    json_int_t n = json_integer_value(value);
    if (n < 0)
        return BAD("'%s' is %lld, expected 0 or more", key, (long long)n);
    *out = (size_t)n;
    return CHEX_OK;
}

static enum chex_status get_text(const json_t *object, const char *where, const char *key,
                                 char **out, struct chex_error *err) {
    json_t *value = NULL;
    CHEX_TRY(get(object, where, key, JSON_STRING, &value, err));
    *out = strdup(json_string_value(value));
    return *out ? CHEX_OK : chex_error_memory(err, "%s", where);
}

static enum chex_status get_hex(const json_t *object, const char *where, const char *key,
                                uint64_t *out, struct chex_error *err) {
    json_t *value = NULL;
    char *end = NULL;
    CHEX_TRY(get(object, where, key, JSON_STRING, &value, err));
    *out = strtoull(json_string_value(value), &end, 16);
    if (json_string_length(value) != 16 || *end)
        return BAD("'%s' is not 16 hex digits", key);
    return CHEX_OK;
}

static enum chex_status read_classes(const json_t *root, const char *where, struct chex_manifest *m,
                                     struct chex_error *err) {
    json_t *list = NULL;
    CHEX_TRY(get(root, where, "classes", JSON_ARRAY, &list, err));
    size_t n = json_array_size(list);
    if (n < 1 || n > CHEX_MAX_CLASSES)
        return BAD("%zu findings, expected 1 to %d", n, (int)CHEX_MAX_CLASSES);
    m->classes = calloc(n, sizeof *m->classes);
    if (!m->classes)
        return chex_error_memory(err, "%s", where);
    m->class_count = n;
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!name)
            return BAD("finding %zu is not text", i);
        if (!(m->classes[i] = strdup(name)))
            return chex_error_memory(err, "%s", where);
    }
    return CHEX_OK;
}

static enum chex_status read_per_class(const json_t *split, const char *where, const char *key,
                                       const struct chex_manifest *m, size_t **out,
                                       struct chex_error *err) {
    json_t *object = NULL;
    CHEX_TRY(get(split, where, key, JSON_OBJECT, &object, err));
    if (!(*out = calloc(m->class_count, sizeof **out)))
        return chex_error_memory(err, "%s", where);
    for (size_t i = 0; i < m->class_count; i++)
        CHEX_TRY(get_count(object, where, m->classes[i], &(*out)[i], err));
    return CHEX_OK;
}

/* A manifest may be untrusted: its files must be inside the set's folder. */
static bool is_inside_folder(const char *file) {
    if (!*file || *file == '/')
        return false;
    for (const char *p = file; p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL)
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || !p[2]))
            return false;
    return true;
}

static enum chex_status read_shard(const json_t *item, const char *where,
                                   struct chex_manifest_shard *shard, struct chex_error *err) {
    if (!json_is_object(item))
        return chex_error_data(err, "%s: a shard is not an object", where);
    CHEX_TRY(get_text(item, where, "file", &shard->file, err));
    if (!is_inside_folder(shard->file))
        return BAD("file '%.200s' is not inside the folder", shard->file);
    CHEX_TRY(get_count(item, where, "rows", &shard->rows, err));
    CHEX_TRY(get_hex(item, where, "digest", &shard->digest, err));
    return shard->rows ? CHEX_OK : BAD("%s: 0 rows", shard->file);
}

static enum chex_status refuse_twice(const struct chex_manifest_split *split, const char *where,
                                     struct chex_error *err) {
    size_t n = split->shard_count;
    CHEX_AUTO_FREE const char **files = calloc(n, sizeof *files);
    if (!files)
        return chex_error_memory(err, "%s", where);
    for (size_t i = 0; i < n; i++)
        files[i] = split->shards[i].file;
    qsort(files, n, sizeof *files, chex_text_compare);
    for (size_t i = 1; i < n; i++)
        if (strcmp(files[i], files[i - 1]) == 0)
            return BAD("shard %.200s is listed twice", files[i]);
    return CHEX_OK;
}

static enum chex_status read_split(const json_t *object, const char *where, struct chex_manifest *m,
                                   struct chex_manifest_split *split, struct chex_error *err) {
    json_t *list = NULL;
    CHEX_TRY(get_count(object, where, "rows", &split->rows, err));
    CHEX_TRY(get_count(object, where, "patients", &split->patients, err));
    CHEX_TRY(read_per_class(object, where, "positives", m, &split->positives, err));
    CHEX_TRY(read_per_class(object, where, "uncertain", m, &split->uncertain, err));
    CHEX_TRY(get_hex(object, where, "members", &split->members, err));
    CHEX_TRY(get(object, where, "shards", JSON_ARRAY, &list, err));
    size_t n = json_array_size(list), rows = 0;
    if (n < 1)
        return chex_error_data(err, "%s: no shards", where);
    if (!(split->shards = calloc(n, sizeof *split->shards)))
        return chex_error_memory(err, "%s", where);
    split->shard_count = n;
    for (size_t i = 0; i < n; i++) {
        CHEX_TRY(read_shard(json_array_get(list, i), where, &split->shards[i], err));
        rows += split->shards[i].rows;
    }
    CHEX_TRY(refuse_twice(split, where, err));
    if (rows != split->rows)
        return BAD("rows is %zu, but its shards have %zu", split->rows, rows);
    return CHEX_OK;
}

static enum chex_status read_splits(const json_t *root, const char *where, struct chex_manifest *m,
                                    struct chex_error *err) {
    json_t *splits = NULL;
    CHEX_TRY(get(root, where, "splits", JSON_OBJECT, &splits, err));
    const char *key;
    json_t *value;
    json_object_foreach(splits, key, value) {
        int s = 0;
        while (s < CHEX_SPLIT_COUNT && strcmp(chex_split_names[s], key) != 0)
            s++;
        if (s == CHEX_SPLIT_COUNT || !json_is_object(value))
            return BAD("split '%.60s': expected an object named train, val, test or all", key);
        char inner[CHEX_ERROR_TEXT_BYTES];
        snprintf(inner, sizeof inner, "%.400s: splits.%.40s", where, key);
        CHEX_TRY(read_split(value, inner, m, &m->splits[s], err));
    }
    return CHEX_OK;
}

static enum chex_status read_root(const json_t *root, const char *where, struct chex_manifest *m,
                                  struct chex_error *err) {
    if (!json_is_object(root))
        return chex_error_data(err, "%s: not a JSON object", where);
    const char *name = json_string_value(json_object_get(root, "schema"));
    if (!name || strcmp(name, schema) != 0)
        return BAD("'schema' is not \"%s\"", schema);
    size_t version = 0, size = 0, seed = 0;
    CHEX_TRY(get_count(root, where, "version", &version, err));
    if (version != CHEX_MANIFEST_VERSION)
        return BAD("version %zu, this program reads version %d%s", version,
                   (int)CHEX_MANIFEST_VERSION,
                   version > CHEX_MANIFEST_VERSION ? ": a newer chexnet wrote it" : "");
    CHEX_TRY(get_count(root, where, "size", &size, err));
    if (size < 1 || size > CHEX_SHARD_MAX_SIZE_PX)
        return BAD("size is %zu px, expected 1 to %d", size, (int)CHEX_SHARD_MAX_SIZE_PX);
    m->size = (int)size;
    CHEX_TRY(get_count(root, where, "seed", &seed, err));
    m->seed = seed;
    CHEX_TRY(get_count(root, where, "rejected", &m->rejected, err));
    CHEX_TRY(read_classes(root, where, m, err));
    CHEX_TRY(get_text(root, where, "resize", &m->resize, err));
    CHEX_TRY(get_text(root, where, "tool_version", &m->tool_version, err));
    CHEX_TRY(get_text(root, where, "label_format", &m->label_format, err));
    CHEX_TRY(get_text(root, where, "uncertain", &m->uncertain, err));
    CHEX_TRY(get_text(root, where, "split_mode", &m->split_mode, err));
    if (json_object_get(root, "png16"))
        CHEX_TRY(get_text(root, where, "png16", &m->png16, err));
    CHEX_TRY(get_text(root, where, "source_digest", &m->source_digest, err));
    CHEX_TRY(get_text(root, where, "labels_digest", &m->labels_digest, err));
    return read_splits(root, where, m, err);
}

static bool has_image_files(const char *dir) {
    static const char *const suffixes[] = {".png", ".jpg", ".jpeg", ".dcm"};
    CHEX_AUTO(chex_fs_closedir_at) DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        for (size_t i = 0; dot && i < CHEX_COUNT(suffixes); i++)
            if (strcasecmp(dot, suffixes[i]) == 0)
                return true;
    }
    return false;
}

/* The error of a folder without a manifest, with a guess of what the folder is. */
static enum chex_status no_manifest(const char *dir, struct chex_error *err) {
    const char *what = "not a set of shards, or an unfinished one";
    if (chex_fs_exists(chex_path(dir, "../" CHEX_MANIFEST_NAME).text))
        what = "this is a part of a set of shards, expected the folder above it";
    else if (chex_fs_exists(chex_path(dir, "metrics.jsonl").text))
        what = "this is the output of chex-train, expected a set of shards";
    else if (chex_fs_exists(chex_path(dir, "images").text) || has_image_files(dir))
        what = "these are images, expected a set of shards: make it with chex-shard create";
    return chex_error_data(err, "%s: no " CHEX_MANIFEST_NAME ": %s", dir, what);
}

/* XXH3-128 of the object in canonical form: without "digest", keys sorted, no spaces. False: out of
 * memory. */
static bool content_digest(const json_t *root, char out[CHEX_HASH128_HEX_BYTES]) {
    json_auto_t *copy = json_copy((json_t *)(uintptr_t)root);
    json_object_del(copy, "digest");
    CHEX_AUTO_FREE char *text = json_dumps(copy, JSON_COMPACT | JSON_SORT_KEYS);
    if (text)
        chex_hash128_hex(text, strlen(text), out);
    return text != NULL;
}

static bool is_altered(const json_t *root) {
    char digest[CHEX_HASH128_HEX_BYTES];
    const char *stated = json_string_value(json_object_get(root, "digest"));
    return !stated || !content_digest(root, digest) || strcmp(stated, digest) != 0;
}

enum chex_status chex_manifest_read(const char *dir, struct chex_manifest **manifest_out,
                                    struct chex_error *err) {
    enum { LIMIT = 256 << 20 };
    if (!chex_fs_is_dir(dir))
        return chex_error_data(err, "%s: %s", dir,
                               chex_fs_exists(dir)
                                   ? "a file, expected the folder of a set of shards"
                                   : "no such folder");
    const struct chex_path path = chex_path(dir, CHEX_MANIFEST_NAME);
    CHEX_AUTO(chex_manifest_free_at) struct chex_manifest *m = chex_alloc_zeroed(1, sizeof *m);
    CHEX_AUTO_FREE char *text = NULL;
    json_error_t fault;
    size_t size = 0;
    if (!m)
        return chex_error_memory(err, "%s", dir);
    if (!chex_fs_exists(path.text))
        return no_manifest(dir, err);
    CHEX_TRY(chex_fs_read(path.text, LIMIT, &text, &size, err));
    json_auto_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &fault);
    if (!root)
        return chex_error_data(err, "%s line %d column %d: %s", path.text, fault.line, fault.column,
                               fault.text);
    CHEX_TRY(read_root(root, path.text, m, err));
    m->altered = is_altered(root);
    *manifest_out = CHEX_TAKE(m);
    return CHEX_OK;
}

static json_t *split_json(const struct chex_manifest *m, const struct chex_manifest_split *split) {
    json_t *shards = json_array();
    for (size_t i = 0; i < split->shard_count; i++) {
        const struct chex_manifest_shard *s = &split->shards[i];
        char digest[17];
        snprintf(digest, sizeof digest, "%016llx", (unsigned long long)s->digest);
        json_array_append_new(shards, json_pack("{s:s, s:I, s:s}", "file", s->file, "rows",
                                                (json_int_t)s->rows, "digest", digest));
    }
    char members[17];
    snprintf(members, sizeof members, "%016llx", (unsigned long long)split->members);
    return json_pack("{s:I, s:I, s:o, s:o, s:s, s:o}", "rows", (json_int_t)split->rows, "patients",
                     (json_int_t)split->patients, "positives",
                     chex_result_counts(m->classes, split->positives, m->class_count), "uncertain",
                     chex_result_counts(m->classes, split->uncertain, m->class_count), "members",
                     members, "shards", shards);
}

enum chex_status chex_manifest_write(const char *dir, const struct chex_manifest *m,
                                     struct chex_error *err) {
    json_t *splits = json_object();
    for (int s = 0; s < CHEX_SPLIT_COUNT; s++)
        if (m->splits[s].shard_count)
            json_object_set_new(splits, chex_split_names[s], split_json(m, &m->splits[s]));
    json_auto_t *root = json_pack(
        "{s:s, s:i, s:s, s:o, s:i, s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:I, s:o}", "schema", schema,
        "version", (int)CHEX_MANIFEST_VERSION, "tool_version", m->tool_version, "classes",
        chex_result_texts(m->classes, m->class_count), "size", m->size, "resize", m->resize,
        "label_format", m->label_format, "uncertain", m->uncertain, "split_mode", m->split_mode,
        "seed", (json_int_t)m->seed, "source_digest", m->source_digest, "labels_digest",
        m->labels_digest, "rejected", (json_int_t)m->rejected, "splits", splits);
    const struct chex_path path = chex_path(dir, CHEX_MANIFEST_NAME);
    char digest[CHEX_HASH128_HEX_BYTES];
    CHEX_AUTO_FREE char *text = NULL;
    if (!root)
        return chex_error_data(err, "%s: a name in it is not UTF-8", path.text);
    if (m->png16)
        json_object_set_new(root, "png16", json_string(m->png16));
    if (content_digest(root, digest) &&
        json_object_set_new(root, "digest", json_string(digest)) == 0)
        text = json_dumps(root, JSON_INDENT(1));
    return text ? chex_fs_write(path.text, text, strlen(text), err)
                : chex_error_memory(err, "%s", dir);
}
