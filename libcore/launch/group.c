/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of a group, made of the exchange of its transport. group.h has the rules.
 *
 * agree() needs one small exchange if all ranks succeeded, or failed alike: each rank gives its
 * status and a digest of its text. Otherwise the rank whose error counts broadcasts host and text.
 *
 * Invariant: a rank leaves an operation early only if the transport failed there. The branches
 * below depend on values that are equal on all ranks. `memory_bytes` is one of them: it grows only
 * after all ranks have agreed that they have the larger memory.
 */
#include "launch/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"

static enum chex_status no_memory(struct chex_error *err, int ranks) {
    return chex_error_set(err, CHEX_E_RESOURCE, "out of memory for messages of %d ranks", ranks);
}

enum chex_status chex_group_create(int rank, int size, const char *host,
                                   const struct chex_group_transport *transport, void *arg,
                                   uint64_t wait_ms, struct chex_group **group_out,
                                   struct chex_error *err) {
    struct chex_group *g = chex_alloc_zeroed(1, sizeof *g);
    if (g) {
        *g = (struct chex_group){.rank = rank,
                                 .size = size,
                                 .wait_ms = wait_ms,
                                 .transport = transport,
                                 .arg = arg,
                                 .memory = chex_alloc_zeroed((size_t)size, CHEX_GROUP_BYTES),
                                 .memory_bytes = CHEX_GROUP_BYTES,
                                 .sizes = chex_alloc_zeroed((size_t)size, sizeof *g->sizes)};
        snprintf(g->host, sizeof g->host, "%s", host);
    }
    if (!g || !g->memory || !g->sizes) {
        chex_group_destroy(g);
        return no_memory(err, size);
    }
    *group_out = g;
    return CHEX_OK;
}

void chex_group_destroy(struct chex_group *g) {
    if (!g)
        return;
    free(g->memory);
    free(g->sizes);
    free(g);
}

static enum chex_status launch_exchange(void *arg, const char *key, const void *mine, size_t bytes,
                                        void *all_out, uint64_t wait_ms, struct chex_error *err) {
    return chex_launch_exchange(arg, key, mine, bytes, all_out, wait_ms, err);
}

static enum chex_status launch_collect(void *arg, const char *key, const void *mine, size_t bytes,
                                       void *all_out, uint64_t wait_ms, struct chex_error *err) {
    return chex_launch_collect(arg, key, mine, bytes, all_out, wait_ms, err);
}

static const struct chex_group_transport launch_transport = {.exchange = launch_exchange,
                                                             .collect = launch_collect};

enum chex_status chex_group_of_launch(struct chex_launch *launch, uint64_t wait_ms,
                                      struct chex_group **group_out, struct chex_error *err) {
    return chex_group_create(launch->rank, launch->size, launch->host, &launch_transport, launch,
                             wait_ms, group_out, err);
}

/* ---- exchange ---- */

static enum chex_status check_sound(const struct chex_group *g, const char *what,
                                    struct chex_error *err) {
    if (!g->broken)
        return CHEX_OK;
    return chex_error_set(err, CHEX_E_LOST, "%s: not started, because an earlier exchange failed",
                          what);
}

static enum chex_status note(struct chex_group *g, enum chex_status st) {
    g->broken = g->broken || st != CHEX_OK;
    return st;
}

static enum chex_status exchange_into(struct chex_group *g, const char *key, const void *mine,
                                      size_t bytes, void *all_out, struct chex_error *err) {
    if (g->size == 1) {
        if (bytes)
            memcpy(all_out, mine, bytes);
        return CHEX_OK;
    }
    CHEX_TRY(check_sound(g, key, err));
    return note(g, g->transport->exchange(g->arg, key, mine, bytes, all_out, g->wait_ms, err));
}

enum chex_status chex_group_exchange(struct chex_group *g, const char *key, const void *mine,
                                     size_t bytes, struct chex_error *err) {
    if (bytes > g->memory_bytes) {
        void *grown = chex_alloc_zeroed((size_t)g->size, bytes);
        enum chex_status st = grown ? CHEX_OK : no_memory(err, g->size);
        st = chex_group_agree(g, st, err);
        if (st != CHEX_OK) {
            free(grown);
            return st;
        }
        free(g->memory);
        g->memory = grown;
        g->memory_bytes = bytes;
    }
    CHEX_TRY(exchange_into(g, key, mine, bytes, g->memory, err));
    g->all = g->memory;
    return CHEX_OK;
}

enum chex_status chex_group_collect(struct chex_group *g, const char *key, const void *mine,
                                    size_t bytes, void *all_out, struct chex_error *err) {
    const struct chex_group_transport *t = g->transport;
    if (g->size == 1) {
        memcpy(all_out, mine, bytes);
        return CHEX_OK;
    }
    CHEX_TRY(check_sound(g, key, err));
    for (int r = 0; r < g->size; r++)
        g->sizes[r] = bytes;
    return note(g, t->collect ? t->collect(g->arg, key, mine, bytes, all_out, g->wait_ms, err)
                              : t->gather(g->arg, mine, g->sizes, all_out, err));
}

enum chex_status chex_group_broadcast(struct chex_group *g, void *data, size_t bytes, int root,
                                      struct chex_error *err) {
    char *at = data;
    if (root < 0 || root >= g->size)
        return chex_error_set(err, CHEX_E_FAIL, "broadcast from rank %d of %d", root, g->size);
    if (g->size == 1)
        return CHEX_OK;
    CHEX_TRY(check_sound(g, "broadcast", err));
    if (g->transport->broadcast)
        return note(g, g->transport->broadcast(g->arg, data, bytes, root, err));
    for (size_t done = 0, n; done < bytes; done += n) {
        n = bytes - done < CHEX_GROUP_BYTES ? bytes - done : CHEX_GROUP_BYTES;
        CHEX_TRY(chex_group_exchange(g, "broadcast", at + done, n, err));
        memcpy(at + done, (const char *)g->all + (size_t)root * n, n);
    }
    return CHEX_OK;
}

/* ---- agree ---- */

struct verdict {
    int64_t status;
    uint64_t text; /* digest; 0 with CHEX_OK */
};

struct reason {
    char host[CHEX_HOST_BYTES], text[CHEX_ERROR_TEXT_BYTES];
};

static int severity(int64_t st) { return st == CHEX_E_PREEMPTED ? 1 : 2 * (int)st; }

static int worst_of(const struct verdict *all, int size) {
    int worst = 0;
    for (int r = 1; r < size; r++)
        if (severity(all[r].status) > severity(all[worst].status))
            worst = r;
    return worst;
}

/* Sets the error of rank `from` on all ranks. `named`: with rank and host in front. */
static enum chex_status spread(struct chex_group *g, int from, enum chex_status status, bool named,
                               struct chex_error *text, struct chex_error *lost) {
    struct reason r = {0};
    if (g->rank == from) {
        memcpy(r.host, g->host, sizeof r.host);
        memcpy(r.text, text->text, sizeof r.text);
    }
    CHEX_TRY(chex_group_broadcast(g, &r, sizeof r, from, lost));
    r.host[sizeof r.host - 1] = r.text[sizeof r.text - 1] = '\0';
    chex_error_set(text, status, "%s", r.text);
    if (named && r.host[0])
        chex_error_prefix(text, status, "rank %d on %s", from, r.host);
    else if (named)
        chex_error_prefix(text, status, "rank %d", from);
    return CHEX_OK;
}

/* root -1: the worst status of all ranks counts. */
static enum chex_status settle(struct chex_group *g, int root, enum chex_status mine,
                               struct chex_error *err) {
    struct chex_error none = {0}, lost = {0}, *text = err ? err : &none;
    struct verdict own = {.status = mine};
    if (mine != CHEX_OK && !text->text[0])
        chex_error_set(text, mine, "%s", chex_status_text(mine));
    if (g->size == 1)
        return mine;
    if (mine != CHEX_OK)
        own.text = chex_hash64(text->text, strlen(text->text));
    enum chex_status st = chex_group_exchange(g, "status", &own, sizeof own, &lost);
    enum chex_status agreed = CHEX_OK;
    if (st == CHEX_OK) {
        const struct verdict *all = g->all;
        const int from = root >= 0 ? root : worst_of(all, g->size);
        bool same = true;
        agreed = (enum chex_status)all[from].status;
        for (int r = 0; r < g->size; r++)
            same = same && all[r].status == all[from].status && all[r].text == all[from].text;
        if (agreed != CHEX_OK && !same)
            st = spread(g, from, agreed, root < 0, text, &lost);
    }
    if (st == CHEX_OK)
        return agreed;
    return mine != CHEX_OK ? mine : chex_error_set(err, st, "%s", lost.text);
}

enum chex_status chex_group_agree(struct chex_group *g, enum chex_status mine,
                                  struct chex_error *err) {
    return settle(g, -1, mine, err);
}

enum chex_status chex_group_follow(struct chex_group *g, int root, enum chex_status mine,
                                   struct chex_error *err) {
    return settle(g, root, g->rank == root ? mine : CHEX_OK, err);
}

/* ---- gather ---- */

/* For a transport without a gather: exchanges pieces, and rank 0 keeps them. */
static enum chex_status gather_by_exchanges(struct chex_group *g, const char *mine, char *all,
                                            struct chex_error *err) {
    char piece[CHEX_GROUP_BYTES];
    uint64_t largest = 0;
    for (int r = 0; r < g->size; r++)
        largest = g->sizes[r] > largest ? g->sizes[r] : largest;
    for (uint64_t at = 0, n; at < largest; at += n) {
        n = largest - at < sizeof piece ? largest - at : sizeof piece;
        const uint64_t left = g->sizes[g->rank] > at ? g->sizes[g->rank] - at : 0;
        memset(piece, 0, sizeof piece);
        if (left)
            memcpy(piece, mine + at, left < n ? left : n);
        CHEX_TRY(chex_group_exchange(g, "gather", piece, n, err));
        char *to = all;
        for (int r = 0; to && r < g->size; to += g->sizes[r++])
            if (g->sizes[r] > at)
                memcpy(to + at, (const char *)g->all + (size_t)r * n,
                       g->sizes[r] - at < n ? g->sizes[r] - at : n);
    }
    return CHEX_OK;
}

enum chex_status chex_group_gather(struct chex_group *g, const void *mine, size_t bytes,
                                   void **all_out, size_t *total_out, struct chex_error *err) {
    const uint64_t own = bytes;
    uint64_t total = 0;
    char *all = NULL;
    bool fits = true;
    CHEX_TRY(exchange_into(g, "sizes", &own, sizeof own, g->sizes, err));
    for (int r = 0; r < g->size; r++)
        fits = !__builtin_add_overflow(total, g->sizes[r], &total) && fits;
    fits = fits && total < SIZE_MAX;
    enum chex_status st = CHEX_OK;
    if (g->rank == 0 && (!fits || !(all = chex_alloc_zeroed((size_t)total + 1, 1))))
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory to gather %llu bytes",
                            (unsigned long long)total);
    st = chex_group_agree(g, st, err);
    if (st == CHEX_OK && g->size == 1 && bytes)
        memcpy(all, mine, bytes);
    else if (st == CHEX_OK && g->size > 1)
        st = g->transport->gather ? note(g, g->transport->gather(g->arg, mine, g->sizes, all, err))
                                  : gather_by_exchanges(g, mine, all, err);
    if (st != CHEX_OK) {
        free(all);
        return st;
    }
    *all_out = all;
    *total_out = (size_t)total;
    return CHEX_OK;
}

enum chex_status chex_group_share_text(struct chex_group *g, char **text, struct chex_error *err) {
    uint64_t bytes = g->rank == 0 && *text ? strlen(*text) + 1 : 0;
    CHEX_TRY(chex_group_broadcast(g, &bytes, sizeof bytes, 0, err));
    if (g->rank != 0)
        *text = chex_alloc_zeroed((size_t)bytes, 1);
    CHEX_TRY(chex_group_agree(g, *text ? CHEX_OK : chex_error_memory(err, NULL), err));
    return chex_group_broadcast(g, *text, (size_t)bytes, 0, err);
}
