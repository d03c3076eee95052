/* SPDX-License-Identifier: Apache-2.0
 *
 * UTF-8 checks, printable forms, CSV cells and spelling suggestions.
 */
#include "base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Reads one character of NUL-terminated text. Returns its length in bytes, or 0 if the bytes are
 * not UTF-8. */
static int read_character(const char *text, uint32_t *value_out) {
    static const uint32_t minimum[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    int more = *p < 0x80 ? 0 : *p >> 5 == 6 ? 1 : *p >> 4 == 14 ? 2 : *p >> 3 == 30 ? 3 : -1;
    if (more < 0)
        return 0;
    uint32_t value = more ? *p & (0x3Fu >> more) : *p;
    for (int i = 1; i <= more; i++) {
        if (p[i] >> 6 != 2) /* also true for the final NUL */
            return 0;
        value = value << 6 | (p[i] & 0x3Fu);
    }
    if (value < minimum[more] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return 0;
    *value_out = value;
    return more + 1;
}

bool chex_text_ends_with(const char *text, const char *suffix) {
    const size_t n = strlen(text), k = strlen(suffix);
    return n > k && strcmp(text + n - k, suffix) == 0;
}

bool chex_text_is_utf8(const char *text) {
    uint32_t value;
    for (int n; *text; text += n)
        if (!(n = read_character(text, &value)))
            return false;
    return true;
}

/* Control characters, line and paragraph separators, and characters that change the writing
 * direction. */
static bool is_unprintable(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x200E || c == 0x200F ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

bool chex_text_has_control(const char *text) {
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7F || (*p == 0xC2 && p[1] >= 0x80 && p[1] < 0xA0))
            return true;
    return false;
}

enum { PIECE_BYTES = 17 }; /* \xNN four times, and a NUL */

/* Writes the printable form of the first character (or invalid byte) of `text`. Returns the bytes
 * of `text` that it covers. */
static int printable_piece(const char *text, char piece[PIECE_BYTES]) {
    uint32_t value;
    int n = read_character(text, &value), at = 0;
    const bool plain = n && !is_unprintable(value);
    n = n ? n : 1;
    for (int i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)text[i];
        at += snprintf(piece + at, (size_t)(PIECE_BYTES - at), plain ? "%c" : "\\x%02X", byte);
    }
    return n;
}

const char *chex_text_printable(const char *text, char *out, size_t size) {
    size_t used = 0;
    char piece[PIECE_BYTES];
    out[0] = '\0';
    while (*text) {
        const int n = printable_piece(text, piece);
        const size_t length = strlen(piece);
        if (used + length + 4 > size) {
            memcpy(out + used, "...", 4);
            break;
        }
        memcpy(out + used, piece, length + 1);
        used += length;
        text += n;
    }
    return out;
}

bool chex_text_is_printable(const char *text) {
    uint32_t value;
    for (int n; *text; text += n)
        if (!(n = read_character(text, &value)) || is_unprintable(value))
            return false;
    return true;
}

void chex_text_printf(FILE *to, const char *fmt, ...) {
    char *text = NULL, piece[PIECE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    for (const char *at = text; at && *at;) {
        if (*at == '\n') {
            putc(*at++, to);
            continue;
        }
        at += printable_piece(at, piece);
        fputs(piece, to);
    }
    free(text);
}

/* ---- cells of CSV files ---- */

bool chex_text_is_formula(const char *text) { return *text && strchr("=+-@", *text); }

/* Any number of apostrophes, then a formula. */
static bool needs_apostrophe(const char *text) {
    return chex_text_is_formula(text + strspn(text, "'"));
}

static void put_cell(FILE *to, const char *text, bool quoted) {
    const bool protect = needs_apostrophe(text);
    char piece[PIECE_BYTES];
    fputs(quoted ? "\"" : "", to);
    fputs(protect ? "'" : "", to);
    while (*text) {
        text += printable_piece(text, piece);
        fputs(strcmp(piece, "\"") ? piece : "\"\"", to);
    }
    fputs(quoted ? "\"" : "", to);
}

void chex_text_put_cell(FILE *to, const char *text) {
    put_cell(to, text, needs_apostrophe(text) || text[strcspn(text, ",\"")]);
}

void chex_text_put_quoted_cell(FILE *to, const char *text) { put_cell(to, text, true); }

const char *chex_text_of_cell(const char *cell) {
    return *cell == '\'' && needs_apostrophe(cell + 1) ? cell + 1 : cell;
}

enum chex_status chex_text_for_json(const char *what, const char *name, const char *user,
                                    struct chex_error *err) {
    char shown[64];
    if (!name || chex_text_is_utf8(name))
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_USAGE, "%s '%s': the name is no UTF-8 text, as %s needs",
                          what, chex_text_printable(name, shown, sizeof shown), user);
}

/* ---- misspelt words ---- */

enum { WORD_BYTES = 48 };

static int min_int(int a, int b) { return a < b ? a : b; }

/* Letters to insert, drop, change or exchange with their neighbour to make b of a (optimal string
 * alignment). Both are shorter than WORD_BYTES. */
static int edit_distance(const char *a, const char *b) {
    int rows[3][WORD_BYTES + 1], n = (int)strlen(b);
    for (int j = 0; j <= n; j++)
        rows[0][j] = j;
    int i = 0;
    for (; a[i]; i++) {
        const int *above = rows[i % 3], *two_above = rows[(i + 2) % 3];
        int *row = rows[(i + 1) % 3];
        row[0] = i + 1;
        for (int j = 0; j < n; j++) {
            row[j + 1] = min_int(above[j] + (a[i] != b[j]), min_int(above[j + 1], row[j]) + 1);
            if (i && j && a[i] == b[j - 1] && a[i - 1] == b[j])
                row[j + 1] = min_int(row[j + 1], two_above[j - 1] + 1);
        }
    }
    return rows[i % 3][n];
}

bool chex_text_offer(struct chex_text_nearest *n, const char *candidate) {
    const size_t length = strlen(n->word);
    if (length == 0 || length >= WORD_BYTES || strlen(candidate) >= WORD_BYTES)
        return false;
    const int max_distance = length > 5 ? (int)length / 3 : 1;
    int distance = edit_distance(n->word, candidate);
    if (distance > max_distance && length >= 3 && strncmp(candidate, n->word, length) == 0)
        distance = max_distance;
    if (distance > max_distance || (n->best && distance >= n->distance))
        return false;
    n->best = candidate;
    n->distance = distance;
    return true;
}

int chex_text_compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int chex_text_compare_ends(const char *a, const char *b) {
    size_t m = strlen(a), n = strlen(b);
    while (m && n && a[m - 1] == b[n - 1])
        m--, n--;
    return m && n ? (a[m - 1] > b[n - 1] ? 1 : -1) : (m > 0) - (n > 0);
}

bool chex_text_next_range(const char **list, long *from_out, long *to_out) {
    char *end;
    *from_out = *to_out = strtol(*list, &end, 10);
    if (end == *list)
        return false;
    if (*end == '-')
        *to_out = strtol(end + 1, &end, 10);
    *list = *end == ',' ? end + 1 : end;
    return true;
}

const char *chex_text_mask(const char *list, const char *const *names, unsigned *mask_out) {
    unsigned mask = 0;
    for (;; list++) {
        const size_t n = strcspn(list, ",");
        int k = 0;
        while (names[k] && (strlen(names[k]) != n || strncasecmp(list, names[k], n) != 0))
            k++;
        if (!names[k])
            return list;
        mask |= 1u << k;
        list += n;
        if (!*list)
            break;
    }
    *mask_out = mask;
    return NULL;
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

void chex_text_append(struct chex_text_line *line, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(line->text + line->used, line->size - line->used, fmt, args);
    va_end(args);
    line->used += n > 0 ? (size_t)n : 0;
    if (line->used >= line->size) {
        line->used = line->size - 1;
        memcpy(line->text + line->size - 4, "...", 4);
    }
}
