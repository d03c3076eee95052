/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes, and the error text that travels with them.
 *
 * Every function that can fail returns `enum chex_status` and has `struct chex_error *err` as its
 * last parameter. The function that finds a fault writes the text: object, place, value, what was
 * expected. Callers may put context in front and return the status. Nothing here prints or exits.
 */
#ifndef CHEX_BASE_ERROR_H
#define CHEX_BASE_ERROR_H

#include <stdarg.h>

/* The values are the exit statuses of the four commands. */
enum chex_status {
    CHEX_OK = 0,
    CHEX_E_FAIL = 1,      /* an error in chexnet */
    CHEX_E_USAGE = 2,     /* the command line, the environment or a config file */
    CHEX_E_DATA = 3,      /* bad input data */
    CHEX_E_ENV = 4,       /* environment: the user can fix it */
    CHEX_E_NODE = 5,      /* the node is at fault */
    CHEX_E_PREEMPTED = 6, /* state saved after preemption: requeue the job */
    CHEX_E_LOST = 7,      /* stalled, or a rank was lost */
    CHEX_E_DIVERGED = 8,  /* the loss is not finite */
    CHEX_E_RESOURCE = 9,  /* out of memory or disk */
};

enum { CHEX_ERROR_TEXT_BYTES = 512 };

/* Owned by the caller. Start with `struct chex_error err = {0};`. */
struct chex_error {
    enum chex_status status;
    char text[CHEX_ERROR_TEXT_BYTES]; /* one line, no newline; ends in "..." where cut */
};

/* Writes status and text into err (NULL allowed), keeps errno, returns status:
 * `return chex_error_set(err, CHEX_E_ENV, "folder %s: ...", path);` */
enum chex_status chex_error_set(struct chex_error *err, enum chex_status status, const char *fmt,
                                ...) __attribute__((format(printf, 3, 4)));

/* Bad input data: CHEX_E_DATA. */
#define chex_error_data(err, ...) chex_error_set(err, CHEX_E_DATA, __VA_ARGS__)

/* Puts "prefix: " in front of the text in err and returns `status`, which err gets too. err may be
 * NULL. */
enum chex_status chex_error_prefix(struct chex_error *err, enum chex_status status, const char *fmt,
                                   ...) __attribute__((format(printf, 3, 4)));

/* Lack of memory: CHEX_E_RESOURCE and "WHAT: out of memory". fmt: what the memory was for; NULL:
 * the text is "out of memory". */
enum chex_status chex_error_memory(struct chex_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* As chex_error_set, with ": strerror(errno_value)" at the end. ENOSPC, EDQUOT and ENOMEM always
 * give CHEX_E_RESOURCE; EMFILE and ENFILE (too many open files) CHEX_E_ENV. */
enum chex_status chex_error_errno(struct chex_error *err, enum chex_status status, int errno_value,
                                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Tells the compiler that these functions never return CHEX_OK. It then knows that outputs
 * which are written only on success are not read after a failure. */
static inline enum chex_status chex_error_never_ok(enum chex_status status) {
    if (status == CHEX_OK)
        __builtin_unreachable();
    return status;
}
#define chex_error_set(...) chex_error_never_ok(chex_error_set(__VA_ARGS__))
#define chex_error_prefix(...) chex_error_never_ok(chex_error_prefix(__VA_ARGS__))
#define chex_error_memory(...) chex_error_never_ok(chex_error_memory(__VA_ARGS__))
#define chex_error_errno(...) chex_error_never_ok(chex_error_errno(__VA_ARGS__))

/* One short sentence for a status, as the man pages have it. Never NULL. */
const char *chex_status_text(enum chex_status status);

/* `CHEX_TRY(call)` returns the status of a failed call to the caller's caller. */
#define CHEX_TRY(expr)                                                                             \
    do {                                                                                           \
        enum chex_status chex_try_status_ = (expr);                                                \
        if (chex_try_status_ != CHEX_OK)                                                           \
            return chex_try_status_;                                                               \
    } while (0)

/* `CHEX_ALLOCATED(a && b, err, fmt, ...)` returns chex_error_memory to the caller's caller if a
 * pointer is NULL. */
#define CHEX_ALLOCATED(pointers, err, ...)                                                         \
    do {                                                                                           \
        if (!(pointers))                                                                           \
            return chex_error_memory(err, __VA_ARGS__);                                            \
    } while (0)

/* `CHEX_AUTO(chex_csv_release) struct chex_csv csv = {0};`: the function gets the address of the
 * variable when it goes out of scope, so every return releases it. */
#define CHEX_AUTO(release) __attribute__((cleanup(release)))

/* Defines CLOSE_at(), so that CHEX_AUTO can close what a pointer refers to:
 *   CHEX_AUTO(chex_set_close_at) struct chex_set *set = NULL; */
#define CHEX_AUTO_POINTER(type, close)                                                             \
    static inline void close##_at(type **pointer) { close(*pointer); }

/* Hands over what such a pointer refers to: `*set_out = CHEX_TAKE(set);`. The pointer is NULL
 * afterwards, so nothing is closed. */
#define CHEX_TAKE(pointer)                                                                         \
    __extension__({                                                                                \
        __typeof__(pointer) chex_taken_ = (pointer);                                               \
        (pointer) = NULL;                                                                          \
        chex_taken_;                                                                               \
    })

/* Elements of an array (not of a pointer). */
#define CHEX_COUNT(array) (sizeof(array) / sizeof(array)[0])

#endif
