/* SPDX-License-Identifier: Apache-2.0
 *
 * Net benefit over thresholds, in one walk from the highest score down. The sums that the band
 * needs change by integers with each row, so no threshold has to visit all clusters again.
 */
#include "stats/net_benefit.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"

struct calls {
    uint32_t tp, fp, rows;
};

/* Sums over the clusters, of the rows called positive so far. */
struct walk {
    struct calls *of_cluster;
    struct chex_proportion tp, fp;
    double both; /* sum of tp_k * fp_k */
};

static void add_row(struct walk *w, struct calls *c, bool positive) {
    struct chex_proportion *p = positive ? &w->tp : &w->fp;
    uint32_t *own = positive ? &c->tp : &c->fp;
    p->x++;
    p->xx += 2.0 * *own + 1;
    p->xn += c->rows;
    w->both += positive ? c->fp : c->tp;
    ++*own;
}

static void add_group(struct walk *w, const struct chex_ranking *r, const struct chex_clusters *k,
                      size_t g) {
    const struct chex_tie *t = &r->ties[g];
    for (size_t i = 0; i < (size_t)t->negatives + t->positives; i++)
        add_row(w, &w->of_cluster[chex_cluster_of(k, r->row[t->start + i])], i >= t->negatives);
}

/* The correlation of tp / n and fp / n between clusters. */
static double correlation(const struct walk *w) {
    const struct chex_proportion *a = &w->tp, *b = &w->fp;
    const double p = a->x / a->n, q = b->x / b->n;
    const double of_a = a->xx - 2 * p * a->xn + p * p * a->nn;
    const double of_b = b->xx - 2 * q * b->xn + q * q * b->nn;
    const double of_both = w->both - p * b->xn - q * a->xn + p * q * a->nn;
    return of_a > 0 && of_b > 0 ? fmin(fmax(of_both / sqrt(of_a * of_b), -1), 1) : 0;
}

static struct chex_figure at_threshold(const struct walk *w, double weight) {
    const struct chex_figure tp = chex_proportion_figure(&w->tp);
    const struct chex_figure fp = chex_proportion_figure(&w->fp);
    const double rho = correlation(w);
    const double a = tp.value - tp.interval.low, b = weight * (fp.interval.high - fp.value);
    const double c = tp.interval.high - tp.value, d = weight * (fp.value - fp.interval.low);
    struct chex_figure f = {tp.value - weight * fp.value, {NAN, NAN, 0}};
    if (isnan(tp.interval.low))
        return f;
    f.interval.low = f.value - sqrt(fmax(a * a + b * b - 2 * rho * a * b, 0));
    f.interval.high = f.value + sqrt(fmax(c * c + d * d - 2 * rho * c * d, 0));
    return f;
}

/* positives / n - (negatives / n) * weight = share * (1 + weight) - weight. */
static struct chex_figure treat_all(const struct chex_figure *share, double weight) {
    return (struct chex_figure){share->value * (1 + weight) - weight,
                                {share->interval.low * (1 + weight) - weight,
                                 share->interval.high * (1 + weight) - weight, 0}};
}

/* Counts the rows of each cluster, and sets the sums that no threshold changes. */
static struct chex_figure begin(struct walk *w, const struct chex_ranking *r,
                                const struct chex_clusters *k) {
    struct chex_proportion positives = {0};
    for (size_t g = 0; g < r->tie_count; g++)
        add_group(w, r, k, g);
    for (size_t i = 0; i < k->count; i++) {
        struct calls *c = &w->of_cluster[i];
        *c = (struct calls){.rows = c->tp + c->fp, .tp = c->tp};
        chex_proportion_add(&positives, c->tp, c->rows);
        c->tp = 0;
    }
    w->tp = w->fp = positives;
    w->tp.x = w->tp.xx = w->tp.xn = w->fp.x = w->fp.xx = w->fp.xn = 0;
    w->both = 0;
    return chex_proportion_figure(&positives);
}

enum chex_status chex_net_benefit_create(const struct chex_ranking *r,
                                         const struct chex_clusters *k,
                                         struct chex_net_benefit *out, struct chex_error *err) {
    struct walk w = {.of_cluster = chex_alloc_zeroed(k->count, sizeof *w.of_cluster)};
    out->count = 0;
    CHEX_ALLOCATED(w.of_cluster, err, "%zu clusters", k->count);
    const struct chex_figure share = begin(&w, r, k);
    size_t g = r->tie_count;
    for (int i = r->count ? CHEX_NET_BENEFIT_POINTS : 0; i-- > 0;) {
        const double threshold = (i + 1) / 100.0, weight = threshold / (1 - threshold);
        for (; g > 0 && r->score[g - 1] >= threshold; g--)
            add_group(&w, r, k, g - 1);
        struct chex_net_benefit_point *p = &out->point[i];
        *p = (struct chex_net_benefit_point){threshold, at_threshold(&w, weight),
                                             treat_all(&share, weight)};
        if (!k->intervals)
            p->prediction.interval = p->treat_all.interval = chex_figure_none().interval;
        out->count++;
    }
    free(w.of_cluster);
    return CHEX_OK;
}
