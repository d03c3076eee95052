/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses and formats numbers, sizes and durations.
 */
#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool starts_number(const char *text) {
    return text && (isdigit((unsigned char)text[0]) || text[0] == '.' ||
                    ((text[0] == '-' || text[0] == '+') &&
                     (isdigit((unsigned char)text[1]) || text[1] == '.')));
}

bool chex_parse_i64(const char *text, int64_t *out) {
    if (!starts_number(text))
        return false;
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || *end)
        return false;
    *out = v;
    return true;
}

bool chex_parse_u64(const char *text, uint64_t *out) {
    if (!text || !isdigit((unsigned char)text[0]))
        return false;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end)
        return false;
    *out = v;
    return true;
}

/* Reads a leading decimal number; no hex, inf or nan. *rest points after it. */
static bool leading_f64(const char *text, double *out, const char **rest) {
    if (!starts_number(text))
        return false;
    const char *digits = text + (*text == '-' || *text == '+');
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X'))
        return false;
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || !isfinite(v))
        return false;
    *out = v;
    *rest = end;
    return true;
}

bool chex_parse_f64(const char *text, double *out) {
    double v;
    const char *rest;
    if (!leading_f64(text, &v, &rest) || *rest)
        return false;
    *out = v;
    return true;
}

bool chex_parse_bytes(const char *text, uint64_t *out_bytes) {
    double v;
    const char *rest;
    if (!leading_f64(text, &v, &rest) || v < 0)
        return false;
    double scale = 1;
    if (*rest && strchr("KMGTkmgt", *rest)) {
        for (const char *p = "kmgt";; p++) {
            scale *= 1024;
            if (tolower((unsigned char)*rest) == *p)
                break;
        }
        rest++;
        if (*rest == 'i')
            rest++;
    }
    if (*rest == 'B')
        rest++;
    if (*rest || v * scale >= 9.2e18 || floor(v * scale) != v * scale)
        return false;
    *out_bytes = (uint64_t)(v * scale);
    return true;
}

bool chex_parse_duration(const char *text, uint64_t *out_ms) {
    static const struct {
        const char *unit;
        double ms;
    } units[] = {{"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"min", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};
    double v;
    const char *rest;
    if (!leading_f64(text, &v, &rest) || v < 0 || v > 1e9)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(rest, units[i].unit) == 0) {
            *out_ms = (uint64_t)llround(v * units[i].ms);
            return true;
        }
    return false;
}

const char *chex_format_bytes(char *buf, size_t size, uint64_t bytes) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    int i = 0;
    for (; v >= 1024 && i < 5; i++)
        v /= 1024;
    snprintf(buf, size, i == 0 || v >= 100 ? "%.0f %s" : "%.1f %s", v, names[i]);
    return buf;
}

const char *chex_format_duration(char *buf, size_t size, double seconds) {
    if (seconds < 0.1)
        snprintf(buf, size, "%.1f ms", seconds * 1e3);
    else if (seconds < 1)
        snprintf(buf, size, "%.0f ms", seconds * 1e3);
    else if (seconds < 60)
        snprintf(buf, size, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(buf, size, "%dm%02ds", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(buf, size, "%dh%02dm", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    return buf;
}
