/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters in files of torch.save.
 *
 * Both formats hold a pickle in which a tensor is a call of torch._utils._rebuild_tensor_v2 with a
 * storage, an offset, a shape and strides. A storage is a persistent object: ("storage", type, key,
 * device, elements). Its bytes are elsewhere:
 * - zip format: the pickle is the member NAME/data.pkl, storages are the members NAME/data/KEY.
 * - format before PyTorch 1.6: pickles of a magic number, of a protocol number, of properties of
 *   the system, of the data and of the list of keys; then, for each key, the number of elements in
 *   8 bytes and the elements.
 * Source: torch/serialization.py.
 *
 * The file is not trusted: every size and offset is checked against its storage, and walks through
 * the objects are bounded in depth and in steps.
 */
#include "model/torch_file.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "model/pickle.h"
#include "model/zip.h"

enum {
    MAX_DEPTH = 32,      /* of modules in modules */
    MAX_STEPS = 1 << 24, /* entries that one walk looks at */
    MAX_TENSORS = 1 << 16,
    MAX_FOUND = 8,
    SEARCH_DEPTH = 3,
    LEGACY_PROTOCOL = 1001,
    NAME_BYTES = 512,
};
static const uint64_t max_file_bytes = (uint64_t)4 << 30;

typedef const struct chex_pickle_value value;

/* Types of storages: class torch.NAME or torch.cuda.NAME. */
static const struct {
    const char *name, *dtype;
} storage_types[] = {
    {"FloatStorage", "F32"},  {"HalfStorage", "F16"}, {"BFloat16Storage", "BF16"},
    {"DoubleStorage", "F64"}, {"LongStorage", "I64"}, {"IntStorage", "I32"},
    {"ShortStorage", "I16"},  {"CharStorage", "I8"},  {"ByteStorage", "U8"},
    {"BoolStorage", "BOOL"},
};

/* A storage of the format before 1.6. */
struct legacy_storage {
    const char *key;
    size_t key_bytes;
    const struct chex_dtype *type; /* NULL: unknown */
    const char *data;              /* NULL: not in the file */
    uint64_t bytes;
};

struct reader {
    const char *path;
    const char *data;
    size_t bytes;
    struct chex_pickle *pickle;
    struct chex_zip zip; /* zip format */
    const char *prefix;  /* of the names of members: "archive/" */
    size_t prefix_bytes;
    struct legacy_storage *legacy; /* sorted by key; NULL: zip format */
    size_t legacy_count;
    struct chex_tensor_set *set;
    size_t steps; /* of walks */
    struct chex_error *err;
};

static enum chex_status damaged(const struct reader *r, const char *what) {
    return chex_error_data(r->err, "%s: %s", r->path, what);
}

/* ---- values ---- */

static bool is_call_of(value *v, const char *module, const char *name) {
    return v && v->kind == CHEX_PICKLE_CALL && chex_pickle_is_global(v->callable, module, name);
}

/* Item i of a tuple, or NULL. */
static value *item(value *tuple, size_t i) {
    return tuple && tuple->kind == CHEX_PICKLE_TUPLE && i < tuple->count ? tuple->items[i] : NULL;
}

/* Python 2 pickles an OrderedDict as OrderedDict([[key, value], ...]). */
static value *pairs_of_python2(value *v) {
    value *list = is_call_of(v, "collections", "OrderedDict") ? item(v->args, 0) : NULL;
    return list && list->kind == CHEX_PICKLE_LIST ? list : NULL;
}

/* Number of entries of a dictionary or of an object that behaves like one; 0 for other values. */
static size_t entries_of(value *v) {
    if (!v)
        return 0;
    if (v->kind == CHEX_PICKLE_DICT || (v->kind == CHEX_PICKLE_CALL && v->pairs))
        return v->count / 2;
    value *pairs = pairs_of_python2(v);
    return pairs ? pairs->count : 0;
}

/* Entry i. Its key is NULL if it is not text. */
static value *entry(value *v, size_t i, value **key_out) {
    value *key, *content;
    if (v->kind == CHEX_PICKLE_DICT || v->pairs) {
        key = v->items[2 * i];
        content = v->items[2 * i + 1];
    } else {
        value *pair = pairs_of_python2(v)->items[i];
        const bool good =
            pair->count == 2 && (pair->kind == CHEX_PICKLE_LIST || pair->kind == CHEX_PICKLE_TUPLE);
        key = good ? pair->items[0] : NULL;
        content = good ? pair->items[1] : NULL;
    }
    *key_out = key && key->kind == CHEX_PICKLE_TEXT ? key : NULL;
    return content;
}

static value *lookup(value *dictionary, const char *name) {
    for (size_t i = 0; i < entries_of(dictionary); i++) {
        value *key, *content = entry(dictionary, i, &key);
        if (chex_pickle_is_text(key, name))
            return content;
    }
    return NULL;
}

/* The attributes of a pickled torch.nn.Module, or NULL. */
static value *attributes_of(value *v) {
    value *state = v && v->kind == CHEX_PICKLE_CALL ? v->state : NULL;
    return lookup(state, "_modules") && lookup(state, "_parameters") ? state : NULL;
}

/* The call that builds a tensor, without the parameter around it; NULL: not a tensor. */
static value *tensor_arguments(value *v) {
    for (int depth = 0; depth < 4 && v && v->kind == CHEX_PICKLE_CALL; depth++) {
        value *function = v->callable, *args = v->args;
        if (chex_pickle_is_global(function, "torch._tensor", "_rebuild_from_type_v2")) {
            function = item(args, 0);
            args = item(args, 2);
        }
        if (chex_pickle_is_global(function, "torch._utils", "_rebuild_tensor_v2") ||
            chex_pickle_is_global(function, "torch._utils", "_rebuild_tensor"))
            return args;
        if (!chex_pickle_is_global(function, "torch._utils", "_rebuild_parameter") &&
            !chex_pickle_is_global(function, "torch._utils", "_rebuild_parameter_with_state"))
            return NULL;
        v = item(args, 0);
    }
    return NULL;
}

/* ---- storages ---- */

static const struct chex_dtype *type_of(value *v) {
    for (size_t i = 0; i < CHEX_COUNT(storage_types); i++)
        if (chex_pickle_is_global(v, "torch", storage_types[i].name) ||
            chex_pickle_is_global(v, "torch.cuda", storage_types[i].name))
            return chex_dtype_find(storage_types[i].dtype);
    return NULL;
}

/* The tuple ("storage", type, key, device, elements, ...) of a persistent object, or NULL. */
static value *storage_id(value *v) {
    value *id = v && v->kind == CHEX_PICKLE_PERSISTENT ? v->args : NULL, *key = item(id, 2);
    return chex_pickle_is_text(item(id, 0), "storage") && key && key->kind == CHEX_PICKLE_TEXT
               ? id
               : NULL;
}

static int by_key(const void *a, const void *b) {
    const struct legacy_storage *x = a, *y = b;
    const size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    const int order = memcmp(x->key, y->key, n);
    return order ? order : x->key_bytes < y->key_bytes ? -1 : x->key_bytes > y->key_bytes;
}

static struct legacy_storage *find_legacy(const struct reader *r, value *key) {
    const struct legacy_storage want = {.key = key->text, .key_bytes = key->text_bytes};
    return bsearch(&want, r->legacy, r->legacy_count, sizeof want, by_key);
}

/* The bytes of a storage. */
static enum chex_status find_storage(const struct reader *r, value *id, const char **data_out,
                                     uint64_t *bytes_out) {
    value *key = item(id, 2);
    char name[NAME_BYTES];
    if (r->legacy) {
        const struct legacy_storage *s = find_legacy(r, key);
        if (!s || !s->data)
            return damaged(r, "a tensor's data is not in the file (truncated?)");
        *data_out = s->data;
        *bytes_out = s->bytes;
        return CHEX_OK;
    }
    const int n = snprintf(name, sizeof name, "%.*sdata/%.*s", (int)r->prefix_bytes, r->prefix,
                           key->text_bytes < NAME_BYTES ? (int)key->text_bytes : 0, key->text);
    struct chex_zip_member *member =
        n > 0 && n < NAME_BYTES ? chex_zip_find(&r->zip, name, (size_t)n) : NULL;
    if (!member)
        return damaged(r, "a tensor's data is not in the archive");
    CHEX_TRY(chex_zip_data(&r->zip, member, data_out, r->err));
    *bytes_out = member->bytes;
    return CHEX_OK;
}

/* ---- tensors ---- */

static enum chex_status bad_tensor(const struct reader *r, const struct chex_tensor *t,
                                   const char *what) {
    char name[128];
    return chex_error_data(r->err, "%s: tensor '%s': %s", r->path,
                           chex_text_printable(t->name, name, sizeof name), what);
}

static bool read_sizes(value *tuple, size_t *rank_out, size_t sizes[CHEX_TENSOR_RANK]) {
    if (!tuple || tuple->kind != CHEX_PICKLE_TUPLE || tuple->count > CHEX_TENSOR_RANK)
        return false;
    for (size_t i = 0; i < tuple->count; i++) {
        if (tuple->items[i]->kind != CHEX_PICKLE_INT || tuple->items[i]->integer < 0)
            return false;
        sizes[i] = (size_t)tuple->items[i]->integer;
    }
    *rank_out = tuple->count;
    return true;
}

/* Elements of the storage up to and with the tensor's last one. False: too many to count. */
static bool reach_of(const struct chex_tensor *t, const size_t *strides, size_t *reach_out) {
    size_t reach = 1;
    for (size_t i = 0; i < t->rank; i++) {
        size_t step;
        if (!t->dims[i]) {
            *reach_out = 0;
            return true;
        }
        if (__builtin_mul_overflow(t->dims[i] - 1, strides[i], &step) ||
            __builtin_add_overflow(reach, step, &reach))
            return false;
    }
    *reach_out = reach;
    return true;
}

/* Elements from the start of the storage to the tensor. A storage of the old format may be a view
 * of another: (key, offset, elements). */
static bool read_offset(value *args, value *id, size_t *offset_out) {
    value *offset = item(args, 1), *view = item(item(id, 5), 1);
    if (!offset || offset->kind != CHEX_PICKLE_INT || offset->integer < 0 ||
        (view && (view->kind != CHEX_PICKLE_INT || view->integer < 0)))
        return false;
    return !__builtin_add_overflow((size_t)offset->integer, view ? (size_t)view->integer : 0,
                                   offset_out);
}

static enum chex_status add_tensor(struct reader *r, char *name, value *args) {
    struct chex_tensor t = {.name = name};
    value *id = storage_id(item(args, 0));
    const struct chex_dtype *type = type_of(item(id, 1));
    size_t strides[CHEX_TENSOR_RANK], rank = 0, offset = 0, reach;
    const char *data;
    uint64_t bytes;
    if (!read_sizes(item(args, 2), &t.rank, t.dims) || !read_sizes(item(args, 3), &rank, strides) ||
        rank != t.rank)
        return bad_tensor(r, &t, "its shape and strides are not lists of up to 8 sizes");
    snprintf(t.type_name, sizeof t.type_name, "%s", type ? type->name : "another type");
    if (!type || type->type == CHEX_TENSOR_OTHER) /* cannot be a parameter */
        return chex_tensor_set_add(r->set, &t, strides, r->err);
    if (!read_offset(args, id, &offset))
        return bad_tensor(r, &t, "its offset is not a number");
    CHEX_TRY(find_storage(r, id, &data, &bytes));
    if (!reach_of(&t, strides, &reach) || offset > bytes / type->bytes ||
        reach > bytes / type->bytes - offset)
        return bad_tensor(r, &t, "it reaches beyond its data");
    t.data = data + offset * type->bytes;
    return chex_tensor_set_add(r->set, &t, strides, r->err);
}

/* ---- state dictionaries and modules ---- */

/* Objects may refer to each other again and again, so work is counted by entries looked at. */
static enum chex_status count_steps(struct reader *r, value *v) {
    r->steps += 1 + entries_of(v) + (v && v->kind == CHEX_PICKLE_CALL ? entries_of(v->state) : 0);
    return r->steps <= MAX_STEPS ? CHEX_OK : damaged(r, "too many objects in objects");
}

/* Writes PREFIX.KEY. False: too long for a parameter, or it has a NUL. */
static bool make_name(const char *prefix, value *key, char name[NAME_BYTES]) {
    const int n =
        snprintf(name, NAME_BYTES, "%s%s%.*s", prefix, *prefix ? "." : "",
                 key->text_bytes < NAME_BYTES ? (int)key->text_bytes : NAME_BYTES, key->text);
    return n >= 0 && n < NAME_BYTES && !memchr(key->text, '\0', key->text_bytes);
}

/* Adds the tensors of a dictionary by name. */
static enum chex_status add_dictionary(struct reader *r, value *dictionary, const char *prefix) {
    CHEX_TRY(count_steps(r, dictionary));
    for (size_t i = 0; i < entries_of(dictionary); i++) {
        char name[NAME_BYTES];
        value *key, *args = tensor_arguments(entry(dictionary, i, &key));
        if (!args || !key)
            continue;
        if (r->set->count == MAX_TENSORS)
            return damaged(r, "more than 65536 tensors");
        if (!make_name(prefix, key, name))
            return damaged(r, "the name of a tensor is longer than 511 bytes or has a NUL");
        CHEX_TRY(add_tensor(r, name, args));
    }
    return CHEX_OK;
}

/* Adds what state_dict() of a module would hold. */
static enum chex_status add_module(struct reader *r, value *module, const char *prefix, int depth) {
    value *attributes = attributes_of(module), *parts = lookup(attributes, "_modules");
    if (depth == MAX_DEPTH)
        return damaged(r, "modules in modules, more than 32 levels deep");
    CHEX_TRY(add_dictionary(r, lookup(attributes, "_parameters"), prefix));
    CHEX_TRY(add_dictionary(r, lookup(attributes, "_buffers"), prefix));
    for (size_t i = 0; i < entries_of(parts); i++) {
        char name[NAME_BYTES];
        value *key, *part = entry(parts, i, &key);
        CHEX_TRY(count_steps(r, part));
        if (!key || !attributes_of(part))
            continue;
        if (!make_name(prefix, key, name))
            return damaged(r, "the name of a module is longer than 511 bytes or has a NUL");
        CHEX_TRY(add_module(r, part, name, depth + 1));
    }
    return CHEX_OK;
}

/* A state dictionary or module in the file. */
struct found {
    value *object;
    char name[NAME_BYTES]; /* "" for the file itself; "model.state" */
};

/* Whether a dictionary has tensors by names with a dot, as those of a network are. */
static bool is_state_dictionary(value *v) {
    for (size_t i = 0; i < entries_of(v); i++) {
        value *key, *content = entry(v, i, &key);
        if (key && memchr(key->text, '.', key->text_bytes) && tensor_arguments(content))
            return true;
    }
    return false;
}

static enum chex_status search(struct reader *r, value *v, const char *name, int depth,
                               struct found found[MAX_FOUND], size_t *count) {
    CHEX_TRY(count_steps(r, v));
    if (is_state_dictionary(v) || attributes_of(v)) {
        if (*count == MAX_FOUND)
            return damaged(r, "more than 8 state dictionaries");
        found[*count].object = v;
        snprintf(found[(*count)++].name, NAME_BYTES, "%s", name);
        return CHEX_OK;
    }
    for (size_t i = 0; depth < SEARCH_DEPTH && i < entries_of(v); i++) {
        char inner[NAME_BYTES];
        value *key, *content = entry(v, i, &key);
        if (key && content && make_name(name, key, inner))
            CHEX_TRY(search(r, content, inner, depth + 1, found, count));
    }
    return CHEX_OK;
}

static enum chex_status refuse_several(const struct reader *r, const struct found *found,
                                       size_t count) {
    char list[160] = "", name[64];
    for (size_t i = 0; i < count; i++) {
        const size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "",
                 chex_text_printable(found[i].name, name, sizeof name));
    }
    return chex_error_data(r->err,
                           "%s: %zu state dictionaries (%s), expected one: save the right one to a "
                           "file of its own by torch.save(torch.load(FILE)[NAME], NEW)",
                           r->path, count, list);
}

static enum chex_status add_all(struct reader *r) {
    struct found found[MAX_FOUND];
    size_t count = 0;
    CHEX_TRY(search(r, chex_pickle_root(r->pickle), "", 0, found, &count));
    if (!count)
        return damaged(r, "no state dictionary (tensors by names such as 'conv1.weight') in this "
                          "PyTorch file");
    if (count > 1)
        return refuse_several(r, found, count);
    if (found[0].name[0])
        chex_debug("%s: the parameters are those of '%s'", r->path, found[0].name);
    r->steps = 0;
    return attributes_of(found[0].object) ? add_module(r, found[0].object, "", 0)
                                          : add_dictionary(r, found[0].object, "");
}

/* ---- the zip format ---- */

static bool ends_with(const struct chex_zip_member *m, const char *suffix) {
    const size_t n = strlen(suffix);
    return m->name_bytes >= n && memcmp(m->name + m->name_bytes - n, suffix, n) == 0;
}

/* A member "NAME" + suffix without a further folder in NAME, or NULL. *count_out (NULL allowed):
 * how many there are. */
static struct chex_zip_member *find_member(const struct reader *r, const char *suffix,
                                           size_t *count_out) {
    struct chex_zip_member *found = NULL;
    size_t count = 0;
    for (size_t i = 0; i < r->zip.count; i++) {
        struct chex_zip_member *m = &r->zip.members[i];
        if (ends_with(m, suffix) && !memchr(m->name, '/', m->name_bytes - strlen(suffix)))
            found = m, count++;
    }
    if (count_out)
        *count_out = count;
    return found;
}

static enum chex_status check_byte_order(const struct reader *r) {
    struct chex_zip_member *m = find_member(r, "/byteorder", NULL);
    const char *order;
    if (!m) /* PyTorch before 2.1 */
        return CHEX_OK;
    CHEX_TRY(chex_zip_data(&r->zip, m, &order, r->err));
    if (m->bytes != 6 || memcmp(order, "little", 6) != 0)
        return damaged(r, "numbers in big-endian byte order, expected little-endian");
    return CHEX_OK;
}

static enum chex_status read_zip(struct reader *r) {
    const char *pickle;
    CHEX_TRY(chex_zip_open(r->data, r->bytes, r->path, &r->zip, r->err));
    size_t pickles;
    struct chex_zip_member *m = find_member(r, "/data.pkl", &pickles);
    if (!m)
        return damaged(r, "a zip archive without data.pkl: not a file of torch.save");
    if (pickles > 1)
        return damaged(r, "two members data.pkl, expected one");
    if (find_member(r, "/constants.pkl", NULL))
        return damaged(r, "a TorchScript archive, expected a state dictionary: "
                          "torch.save(torch.jit.load(FILE).state_dict(), NEW)");
    r->prefix = m->name;
    r->prefix_bytes = m->name_bytes - strlen("data.pkl");
    if (r->prefix_bytes >= NAME_BYTES / 2)
        return damaged(r, "the folder in the archive has a name of more than 255 bytes");
    CHEX_TRY(check_byte_order(r));
    CHEX_TRY(chex_zip_data(&r->zip, m, &pickle, r->err));
    CHEX_TRY(chex_pickle_read(pickle, (size_t)m->bytes, r->path, &r->pickle, NULL, r->err));
    return add_all(r);
}

/* ---- the format before 1.6 ---- */

/* Reads the pickle at *at and moves *at after it. */
static enum chex_status next_pickle(const struct reader *r, size_t *at,
                                    struct chex_pickle **pickle_out) {
    size_t used;
    CHEX_TRY(chex_pickle_read(r->data + *at, r->bytes - *at, r->path, pickle_out, &used, r->err));
    *at += used;
    return CHEX_OK;
}

static bool is_magic(value *v) {
    static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    return v->kind == CHEX_PICKLE_LONG && v->text_bytes == sizeof magic - 1 &&
           memcmp(v->text, magic, sizeof magic - 1) == 0;
}

static enum chex_status check_head(const struct reader *r, int part, value *v) {
    if (part == 0 && !is_magic(v))
        return damaged(r, "a pickle, but not a file of torch.save");
    if (part == 1 && (v->kind != CHEX_PICKLE_INT || v->integer != LEGACY_PROTOCOL))
        return damaged(r, "an unknown version of the format before PyTorch 1.6");
    value *little = part == 2 ? lookup(v, "little_endian") : NULL;
    if (part == 2 && (!little || little->kind != CHEX_PICKLE_INT || !little->integer))
        return damaged(r, "numbers in big-endian byte order, expected little-endian");
    return CHEX_OK;
}

/* The keys and types of all storages that the data refers to, sorted, without bytes. */
static enum chex_status list_storages(struct reader *r) {
    size_t count = 0, kept = 0;
    for (value *v = chex_pickle_persistents(r->pickle); v; v = v->state)
        count++;
    r->legacy = chex_alloc_zeroed(count, sizeof *r->legacy);
    if (!r->legacy)
        return chex_error_memory(r->err, "%s", r->path);
    for (value *v = chex_pickle_persistents(r->pickle); v; v = v->state) {
        value *id = storage_id(v), *key = item(id, 2);
        if (id)
            r->legacy[r->legacy_count++] = (struct legacy_storage){
                .key = key->text, .key_bytes = key->text_bytes, .type = type_of(item(id, 1))};
    }
    if (r->legacy_count)
        qsort(r->legacy, r->legacy_count, sizeof *r->legacy, by_key);
    for (size_t i = 0; i < r->legacy_count; i++)
        if (!kept || by_key(&r->legacy[kept - 1], &r->legacy[i]) != 0)
            r->legacy[kept++] = r->legacy[i];
    r->legacy_count = kept;
    return CHEX_OK;
}

/* Finds the bytes of the storages, which follow in the order of `keys`. */
static enum chex_status place_storages(struct reader *r, value *keys, size_t at) {
    if (keys->kind != CHEX_PICKLE_LIST)
        return damaged(r, "no list of storages");
    for (size_t i = 0; i < keys->count; i++) {
        struct legacy_storage *s =
            keys->items[i]->kind == CHEX_PICKLE_TEXT ? find_legacy(r, keys->items[i]) : NULL;
        uint64_t count;
        if (!s || !s->type)
            return damaged(r, "a storage of an unknown type");
        if (r->bytes - at < sizeof count)
            return damaged(r, "truncated");
        memcpy(&count, r->data + at, sizeof count);
        at += sizeof count;
        if (count > (r->bytes - at) / s->type->bytes)
            return damaged(r, "the data of a storage ends after the file (truncated?)");
        s->data = r->data + at;
        s->bytes = count * s->type->bytes;
        at += (size_t)s->bytes;
    }
    return CHEX_OK;
}

static enum chex_status read_legacy(struct reader *r) {
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        CHEX_AUTO(chex_pickle_destroy_at) struct chex_pickle *head = NULL;
        CHEX_TRY(next_pickle(r, &at, &head));
        CHEX_TRY(check_head(r, i, chex_pickle_root(head)));
    }
    CHEX_AUTO(chex_pickle_destroy_at) struct chex_pickle *keys = NULL;
    CHEX_TRY(next_pickle(r, &at, &r->pickle));
    CHEX_TRY(list_storages(r));
    CHEX_TRY(next_pickle(r, &at, &keys));
    CHEX_TRY(place_storages(r, chex_pickle_root(keys), at));
    return add_all(r);
}

static void release(struct reader *r) {
    chex_pickle_destroy(r->pickle);
    chex_zip_close(&r->zip);
    free(r->legacy);
}

enum chex_status chex_torch_file_open(const char *path, struct chex_tensor_set *set_out,
                                      struct chex_error *err) {
    CHEX_AUTO(chex_tensor_set_release) struct chex_tensor_set set = {0};
    CHEX_AUTO(release) struct reader r = {.path = path, .set = &set, .err = err};
    char *data = NULL; /* of the set */
    CHEX_TRY(chex_fs_read(path, max_file_bytes, &data, &r.bytes, err));
    r.data = data;
    CHEX_TRY(chex_tensor_set_begin(&set, path, data, err));
    CHEX_TRY(r.bytes >= 2 && memcmp(data, "PK", 2) == 0 ? read_zip(&r) : read_legacy(&r));
    *set_out = set;
    set = (struct chex_tensor_set){0};
    return CHEX_OK;
}
