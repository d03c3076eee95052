/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and checks parts of HDF5 files without HDF5, for files without a seal. Earlier chexnet
 * versions and h5py write such files. Source: HDF5 file format specification, version 3. HDF5 1.10
 * has two gaps:
 *
 * 1. Variable-length texts. HDF5 stores them in global heaps and reads those unchecked: one changed
 * bit makes it loop or read outside its buffers. chex_h5_variable_texts reads the texts of the root
 * group itself: superblock, object header with its continuation blocks, attribute message, global
 * heap collection.
 *
 * 2. Messages of object headers. One changed bit turns a plain message into a "shared" one, and
 * HDF5 uses its bytes as an address. One changed bit in a length makes HDF5 read past the end of an
 * attribute. chex_h5_check_objects walks all objects of old-style groups (symbol table: B-tree,
 * symbol nodes). It rejects shared messages, which chexnet and h5py write only on request, and
 * compares the lengths of attributes, types and shapes with their messages. New-style objects have
 * checksums that HDF5 checks.
 *
 * Why this code is safe:
 * - Every extent is compared with the file size before it is read.
 * - Each block is copied to its own memory. Only `struct span` addresses it, and parsing stops at
 *   its end.
 * - Each step of a walk moves forward by at least the size of a message or object header.
 * - The number of continuation blocks and their bytes are limited.
 *
 * Heaps have no checksum, so a text can still be wrong. The callers compare it with what they
 * expect, and new files have a seal.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/h5_private.h"

enum {
    MAX_BLOCKS = 256,
    MAX_BLOCK_BYTES = 1 << 20,
    MAX_HEAP_BYTES = 64 << 20,
    MAX_TEXT_BYTES = 16 << 20,
    MAX_OBJECTS = 1 << 20,
    MAX_DEPTH = 8,        /* of groups in groups, and of the B-tree of a group */
    REFERENCE_BYTES = 16, /* u32 length, u64 address, u32 index */
    HEAP_HEADER_BYTES = 16,
    MESSAGE_SPACE = 1,
    MESSAGE_TYPE = 3,
    MESSAGE_CONTINUATION = 0x10,
    MESSAGE_ATTRIBUTE = 0x0c,
    MESSAGE_SYMBOL_TABLE = 0x11,
    FLAG_SHARED = 2,
};

struct file {
    const char *path;
    int fd;
    uint64_t bytes, base; /* base: of all addresses */
    int objects;          /* visited so far */
};

/* Bytes of a block that have not been parsed yet. */
struct span {
    const unsigned char *at;
    size_t left;
};

static uint64_t number(const unsigned char *p, int bytes) {
    uint64_t n = 0;
    for (int i = bytes; i-- > 0;)
        n = n << 8 | p[i];
    return n;
}

static bool skip(struct span *s, size_t bytes) {
    if (bytes > s->left)
        return false;
    s->at += bytes;
    s->left -= bytes;
    return true;
}

static bool take(struct span *s, int bytes, uint64_t *out) {
    if ((size_t)bytes > s->left)
        return false;
    *out = number(s->at, bytes);
    return skip(s, (size_t)bytes);
}

/* Copies `bytes` bytes at `address` into fresh memory. NULL if they are not within the file, too
 * many or unreadable. */
static unsigned char *load(const struct file *f, uint64_t address, uint64_t bytes,
                           uint64_t max_bytes) {
    if (bytes == 0 || bytes > max_bytes || address > f->bytes || f->base > f->bytes - address ||
        bytes > f->bytes - address - f->base)
        return NULL;
    unsigned char *block = malloc((size_t)bytes);
    if (block && chex_fs_pread(f->fd, block, (size_t)bytes, f->base + address) == bytes)
        return block;
    free(block);
    return NULL;
}

/* ---- object headers ---- */

/* HDF5 looks for the superblock at 0, 512, 1024, 2048 ... */
static bool find_root(struct file *f, uint64_t *address_out) {
    enum { SUPERBLOCK_BYTES = 80 };
    for (uint64_t at = 0; at < f->bytes; at = at ? 2 * at : 512) {
        unsigned char *b = load(f, at, SUPERBLOCK_BYTES, SUPERBLOCK_BYTES);
        if (!b)
            return false;
        bool found = memcmp(b, "\211HDF\r\n\032\n", 8) == 0, known = false;
        if (found && b[8] <= 1 && b[13] == 8 && b[14] == 8) {
            const int more = b[8] == 1 ? 4 : 0;
            f->base = number(b + 24 + more, 8);
            *address_out = number(b + 64 + more, 8);
            known = true;
        } else if (found && b[8] <= 3 && b[8] >= 2 && b[9] == 8 && b[10] == 8) {
            f->base = number(b + 12, 8);
            *address_out = number(b + 36, 8);
            known = true;
        }
        free(b);
        if (found)
            return known && f->base == at;
    }
    return false;
}

/* The state of a walk over the messages of an object header. It searches one attribute, or checks
 * all messages. */
struct walk {
    const struct file *file;
    const char *name; /* of the attribute; NULL: all messages are checked */
    uint64_t group;   /* address of its B-tree if it is an old-style group, else 0 */
    int version;      /* of the object header */
    bool has_order;
    struct extent {
        uint64_t address, bytes;
    } blocks[MAX_BLOCKS];
    int block_count;
    unsigned char *references; /* of the attribute; the caller frees it */
    size_t count;              /* references to read */
};

static size_t padded(uint64_t bytes, bool pad) {
    return (size_t)(pad ? (bytes + 7) & ~(uint64_t)7 : bytes);
}

/* Keeps the references if the attribute has the expected name and type. False: damaged. */
static bool parse_attribute(struct walk *w, struct span s) {
    uint64_t version, flags, name_bytes, type_bytes, space_bytes, charset;
    if (!take(&s, 1, &version) || !take(&s, 1, &flags) || !take(&s, 2, &name_bytes) ||
        !take(&s, 2, &type_bytes) || !take(&s, 2, &space_bytes) || version < 1 || version > 3 ||
        (version == 3 && !take(&s, 1, &charset)))
        return false;
    const bool pad = version == 1, shared = version > 1 && (flags & 3);
    const size_t want = strlen(w->name) + 1;
    const bool ours = name_bytes == want && s.left >= want && memcmp(s.at, w->name, want) == 0;
    if (!ours)
        return true;
    if (shared || !skip(&s, padded(name_bytes, pad)) || s.left < type_bytes || type_bytes < 8 ||
        (s.at[0] & 15) != 9 || (s.at[1] & 15) != 1 || number(s.at + 4, 4) != REFERENCE_BYTES ||
        !skip(&s, padded(type_bytes, pad)) || !skip(&s, padded(space_bytes, pad)) ||
        s.left / REFERENCE_BYTES < w->count || w->references)
        return false;
    w->references = malloc(w->count * REFERENCE_BYTES);
    if (w->references)
        memcpy(w->references, s.at, w->count * REFERENCE_BYTES);
    return w->references != NULL;
}

/* ---- messages that HDF5 decodes beyond their end ---- */

/* Whether a dataspace message is sound: its dimensions fit the message. points_out: number of
 * elements. */
static bool sound_space(struct span s, uint64_t *points_out) {
    enum { MAX_RANK = 32, NULL_SPACE = 2 };
    uint64_t points = 1, dim = 0;
    if (s.left < 4 || s.at[0] < 1 || s.at[0] > 2 || s.at[1] > MAX_RANK)
        return false;
    const size_t header = s.at[0] == 1 ? 8 : 4, rank = s.at[1];
    const bool limits = s.at[2] & 1, permuted = s.at[0] == 1 && (s.at[2] & 2);
    const bool none = s.at[0] == 2 && s.at[3] == NULL_SPACE;
    if (permuted || !skip(&s, header) || s.left < rank * 8 * (limits ? 2 : 1))
        return false;
    for (size_t i = 0; i < rank; i++)
        if (!take(&s, 8, &dim) || __builtin_mul_overflow(points, dim, &points))
            return false;
    *points_out = none ? 0 : points;
    return true;
}

/* Whether a datatype message is sound. bytes_out: bytes of one element. HDF5 checks the types that
 * chexnet does not write. */
static bool sound_type(struct span s, uint64_t *bytes_out) {
    enum { INTEGER = 0, FLOAT = 1, TEXT = 3, VARIABLE = 9 };
    uint64_t base = 0;
    if (s.left < 8)
        return false;
    *bytes_out = number(s.at + 4, 4);
    switch (s.at[0] & 15) {
    case INTEGER: return *bytes_out > 0 && s.left >= 12;
    case FLOAT: return *bytes_out > 0 && s.left >= 20;
    case TEXT: return *bytes_out > 0;
    case VARIABLE: /* a variable type of variable types is damaged; this ends the recursion */
        return *bytes_out == REFERENCE_BYTES && skip(&s, 8) && s.left >= 8 &&
               (s.at[0] & 15) != VARIABLE && sound_type(s, &base);
    default: return true;
    }
}

static bool sound_attribute(struct span s) {
    uint64_t version, flags, name, type, space, charset, points = 0, bytes = 0;
    if (!take(&s, 1, &version) || !take(&s, 1, &flags) || !take(&s, 2, &name) ||
        !take(&s, 2, &type) || !take(&s, 2, &space) || version < 1 || version > 3 ||
        (version == 3 && !take(&s, 1, &charset)))
        return false;
    const bool pad = version == 1;
    const unsigned char *const text = s.at;
    if ((version > 1 && (flags & 3)) || !skip(&s, padded(name, pad)) ||
        !memchr(text, 0, (size_t)name))
        return false;
    const struct span type_at = {s.at, (size_t)type};
    if (!skip(&s, padded(type, pad)) || !sound_type(type_at, &bytes))
        return false;
    const struct span space_at = {s.at, (size_t)space};
    if (!skip(&s, padded(space, pad)) || !sound_space(space_at, &points))
        return false;
    return !__builtin_mul_overflow(points, bytes, &bytes) && bytes <= s.left;
}

static bool sound_message(uint64_t type, struct span data) {
    uint64_t ignored;
    switch (type) {
    case MESSAGE_SPACE: return sound_space(data, &ignored);
    case MESSAGE_TYPE: return sound_type(data, &ignored);
    case MESSAGE_ATTRIBUTE: return sound_attribute(data);
    default: return true;
    }
}

static bool parse_message(struct walk *w, uint64_t type, uint64_t flags, struct span data) {
    if (type == MESSAGE_CONTINUATION) {
        struct extent e;
        if (w->block_count == MAX_BLOCKS || !take(&data, 8, &e.address) ||
            !take(&data, 8, &e.bytes))
            return false;
        w->blocks[w->block_count++] = e;
        return true;
    }
    if (w->name)
        return type != MESSAGE_ATTRIBUTE || (flags & FLAG_SHARED) || parse_attribute(w, data);
    if (type == MESSAGE_SYMBOL_TABLE && !take(&data, 8, &w->group))
        return false;
    return w->version != 1 || (!(flags & FLAG_SHARED) && sound_message(type, data));
}

static bool parse_messages(struct walk *w, struct span s) {
    const size_t header = w->version == 1 ? 8 : w->has_order ? 6 : 4;
    while (s.left >= header) {
        const unsigned char *p = s.at;
        const uint64_t type = w->version == 1 ? number(p, 2) : p[0];
        const uint64_t bytes = number(p + (w->version == 1 ? 2 : 1), 2);
        const uint64_t flags = w->version == 1 ? p[4] : p[3];
        skip(&s, header);
        const struct span data = {s.at, (size_t)bytes};
        if (!skip(&s, (size_t)bytes) || !parse_message(w, type, flags, data))
            return false;
    }
    return true;
}

/* Reads the prefix of an object header: version, and extent of the first block of messages. */
static bool begin_walk(struct walk *w, uint64_t root) {
    enum { PREFIX_BYTES = 38 }; /* longest prefix of version 2 */
    unsigned char *b = load(w->file, root, PREFIX_BYTES, PREFIX_BYTES);
    if (!b)
        return false;
    bool good = false;
    if (b[0] == 1) {
        w->version = 1;
        w->blocks[0] = (struct extent){root + 16, number(b + 8, 4)};
        good = true;
    } else if (memcmp(b, "OHDR\2", 5) == 0) {
        const int flags = b[5], width = 1 << (flags & 3);
        const int at = 6 + (flags & 0x20 ? 16 : 0) + (flags & 0x10 ? 4 : 0);
        w->version = 2;
        w->has_order = flags & 4;
        w->blocks[0] = (struct extent){root + (uint64_t)(at + width), number(b + at, width)};
        good = true;
    }
    w->block_count = good;
    free(b);
    return good;
}

/* Visits all messages; false if the header is damaged. */
static bool walk_header(struct walk *w, uint64_t address) {
    if (!begin_walk(w, address))
        return false;
    bool good = true;
    for (int i = 0; good && i < w->block_count; i++) {
        const struct extent e = w->blocks[i];
        unsigned char *block = load(w->file, e.address, e.bytes, MAX_BLOCK_BYTES);
        struct span s = {block, block ? (size_t)e.bytes : 0};
        good = block != NULL;
        if (good && i > 0 && w->version == 2) { /* "OCHK", messages, checksum */
            good = s.left >= 8 && memcmp(s.at, "OCHK", 4) == 0;
            s = good ? (struct span){s.at + 4, s.left - 8} : s;
        }
        good = good && parse_messages(w, s);
        free(block);
    }
    return good;
}

/* ---- all objects of old-style groups ---- */

static bool check_object(struct file *f, uint64_t address, int depth);

/* A symbol node: "SNOD", version, 0, count, then 40 bytes per entry. */
static bool check_symbols(struct file *f, uint64_t address, int depth) {
    enum { HEADER = 8, ENTRY = 40, HEADER_AT = 8 };
    unsigned char *head = load(f, address, HEADER, HEADER);
    if (!head)
        return false;
    const uint64_t bytes = number(head + 6, 2) * ENTRY;
    bool good = memcmp(head, "SNOD\1", 5) == 0;
    free(head);
    unsigned char *entries = good && bytes ? load(f, address + HEADER, bytes, bytes) : NULL;
    good = good && (entries || !bytes);
    for (uint64_t at = 0; good && at < bytes; at += ENTRY) {
        const uint64_t object = number(entries + at + HEADER_AT, 8);
        good = object == UINT64_MAX || check_object(f, object, depth); /* no object: a soft link */
    }
    free(entries);
    return good;
}

/* A node of a group's B-tree: "TREE", type 0, level, count, two siblings; then key and child each.
 */
static bool check_tree(struct file *f, uint64_t address, int depth, int max_level) {
    enum { HEADER = 24, ENTRY = 16, CHILD_AT = 8 };
    unsigned char *head = load(f, address, HEADER, HEADER);
    if (!head)
        return false;
    const int level = head[5];
    const uint64_t bytes = number(head + 6, 2) * ENTRY;
    bool good = memcmp(head, "TREE", 5) == 0 && level <= max_level;
    free(head);
    unsigned char *entries = good && bytes ? load(f, address + HEADER, bytes, bytes) : NULL;
    good = good && (entries || !bytes);
    for (uint64_t at = 0; good && at < bytes; at += ENTRY) {
        const uint64_t child = number(entries + at + CHILD_AT, 8);
        good = level ? check_tree(f, child, depth, level - 1) : check_symbols(f, child, depth);
    }
    free(entries);
    return good;
}

static bool check_object(struct file *f, uint64_t address, int depth) {
    struct walk *w = depth <= MAX_DEPTH && f->objects++ < MAX_OBJECTS ? calloc(1, sizeof *w) : NULL;
    if (!w)
        return false;
    w->file = f;
    bool good = walk_header(w, address);
    const uint64_t group = w->group;
    free(w);
    return good && (!group || check_tree(f, group, depth + 1, MAX_DEPTH));
}

enum chex_status chex_h5_check_objects(int fd, const char *path, uint64_t file_bytes,
                                       struct chex_error *err) {
    struct file f = {.path = path, .fd = fd, .bytes = file_bytes};
    uint64_t root = 0;
    if (!find_root(&f, &root) || check_object(&f, root, 0))
        return CHEX_OK; /* HDF5 checks files with an unknown superblock */
    return chex_error_set(err, CHEX_E_DATA,
                          "%s: damaged: the headers of its HDF5 objects are invalid", path);
}

/* ---- the global heap ---- */

/* A heap collection. It is cached, because neighbouring texts share one. */
struct heap {
    uint64_t address;
    unsigned char *block; /* NULL: none */
    size_t bytes;
};

static bool load_heap(const struct file *f, uint64_t address, struct heap *h) {
    if (h->block && h->address == address)
        return true;
    free(h->block);
    h->block = NULL;
    unsigned char *head = load(f, address, HEAP_HEADER_BYTES, HEAP_HEADER_BYTES);
    if (!head)
        return false;
    const bool good = memcmp(head, "GCOL\1", 5) == 0;
    const uint64_t bytes = number(head + 8, 8);
    free(head);
    if (!good || bytes < 2 * HEAP_HEADER_BYTES ||
        !(h->block = load(f, address, bytes, MAX_HEAP_BYTES)))
        return false;
    h->address = address;
    h->bytes = (size_t)bytes;
    return true;
}

/* Finds object `index` of the collection. NULL if it is missing or shorter than `length`. */
static const unsigned char *find_object(const struct heap *h, uint64_t index, uint64_t length) {
    struct span s = {h->block + HEAP_HEADER_BYTES, h->bytes - HEAP_HEADER_BYTES};
    uint64_t number_of, references, reserved, bytes;
    while (take(&s, 2, &number_of) && take(&s, 2, &references) && take(&s, 4, &reserved) &&
           take(&s, 8, &bytes) && number_of != 0 && bytes <= s.left) {
        if (number_of == index)
            return length <= bytes ? s.at : NULL;
        if (!skip(&s, padded(bytes, true)))
            break;
    }
    return NULL;
}

/* The text of one reference in fresh memory. */
static bool read_reference(const struct file *f, const unsigned char *reference, struct heap *h,
                           char **out) {
    const uint64_t length = number(reference, 4), address = number(reference + 4, 8);
    const uint64_t index = number(reference + 12, 4);
    if (length == 0 || address == 0) {
        *out = strdup("");
        return *out != NULL;
    }
    if (length > MAX_TEXT_BYTES || index == 0 || !load_heap(f, address, h))
        return false;
    const unsigned char *text = find_object(h, index, length);
    *out = text ? strndup((const char *)text, (size_t)length) : NULL;
    return *out != NULL;
}

static bool read_texts(struct file *f, const char *name, size_t count, char **out) {
    struct walk *w = calloc(1, sizeof *w);
    struct heap h = {0};
    uint64_t root = 0;
    if (!w)
        return false;
    w->file = f;
    w->name = name;
    w->count = count;
    bool good = find_root(f, &root) && walk_header(w, root) && w->references;
    for (size_t i = 0; good && i < count; i++)
        good = read_reference(f, w->references + i * REFERENCE_BYTES, &h, &out[i]);
    free(h.block);
    free(w->references);
    free(w);
    return good;
}

enum chex_status chex_h5_variable_texts(const char *path, const char *name, size_t count,
                                        char **out, struct chex_error *err) {
    struct file f = {.path = path, .fd = -1};
    CHEX_TRY(chex_fs_open(path, &f.fd, &f.bytes, err));
    const bool good = read_texts(&f, name, count, out);
    close(f.fd);
    if (good)
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_DATA,
        "%s: attribute '%s': variable-length text that is damaged or stored in an "
        "unknown form (expected fixed-length text)",
        path, name);
}
