/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of pooled features: fit, distance, and their form in a deployment file. features.h has
 * the definitions and the sources.
 *
 * Sums are in double. Each element of the covariance is summed over the rows in their order by one
 * thread, so the result does not depend on the number of threads.
 */
#include "infer/features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "stats/figure.h"

const double chex_features_levels[CHEX_FEATURES_QUANTILES] = {0.5, 0.9, 0.95, 0.99, 1};

static const char mean_name[] = CHEX_STATISTIC_PREFIX "features.mean";
static const char factor_name[] = CHEX_STATISTIC_PREFIX "features.factor";

int chex_features_count(const struct chex_net *net) {
    return net->ops[net->op_count - 1].in_channels;
}

static size_t packed(size_t count) { return count * (count + 1) / 2; }

static enum chex_status create(int count, struct chex_features **out, struct chex_error *err) {
    struct chex_features *f = chex_alloc_zeroed(1, sizeof *f);
    if (f) {
        f->count = count;
        f->mean = chex_alloc_zeroed((size_t)count, sizeof *f->mean);
        f->factor = chex_alloc_zeroed(packed((size_t)count), sizeof *f->factor);
    }
    if (!f || !f->mean || !f->factor) {
        chex_features_destroy(f);
        return chex_error_memory(err, "feature statistics of %d values", count);
    }
    *out = f;
    return CHEX_OK;
}

void chex_features_destroy(struct chex_features *f) {
    if (!f)
        return;
    free(f->mean);
    free(f->factor);
    free(f);
}

enum chex_status chex_features_finite(const float *vectors, size_t rows, int count,
                                      struct chex_error *err) {
    for (size_t i = 0; i < rows * (size_t)count; i++)
        if (!isfinite(vectors[i]))
            return chex_error_set(err, CHEX_E_DATA,
                                  "features of image %zu: value %zu is not finite",
                                  i / (size_t)count + 1, i % (size_t)count + 1);
    return CHEX_OK;
}

/* ---- fit ---- */

/* The covariance in work. centred: (count, rows), the vectors minus their mean, transposed. */
struct covariance {
    const float *vectors;
    size_t rows, count;
    double *mean, *centred, *c; /* c: packed lower triangle */
};

static void centre_item(void *arg, size_t k, int worker) {
    (void)worker;
    const struct covariance *v = arg;
    double sum = 0, *out = v->centred + k * v->rows;
    for (size_t i = 0; i < v->rows; i++)
        sum += (double)v->vectors[i * v->count + k];
    v->mean[k] = sum / (double)v->rows;
    for (size_t i = 0; i < v->rows; i++)
        out[i] = (double)v->vectors[i * v->count + k] - v->mean[k];
}

/* The sum of a[i] * b[i], in eight parts that the processor can work on at once. */
static double dot(const double *a, const double *b, size_t n) {
    double part[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            part[k] += a[i + (size_t)k] * b[i + (size_t)k];
    for (; i < n; i++)
        part[i % 8] += a[i] * b[i];
    return ((part[0] + part[1]) + (part[2] + part[3])) +
           ((part[4] + part[5]) + (part[6] + part[7]));
}

/* Row `k` of the triangle. */
static void product_item(void *arg, size_t k, int worker) {
    (void)worker;
    const struct covariance *v = arg;
    for (size_t j = 0; j <= k; j++)
        v->c[packed(k) + j] =
            dot(v->centred + k * v->rows, v->centred + j * v->rows, v->rows) / (double)v->rows;
}

/* Sum over the rows of the fourth power of the norm. */
static double fourth_powers(const struct covariance *v) {
    double sum = 0;
    for (size_t i = 0; i < v->rows; i++) {
        double square = 0;
        for (size_t k = 0; k < v->count; k++)
            square += v->centred[k * v->rows + i] * v->centred[k * v->rows + i];
        sum += square * square;
    }
    return sum;
}

/* Ledoit and Wolf 2004, section 3: m, d^2, b^2 and the weight b^2 / d^2 of the identity. Shrinks
 * v->c. Returns the weight. */
static double shrink(struct covariance *v) {
    const double count = (double)v->count, rows = (double)v->rows;
    double m = 0, square = 0;
    for (size_t k = 0; k < v->count; k++) {
        m += v->c[packed(k) + k] / count;
        for (size_t j = 0; j <= k; j++) {
            const double c = v->c[packed(k) + j];
            square += (j < k ? 2 : 1) * c * c;
        }
    }
    const double d2 = square / count - m * m;
    const double b2 = (fourth_powers(v) / rows - square) / rows / count;
    const double weight = d2 > 0 ? fmin(fmax(b2, 0), d2) / d2 : 1;
    for (size_t k = 0; k < v->count; k++) {
        for (size_t j = 0; j <= k; j++)
            v->c[packed(k) + j] *= 1 - weight;
        v->c[packed(k) + k] += weight * m;
    }
    return weight;
}

/* Replaces the packed triangle by its Cholesky factor. False: not positive definite. */
static bool factorise(double *c, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double *row = c + packed(i);
        for (size_t j = 0; j <= i; j++) {
            const double left = row[j] - dot(row, c + packed(j), j);
            if (j < i)
                row[j] = left / c[packed(j) + j];
            else if (left > 0)
                row[i] = sqrt(left);
            else
                return false;
        }
    }
    return true;
}

static enum chex_status fit(const float *vectors, size_t rows, struct chex_pool *pool,
                            struct chex_features *f, struct chex_error *err) {
    const size_t count = (size_t)f->count;
    CHEX_AUTO_FREE double *mean = chex_alloc_zeroed(count, sizeof *mean);
    CHEX_AUTO_FREE double *centred = chex_alloc_zeroed(count * rows, sizeof *centred);
    CHEX_AUTO_FREE double *c = chex_alloc_zeroed(packed(count), sizeof *c);
    struct covariance v = {vectors, rows, count, mean, centred, c};
    CHEX_ALLOCATED(mean && centred && c, err, "feature statistics of %zu images", rows);
    chex_pool_run(pool, count, centre_item, &v);
    chex_pool_run(pool, count, product_item, &v);
    f->rows = rows;
    f->shrinkage = shrink(&v);
    if (!factorise(c, count))
        return chex_error_set(err, CHEX_E_DATA,
                              "features of %zu images: no covariance, because all are equal", rows);
    for (size_t k = 0; k < count; k++)
        f->mean[k] = (float)mean[k];
    for (size_t k = 0; k < packed(count); k++)
        f->factor[k] = (float)c[k];
    return CHEX_OK;
}

enum chex_status chex_features_fit(const float *vectors, size_t rows, int count,
                                   struct chex_pool *pool, struct chex_features **out,
                                   struct chex_error *err) {
    struct chex_features *f = NULL;
    if (rows < 3)
        return chex_error_set(err, CHEX_E_DATA, "features of %zu image%s: expected 3 or more", rows,
                              rows == 1 ? "" : "s");
    CHEX_TRY(chex_features_finite(vectors, rows, count, err));
    CHEX_TRY(create(count, &f, err));
    const enum chex_status st = fit(vectors, rows, pool, f, err);
    if (st != CHEX_OK) {
        chex_features_destroy(f);
        return st;
    }
    *out = f;
    return CHEX_OK;
}

/* ---- distances ---- */

/* Solves L y = x - mean from the first element on. y: (count) scratch. */
static double distance(const struct chex_features *f, const float *vector, double *y) {
    double square = 0;
    for (size_t i = 0; i < (size_t)f->count; i++) {
        const float *row = f->factor + packed(i);
        double part[8] = {0};
        size_t j = 0;
        for (; j + 8 <= i; j += 8)
            for (int k = 0; k < 8; k++)
                part[k] += (double)row[j + (size_t)k] * y[j + (size_t)k];
        for (; j < i; j++)
            part[j % 8] += (double)row[j] * y[j];
        const double sum = ((part[0] + part[1]) + (part[2] + part[3])) +
                           ((part[4] + part[5]) + (part[6] + part[7]));
        y[i] = ((double)vector[i] - (double)f->mean[i] - sum) / (double)row[i];
        square += y[i] * y[i];
    }
    return sqrt(square);
}

struct distances {
    const struct chex_features *f;
    const float *vectors;
    double *out, *scratch; /* (rows); (threads, count) */
};

static void distance_item(void *arg, size_t i, int worker) {
    const struct distances *d = arg;
    const size_t count = (size_t)d->f->count;
    d->out[i] = distance(d->f, d->vectors + i * count, d->scratch + (size_t)worker * count);
}

enum chex_status chex_features_distances(const struct chex_features *f, const float *vectors,
                                         size_t rows, struct chex_pool *pool, double *out,
                                         struct chex_error *err) {
    const size_t count = (size_t)chex_pool_threads(pool) * (size_t)f->count;
    CHEX_AUTO_FREE double *scratch = chex_alloc_zeroed(count, sizeof *scratch);
    CHEX_ALLOCATED(scratch, err, "feature distances of %zu images", rows);
    chex_pool_run(pool, rows, distance_item, &(struct distances){f, vectors, out, scratch});
    return CHEX_OK;
}

enum chex_status chex_features_validate(struct chex_features *f, const float *vectors, size_t rows,
                                        struct chex_pool *pool, struct chex_error *err) {
    if (!rows)
        return chex_error_set(err, CHEX_E_DATA, "features of validation images: there is none");
    CHEX_TRY(chex_features_finite(vectors, rows, f->count, err));
    CHEX_AUTO_FREE double *sorted = chex_alloc_zeroed(rows, sizeof *sorted);
    CHEX_TRY(sorted ? chex_features_distances(f, vectors, rows, pool, sorted, err)
                    : chex_error_memory(err, "feature distances of %zu images", rows));
    qsort(sorted, rows, sizeof *sorted, chex_by_value);
    f->validation = rows;
    for (int q = 0; q < CHEX_FEATURES_QUANTILES; q++)
        f->quantile[q] = chex_quantile(sorted, rows, chex_features_levels[q]);
    return CHEX_OK;
}

enum chex_distance chex_features_judge(const struct chex_features *f, double distance) {
    if (!f->validation)
        return CHEX_DISTANCE_USUAL;
    if (!(distance <= CHEX_FEATURES_MARGIN * f->quantile[CHEX_FEATURES_LARGEST]))
        return CHEX_DISTANCE_VERY_FAR;
    return distance > f->quantile[CHEX_FEATURES_P99] ? CHEX_DISTANCE_FAR : CHEX_DISTANCE_USUAL;
}

/* ---- in a deployment file ---- */

static bool fill_tensor(struct chex_statistic *t, const char *name, const float *data,
                        size_t count) {
    *t = (struct chex_statistic){.name = strdup(name),
                                 .rank = 1,
                                 .dims = {(int)count},
                                 .data = chex_alloc_zeroed(count, sizeof *data)};
    if (!t->name || !t->data)
        return false;
    memcpy(t->data, data, count * sizeof *data);
    return true;
}

enum chex_status chex_features_tensors(const struct chex_features *f,
                                       struct chex_statistic out[CHEX_FEATURES_TENSORS],
                                       struct chex_error *err) {
    struct chex_statistic t[CHEX_FEATURES_TENSORS] = {{0}};
    const size_t count = (size_t)f->count;
    if (fill_tensor(&t[0], mean_name, f->mean, count) &&
        fill_tensor(&t[1], factor_name, f->factor, packed(count))) {
        memcpy(out, t, sizeof t);
        return CHEX_OK;
    }
    for (int i = 0; i < CHEX_FEATURES_TENSORS; i++) {
        free(t[i].name);
        free(t[i].data);
    }
    return chex_error_memory(err, "feature statistics");
}

json_t *chex_features_json(const struct chex_features *f) {
    json_t *quantiles = json_array();
    for (int q = 0; q < CHEX_FEATURES_QUANTILES; q++)
        json_array_append_new(quantiles,
                              json_pack("[ff]", chex_features_levels[q], f->quantile[q]));
    return json_pack("{sI sf sI so}", "rows", (json_int_t)f->rows, "shrinkage", f->shrinkage,
                     "validation", (json_int_t)f->validation, "quantiles", quantiles);
}

static const struct chex_statistic *find(const struct chex_statistic *tensors, int count,
                                         const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return &tensors[i];
    return NULL;
}

static bool read_object(const json_t *object, struct chex_features *f) {
    const json_t *quantiles = json_object_get(object, "quantiles");
    f->rows = (size_t)json_integer_value(json_object_get(object, "rows"));
    f->shrinkage = json_number_value(json_object_get(object, "shrinkage"));
    f->validation = (size_t)json_integer_value(json_object_get(object, "validation"));
    if (json_array_size(quantiles) != CHEX_FEATURES_QUANTILES)
        return false;
    for (int q = 0; q < CHEX_FEATURES_QUANTILES; q++) {
        const json_t *pair = json_array_get(quantiles, (size_t)q);
        const double level = json_number_value(json_array_get(pair, 0));
        f->quantile[q] = json_number_value(json_array_get(pair, 1));
        if (fabs(level - chex_features_levels[q]) > 1e-9 || !isfinite(f->quantile[q]) ||
            f->quantile[q] < (q ? f->quantile[q - 1] : 0))
            return false;
    }
    return true;
}

/* Whether all values are finite and the diagonal is above 0. */
static bool is_sound(const struct chex_features *f) {
    const size_t count = (size_t)f->count;
    for (size_t k = 0; k < count; k++)
        if (!isfinite(f->mean[k]) || !(f->factor[packed(k) + k] > 0))
            return false;
    for (size_t k = 0; k < packed(count); k++)
        if (!isfinite(f->factor[k]))
            return false;
    return true;
}

enum chex_status chex_features_read(const char *path, const struct chex_statistic *tensors,
                                    int tensor_count, const json_t *object,
                                    struct chex_features **out, struct chex_error *err) {
    const struct chex_statistic *mean = find(tensors, tensor_count, mean_name);
    const struct chex_statistic *factor = find(tensors, tensor_count, factor_name);
    struct chex_features *f = NULL;
    *out = NULL;
    if (!mean && !factor)
        return CHEX_OK;
    if (!mean || !factor)
        return chex_error_set(err, CHEX_E_DATA, "%s: it has no tensor %s", path,
                              mean ? factor_name : mean_name);
    if (mean->rank != 1 || factor->rank != 1 || mean->dims[0] < 1 ||
        (uint64_t)factor->dims[0] != packed((size_t)mean->dims[0]))
        return chex_error_set(err, CHEX_E_DATA,
                              "%s: tensors %s and %s have other shapes than (n) and "
                              "(n * (n + 1) / 2)",
                              path, mean_name, factor_name);
    CHEX_TRY(create(mean->dims[0], &f, err));
    memcpy(f->mean, mean->data, (size_t)f->count * sizeof *f->mean);
    memcpy(f->factor, factor->data, packed((size_t)f->count) * sizeof *f->factor);
    if (!is_sound(f) || !read_object(object, f)) {
        chex_features_destroy(f);
        return chex_error_set(err, CHEX_E_DATA, "%s: its feature statistics are damaged", path);
    }
    *out = f;
    return CHEX_OK;
}
