/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares files across ranks by digest.
 *
 * Each rank reads its files and computes an XXH3 digest, chained over blocks of 1 MiB. An allgather
 * gives every rank all digests, so all ranks find the same first difference. The rank that differs
 * writes the error text and broadcasts it.
 */
#include "launch/same.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/hash.h"

enum { BLOCK_BYTES = 1 << 20 }; /* part of the digest: it is chained over blocks of this size */

struct content {
    uint64_t digest, bytes;
    uint64_t known; /* the file could be read */
};

static void digest_file(int fd, char *block, struct content *out) {
    size_t got;
    do {
        got = chex_fs_pread(fd, block, BLOCK_BYTES, out->bytes);
        out->known = errno == 0;
        out->digest = chex_hash64_mix(out->digest, block, got);
        out->bytes += got;
    } while (got == BLOCK_BYTES);
}

static enum chex_status digest_all(const char *const *paths, size_t count, struct content *out,
                                   struct chex_error *err) {
    char *block = malloc(BLOCK_BYTES);
    if (!block)
        return chex_error_memory(err, NULL);
    for (size_t i = 0; i < count; i++) {
        int fd;
        if (!paths[i] || chex_fs_open(paths[i], &fd, NULL, NULL) != CHEX_OK)
            continue;
        digest_file(fd, block, &out[i]);
        close(fd);
    }
    free(block);
    return CHEX_OK;
}

static bool differs(const struct content *a, const struct content *b) {
    return a->known && b->known && (a->digest != b->digest || a->bytes != b->bytes);
}

/* Finds the first file that differs, and the first rank whose copy differs from rank 0. False:
 * none. */
static bool find_other(const struct content *all, size_t count, int size, size_t *file_out,
                       int *rank_out) {
    for (size_t i = 0; i < count; i++)
        for (int r = 1; r < size; r++)
            if (differs(&all[(size_t)r * count + i], &all[i])) {
                *file_out = i;
                *rank_out = r;
                return true;
            }
    return false;
}

static int count_others(const struct content *all, size_t count, int size, size_t file) {
    int n = 0;
    for (int r = 1; r < size; r++)
        n += differs(&all[(size_t)r * count + file], &all[file]);
    return n;
}

static void describe(const struct chex_launch *l, int rank, int others, const char *path,
                     const struct content *theirs, const struct content *first,
                     struct chex_error *text) {
    char host[CHEX_HOST_BYTES], host0[CHEX_HOST_BYTES], more[48] = "";
    chex_launch_host(l, rank, host, sizeof host);
    chex_launch_host(l, 0, host0, sizeof host0);
    if (others > 1)
        snprintf(more, sizeof more, ", and so %s %d more rank%s", others > 2 ? "do" : "does",
                 others - 1, others > 2 ? "s" : "");
    chex_error_set(
        text, CHEX_E_DATA,
        "%s: rank %d on %s has another file than rank 0 on %s%s: give all ranks the same "
        "file (%llu bytes, XXH3 %016llx; expected %llu bytes, XXH3 %016llx)",
        path, rank, host, host0, more, (unsigned long long)theirs->bytes,
        (unsigned long long)theirs->digest, (unsigned long long)first->bytes,
        (unsigned long long)first->digest);
}

/* Rank `rank` knows its path: it writes the text and broadcasts it. */
static enum chex_status refuse(struct chex_coll *coll, const struct chex_launch *l,
                               const char *const *paths, const struct content *all, size_t count,
                               size_t file, int rank, struct chex_error *err) {
    struct chex_error text = {0};
    if (l->rank == rank)
        describe(l, rank, count_others(all, count, l->size, file), paths[file],
                 &all[(size_t)rank * count + file], &all[file], &text);
    CHEX_TRY(chex_group_broadcast(coll->group, text.text, sizeof text.text, rank, err));
    text.text[sizeof text.text - 1] = '\0';
    return chex_error_set(err, CHEX_E_DATA, "%s", text.text);
}

enum chex_status chex_same_files(struct chex_coll *coll, const struct chex_launch *l,
                                 const char *const *paths, size_t count, struct chex_error *err) {
    size_t file;
    int rank;
    if (l->size == 1 || count == 0)
        return CHEX_OK;
    struct content *mine = chex_alloc_zeroed(count, sizeof *mine);
    enum chex_status st = mine ? digest_all(paths, count, mine, err) : chex_error_memory(err, NULL);
    st = chex_group_agree(coll->group, st, err);
    if (st == CHEX_OK)
        st = chex_group_exchange(coll->group, "files", mine, count * sizeof *mine, err);
    if (st == CHEX_OK && find_other(coll->group->all, count, l->size, &file, &rank))
        st = refuse(coll, l, paths, coll->group->all, count, file, rank, err);
    free(mine);
    return st;
}

/* ---- options ---- */

static enum chex_status compare_options(json_t *mine, const json_t *first, struct chex_error *err) {
    const char *name;
    json_t *value;
    json_object_foreach(mine, name, value) {
        const json_t *theirs = json_object_get(first, name);
        if (json_equal(value, theirs))
            continue;
        return chex_error_set(err, CHEX_E_USAGE,
                              "--%s is '%.100s' here and '%.100s' on rank 0: give all ranks the "
                              "same options",
                              name, json_string_value(value),
                              json_is_string(theirs) ? json_string_value(theirs) : "");
    }
    return CHEX_OK;
}

enum chex_status chex_same_options(struct chex_group *group, json_t *mine, struct chex_error *err) {
    json_t *first = NULL;
    if (group->size == 1)
        return CHEX_OK;
    char *text = group->rank == 0 && mine ? json_dumps(mine, JSON_COMPACT) : NULL;
    uint64_t bytes = text ? strlen(text) + 1 : 0;
    enum chex_status st = chex_group_broadcast(group, &bytes, sizeof bytes, 0, err);
    if (st == CHEX_OK && group->rank != 0)
        text = chex_alloc_zeroed((size_t)bytes + 1, 1);
    if (st == CHEX_OK && (!mine || !text || !bytes))
        st = chex_error_memory(err, "the options");
    st = chex_group_agree(group, st, err);
    if (st == CHEX_OK)
        st = chex_group_broadcast(group, text, (size_t)bytes, 0, err);
    if (st == CHEX_OK && !(first = json_loads(text, 0, NULL)))
        st = chex_error_memory(err, "the options");
    if (st == CHEX_OK)
        st = compare_options(mine, first, err);
    json_decref(first);
    free(text);
    return st;
}
