/* SPDX-License-Identifier: Apache-2.0
 *
 * See bounds.h. A launch takes the longest of four times: its bytes at the bandwidth of memory, its
 * bytes at that of the L2 cache, its wavefronts of shared memory at one a clock, and its products
 * at the share of the tensor cores' rate that mma.sync, or wgmma, reaches. The last two are divided
 * by the share of multiprocessors that have a block. Launches follow each other without a gap, and
 * nothing of what one leaves in the L2 cache helps the next. Arithmetic outside the tensor cores is
 * not in it.
 */
#include "gpu/counts/bounds.h"

#include <stdio.h>
#include <string.h>

enum kind {
    CONV_1X1_FORWARD,
    CONV_1X1_BACKWARD,
    CONV_3X3_FORWARD,
    CONV_3X3_INPUT,
    CONV_3X3_WEIGHT,
    STEM,
    OTHER_CONV,
    SUMS,
    REST,
    UPDATE,
    KINDS
};
static const char *const kind_names[KINDS] = {"1x1, forward",
                                              "1x1, backward",
                                              "3x3, forward",
                                              "3x3, gradient of the input",
                                              "3x3, gradient of the weights",
                                              "first convolution",
                                              "convolutions with a stride",
                                              "sums of weight gradients' parts",
                                              "pools, adds, head, loss",
                                              "update"};

enum limit { DRAM, L2, SHARED, PRODUCTS, LIMITS };

enum { MMA_FLOP = 2 * 16 * 8 * 16 };

static bool is_sum(const char *kernel) {
    return strstr(kernel, "reduce") || strstr(kernel, "finish_weight") || strstr(kernel, "unfold");
}

static enum kind kind_of(const struct chex_net *net, const struct emulated_counts *c) {
    const char *kernel = emulated_kernel_name(c->kernel);
    if (c->label >= COUNTS_LOSS)
        return c->label == COUNTS_UPDATE ? UPDATE : REST;
    const struct chex_op *op = &net->ops[c->label / 2];
    if (op->kind != CHEX_OP_CONV)
        return REST;
    if (is_sum(kernel))
        return SUMS;
    if (op->in == CHEX_NET_IMAGE)
        return STEM;
    if (op->stride != 1)
        return OTHER_CONV;
    if (op->kernel == 1)
        return c->label % 2 ? CONV_1X1_BACKWARD : CONV_1X1_FORWARD;
    if (!(c->label % 2))
        return CONV_3X3_FORWARD;
    return strstr(kernel, "weight") ? CONV_3X3_WEIGHT : CONV_3X3_INPUT;
}

struct totals {
    int launches;
    double s[LIMITS], longest, dram;
};

/* Seconds by each limit, for all launches of the row. */
static struct totals limits_of(const struct test_device *d, const struct emulated_counts *c) {
    const struct emulated_sums *w = &c->sum;
    const double filled = device_filled(d, (double)c->blocks / (double)c->launches,
                                        device_fitting(d, c->shared_bytes, c->threads));
    double wavefronts = 0;
    for (int a = EMULATED_SHARED_LOAD; a < EMULATED_ACCESSES; a++)
        wavefronts += (double)w->of[a].units;
    struct totals t = {.launches = (int)c->launches,
                       .dram = (double)(w->dram_load_bytes + w->dram_store_bytes)};
    t.s[DRAM] = t.dram / d->bytes_per_s;
    t.s[L2] = (double)(w->l2_load_bytes + w->l2_store_bytes) / (d->l2_clock_bytes * d->clock_hz);
    t.s[SHARED] = wavefronts / (d->gpu.sms * d->clock_hz * filled);
    t.s[PRODUCTS] = MMA_FLOP * ((double)w->mma / d->mma_share + (double)w->wgmma / d->wgmma_share) /
                    (d->flop_per_s * filled);
    for (int l = 0; l < LIMITS; l++)
        t.longest = fmax(t.longest, t.s[l]);
    return t;
}

static void add(struct totals *to, const struct totals *t) {
    to->launches += t->launches;
    to->longest += t->longest;
    to->dram += t->dram;
    for (int l = 0; l < LIMITS; l++)
        to->s[l] += t->s[l];
}

static void print_row(const char *name, const struct totals *t) {
    printf("| %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n", name, t->launches,
           t->dram * 1e-9, 1e3 * t->s[DRAM], 1e3 * t->s[L2], 1e3 * t->s[SHARED],
           1e3 * t->s[PRODUCTS], 1e3 * t->longest);
}

void bounds_print(const struct test_device *d, const struct chex_net *net, int images) {
    struct totals of[KINDS] = {0}, all = {0};
    size_t count;
    const struct emulated_counts *const rows = emulated_counts_all(&count);
    for (size_t i = 0; i < count; i++) {
        const struct totals t = limits_of(d, &rows[i]);
        add(&of[kind_of(net, &rows[i])], &t);
        add(&all, &t);
    }
    printf("\n%s, %d images; milliseconds by each limit, and the longest of each launch\n\n"
           "| kernels | launches | GB | memory | L2 | shared memory | products | longest |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
           d->gpu.name, images);
    for (int k = 0; k < KINDS; k++)
        if (of[k].launches)
            print_row(kind_names[k], &of[k]);
    print_row("all", &all);
    printf("\n%.1fk images/s; %.1f MB an image\n", images / all.longest * 1e-3,
           all.dram / images * 1e-6);
}
