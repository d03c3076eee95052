/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the collective library and builds the composite operations (gather_var, agree) from its
 * basic calls.
 */
#include "launch/coll.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/module.h"
#include "launch/coll_impls.h"
#include "launch/guard.h"

enum { GATHER_TAG = 32000 }; /* the reduction's are below 16384 */

enum chex_status chex_coll_create(const struct chex_launch *launch, struct chex_coll **coll_out,
                                  struct chex_error *err) {
    const struct chex_coll_impl *impl = &chex_coll_self;
    if (launch->size > 1) {
        void *symbol = NULL;
        enum chex_status st = chex_module_symbol("mpi", "chexnet_coll_mpi", &symbol, err);
        if (st != CHEX_OK)
            return chex_error_prefix(err, st, "%d ranks need MPI", launch->size);
        impl = symbol;
    }
    struct chex_coll *c = chex_alloc_zeroed(1, sizeof *c);
    if (!c)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    *c = (struct chex_coll){.impl = impl, .rank = launch->rank, .size = launch->size};
    c->method = launch->impl;
    struct chex_guard *guard = chex_guard_begin(c->method, "the start of MPI");
    enum chex_status st = impl->init(launch, &c->self, err);
    chex_guard_end(guard);
    if (st != CHEX_OK)
        free(c);
    else
        *coll_out = c;
    return st;
}

void chex_coll_destroy(struct chex_coll *c) {
    if (!c)
        return;
    struct chex_guard *guard = chex_guard_begin(c->method, "the end of MPI");
    c->impl->destroy(c->self);
    chex_guard_end(guard);
    free(c);
}

enum chex_status chex_coll_barrier(struct chex_coll *c, struct chex_error *err) {
    return c->impl->barrier(c->self, err);
}

enum chex_status chex_coll_broadcast(struct chex_coll *c, void *data, size_t bytes, int root,
                                     struct chex_error *err) {
    return c->impl->broadcast(c->self, data, bytes, root, err);
}

enum chex_status chex_coll_allgather(struct chex_coll *c, const void *mine, size_t bytes,
                                     void *all_out, struct chex_error *err) {
    return c->impl->allgather(c->self, mine, bytes, all_out, err);
}

/* Rank 0 receives the parts in rank order. */
static enum chex_status collect(struct chex_coll *c, const void *mine, const uint64_t *sizes,
                                unsigned char *all, struct chex_error *err) {
    if (c->rank != 0)
        return sizes[c->rank] == 0
                   ? CHEX_OK
                   : c->impl->send(c->self, mine, (size_t)sizes[c->rank], 0, GATHER_TAG, err);
    if (sizes[0])
        memcpy(all, mine, (size_t)sizes[0]);
    all += sizes[0];
    for (int r = 1; r < c->size; all += sizes[r++])
        if (sizes[r])
            CHEX_TRY(c->impl->receive(c->self, all, (size_t)sizes[r], r, GATHER_TAG, err));
    return CHEX_OK;
}

enum chex_status chex_coll_gather_var(struct chex_coll *c, const void *mine, size_t bytes,
                                      void **all_out, size_t *sizes_out, size_t *total_out,
                                      struct chex_error *err) {
    const uint64_t my_bytes = bytes;
    uint64_t total = 0;
    unsigned char *all = NULL;
    bool fits = true;
    enum chex_status st = CHEX_OK;
    uint64_t *sizes = chex_alloc_zeroed((size_t)c->size, sizeof *sizes);
    /* A rank without memory reports it before other ranks wait for it. */
    if (!sizes)
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory");
    st = chex_coll_agree(c, st, err);
    if (st == CHEX_OK)
        st = c->impl->allgather(c->self, &my_bytes, sizeof my_bytes, sizes, err);
    if (st != CHEX_OK)
        goto out;
    for (int r = 0; r < c->size; r++)
        fits = !__builtin_add_overflow(total, sizes[r], &total) && fits;
    if (c->rank == 0 && (!fits || total > SIZE_MAX - 1 || !(all = malloc((size_t)total + 1))))
        st = chex_error_set(err, CHEX_E_RESOURCE, "out of memory to gather %llu bytes",
                            (unsigned long long)total);
    st = chex_coll_agree(c, st, err);
    if (st == CHEX_OK)
        st = collect(c, mine, sizes, all, err);
    if (st != CHEX_OK)
        goto out;
    *all_out = all;
    *total_out = (size_t)total;
    for (int r = 0; sizes_out && r < c->size; r++)
        sizes_out[r] = (size_t)sizes[r];
    all = NULL;
out:
    free(all);
    free(sizes);
    return st;
}

/* Order of severity. CHEX_E_PREEMPTED is the mildest: its state is saved, and any real failure is
 * worse. Otherwise the higher exit status counts. */
static int severity(enum chex_status st) { return st == CHEX_E_PREEMPTED ? 1 : 2 * (int)st; }

enum chex_status chex_coll_agree(struct chex_coll *c, enum chex_status mine,
                                 struct chex_error *err) {
    const int32_t my_status = mine;
    if (c->size == 1)
        return mine;
    struct chex_error none = {0}, *text = err ? err : &none;
    int32_t *all = chex_alloc_zeroed((size_t)c->size, sizeof *all);
    if (!all)
        return chex_error_set(err, CHEX_E_RESOURCE, "out of memory for the status of %d ranks",
                              c->size);
    enum chex_status st = c->impl->allgather(c->self, &my_status, sizeof my_status, all, text);
    int worst = 0;
    for (int r = 1; st == CHEX_OK && r < c->size; r++)
        if (severity((enum chex_status)all[r]) > severity((enum chex_status)all[worst]))
            worst = r;
    const enum chex_status agreed = st == CHEX_OK ? (enum chex_status)all[worst] : st;
    free(all);
    if (st != CHEX_OK || agreed == CHEX_OK)
        return agreed;
    char words[CHEX_ERROR_TEXT_BYTES] = "";
    if (c->rank == worst)
        memcpy(words, text->text[0] ? text->text : chex_status_text(agreed),
               text->text[0] ? sizeof words : strlen(chex_status_text(agreed)) + 1);
    CHEX_TRY(c->impl->broadcast(c->self, words, sizeof words, worst, err));
    if (c->rank == worst)
        return chex_error_set(err, agreed, "%s", words);
    words[sizeof words - 1] = '\0';
    return chex_error_set(err, agreed, "rank %d: %s", worst, words);
}
