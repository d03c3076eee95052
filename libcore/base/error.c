/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes error texts. Each text fits its buffer: a longer one is cut and ends in "...".
 */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum chex_status(chex_error_set)(struct chex_error *err, enum chex_status status, const char *fmt,
                                 ...) {
    int saved = errno;
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
        if (n >= (int)sizeof err->text)
            memcpy(err->text + sizeof err->text - 4, "...", 4);
        err->status = status;
    }
    errno = saved;
    return status;
}

/* Formats the caller's text into `head`. */
#define FORMAT(head, fmt)                                                                          \
    do {                                                                                           \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        vsnprintf(head, sizeof head, fmt, ap);                                                     \
        va_end(ap);                                                                                \
    } while (0)

enum chex_status(chex_error_prefix)(struct chex_error *err, enum chex_status status,
                                    const char *fmt, ...) {
    char prefix[CHEX_ERROR_TEXT_BYTES];
    FORMAT(prefix, fmt);
    const struct chex_error old = err ? *err : (struct chex_error){0};
    return chex_error_set(err, status, "%s: %s", prefix, old.text);
}

enum chex_status(chex_error_memory)(struct chex_error *err, const char *fmt, ...) {
    char what[CHEX_ERROR_TEXT_BYTES];
    if (!fmt)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    FORMAT(what, fmt);
    return chex_error_set(err, CHEX_E_RESOURCE, "%s: out of memory", what);
}

enum chex_status(chex_error_errno)(struct chex_error *err, enum chex_status status, int errno_value,
                                   const char *fmt, ...) {
    char head[CHEX_ERROR_TEXT_BYTES];
    FORMAT(head, fmt);
    if (errno_value == ENOSPC || errno_value == EDQUOT || errno_value == ENOMEM)
        status = CHEX_E_RESOURCE;
    else if (errno_value == EMFILE || errno_value == ENFILE)
        status = CHEX_E_ENV;
    return chex_error_set(err, status, "%s: %s", head, strerror(errno_value));
}

const char *chex_status_text(enum chex_status status) {
    switch (status) {
    case CHEX_OK: return "done";
    case CHEX_E_FAIL: return "failure of ours";
    case CHEX_E_USAGE: return "usage";
    case CHEX_E_DATA: return "bad input data";
    case CHEX_E_ENV: return "environment (user can mend)";
    case CHEX_E_NODE: return "node at fault";
    case CHEX_E_PREEMPTED: return "saved after preemption, requeue me";
    case CHEX_E_LOST: return "stalled or a rank lost";
    case CHEX_E_DIVERGED: return "diverged (loss not finite)";
    case CHEX_E_RESOURCE: return "out of memory or disk";
    }
    return "unknown status";
}
