/* SPDX-License-Identifier: Apache-2.0
 *
 * Feature statistics: the shrunk covariance and distances against numpy's (Ledoit and Wolf's
 * formula in fp64), any number of threads, the form in a deployment file, and damaged forms.
 */
#include "infer/features.h"

#include "base/alloc.h"
#include "tap.h"

static struct chex_error err;

enum { ROWS = 9, COUNT = 4 };

static void fill(float *vectors, size_t rows, int count) {
    for (size_t i = 0; i < rows; i++)
        for (int k = 0; k < count; k++)
            vectors[i * (size_t)count + (size_t)k] =
                (float)((i * 7 + (size_t)k * 3) % 11) + 0.25F * (float)((i * i + (size_t)k) % 5);
}

static struct chex_features *fitted(const float *vectors, size_t rows, int count, int threads) {
    struct chex_pool *pool = NULL;
    struct chex_features *f = NULL;
    MUST(chex_pool_create(threads, &pool, &err));
    MUST(chex_features_fit(vectors, rows, count, pool, &f, &err));
    MUST(chex_features_validate(f, vectors, rows, pool, &err));
    chex_pool_destroy(pool);
    return f;
}

/* The largest difference of n values from the expected ones. */
static double worst_of(const float *values, const double *expected, int n) {
    double worst = 0;
    for (int i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)values[i] - expected[i]));
    return worst;
}

static void check_numpy(void) {
    static const double mean[] = {5.30555556, 5.55555556, 5.13888889, 5.94444444};
    static const double factor[] = {3.20642077, -0.01432914, 3.16026175,  -0.18031317, -0.17842376,
                                    3.13434125, 0.03327869,  -0.18398276, -0.03626071, 3.18966695};
    static const double quantile[] = {1.9133382148725997, 2.1857563067131935, 2.2024177236241194,
                                      2.2157468571528605, 2.2190791405350456};
    const float images[2 * COUNT] = {1, 2, 3, 4, 100, 0, 0, 0};
    float vectors[ROWS * COUNT];
    double d[2] = {NAN, NAN}, worst = 0;
    struct chex_pool *pool = NULL;
    fill(vectors, ROWS, COUNT);
    struct chex_features *f = fitted(vectors, ROWS, COUNT, 1);
    OK(fabs(f->shrinkage - 0.8784795273928824) < 1e-12, "the shrinkage is Ledoit and Wolf's, %.6f",
       f->shrinkage);
    OK(worst_of(f->mean, mean, COUNT) < 1e-6, "the mean is numpy's");
    OK(worst_of(f->factor, factor, COUNT * (COUNT + 1) / 2) < 1e-6,
       "the Cholesky factor is numpy's");
    BAIL_UNLESS(chex_pool_create(1, &pool, &err) == CHEX_OK, "%s", err.text);
    OK(chex_features_distances(f, images, 2, pool, d, &err) == CHEX_OK &&
           fabs(d[0] - 2.0520412992863735) < 1e-6,
       "the Mahalanobis distance is numpy's, %.6f", d[0]);
    chex_pool_destroy(pool);
    for (int q = 0; q < CHEX_FEATURES_QUANTILES; q++)
        worst = fmax(worst, fabs(f->quantile[q] - quantile[q]));
    OK(worst < 1e-6 && f->validation == ROWS, "the quantiles of the validation images are numpy's");
    OK(chex_features_judge(f, 2.0) == CHEX_DISTANCE_USUAL &&
           chex_features_judge(f, 2.218) == CHEX_DISTANCE_FAR &&
           chex_features_judge(f, 1.25 * 2.2191) == CHEX_DISTANCE_VERY_FAR &&
           chex_features_judge(f, d[1]) == CHEX_DISTANCE_VERY_FAR &&
           chex_features_judge(f, NAN) == CHEX_DISTANCE_VERY_FAR,
       "an image is far beyond the 99th percentile, and very far beyond 1.25 times the largest");
    chex_features_destroy(f);
}

static void check_threads(void) {
    enum { MANY = 60, WIDE = 37 };
    static float vectors[MANY * WIDE];
    fill(vectors, MANY, WIDE);
    struct chex_features *one = fitted(vectors, MANY, WIDE, 1);
    struct chex_features *three = fitted(vectors, MANY, WIDE, 3);
    OK(memcmp(one->factor, three->factor, WIDE * (WIDE + 1) / 2 * sizeof *one->factor) == 0 &&
           memcmp(one->quantile, three->quantile, sizeof one->quantile) == 0,
       "the statistics do not depend on the number of threads");
    chex_features_destroy(one);
    chex_features_destroy(three);
}

static enum chex_status read_form(const struct chex_statistic *t, int count, const json_t *object,
                                  struct chex_features **out) {
    return chex_features_read("file", t, count, object, out, &err);
}

static void check_form(void) {
    float vectors[ROWS * COUNT];
    struct chex_statistic t[CHEX_FEATURES_TENSORS] = {{0}};
    struct chex_features *back = NULL;
    fill(vectors, ROWS, COUNT);
    struct chex_features *f = fitted(vectors, ROWS, COUNT, 1);
    json_t *object = chex_features_json(f);
    BAIL_UNLESS(object && chex_features_tensors(f, t, &err) == CHEX_OK, "no form");
    OK(read_form(t, 2, object, &back) == CHEX_OK && back && back->rows == ROWS &&
           memcmp(back->factor, f->factor, 10 * sizeof *f->factor) == 0 &&
           memcmp(back->quantile, f->quantile, sizeof f->quantile) == 0,
       "what was written is read");
    chex_features_destroy(back);
    OK(read_form(t, 0, object, &back) == CHEX_OK && !back, "a file may have no statistics");
    OK_STATUS(read_form(t, 1, object, &back), CHEX_E_DATA, err,
              "file: it has no tensor chexnet.features.factor");
    t[1].dims[0] = 9;
    OK_STATUS(read_form(t, 2, object, &back), CHEX_E_DATA, err, "other shapes than");
    t[1].dims[0] = 10;
    t[1].data[2] = 0;
    OK_STATUS(read_form(t, 2, object, &back), CHEX_E_DATA, err, "statistics are damaged");
    t[1].data[2] = 1;
    json_object_del(object, "quantiles");
    OK_STATUS(read_form(t, 2, object, &back), CHEX_E_DATA, err, "statistics are damaged");
    json_decref(object);
    for (int i = 0; i < CHEX_FEATURES_TENSORS; i++) {
        free(t[i].name);
        free(t[i].data);
    }
    chex_features_destroy(f);
}

static void check_faults(void) {
    float vectors[ROWS * COUNT] = {0};
    struct chex_pool *pool = NULL;
    struct chex_features *f = NULL;
    MUST(chex_pool_create(1, &pool, &err));
    OK_STATUS(chex_features_fit(vectors, 2, COUNT, pool, &f, &err), CHEX_E_DATA, err,
              "expected 3 or more");
    OK_STATUS(chex_features_fit(vectors, ROWS, COUNT, pool, &f, &err), CHEX_E_DATA, err,
              "all are equal");
    vectors[COUNT + 2] = INFINITY;
    OK_STATUS(chex_features_fit(vectors, ROWS, COUNT, pool, &f, &err), CHEX_E_DATA, err,
              "features of image 2: value 3 is not finite");
    fill(vectors, ROWS, COUNT);
    MUST(chex_features_fit(vectors, 3, COUNT, pool, &f, &err));
    OK(f != NULL, "three images are enough, because the covariance is shrunk");
    OK_STATUS(chex_features_validate(f, vectors, 0, pool, &err), CHEX_E_DATA, err, "there is none");
    chex_features_destroy(f);
    chex_pool_destroy(pool);
}

int main(void) {
    check_numpy();
    check_threads();
    check_form();
    check_faults();
    return tap_done();
}
