/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the list of sets of --data.
 */
#include "shard/sources.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"

void chex_sources_release(struct chex_sources *s) {
    for (int i = 0; s->set && i < s->count; i++) {
        free(s->set[i].name);
        free(s->set[i].dir);
    }
    free(s->set);
    *s = (struct chex_sources){0};
}

/* The last part of a path, without slashes at its end. */
static char *last_part(const char *path) {
    size_t end = strlen(path), from;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (from = end; from > 0 && path[from - 1] != '/';)
        from--;
    return chex_fs_format("%.*s", (int)(end - from), path + from);
}

static enum chex_status add_set(struct chex_sources *s, const char *word, size_t size, bool named,
                                struct chex_error *err) {
    const char *equals = named ? memchr(word, '=', size) : NULL;
    const size_t name = equals ? (size_t)(equals - word) : 0, skip = equals ? name + 1 : 0;
    struct chex_source *set = &s->set[s->count++];
    if (size == skip || (equals && !name))
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--data: '%.*s', expected folders of shards with commas between them, "
            "each DIR or NAME=DIR",
            (int)size, word);
    set->dir = chex_fs_format("%.*s", (int)(size - skip), word + skip);
    set->name = equals ? chex_fs_format("%.*s", (int)name, word) : NULL;
    if (set->dir && !equals)
        set->name = last_part(set->dir);
    return set->dir && set->name ? CHEX_OK : chex_error_memory(err, "--data");
}

/* chex-eval makes a folder of each name. */
static enum chex_status check_set(const struct chex_sources *s, int at, struct chex_error *err) {
    const struct chex_source *set = &s->set[at];
    if (set->name[0] == '.' || strchr(set->name, '/') || !chex_text_is_printable(set->name))
        return chex_error_set(err, CHEX_E_USAGE,
                              "--data: '%.60s' cannot be the name of a set (expected printable "
                              "characters, no slash, no dot in front): choose another with "
                              "NAME=DIR",
                              set->name);
    for (int i = 0; i < at; i++) {
        if (chex_fs_same(s->set[i].dir, set->dir))
            return chex_error_set(err, CHEX_E_USAGE, "--data: %s and %s are the same set",
                                  s->set[i].dir, set->dir);
        if (strcmp(s->set[i].name, set->name) == 0)
            return chex_error_set(err, CHEX_E_USAGE,
                                  "--data: two sets are named %s: choose other names with "
                                  "NAME=DIR, such as first=%s,second=%s",
                                  set->name, s->set[i].dir, set->dir);
    }
    return CHEX_OK;
}

/* NAME=DIR where DIR is there. Of another text with '=', the error shall name all of it. */
static bool named_folder(const char *text) {
    const char *equals = strchr(text, '=');
    return equals && chex_fs_is_dir(equals + 1);
}

enum chex_status chex_sources_parse(const char *text, struct chex_sources *out,
                                    struct chex_error *err) {
    const bool one = chex_fs_is_dir(text) || (!strchr(text, ',') && !named_folder(text));
    size_t most = 1;
    for (const char *p = text; *p; p++)
        most += *p == ',';
    *out = (struct chex_sources){.set = chex_alloc_zeroed(most, sizeof *out->set)};
    if (!out->set)
        return chex_error_memory(err, "--data");
    if (one)
        return add_set(out, text, strlen(text), false, err);
    for (const char *p = text;; p++) {
        const size_t n = strcspn(p, ",");
        CHEX_TRY(add_set(out, p, n, true, err));
        p += n;
        if (!*p)
            break;
    }
    for (int i = 0; i < out->count; i++)
        CHEX_TRY(check_set(out, i, err));
    return CHEX_OK;
}
