/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

bool chex_text_is_utf8(const char *text) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int more = *p < 0x80 ? 0 : *p >> 5 == 6 ? 1 : *p >> 4 == 14 ? 2 : *p >> 3 == 30 ? 3 : -1;
        if (more < 0)
            return false;
        uint32_t value = more ? *p & (0x3Fu >> more) : *p;
        for (int i = 1; i <= more; i++) {
            if (p[i] >> 6 != 2) /* the NUL at the end too */
                return false;
            value = value << 6 | (p[i] & 0x3Fu);
        }
        if (value < least[more] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
            return false;
        p += more + 1;
    }
    return true;
}

const char *chex_text_shown(const char *text, char *out, size_t size) {
    size_t n = 0;
    for (; text[n] && n + 4 < size; n++)
        out[n] = isprint((unsigned char)text[n]) ? text[n] : '?';
    strcpy(out + n, text[n] ? "..." : "");
    return out;
}

enum chex_status chex_text_for_json(const char *what, const char *name, const char *user,
                                    struct chex_error *err) {
    char shown[64];
    if (!name || chex_text_is_utf8(name))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE, "%s '%s': the name is no UTF-8 text, as %s needs",
                          what, chex_text_shown(name, shown, sizeof shown), user);
}

int chex_text_columns(const char *text) {
    int columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xc0) != 0x80; /* bytes that begin a character */
    return columns;
}

int chex_text_field(const char *text, int columns) {
    return columns + (int)strlen(text) - chex_text_columns(text);
}
