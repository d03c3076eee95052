/* SPDX-License-Identifier: Apache-2.0
 *
 * How far is an image from the training images? Statistics of the network's pooled features.
 *
 * The pooled features of an image are the input of the head: the mean over all positions of the
 * last feature maps (1,024 values for DenseNet-121, 2,048 for ResNet-50). A normal distribution is
 * fitted to the features of training images. The *feature distance* of a new image is its
 * Mahalanobis distance sqrt((x - mean)' C^-1 (x - mean)) (Lee et al., A simple unified framework
 * for detecting out-of-distribution samples, NeurIPS 2018, with one class instead of several,
 * because an image can have several findings).
 *
 * C is the covariance of the training images, shrunk towards a multiple of the identity (Ledoit and
 * Wolf, A well-conditioned estimator for large-dimensional covariance matrices, 2004): C =
 * shrinkage
 * * m * I + (1 - shrinkage) * S, where S is the sample covariance with divisor n and m the mean of
 * its diagonal. It has an inverse for any number of images. The lower Cholesky factor L of C is
 * kept: the distance is the norm of L^-1 (x - mean).
 *
 * Images of the validation split say which distances are usual. An image is
 * - far, if its distance is above the 99th percentile of the validation images;
 * - very far, if its distance is above CHEX_FEATURES_MARGIN times the largest of them.
 */
#ifndef CHEX_INFER_FEATURES_H
#define CHEX_INFER_FEATURES_H

#include <jansson.h>
#include <stddef.h>

#include "base/error.h"
#include "base/pool.h"
#include "engine/engine.h"
#include "model/safetensors.h"
#include "shard/shard.h"

struct chex_group;

#define CHEX_FEATURES_MARGIN 1.25

/* Levels of the quantiles that are kept: 0.5, 0.9, 0.95, 0.99 and 1 (the largest). */
enum { CHEX_FEATURES_P99 = 3, CHEX_FEATURES_LARGEST = 4, CHEX_FEATURES_QUANTILES = 5 };
extern const double chex_features_levels[CHEX_FEATURES_QUANTILES];

struct chex_features {
    int count;         /* values per image */
    size_t rows;       /* training images */
    double shrinkage;  /* 0 to 1 */
    float *mean;       /* (count) */
    float *factor;     /* L: packed lower triangle, row i at i * (i + 1) / 2 */
    size_t validation; /* validation images; 0: no quantiles */
    double quantile[CHEX_FEATURES_QUANTILES]; /* of their distances */
};

/* Number of pooled features of a network. */
int chex_features_count(const struct chex_net *net);

/* Pooled features of rows of a split, computed on all ranks. Each rank infers its share, with the
 * centre crop of the evaluation.
 * - rows: at most `limit` rows, at equal distances over the split. They do not depend on the number
 *   of ranks.
 * - set: opened with the rows of chex_eval_rows() of this rank, as for chex_eval_run.
 * - vectors_out: on rank 0 (rows, count) in order of rows, which the caller frees; NULL on others.
 * - rows_out: on all ranks.
 * Collective; all ranks return the same status. CHEX_E_FAIL: the engine gives no features. */
enum chex_status chex_features_of_split(struct chex_engine *engine, const struct chex_set *set,
                                        struct chex_group *group, size_t limit, float **vectors_out,
                                        size_t *rows_out, struct chex_error *err);

/* CHEX_E_DATA if a value of (rows, count) features is not finite. */
enum chex_status chex_features_finite(const float *vectors, size_t rows, int count,
                                      struct chex_error *err);

/* Fits mean and factor. vectors: (rows, count). The result does not depend on the threads of the
 * pool. CHEX_E_DATA: fewer than 3 rows, a value that is not finite, or all rows are equal. The
 * caller calls chex_features_destroy. */
enum chex_status chex_features_fit(const float *vectors, size_t rows, int count,
                                   struct chex_pool *pool, struct chex_features **out,
                                   struct chex_error *err);
void chex_features_destroy(struct chex_features *f); /* NULL allowed */

/* Sets the quantiles from the features of validation images, (rows, count). CHEX_E_DATA: no row, or
 * a value that is not finite. */
enum chex_status chex_features_validate(struct chex_features *f, const float *vectors, size_t rows,
                                        struct chex_pool *pool, struct chex_error *err);

/* The feature distances of images, (rows), from (rows, count) features. Not finite if a feature is
 * not. CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_features_distances(const struct chex_features *f, const float *vectors,
                                         size_t rows, struct chex_pool *pool, double *out,
                                         struct chex_error *err);

enum chex_distance { CHEX_DISTANCE_USUAL, CHEX_DISTANCE_FAR, CHEX_DISTANCE_VERY_FAR };
enum chex_distance chex_features_judge(const struct chex_features *f, double distance);

/* ---- in a deployment file ---- */

/* The two tensors `chexnet.features.mean` (count) and `chexnet.features.factor`
 * (count * (count + 1) / 2). Copies; the caller releases each name and data. */
enum { CHEX_FEATURES_TENSORS = 2 };
enum chex_status chex_features_tensors(const struct chex_features *f,
                                       struct chex_statistic out[CHEX_FEATURES_TENSORS],
                                       struct chex_error *err);

/* The rest: an object with rows, shrinkage, validation and quantiles. NULL: out of memory. */
json_t *chex_features_json(const struct chex_features *f);

/* The reverse. *out is NULL if `tensors` (tensor_count) has neither tensor. object: of
 * chex_features_json. path: for the error text. CHEX_E_DATA: one tensor without the other, a wrong
 * shape, a value that is not finite, a diagonal that is not above 0, or an object that does not
 * fit.
 */
enum chex_status chex_features_read(const char *path, const struct chex_statistic *tensors,
                                    int tensor_count, const json_t *object,
                                    struct chex_features **out, struct chex_error *err);

#endif
