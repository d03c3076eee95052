/* SPDX-License-Identifier: Apache-2.0
 *
 * The stack machine of pickles, without calls.
 *
 * Bounds. Values come from blocks and are freed together. Each opcode creates at most one value, so
 * a pickle of n bytes has at most n values; their number is also limited. A memo index may exceed
 * the number of earlier entries only a little: Python numbers them one after another.
 */
#include "model/pickle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum {
    BLOCK = 512,              /* values of a block */
    MAX_VALUES = 1 << 22,     /* a checkpoint with all its optimiser has some ten thousand */
    MAX_REFERENCES = 1 << 24, /* in lists, in the memo and on the stack */
    MEMO_SLACK = 1024,        /* indices that a pickle may leave out */
};

enum opcode {
    MARK = '(',
    STOP = '.',
    POP = '0',
    POP_MARK = '1',
    DUP = '2',
    BINFLOAT = 'G',
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    NONE = 'N',
    BINPERSID = 'Q',
    REDUCE = 'R',
    BINSTRING = 'T',
    SHORT_BINSTRING = 'U',
    BINUNICODE = 'X',
    EMPTY_LIST = ']',
    APPEND = 'a',
    BUILD = 'b',
    GLOBAL = 'c',
    APPENDS = 'e',
    BINGET = 'h',
    LONG_BINGET = 'j',
    BINPUT = 'q',
    LONG_BINPUT = 'r',
    SETITEM = 's',
    TUPLE = 't',
    EMPTY_TUPLE = ')',
    SETITEMS = 'u',
    EMPTY_DICT = '}',
    LIST = 'l',
    DICT = 'd',
    OBJ = 'o',
    BINBYTES = 'B',
    SHORT_BINBYTES = 'C',
    PROTO = 0x80,
    NEWOBJ = 0x81,
    TUPLE1 = 0x85,
    TUPLE2 = 0x86,
    TUPLE3 = 0x87,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    LONG4 = 0x8b,
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE8 = 0x8d,
    BINBYTES8 = 0x8e,
    EMPTY_SET = 0x8f,
    ADDITEMS = 0x90,
    FROZENSET = 0x91,
    NEWOBJ_EX = 0x92,
    STACK_GLOBAL = 0x93,
    MEMOIZE = 0x94,
    FRAME = 0x95,
    BYTEARRAY8 = 0x96,
};

typedef struct chex_pickle_value value;

struct block {
    struct block *next;
    size_t used;
    value values[BLOCK];
};

struct list {
    value **items;
    size_t count, capacity;
};

struct chex_pickle {
    struct block *blocks;
    size_t values;
    const value *root;
    value *persistents; /* the last one */
};

struct machine {
    struct chex_pickle *pickle;
    const char *subject, *data;
    size_t at, end;
    struct list stack, memo; /* an entry of the stack that is NULL is a mark */
    size_t memo_puts;
    struct chex_error *err;
};

/* ---- errors ---- */

/* Macros, so that the compiler sees that the status is never CHEX_OK. */
#define damaged(m, what)                                                                           \
    chex_error_data((m)->err, "%s: pickle, byte %zu: %s", (m)->subject, (m)->at, what)
#define no_memory(m) chex_error_memory((m)->err, "%s", (m)->subject)

/* ---- values and lists ---- */

static enum chex_status new_value(struct machine *m, enum chex_pickle_kind kind, value **out) {
    struct chex_pickle *p = m->pickle;
    if (p->values++ == MAX_VALUES)
        return damaged(m, "more than 4194304 objects");
    if (!p->blocks || p->blocks->used == BLOCK) {
        struct block *b = chex_alloc_zeroed(1, sizeof *b);
        if (!b)
            return no_memory(m);
        b->next = p->blocks;
        p->blocks = b;
    }
    *out = &p->blocks->values[p->blocks->used++];
    (*out)->kind = kind;
    return CHEX_OK;
}

static enum chex_status reserve(const struct machine *m, value ***items, size_t *capacity,
                                size_t count) {
    if (count <= *capacity)
        return CHEX_OK;
    if (count > MAX_REFERENCES)
        return damaged(m, "more than 16777216 entries in one list");
    const size_t more = count < 4 ? 4 : 2 * count;
    value **grown = realloc(*items, more * sizeof **items);
    if (!grown)
        return no_memory(m);
    *items = grown;
    *capacity = more;
    return CHEX_OK;
}

static enum chex_status push(struct machine *m, value *v) {
    CHEX_TRY(reserve(m, &m->stack.items, &m->stack.capacity, m->stack.count + 1));
    m->stack.items[m->stack.count++] = v;
    return CHEX_OK;
}

static enum chex_status push_new(struct machine *m, enum chex_pickle_kind kind) {
    value *v;
    CHEX_TRY(new_value(m, kind, &v));
    return push(m, v);
}

static enum chex_status push_int(struct machine *m, int64_t n) {
    value *v;
    CHEX_TRY(new_value(m, CHEX_PICKLE_INT, &v));
    v->integer = n;
    return push(m, v);
}

static enum chex_status pop(struct machine *m, value **out) {
    if (!m->stack.count || !m->stack.items[m->stack.count - 1])
        return damaged(m, "the stack is empty");
    *out = m->stack.items[--m->stack.count];
    return CHEX_OK;
}

static enum chex_status top(const struct machine *m, value **out) {
    if (!m->stack.count || !m->stack.items[m->stack.count - 1])
        return damaged(m, "the stack is empty");
    *out = m->stack.items[m->stack.count - 1];
    return CHEX_OK;
}

enum { TO_MARK = -1 };

/* Takes the topmost `count` entries from the stack; TO_MARK: those above the topmost mark, and the
 * mark. They stay where they are until the next push. */
static enum chex_status pop_items(struct machine *m, int count, value ***items_out,
                                  size_t *count_out) {
    const size_t end = m->stack.count, least = count < 0             ? 0
                                               : end < (size_t)count ? 0
                                                                     : end - (size_t)count;
    size_t at = end;
    while (at > least && m->stack.items[at - 1])
        at--;
    if (count == TO_MARK ? !at : end - at != (size_t)count)
        return damaged(m, count == TO_MARK ? "no mark on the stack" : "the stack is empty");
    *items_out = m->stack.items + at;
    *count_out = end - at;
    m->stack.count = count == TO_MARK ? at - 1 : at;
    return CHEX_OK;
}

static bool is_container(const value *v) {
    return v->kind == CHEX_PICKLE_LIST || v->kind == CHEX_PICKLE_DICT ||
           v->kind == CHEX_PICKLE_TUPLE || v->kind == CHEX_PICKLE_CALL;
}

static enum chex_status add_items(const struct machine *m, value *to, value *const *items,
                                  size_t count, bool pairs) {
    if (!is_container(to) || (pairs && count % 2))
        return damaged(m, "entries for an object that has none");
    if (to->count && to->kind == CHEX_PICKLE_CALL && to->pairs != pairs)
        return damaged(m, "an object with both entries and pairs");
    if (to->kind != CHEX_PICKLE_CALL && pairs != (to->kind == CHEX_PICKLE_DICT))
        return damaged(m, "entries of another kind of container");
    CHEX_TRY(reserve(m, &to->items, &to->capacity, to->count + count));
    if (count)
        memcpy(to->items + to->count, items, count * sizeof *items);
    to->count += count;
    to->pairs = pairs;
    return CHEX_OK;
}

/* ---- the input ---- */

static enum chex_status get_bytes(struct machine *m, uint64_t bytes, const char **out) {
    if (bytes > m->end - m->at)
        return damaged(m, "truncated");
    *out = m->data + m->at;
    m->at += (size_t)bytes;
    return CHEX_OK;
}

/* A little-endian number of `bytes` bytes. */
static enum chex_status get_number(struct machine *m, size_t bytes, uint64_t *out) {
    const char *from;
    CHEX_TRY(get_bytes(m, bytes, &from));
    *out = 0;
    for (size_t i = bytes; i-- > 0;)
        *out = *out << 8 | (unsigned char)from[i];
    return CHEX_OK;
}

static enum chex_status get_line(struct machine *m, const char **text_out, size_t *bytes_out) {
    const char *from = m->data + m->at, *end = memchr(from, '\n', m->end - m->at);
    if (!end)
        return damaged(m, "truncated");
    *text_out = from;
    *bytes_out = (size_t)(end - from);
    m->at += *bytes_out + 1;
    return CHEX_OK;
}

/* ---- opcodes ---- */

/* A text whose length has `width` bytes. */
static enum chex_status push_text(struct machine *m, size_t width) {
    uint64_t length;
    value *v;
    CHEX_TRY(get_number(m, width, &length));
    CHEX_TRY(new_value(m, CHEX_PICKLE_TEXT, &v));
    CHEX_TRY(get_bytes(m, length, &v->text));
    v->text_bytes = (size_t)length;
    return push(m, v);
}

/* An integer of two's complement whose length has `width` bytes. */
static enum chex_status push_long(struct machine *m, size_t width) {
    uint64_t length;
    const char *from;
    CHEX_TRY(get_number(m, width, &length));
    CHEX_TRY(get_bytes(m, length, &from));
    if (length <= sizeof(int64_t)) {
        uint64_t n = length && (from[length - 1] & 0x80) ? UINT64_MAX : 0;
        for (size_t i = (size_t)length; i-- > 0;)
            n = n << 8 | (unsigned char)from[i];
        return push_int(m, (int64_t)n);
    }
    value *v;
    CHEX_TRY(new_value(m, CHEX_PICKLE_LONG, &v));
    v->text = from;
    v->text_bytes = (size_t)length;
    return push(m, v);
}

static enum chex_status push_global(struct machine *m) {
    value *v;
    CHEX_TRY(new_value(m, CHEX_PICKLE_GLOBAL, &v));
    CHEX_TRY(get_line(m, &v->text, &v->text_bytes));
    CHEX_TRY(get_line(m, &v->name, &v->name_bytes));
    return push(m, v);
}

static enum chex_status push_stack_global(struct machine *m) {
    value *module, *name, *v;
    CHEX_TRY(pop(m, &name));
    CHEX_TRY(pop(m, &module));
    if (name->kind != CHEX_PICKLE_TEXT || module->kind != CHEX_PICKLE_TEXT)
        return damaged(m, "a class without a name");
    CHEX_TRY(new_value(m, CHEX_PICKLE_GLOBAL, &v));
    v->text = module->text;
    v->text_bytes = module->text_bytes;
    v->name = name->text;
    v->name_bytes = name->text_bytes;
    return push(m, v);
}

/* The entries become one new object. count: as in pop_items. */
static enum chex_status push_items(struct machine *m, enum chex_pickle_kind kind, int count) {
    value *v, **items;
    size_t n;
    CHEX_TRY(pop_items(m, count, &items, &n));
    CHEX_TRY(new_value(m, kind, &v));
    CHEX_TRY(add_items(m, v, items, n, kind == CHEX_PICKLE_DICT));
    return push(m, v);
}

/* The entries become entries of the object below them. */
static enum chex_status add_to_top(struct machine *m, int count, bool pairs) {
    value *to, **items;
    size_t n;
    CHEX_TRY(pop_items(m, count, &items, &n));
    CHEX_TRY(top(m, &to));
    return add_items(m, to, items, n, pairs);
}

/* Records callable(args). keywords: NEWOBJ_EX has a dictionary of keyword arguments on top. */
static enum chex_status record_call(struct machine *m, bool keywords) {
    value *ignored, *v;
    if (keywords)
        CHEX_TRY(pop(m, &ignored));
    CHEX_TRY(new_value(m, CHEX_PICKLE_CALL, &v));
    CHEX_TRY(pop(m, &v->args));
    CHEX_TRY(pop(m, &v->callable));
    return push(m, v);
}

/* OBJ: mark, class, arguments. */
static enum chex_status record_marked_call(struct machine *m) {
    value *v, *args, **items;
    size_t count;
    CHEX_TRY(pop_items(m, TO_MARK, &items, &count));
    if (!count)
        return damaged(m, "an object without a class");
    CHEX_TRY(new_value(m, CHEX_PICKLE_CALL, &v));
    CHEX_TRY(new_value(m, CHEX_PICKLE_TUPLE, &args));
    CHEX_TRY(add_items(m, args, items + 1, count - 1, false));
    v->callable = items[0];
    v->args = args;
    return push(m, v);
}

static enum chex_status set_state(struct machine *m) {
    value *state, *to;
    CHEX_TRY(pop(m, &state));
    CHEX_TRY(top(m, &to));
    if (to->kind == CHEX_PICKLE_PERSISTENT) /* its `state` is the chain of persistent objects */
        return damaged(m, "a state for an object outside of the pickle");
    to->state = state;
    return CHEX_OK;
}

static enum chex_status push_persistent(struct machine *m) {
    value *v;
    CHEX_TRY(new_value(m, CHEX_PICKLE_PERSISTENT, &v));
    CHEX_TRY(pop(m, &v->args));
    v->state = m->pickle->persistents;
    m->pickle->persistents = v;
    return push(m, v);
}

static enum chex_status memo_put(struct machine *m, uint64_t index) {
    value *v;
    CHEX_TRY(top(m, &v));
    if (index > m->memo_puts + MEMO_SLACK)
        return damaged(m, "a memo index far beyond the others");
    CHEX_TRY(reserve(m, &m->memo.items, &m->memo.capacity, (size_t)index + 1));
    for (; m->memo.count <= index; m->memo.count++)
        m->memo.items[m->memo.count] = NULL;
    m->memo.items[index] = v;
    m->memo_puts++;
    return CHEX_OK;
}

static enum chex_status memo_get(struct machine *m, size_t width) {
    uint64_t index;
    CHEX_TRY(get_number(m, width, &index));
    if (index >= m->memo.count || !m->memo.items[index])
        return damaged(m, "a memo entry that was not stored");
    return push(m, m->memo.items[index]);
}

static enum chex_status put_number(struct machine *m, size_t width) {
    uint64_t index;
    CHEX_TRY(get_number(m, width, &index));
    return memo_put(m, index);
}

static enum chex_status push_number(struct machine *m, size_t width) {
    uint64_t n;
    CHEX_TRY(get_number(m, width, &n));
    return push_int(m, width == 4 ? (int64_t)(int32_t)(uint32_t)n : (int64_t)n);
}

static enum chex_status skip(struct machine *m, size_t bytes) {
    const char *ignored;
    return get_bytes(m, bytes, &ignored);
}

static enum chex_status run(struct machine *m, unsigned char opcode) {
    value *v, **items;
    size_t count;
    switch (opcode) {
    case PROTO: return skip(m, 1);
    case FRAME: return skip(m, 8);
    case MARK: return push(m, NULL);
    case POP:
        if (!m->stack.count)
            return damaged(m, "the stack is empty");
        m->stack.count--;
        return CHEX_OK;
    case POP_MARK: return pop_items(m, TO_MARK, &items, &count);
    case DUP: CHEX_TRY(top(m, &v)); return push(m, v);
    case NONE: return push_new(m, CHEX_PICKLE_NONE);
    case NEWTRUE: return push_int(m, 1);
    case NEWFALSE: return push_int(m, 0);
    case BININT: return push_number(m, 4);
    case BININT1: return push_number(m, 1);
    case BININT2: return push_number(m, 2);
    case LONG1: return push_long(m, 1);
    case LONG4: return push_long(m, 4);
    case BINFLOAT: CHEX_TRY(skip(m, 8)); return push_new(m, CHEX_PICKLE_FLOAT);
    case SHORT_BINSTRING:
    case SHORT_BINBYTES:
    case SHORT_BINUNICODE: return push_text(m, 1);
    case BINSTRING:
    case BINBYTES:
    case BINUNICODE: return push_text(m, 4);
    case BINBYTES8:
    case BYTEARRAY8:
    case BINUNICODE8: return push_text(m, 8);
    case GLOBAL: return push_global(m);
    case STACK_GLOBAL: return push_stack_global(m);
    case EMPTY_LIST:
    case EMPTY_SET: return push_new(m, CHEX_PICKLE_LIST);
    case EMPTY_TUPLE: return push_new(m, CHEX_PICKLE_TUPLE);
    case EMPTY_DICT: return push_new(m, CHEX_PICKLE_DICT);
    case TUPLE: return push_items(m, CHEX_PICKLE_TUPLE, TO_MARK);
    case LIST:
    case FROZENSET: return push_items(m, CHEX_PICKLE_LIST, TO_MARK);
    case DICT: return push_items(m, CHEX_PICKLE_DICT, TO_MARK);
    case TUPLE1: return push_items(m, CHEX_PICKLE_TUPLE, 1);
    case TUPLE2: return push_items(m, CHEX_PICKLE_TUPLE, 2);
    case TUPLE3: return push_items(m, CHEX_PICKLE_TUPLE, 3);
    case APPEND: return add_to_top(m, 1, false);
    case SETITEM: return add_to_top(m, 2, true);
    case APPENDS:
    case ADDITEMS: return add_to_top(m, TO_MARK, false);
    case SETITEMS: return add_to_top(m, TO_MARK, true);
    case REDUCE:
    case NEWOBJ: return record_call(m, false);
    case NEWOBJ_EX: return record_call(m, true);
    case OBJ: return record_marked_call(m);
    case BUILD: return set_state(m);
    case BINPERSID: return push_persistent(m);
    case BINPUT: return put_number(m, 1);
    case LONG_BINPUT: return put_number(m, 4);
    case MEMOIZE: return memo_put(m, m->memo.count);
    case BINGET: return memo_get(m, 1);
    case LONG_BINGET: return memo_get(m, 4);
    default:
        return chex_error_data(
            m->err, "%s: pickle, byte %zu: opcode 0x%02x, which torch.save does not write",
            m->subject, m->at - 1, (unsigned)opcode);
    }
}

/* Runs all opcodes up to STOP, whose operand becomes the root. */
static enum chex_status run_all(struct machine *m) {
    for (;;) {
        const char *opcode;
        value *root;
        CHEX_TRY(get_bytes(m, 1, &opcode));
        if (*opcode == STOP) {
            CHEX_TRY(pop(m, &root));
            m->pickle->root = root;
            return CHEX_OK;
        }
        CHEX_TRY(run(m, (unsigned char)*opcode));
    }
}

enum chex_status chex_pickle_read(const char *data, size_t bytes, const char *subject,
                                  struct chex_pickle **pickle_out, size_t *used_out,
                                  struct chex_error *err) {
    struct machine m = {.subject = subject, .data = data, .end = bytes, .err = err};
    CHEX_AUTO(chex_pickle_destroy_at) struct chex_pickle *pickle = calloc(1, sizeof *pickle);
    m.pickle = pickle;
    const enum chex_status st = pickle ? run_all(&m) : no_memory(&m);
    free(m.stack.items);
    free(m.memo.items);
    CHEX_TRY(st);
    *pickle_out = CHEX_TAKE(pickle);
    if (used_out)
        *used_out = m.at;
    return CHEX_OK;
}

void chex_pickle_destroy(struct chex_pickle *pickle) {
    struct block *next;
    for (struct block *b = pickle ? pickle->blocks : NULL; b; b = next) {
        next = b->next;
        for (size_t i = 0; i < b->used; i++)
            free(b->values[i].items);
        free(b);
    }
    free(pickle);
}

const struct chex_pickle_value *chex_pickle_root(const struct chex_pickle *pickle) {
    return pickle->root;
}

const struct chex_pickle_value *chex_pickle_persistents(const struct chex_pickle *pickle) {
    return pickle->persistents;
}

static bool same_text(const char *text, size_t bytes, const char *want) {
    return bytes == strlen(want) && memcmp(text, want, bytes) == 0;
}

bool chex_pickle_is_text(const struct chex_pickle_value *v, const char *text) {
    return v && v->kind == CHEX_PICKLE_TEXT && same_text(v->text, v->text_bytes, text);
}

bool chex_pickle_is_global(const struct chex_pickle_value *v, const char *module,
                           const char *name) {
    return v && v->kind == CHEX_PICKLE_GLOBAL && same_text(v->text, v->text_bytes, module) &&
           same_text(v->name, v->name_bytes, name);
}
