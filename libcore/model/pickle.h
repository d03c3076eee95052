/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a Python pickle as plain data. Nothing is imported, called or executed.
 *
 * A pickle is a program for a stack machine that can call any Python function. This reader runs the
 * stack machine, but a call is only recorded: its result is a value that holds the name of the
 * function and its arguments. So the caller sees what Python would have built, and unknown classes
 * are data that it can ignore.
 *
 * The binary opcodes of protocols 2 to 5 are read (Python's pickletools.py describes them). Work
 * and memory are bounded by the length of the input: at most one value and one reference an opcode.
 */
#ifndef CHEX_MODEL_PICKLE_H
#define CHEX_MODEL_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum chex_pickle_kind {
    CHEX_PICKLE_NONE,
    CHEX_PICKLE_INT,        /* also bool */
    CHEX_PICKLE_LONG,       /* an integer of more than 64 bits: `text`, little-endian */
    CHEX_PICKLE_FLOAT,      /* the number is not kept */
    CHEX_PICKLE_TEXT,       /* str or bytes: `text`, not NUL-terminated */
    CHEX_PICKLE_TUPLE,      /* items */
    CHEX_PICKLE_LIST,       /* items; also set and frozenset */
    CHEX_PICKLE_DICT,       /* items: key, value, key, value... */
    CHEX_PICKLE_GLOBAL,     /* a class or function: `text` is the module, `name` the name */
    CHEX_PICKLE_CALL,       /* callable(args), then items added and `state` set */
    CHEX_PICKLE_PERSISTENT, /* an object outside of the pickle: `args` is its id */
};

struct chex_pickle_value {
    enum chex_pickle_kind kind;
    bool pairs; /* CALL: items are key, value, key, value... */
    int64_t integer;
    const char *text, *name; /* in the input */
    size_t text_bytes, name_bytes;
    struct chex_pickle_value *callable, *args, *state; /* NULL: none */
    struct chex_pickle_value **items;
    size_t count, capacity;
};

struct chex_pickle; /* owns all values */

/* Reads one pickle. Values may refer to each other in cycles: a caller bounds its walks.
 * - data: must live as long as the pickle.
 * - subject: names the input in errors.
 * - used_out: bytes up to and with the STOP opcode; may be NULL.
 * - CHEX_E_DATA: truncated, an opcode that torch.save does not write, or an unsound stack. */
enum chex_status chex_pickle_read(const char *data, size_t bytes, const char *subject,
                                  struct chex_pickle **pickle_out, size_t *used_out,
                                  struct chex_error *err);
void chex_pickle_destroy(struct chex_pickle *pickle); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_pickle, chex_pickle_destroy)

/* The result. Never NULL. */
const struct chex_pickle_value *chex_pickle_root(const struct chex_pickle *pickle);

/* The last persistent object, or NULL. Its `state` is the one before it, and so on. */
const struct chex_pickle_value *chex_pickle_persistents(const struct chex_pickle *pickle);

/* Whether a value (NULL allowed) is this text, or the class or function `module`.`name`. */
bool chex_pickle_is_text(const struct chex_pickle_value *v, const char *text);
bool chex_pickle_is_global(const struct chex_pickle_value *v, const char *module, const char *name);

#endif
