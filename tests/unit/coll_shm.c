/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives by shared memory, on ranks that are processes.
 */
#include "base/rng.h"
#include "fork_ranks.h"
#include "launch/circulant.h"
#include "launch/coll.h"

enum { LONG = 300001 }; /* floats: several pieces for two ranks */

static const struct chex_coll_impl *const shm = &chex_coll_shm;

static enum chex_status open_shm(struct chex_launch *l, void **self_out, struct chex_error *err) {
    struct chex_group *g = NULL;
    CHEX_TRY(chex_group_of_launch(l, 1000, &g, err));
    return shm->init(l, g, self_out, err);
}

static enum chex_status wrong(struct chex_error *err, const char *what) {
    return chex_error_set(err, CHEX_E_FAIL, "%s is wrong", what);
}

/* Messages as MPI sends them: both directions at a time. */
static enum chex_status exchange(void *self, const void *out, size_t out_bytes, int to, void *in,
                                 size_t in_bytes, int from, struct chex_error *err) {
    const size_t most = 30000;
    for (size_t done = 0; done < out_bytes || done < in_bytes; done += most) {
        if (done < out_bytes)
            CHEX_TRY(shm->send(self, (const char *)out + done,
                               out_bytes - done < most ? out_bytes - done : most, to, 7, err));
        if (done < in_bytes)
            CHEX_TRY(shm->receive(self, (char *)in + done,
                                  in_bytes - done < most ? in_bytes - done : most, from, 7, err));
    }
    return CHEX_OK;
}

static float value(int rank, size_t i) {
    const struct chex_rng4 r = chex_rng(5, CHEX_RNG_TEST, (uint64_t)rank << 32 | i, 0);
    return (chex_rng_unit(r.v[0]) - 0.5f) * (float)(1u << (r.v[1] % 12));
}

static enum chex_status compare_sums(const struct chex_launch *l, void *self, size_t count,
                                     struct chex_error *err) {
    const struct chex_circulant c = {self, l->rank, l->size, exchange};
    float *a = calloc(count, sizeof *a), *b = calloc(count, sizeof *b);
    float *scratch = calloc(chex_circulant_scratch(l->size, count), sizeof *scratch);
    for (size_t i = 0; i < count; i++)
        a[i] = b[i] = value(l->rank, i);
    CHEX_TRY(shm->sum_f32(self, a, count, err));
    CHEX_TRY(chex_circulant_sum(&c, b, count, scratch, err));
    const bool same = memcmp(a, b, count * sizeof *a) == 0;
    free(a);
    free(b);
    free(scratch);
    return same ? CHEX_OK : wrong(err, "a sum");
}

static enum chex_status play_sums(struct chex_launch *l, struct chex_error *err) {
    static const size_t counts[] = {0, 1, 2, 7, 64, 1000, 20011, LONG};
    void *self;
    CHEX_TRY(open_shm(l, &self, err));
    for (size_t i = 0; i < CHEX_COUNT(counts); i++)
        if (counts[i] < LONG || l->size < 4)
            CHEX_TRY(compare_sums(l, self, counts[i], err));
    shm->destroy(self);
    return CHEX_OK;
}

/* The last rank gives all its bytes to the others; each rank gives some to all. */
static enum chex_status spread(const struct chex_launch *l, void *self, size_t bytes,
                               struct chex_error *err) {
    char *mine = malloc(bytes), *all = malloc(bytes * (size_t)l->size);
    bool right = true;
    memset(mine, 'a' + l->rank, bytes);
    CHEX_TRY(shm->allgather(self, mine, bytes, all, err));
    for (size_t i = 0; i < bytes * (size_t)l->size; i++)
        right = right && all[i] == 'a' + (char)(i / bytes);
    CHEX_TRY(shm->broadcast(self, mine, bytes, l->size - 1, err));
    for (size_t i = 0; i < bytes; i++)
        right = right && mine[i] == 'a' + l->size - 1;
    free(mine);
    free(all);
    return right ? CHEX_OK : wrong(err, "an all-gather or a broadcast");
}

/* Rank 0 sends more messages than it has slots, by turns to the other ranks, who read late. */
static enum chex_status by_turns(const struct chex_launch *l, void *self, struct chex_error *err) {
    enum { ROUNDS = 11 };
    for (int i = 0; i < ROUNDS * (l->size - 1); i++) {
        int word = 1000 + i;
        const int to = 1 + i % (l->size - 1);
        if (l->rank == 0)
            CHEX_TRY(shm->send(self, &word, sizeof word, to, i, err));
        else if (l->rank == to)
            CHEX_TRY(shm->receive(self, &word, sizeof word, 0, i, err));
        if (word != 1000 + i)
            return wrong(err, "a message");
    }
    return CHEX_OK;
}

static enum chex_status play_messages(struct chex_launch *l, struct chex_error *err) {
    void *self;
    CHEX_TRY(open_shm(l, &self, err));
    CHEX_TRY(spread(l, self, 1, err));
    CHEX_TRY(by_turns(l, self, err));
    CHEX_TRY(spread(l, self, 3000001, err));
    int word = 1;
    if (l->rank == 0)
        CHEX_TRY(shm->send(self, &word, sizeof word, 1, 5, err));
    if (l->rank == 1 && shm->receive(self, &word, sizeof word, 0, 6, err) != CHEX_E_FAIL)
        return wrong(err, "a message of another tag");
    CHEX_TRY(shm->barrier(self, err));
    shm->destroy(self);
    return CHEX_OK;
}

static enum chex_status play_lost(struct chex_launch *l, struct chex_error *err) {
    void *self;
    CHEX_TRY(open_shm(l, &self, err));
    if (l->rank == 1)
        raise(SIGKILL);
    const enum chex_status st = shm->barrier(self, err);
    if (st == CHEX_E_LOST && strcmp(err->text, "rank 1 of this node has ended") == 0)
        shm->destroy(self); /* does not wait */
    return st;
}

/* Rank 1 ends as soon as it has sent. */
static enum chex_status play_left(struct chex_launch *l, struct chex_error *err) {
    void *self;
    int word = 4;
    CHEX_TRY(open_shm(l, &self, err));
    if (l->rank == 1)
        return shm->send(self, &word, sizeof word, 0, 0, err);
    for (int r = 0; r < 11; r++)
        usleep(100000);
    return shm->receive(self, &word, sizeof word, 1, 0, err);
}

static enum chex_status play_init(struct chex_launch *l, struct chex_error *err) {
    void *self;
    const enum chex_status st = open_shm(l, &self, err);
    return strcmp(err->text, "rank 1 on vm: shared memory: /proc/0/fd/0: No such file or "
                             "directory") == 0
               ? st
               : CHEX_E_FAIL;
}

int main(void) {
    int status[FORK_RANKS];
    fork_begin();
    for (int n = 2; n <= FORK_RANKS; n++)
        OK(fork_ranks(n, play_sums, NULL), "%d ranks: sums have the bits of those by messages", n);
    for (int n = 2; n <= 4; n++)
        OK(fork_ranks(n, play_messages, NULL), "%d ranks: bytes and messages arrive", n);
    (void)fork_ranks(3, play_lost, status);
    OK(status[0] == CHEX_E_LOST && status[1] == 128 + SIGKILL && status[2] == CHEX_E_LOST,
       "ranks that wait for one that was killed return an error that names it");
    OK(fork_ranks(2, play_left, NULL), "a rank may end after its part");
    fork_world->spoilt = "broadcast";
    (void)fork_ranks(3, play_init, status);
    OK(status[0] == CHEX_E_ENV && status[1] == CHEX_E_ENV && status[2] == CHEX_E_ENV,
       "if one rank cannot open the segment, no rank uses it");
    return tap_done();
}
