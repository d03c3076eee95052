/* SPDX-License-Identifier: Apache-2.0
 *
 * The difference of the mean AUROCs of two recipes, each trained several times with other seeds,
 * with an interval that covers other patients and other trainings.
 *
 * A training is a reader of a multi-reader study. It belongs to one recipe: readers are nested
 * within treatments. The ANOVA is that of Obuchowski and Rockette (1995), with the degrees of
 * freedom of Hillis (2007, 2014). With J trainings of a recipe, S2 the variance of their AUROCs,
 * Cov2 the covariance of two trainings of one recipe and Cov3 of two recipes, by DeLong from the
 * patients:
 *
 *   variance = sum over recipes of S2 / J + max(Cov2 of first + Cov2 of second - 2 Cov3, 0)
 *   df = variance^2 / sum of (S2 / J)^2 / (J - 1)
 *
 * Each recipe has its own S2 and J (Welch 1947; with equal ones the variance is Hillis's). Paired
 * seeds are readers of both treatments: there is one term, S2 of the J differences.
 *
 * The second term is max(P - sum of e / J, 0): P is the variance for these trainings only, e the
 * sum over the patients of the variances of their contributions between trainings. P is that of the
 * interval of stats/difference.h, one for each end, so few positives widen it. doc/intervals.md has
 * the coverage.
 */
#ifndef CHEX_STATS_RECIPES_H
#define CHEX_STATS_RECIPES_H

#include "stats/join.h"
#include "stats/paired.h"

/* Least trainings of a recipe. With two, an interval of nominally 95 % holds 90 to 92 %. */
enum { CHEX_RECIPES_MIN_RUNS = 3 };

struct chex_recipes;

/* runs: trainings of each recipe. paired: the seeds are; the numbers are then equal. */
enum chex_status chex_recipes_create(const size_t runs[2], bool paired, struct chex_recipes **out,
                                     struct chex_error *err);
void chex_recipes_destroy(struct chex_recipes *r); /* NULL allowed */

/* Adds the second table of a join as the next training of a recipe (0 or 1). The first table is the
 * same in all joins, and every table has its images and findings. Of paired seeds the k-th training
 * of recipe 1 follows the k-th of recipe 0. */
enum chex_status chex_recipes_add(struct chex_recipes *r, int recipe, const struct chex_join *j,
                                  struct chex_error *err);

/* Replaces the figures of a comparison of any two of the tables, after all trainings were added, by
 * those of the recipes. auroc[] are means over the trainings. se and df are those of the formula
 * above, without the correction for few positives. */
enum chex_status chex_recipes_finish(const struct chex_recipes *r, struct chex_paired *p,
                                     struct chex_error *err);

#endif
