/* SPDX-License-Identifier: Apache-2.0
 *
 * A run of 1,024 ranks in one process: the order of samples, the reduction of gradients, the step
 * reports, the gathering of times and the agreement of all ranks are the library's; only the
 * computation and the wire are simulated. Each rank is a thread, its messages go through
 * letterboxes that count them. The results must be those of one rank, and no rank may send more
 * messages than the logarithm of their number allows. many_launch.c plays the launch before it.
 */
#include <pthread.h>

#include "fixed_tree.h"
#include "input/order.h"
#include "launch/circulant.h"
#include "launch/reduce.h"
#include "tap.h"
#include "train/step_reports.h"

enum {
    V = 1024,
    RANKS_MAX = V,
    COUNT = 300, /* elements of a gradient vector */
    BUCKET = 128,
    STEPS = 2,
    ROWS = 5 * V + 77,
    BATCH = 2,
    STACK_BYTES = 256 << 10,
};

/* ---- the wire ---- */

struct letter {
    struct letter *next;
    int from, tag;
    size_t bytes;
    char data[];
};

struct box {
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct letter *first, **end;
};

struct wire {
    int size;
    struct box box[RANKS_MAX];
};

struct member {
    struct wire *wire;
    int rank;
    size_t sent, sent_bytes; /* letters of this rank */
};

static enum chex_status wire_send(void *self, const void *data, size_t bytes, int to, int tag,
                                  struct chex_error *err) {
    struct member *m = self;
    struct box *b = &m->wire->box[to];
    struct letter *l = malloc(sizeof *l + bytes);
    if (!l)
        return chex_error_memory(err, NULL);
    *l = (struct letter){.from = m->rank, .tag = tag, .bytes = bytes};
    memcpy(l->data, data, bytes);
    m->sent++;
    m->sent_bytes += bytes;
    pthread_mutex_lock(&b->lock);
    *b->end = l;
    b->end = &l->next;
    pthread_cond_signal(&b->came);
    pthread_mutex_unlock(&b->lock);
    return CHEX_OK;
}

static struct letter *take(struct box *b, int from, int tag) {
    for (struct letter **at = &b->first; *at; at = &(*at)->next) {
        struct letter *l = *at;
        if (l->from != from || l->tag != tag)
            continue;
        *at = l->next;
        if (b->end == &l->next)
            b->end = at;
        return l;
    }
    return NULL;
}

static enum chex_status wire_receive(void *self, void *data, size_t bytes, int from, int tag,
                                     struct chex_error *err) {
    struct member *m = self;
    struct box *b = &m->wire->box[m->rank];
    struct letter *l;
    pthread_mutex_lock(&b->lock);
    while (!(l = take(b, from, tag)))
        pthread_cond_wait(&b->came, &b->lock);
    pthread_mutex_unlock(&b->lock);
    const bool fits = l->bytes == bytes;
    if (fits)
        memcpy(data, l->data, bytes);
    free(l);
    return fits ? CHEX_OK : chex_error_set(err, CHEX_E_FAIL, "a letter of another length");
}

/* ---- a collective library on it ---- */

enum { EXCHANGE = 20000, CAST };

static enum chex_status exchange(void *self, const void *out, size_t out_bytes, int to, void *in,
                                 size_t in_bytes, int from, struct chex_error *err) {
    if (out_bytes)
        CHEX_TRY(wire_send(self, out, out_bytes, to, EXCHANGE, err));
    return in_bytes ? wire_receive(self, in, in_bytes, from, EXCHANGE, err) : CHEX_OK;
}

static struct chex_circulant circulant(struct member *m) {
    return (struct chex_circulant){m, m->rank, m->wire->size, exchange};
}

static enum chex_status allgather(void *self, const void *mine, size_t bytes, void *all_out,
                                  struct chex_error *err) {
    const struct chex_circulant c = circulant(self);
    return chex_circulant_allgather(&c, mine, bytes, all_out, err);
}

static enum chex_status sum_f32(void *self, float *data, size_t count, struct chex_error *err) {
    struct member *m = self;
    const struct chex_circulant c = circulant(m);
    float *scratch = calloc(chex_circulant_scratch(m->wire->size, count), sizeof *scratch);
    if (!scratch)
        return chex_error_memory(err, NULL);
    const enum chex_status st = chex_circulant_sum(&c, data, count, scratch, err);
    free(scratch);
    return st;
}

/* Binomial tree. */
static enum chex_status broadcast(void *self, void *data, size_t bytes, int root,
                                  struct chex_error *err) {
    struct member *m = self;
    const int size = m->wire->size, me = (m->rank + size - root) % size;
    int bit = 1;
    for (; bit < size && !(me & bit); bit *= 2)
        ;
    if (me)
        CHEX_TRY(wire_receive(self, data, bytes, (me - bit + root) % size, CAST, err));
    for (bit /= 2; bit > 0; bit /= 2)
        if (me + bit < size)
            CHEX_TRY(wire_send(self, data, bytes, (me + bit + root) % size, CAST, err));
    return CHEX_OK;
}

static const struct chex_coll_impl letters = {.name = "letters",
                                              .broadcast = broadcast,
                                              .allgather = allgather,
                                              .sum_f32 = sum_f32,
                                              .sums_by_tree = chex_circulant_is_tree,
                                              .send = wire_send,
                                              .receive = wire_receive};

/* ---- the ranks ---- */

struct rank {
    struct member member;
    struct chex_coll coll;
    enum chex_status st;
    struct chex_error err;
    size_t exchange_letters, exchange_bytes; /* of one exchange of step reports */
    struct chex_step_verdict verdict[STEPS];
    float sum[STEPS][COUNT];
    size_t rows[BATCH]; /* of the first batch of the first logical rank */
    double slowest_s;   /* of the times gathered */
    enum chex_status agreed;
    char why[CHEX_ERROR_TEXT_BYTES];
};

static struct rank *ranks;

static bool play_all(int size, void *(*play)(void *)) {
    static pthread_t thread[RANKS_MAX];
    static struct wire wire;
    pthread_attr_t small;
    int made = 0;
    wire.size = size;
    ranks = calloc((size_t)size, sizeof *ranks);
    BAIL_UNLESS(ranks, "memory");
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK_BYTES);
    for (int r = 0; r < size; r++) {
        wire.box[r] = (struct box){.first = NULL, .end = &wire.box[r].first};
        pthread_mutex_init(&wire.box[r].lock, NULL);
        pthread_cond_init(&wire.box[r].came, NULL);
        ranks[r].member = (struct member){.wire = &wire, .rank = r};
        ranks[r].coll = (struct chex_coll){&letters, &ranks[r].member, r, size};
    }
    for (; made < size; made++)
        if (pthread_create(&thread[made], &small, play, &ranks[made]) != 0)
            BAIL_UNLESS(false, "this machine allows %d threads only", made);
    for (int r = 0; r < size; r++) {
        pthread_join(thread[r], NULL);
        pthread_cond_destroy(&wire.box[r].came);
        pthread_mutex_destroy(&wire.box[r].lock);
    }
    pthread_attr_destroy(&small);
    for (int r = 0; r < size; r++)
        if (ranks[r].st != CHEX_OK)
            printf("# rank %d: %s\n", r, ranks[r].err.text);
    bool well = true;
    for (int r = 0; r < size; r++)
        well = well && ranks[r].st == CHEX_OK;
    return well;
}

static int rounds(int size) {
    int n = 0;
    for (int s = size; s > 1; s = (s + 1) / 2)
        n++;
    return n;
}

/* ---- all-gather and sum alone ---- */

static enum chex_status gather_and_add(struct rank *r) {
    struct member *m = &r->member;
    const int size = m->wire->size;
    static const size_t counts[] = {1, 7, COUNT};
    int all[RANKS_MAX], mine = 3 * m->rank;
    CHEX_TRY(allgather(m, &mine, sizeof mine, all, &r->err));
    r->exchange_letters = m->sent;
    r->exchange_bytes = m->sent_bytes;
    for (int k = 0; k < size; k++)
        if (all[k] != 3 * k)
            return chex_error_set(&r->err, CHEX_E_FAIL, "the all-gather mixes ranks");
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        float data[COUNT];
        for (size_t i = 0; i < counts[k]; i++)
            data[i] = (float)(m->rank + (int)i);
        CHEX_TRY(sum_f32(m, data, counts[k], &r->err));
        for (size_t i = 0; i < counts[k]; i++)
            if (data[i] != (float)(size * (size - 1) / 2 + size * (int)i))
                return chex_error_set(&r->err, CHEX_E_FAIL, "the sum of %zu is wrong", counts[k]);
    }
    return CHEX_OK;
}

static void *play_collectives(void *arg) {
    struct rank *r = arg;
    r->st = gather_and_add(r);
    return NULL;
}

static void check_collectives(void) {
    static const int sizes[] = {1, 2, 3, 5, 6, 7, 8, 12, 13, 16, 31, 33, 64};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        const int n = sizes[k];
        const bool well = play_all(n, play_collectives);
        bool few = true, least = true;
        for (int r = 0; r < n; r++) {
            few = few && ranks[r].exchange_letters <= 2 * (size_t)rounds(n);
            least = least && ranks[r].exchange_bytes == sizeof(int) * (size_t)(n - 1);
        }
        OK(well && few && least,
           "%d ranks: all-gather and sum are right, with %d rounds and no byte sent twice", n,
           rounds(n));
        free(ranks);
    }
}

/* ---- a run ---- */

static double loss_of(int step, int v) { return tree_leaf(step, v, COUNT) * 1e-3; }

static const struct chex_order_config order = {
    .rows = ROWS, .logical_ranks = V, .batch = BATCH, .kind = CHEX_ORDER_LOCAL, .seed = 3};

static enum chex_status one_step(struct rank *r, struct chex_reduce *reduce,
                                 struct chex_step_reports *reports, int step, int from, int to) {
    const float *sum;
    double exposed_s;
    for (int v = from; v < to; v++) {
        float *grad = chex_reduce_leaf(reduce, v);
        for (size_t i = 0; i < COUNT; i++)
            grad[i] = (float)tree_leaf(step, v, i);
        chex_reduce_ready(reduce, 0, COUNT);
        reports->own_losses[v - from] = loss_of(step, v);
    }
    CHEX_TRY(chex_reduce_finish(reduce, &sum, &exposed_s, &r->err));
    memcpy(r->sum[step], sum, sizeof r->sum[step]);
    const struct member before = r->member;
    reports->step.forward = 1e-3 * r->member.rank;
    reports->own->wants_stop = step == 1 && r->member.rank == r->coll.size - 1;
    CHEX_TRY(chex_step_reports_exchange(reports, &r->coll, &r->verdict[step], &r->err));
    r->exchange_letters = r->member.sent - before.sent;
    r->exchange_bytes = r->member.sent_bytes - before.sent_bytes;
    return CHEX_OK;
}

static enum chex_status run(struct rank *r) {
    struct chex_reduce_config config = {.coll = &r->coll,
                                        .logical_ranks = V,
                                        .count = COUNT,
                                        .bucket_bytes = BUCKET * sizeof(float),
                                        .deterministic = true};
    struct chex_reduce *reduce = NULL;
    struct chex_step_reports reports;
    int from, to;
    chex_reduce_run(V, r->coll.size, r->coll.rank, &from, &to);
    size_t *rows = calloc(chex_order_steps(&order) * BATCH, sizeof *rows);
    size_t *scratch = calloc(ROWS, sizeof *scratch);
    BAIL_UNLESS(rows && scratch, "memory");
    chex_order_epoch(&order, from, 0, rows, scratch);
    memcpy(r->rows, rows, sizeof r->rows);
    free(rows);
    free(scratch);
    CHEX_TRY(chex_coll_make_group(&r->coll, "node", &r->err));
    CHEX_TRY(chex_step_reports_init(&reports, V, r->coll.size, &r->err));
    enum chex_status st = chex_reduce_create(&config, &reduce, &r->err);
    for (int step = 0; step < STEPS && st == CHEX_OK; step++)
        st = one_step(r, reduce, &reports, step, from, to);
    chex_reduce_destroy(reduce);
    if (st == CHEX_OK)
        st = chex_step_reports_gather_times(&reports, &r->coll, &r->err);
    for (int k = 0; st == CHEX_OK && k < r->coll.size; k++)
        r->slowest_s = fmax(r->slowest_s, reports.epoch_times[k].forward);
    chex_step_reports_release(&reports);
    struct chex_error why = {0};
    if (r->coll.rank == 700)
        chex_error_set(&why, CHEX_E_DATA, "shard 5 is torn");
    r->agreed = chex_group_agree(r->coll.group, r->coll.rank == 700 ? CHEX_E_DATA : CHEX_OK, &why);
    snprintf(r->why, sizeof r->why, "%s", why.text);
    chex_group_destroy(r->coll.group);
    return st;
}

static void *play_run(void *arg) {
    struct rank *r = arg;
    r->st = run(r);
    return NULL;
}

static bool equal_sums(int size) {
    static float want[STEPS][COUNT];
    for (int step = 0; step < STEPS; step++)
        for (size_t i = 0; i < COUNT; i++)
            want[step][i] = (float)tree_sum(tree_leaf, true, step, 0, V, i);
    for (int r = 0; r < size; r++)
        if (memcmp(want, ranks[r].sum, sizeof want) != 0)
            return false;
    return true;
}

static void check_run(int size) {
    double loss[STEPS] = {0};
    bool losses = true, stops = true, times = true, agreed = true, few = true;
    OK(play_all(size, play_run), "%d ranks: two steps end well", size);
    OK(equal_sums(size), "%d ranks: the gradients have the bits of the fixed tree", size);
    for (int step = 0; step < STEPS; step++) {
        for (int v = 0; v < V; v++)
            loss[step] += loss_of(step, v);
        loss[step] /= V;
    }
    for (int k = 0; k < size; k++) {
        const struct rank *r = &ranks[k];
        for (int step = 0; step < STEPS; step++)
            losses = losses && memcmp(&r->verdict[step].loss, &loss[step], sizeof *loss) == 0;
        stops = stops && !r->verdict[0].stop && r->verdict[1].stop == CHEX_STOP_BY_FILE;
        times = times && fabs(r->slowest_s - STEPS * 1e-3 * (size - 1)) < 1e-9;
        agreed = agreed && r->agreed == CHEX_E_DATA &&
                 strcmp(r->why, "rank 700 on node: shard 5 is torn") == 0;
        few = few && r->exchange_letters <= 2 * (size_t)rounds(size);
    }
    OK(losses, "%d ranks: the mean loss has the bits of one rank", size);
    OK(stops, "%d ranks: the last rank's request to stop reaches all", size);
    OK(times, "%d ranks: the times of all ranks are known after the epoch", size);
    OK(agreed, "%d ranks: all return the error of rank 700 and name it", size);
    OK(few, "%d ranks: a step report takes at most %d messages a rank", size, 2 * rounds(size));
    printf("# %d ranks: %zu messages and %zu bytes a rank and step report\n", size,
           ranks[0].exchange_letters, ranks[0].exchange_bytes);
}

/* The rows that the ranks take are those that one rank computes for the same logical ranks. */
static void check_order(int size) {
    size_t *rows = calloc(chex_order_steps(&order) * BATCH, sizeof *rows);
    size_t *scratch = calloc(ROWS, sizeof *scratch);
    unsigned char *taken = calloc(ROWS, 1);
    bool alike = true, once = true;
    BAIL_UNLESS(rows && scratch && taken, "memory");
    for (int r = 0; r < size; r++) {
        int from, to;
        chex_reduce_run(V, size, r, &from, &to);
        chex_order_epoch(&order, from, 0, rows, scratch);
        alike = alike && memcmp(rows, ranks[r].rows, sizeof ranks[r].rows) == 0;
        for (int i = 0; i < BATCH; i++)
            once = once && !taken[ranks[r].rows[i]]++;
    }
    OK(alike && once, "%d ranks: no row is taken twice, and each is that of the logical rank",
       size);
    free(rows);
    free(scratch);
    free(taken);
}

int main(void) {
    check_collectives();
    static const int sizes[] = {1024, 1000};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        check_run(sizes[k]);
        check_order(sizes[k]);
        free(ranks);
    }
    return tap_done();
}
