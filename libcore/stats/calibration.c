/* SPDX-License-Identifier: Apache-2.0
 *
 * Calibration figures: Brier score, logistic recalibration, reliability curve, expected calibration
 * error, histogram. calibration.h defines them.
 */
#include "stats/calibration.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "stats/logistic.h"

/* The 97.5 % quantiles of the normal distribution, and of chi squared with one degree of freedom
 * for each bin. */
static const double Z = 1.959963984540054, CHI2_OF_BINS = 20.483177350807391;

/* What is counted for a cluster. */
struct counts {
    double rows, positives, residual;
};

/* The scratch of one class: (clusters) each, zero between uses. */
struct scratch {
    double *part, *other;
    struct counts *counts;
    uint8_t *seen; /* of chex_least_clusters */
};

static size_t rows_of(const struct chex_tie *t) { return (size_t)t->negatives + t->positives; }

/* ---- the Brier score ---- */

static double brier_of(const struct chex_ranking *r) {
    double sum = 0;
    for (size_t g = 0; g < r->tie_count; g++) {
        const double p = r->score[g];
        sum += r->ties[g].negatives * p * p + r->ties[g].positives * (1 - p) * (1 - p);
    }
    return sum / (double)r->count;
}

static struct chex_interval brier_interval(const struct chex_ranking *r,
                                           const struct chex_clusters *k, double brier,
                                           struct scratch *s) {
    for (size_t g = 0; g < r->tie_count; g++) {
        const struct chex_tie *t = &r->ties[g];
        const double p = r->score[g];
        for (size_t i = 0; i < rows_of(t); i++)
            s->part[chex_cluster_of(k, r->row[t->start + i])] +=
                ((i < t->negatives ? p * p : (1 - p) * (1 - p)) - brier) / (double)r->count;
    }
    const struct chex_error_of e = chex_error_of_parts(s->part, k->count);
    memset(s->part, 0, k->count * sizeof *s->part);
    return chex_figure_logit_interval(brier, &e);
}

/* ---- slope and intercept ---- */

static struct chex_interval interval_of_parts(double value, double *part, size_t clusters) {
    const struct chex_error_of e = chex_error_of_parts(part, clusters);
    memset(part, 0, clusters * sizeof *part);
    return chex_figure_interval(value, &e);
}

static void add_regression(const struct chex_logits *l, const struct chex_clusters *k,
                           bool intervals, struct scratch *s,
                           struct chex_calibration_figures *out) {
    struct chex_logistic fit = {1, 0};
    if (chex_logistic_fit(l, 1, CHEX_LOGISTIC_INTERCEPT, &fit)) {
        out->in_the_large.value = fit.intercept;
        if (intervals) {
            chex_logistic_parts(l, CHEX_LOGISTIC_INTERCEPT, &fit, k, NULL, s->other);
            out->in_the_large.interval = interval_of_parts(fit.intercept, s->other, k->count);
        }
    }
    if (!chex_logistic_fit(l, 1, CHEX_LOGISTIC_BOTH, &fit))
        return;
    out->slope.value = fit.slope;
    out->intercept.value = fit.intercept;
    if (!intervals)
        return;
    chex_logistic_parts(l, CHEX_LOGISTIC_BOTH, &fit, k, s->part, s->other);
    out->slope.interval = interval_of_parts(fit.slope, s->part, k->count);
    out->intercept.interval = interval_of_parts(fit.intercept, s->other, k->count);
}

/* ---- bins ---- */

/* A bin: the rows [from, to) of the ranking, counted from the lowest score. */
struct bin {
    double from, to;
    size_t first, start; /* the first tie group in it, and that group's first row */
};

/* The share of each row of tie group t that lies in the bin. */
static double share_within(const struct chex_tie *t, size_t start, const struct bin *b) {
    const double at = (double)start, rows = (double)rows_of(t);
    return fmax(fmin(at + rows, b->to) - fmax(at, b->from), 0) / rows;
}

/* Counts the bin by cluster. */
static void count_bin(const struct chex_ranking *r, const struct chex_clusters *k,
                      const struct bin *b, struct counts *counts) {
    size_t start = b->start;
    for (size_t g = b->first; g < r->tie_count && (double)start < b->to; g++) {
        const struct chex_tie *t = &r->ties[g];
        const double w = share_within(t, start, b);
        for (size_t i = 0; i < rows_of(t); i++) {
            struct counts *c = &counts[chex_cluster_of(k, r->row[t->start + i])];
            const bool positive = i >= t->negatives;
            c->rows += w;
            c->positives += w * positive;
            c->residual += w * (positive - r->score[g]);
        }
        start += rows_of(t);
    }
}

/* Adds the counted clusters up, each once, and zeroes them. */
static void collect_bin(const struct chex_ranking *r, const struct chex_clusters *k,
                        const struct bin *b, struct counts *counts,
                        struct chex_proportion *observed, struct chex_proportion *residual) {
    size_t start = b->start;
    for (size_t g = b->first; g < r->tie_count && (double)start < b->to; g++) {
        const struct chex_tie *t = &r->ties[g];
        for (size_t i = 0; i < rows_of(t); i++) {
            struct counts *c = &counts[chex_cluster_of(k, r->row[t->start + i])];
            chex_proportion_add(observed, c->positives, c->rows);
            chex_proportion_add(residual, c->residual, c->rows);
            *c = (struct counts){0};
        }
        start += rows_of(t);
    }
}

/* What a bin adds to the calibration error. */
struct gap {
    double difference; /* observed - predicted */
    double variance;   /* of the difference: the greater of observed and expected */
    double expected;   /* variance of the difference for a perfectly calibrated network */
};

static struct gap fill_bin(const struct chex_ranking *r, const struct chex_clusters *k,
                           const struct bin *b, struct counts *counts,
                           struct chex_reliability_bin *out) {
    struct chex_proportion observed = {0}, residual = {0};
    size_t start = b->start;
    double spread = 0;
    count_bin(r, k, b, counts);
    collect_bin(r, k, b, counts, &observed, &residual);
    for (size_t g = b->first; g < r->tie_count && (double)start < b->to; g++) {
        const double w = share_within(&r->ties[g], start, b), p = r->score[g];
        spread += w * (double)rows_of(&r->ties[g]) * p * (1 - p);
        start += rows_of(&r->ties[g]);
    }
    const double n = observed.n, d = residual.x / n, K = residual.clusters;
    *out = (struct chex_reliability_bin){n, observed.x / n - d, chex_proportion_figure(&observed)};
    if (!k->intervals)
        out->observed.interval = chex_figure_none().interval;
    const double expected = spread * chex_proportion_design_effect(&observed).size / (n * n);
    const double squares = residual.xx - 2 * d * residual.xn + d * d * residual.nn;
    const double seen = K > 1 ? squares * K / (K - 1) / (n * n) : 0;
    return (struct gap){d, fmax(seen, expected), expected};
}

/* ---- the expected calibration error ---- */

/* The sum of w * |d - f * w * v|, where no term changes its sign: the bins move towards 0 by a
 * multiple of what costs least. *used_out: the squared distance moved, in standard errors. */
static double shrunk(const struct gap *gap, int bins, double f, double *used_out) {
    double sum = 0;
    *used_out = 0;
    for (int b = 0; b < bins; b++) {
        const double d = fabs(gap[b].difference), moved = fmin(f * gap[b].variance / bins, d);
        sum += (d - moved) / bins;
        *used_out += gap[b].variance > 0 ? moved * moved / gap[b].variance : 0;
    }
    return sum;
}

/* The least error among all true differences within a distance of CHI2_OF_BINS of the observed
 * ones. The estimate is too high near 0, so its lower end takes the region of all bins together. */
static double lower_end(const struct gap *gap, int bins) {
    double low = 0, high = 1, used;
    while (high < 1e9 && (shrunk(gap, bins, high, &used), used < CHI2_OF_BINS))
        high *= 2;
    for (int i = 0; i < 100; i++) {
        const double f = (low + high) / 2;
        shrunk(gap, bins, f, &used);
        if (used < CHI2_OF_BINS)
            low = f;
        else
            high = f;
    }
    return shrunk(gap, bins, low, &used);
}

static void add_ece(const struct gap *gap, int bins, bool intervals,
                    struct chex_calibration_figures *out) {
    double variance = 0;
    out->ece.value = out->ece_expected = 0;
    for (int b = 0; b < bins; b++) {
        out->ece.value += fabs(gap[b].difference) / bins;
        out->ece_expected += sqrt(gap[b].expected * 2 / M_PI) / bins; /* mean of |normal| */
        variance += gap[b].variance / bins / bins;
    }
    if (!intervals || bins < CHEX_CALIBRATION_BINS)
        return;
    out->ece.interval.low = lower_end(gap, bins);
    out->ece.interval.high = fmin(out->ece.value + Z * sqrt(variance), 1);
}

static void add_bins(const struct chex_ranking *r, const struct chex_clusters *k, bool intervals,
                     struct counts *counts, struct chex_calibration_figures *out) {
    struct gap gap[CHEX_CALIBRATION_BINS];
    struct bin b = {0};
    const int bins = r->count < CHEX_CALIBRATION_BINS ? (int)r->count : CHEX_CALIBRATION_BINS;
    for (int i = 0; i < bins; i++) {
        b.from = (double)r->count * i / bins;
        b.to = (double)r->count * (i + 1) / bins;
        while ((double)(b.start + rows_of(&r->ties[b.first])) <= b.from)
            b.start += rows_of(&r->ties[b.first++]);
        gap[i] = fill_bin(r, k, &b, counts, &out->reliability.bin[i]);
    }
    out->reliability.bins = bins;
    add_ece(gap, bins, intervals, out);
}

static void add_histogram(const struct chex_ranking *r, struct chex_histogram *h) {
    for (size_t g = 0; g < r->tie_count; g++) {
        const int b = (int)fmin(r->score[g] * CHEX_HISTOGRAM_BINS, CHEX_HISTOGRAM_BINS - 1);
        h->positives[b] += r->ties[g].positives;
        h->negatives[b] += r->ties[g].negatives;
    }
}

/* ---- all of them ---- */

static void compute(const struct chex_ranking *r, const struct chex_clusters *k,
                    const struct chex_logits *logits, struct scratch *s,
                    struct chex_calibration_figures *out) {
    const bool intervals =
        k->intervals && chex_least_clusters(r, k, s->seen) >= CHEX_CALIBRATION_MIN_CLUSTERS;
    out->brier.value = brier_of(r);
    if (intervals)
        out->brier.interval = brier_interval(r, k, out->brier.value, s);
    add_regression(logits, k, intervals, s, out);
    add_bins(r, k, intervals, s->counts, out);
    add_histogram(r, &out->histogram);
}

enum chex_status chex_calibration_create(const struct chex_ranking *r,
                                         const struct chex_clusters *k,
                                         struct chex_calibration_figures *out,
                                         struct chex_error *err) {
    const struct chex_figure none = chex_figure_none();
    *out = (struct chex_calibration_figures){.brier = none,
                                             .slope = none,
                                             .intercept = none,
                                             .in_the_large = none,
                                             .ece = none,
                                             .ece_expected = NAN};
    if (!r->count)
        return CHEX_OK;
    struct chex_logits logits;
    CHEX_TRY(chex_logits_create(r, &logits, err));
    struct scratch s = {
        chex_alloc_zeroed(k->count, sizeof *s.part), chex_alloc_zeroed(k->count, sizeof *s.other),
        chex_alloc_zeroed(k->count, sizeof *s.counts), chex_alloc_zeroed(k->count, sizeof *s.seen)};
    enum chex_status st = CHEX_OK;
    if (s.part && s.other && s.counts && s.seen)
        compute(r, k, &logits, &s, out);
    else
        st = chex_error_memory(err, "%zu clusters", k->count);
    free(s.part);
    free(s.other);
    free(s.counts);
    free(s.seen);
    chex_logits_release(&logits);
    return st;
}
