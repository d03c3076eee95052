/* SPDX-License-Identifier: Apache-2.0
 *
 * The difference of two recipes, each trained several times with other seeds, on the same images:
 * an interval for the difference of their mean AUROCs that covers other patients and other
 * trainings.
 *
 * This is a multi-reader study in which a training is a reader. A training belongs to one recipe,
 * so readers are nested within treatments: the split-plot design of Obuchowski (1995), analysed by
 * the ANOVA of Obuchowski and Rockette (1995) with the degrees of freedom of Hillis (2007, 2014).
 * With J trainings of each recipe, S2 the variance of their AUROCs, Cov2 the covariance of two
 * trainings of one recipe and Cov3 of two recipes (both from the patients, by DeLong):
 *
 *   variance = sum over recipes of S2 / J + max(Cov2 of first + Cov2 of second - 2 Cov3, 0)
 *   df = variance^2 / sum of (S2 / J)^2 / (J - 1)
 *
 * Each recipe has its own S2 and J, since a recipe may change the spread (Welch 1947; with equal S2
 * and J the variance is Hillis's). Paired seeds, such as equal initial parameters, are readers that
 * read both treatments: S2 is then the variance of the J differences, and there is one term.
 *
 * The covariances follow from the contributions of the patients. With P the variance of the
 * difference for these trainings only, and e the sum over the patients of the variances between
 * the contributions of the trainings, max(P - sum of e / J, 0) is the second term. P comes from the
 * interval of stats/difference.h, so few positives widen it: one P for each end. doc/intervals.md
 * has the coverage.
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
