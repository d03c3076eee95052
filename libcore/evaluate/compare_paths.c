/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables that chex-eval compare reads. evaluate/compare_paths.h has the contract.
 */
#include "evaluate/compare_paths.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include "stats/recipes.h"

#define TABLE "predictions.csv"

static enum chex_status add(struct chex_compare_paths *p, char *path, struct chex_error *err) {
    char **grown = path ? realloc(p->path, (p->count + 1) * sizeof *grown) : NULL;
    if (!grown) {
        free(path);
        return chex_error_memory(err, "%zu tables", p->count);
    }
    p->path = grown;
    p->path[p->count++] = path;
    return CHEX_OK;
}

void chex_compare_paths_release(struct chex_compare_paths *p) {
    for (size_t i = 0; i < p->count; i++)
        free(p->path[i]);
    free(p->path);
    *p = (struct chex_compare_paths){0};
}

/* ---- recipes ---- */

/* Adds the tables of a list. A folder of results names the table in it. */
static enum chex_status add_list(struct chex_compare_paths *p, const char *option, const char *list,
                                 size_t *runs_out, struct chex_error *err) {
    char *text = strdup(list), *rest = text;
    enum chex_status st = text ? CHEX_OK : chex_error_memory(err, NULL);
    for (char *item; st == CHEX_OK && (item = strsep(&rest, ",")) != NULL; (*runs_out)++) {
        if (!*item)
            st = chex_error_set(err, CHEX_E_USAGE,
                                "%s %s: an empty name (expected tables or folders of results with "
                                "commas between)",
                                option, list);
        else
            st = add(p, chex_fs_is_dir(item) ? chex_fs_join(item, TABLE) : strdup(item), err);
    }
    free(text);
    if (st == CHEX_OK && *runs_out < CHEX_RECIPES_MIN_RUNS)
        st = chex_error_set(
            err, CHEX_E_USAGE,
            "%s: %zu training%s (expected at least %d, with other seeds); chex-eval compare A B "
            "compares two networks, and its interval covers other patients, but no other training",
            option, *runs_out, chex_text_s(*runs_out), CHEX_RECIPES_MIN_RUNS);
    return st;
}

static enum chex_status find_recipes(const struct chex_eval_settings *s,
                                     struct chex_compare_paths *p, struct chex_error *err) {
    if (!s->runs || !s->against)
        return chex_error_set(err, CHEX_E_USAGE, "%s",
                              s->runs ? "--runs needs --against, the trainings of the other recipe"
                                      : "--against and --paired need --runs");
    if (s->bootstrap)
        return chex_error_set(err, CHEX_E_USAGE,
                              "--bootstrap: not with --runs, whose interval has no replicates");
    CHEX_TRY(add_list(p, "--runs", s->runs, &p->runs[0], err));
    CHEX_TRY(add_list(p, "--against", s->against, &p->runs[1], err));
    if (s->paired && p->runs[0] != p->runs[1])
        return chex_error_set(err, CHEX_E_USAGE,
                              "--paired: %zu trainings in --runs and %zu in --against (expected "
                              "equal numbers: the k-th of both have the same seed)",
                              p->runs[0], p->runs[1]);
    return CHEX_OK;
}

/* ---- a sweep ---- */

/* Adds the table of a run, if the folder is a run: chex-train writes config.json at its start. */
static enum chex_status add_run(struct chex_compare_paths *p, const char *dir, const char *name,
                                struct chex_error *err) {
    char *config = chex_fs_format("%s/%s/config.json", dir, name);
    char *table = chex_fs_format("%s/%s/eval/" TABLE, dir, name);
    const bool is_run = config && chex_fs_exists(config);
    const bool evaluated = table && chex_fs_exists(table);
    enum chex_status st = config && table ? CHEX_OK : chex_error_memory(err, NULL);
    if (st == CHEX_OK && is_run && !evaluated)
        chex_warn("%s: not there yet; the run is left out", table);
    free(config);
    if (st == CHEX_OK && is_run && evaluated)
        return add(p, table, err);
    free(table);
    return st;
}

/* Run 2 comes before run 10. */
static enum chex_status find_sweep(const char *dir, struct chex_compare_paths *p,
                                   struct chex_error *err) {
    struct dirent **found = NULL;
    const int n = scandir(dir, &found, NULL, versionsort);
    if (n < 0)
        return chex_error_errno(err, CHEX_E_USAGE, errno, "--sweep %s", dir);
    enum chex_status st = CHEX_OK;
    for (int i = 0; i < n; i++) {
        if (st == CHEX_OK && found[i]->d_name[0] != '.')
            st = add_run(p, dir, found[i]->d_name, err);
        free(found[i]);
    }
    free(found);
    if (st == CHEX_OK && p->count < 2)
        st = chex_error_set(err, CHEX_E_USAGE,
                            "--sweep %s: %zu evaluated run%s (expected at least 2 folders with "
                            "config.json and eval/" TABLE ", as sweep.sbatch makes them)",
                            dir, p->count, chex_text_s(p->count));
    return st;
}

/* ---- all ---- */

enum chex_status chex_compare_paths_find(const struct chex_opt_set *set,
                                         const struct chex_eval_settings *s,
                                         struct chex_compare_paths *out, struct chex_error *err) {
    const size_t words = chex_opt_word_count(set);
    const bool recipes = s->runs || s->against || s->paired;
    *out = (struct chex_compare_paths){0};
    if ((words > 0) + recipes + (s->sweep != NULL) > 1)
        return chex_error_set(err, CHEX_E_USAGE,
                              "tables, --runs with --against, and --sweep: expected one of these");
    if (recipes)
        return find_recipes(s, out, err);
    if (s->sweep)
        return find_sweep(s->sweep, out, err);
    if (words < 2)
        return chex_error_set(err, CHEX_E_USAGE,
                              "chex-eval compare takes two or more tables of predictions; try "
                              "'chex-eval compare --help'");
    for (size_t i = 0; i < words; i++)
        CHEX_TRY(add(out, strdup(chex_opt_word(set, i)), err));
    return CHEX_OK;
}
