/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes figures with intervals into JSON objects, CSV files and tables.
 */
#ifndef CHEX_REPORT_FIGURE_TEXT_H
#define CHEX_REPORT_FIGURE_TEXT_H

#include <jansson.h>
#include <stdio.h>

#include "stats/figure.h"

/* Adds NAME, INTERVAL_ci_low and INTERVAL_ci_high to an object; undefined numbers are null. False:
 * no object or out of memory. */
bool chex_figure_add_json(json_t *object, const char *name, const char *interval,
                          const struct chex_figure *f);

/* Appends to an array and takes the reference. False: no item or out of memory. */
bool chex_json_append(json_t *array, json_t *item);

/* Returns the object if it is complete, else releases it and returns NULL. */
json_t *chex_json_checked(json_t *object, bool complete);

/* ",0.5" or ",nan" */
void chex_csv_put_number(FILE *to, double value);
/* ",0.5,0.4,0.6" */
void chex_csv_put_figure(FILE *to, const struct chex_figure *f);
/* A comma and a text cell. */
void chex_csv_put_text(FILE *to, const char *text);

/* "0.8123 (0.7811 to 0.8402)"; "-" if undefined. sign: with a sign before each number. Returns buf.
 */
const char *chex_figure_format(const struct chex_figure *f, bool sign, char *buf, size_t size);

#endif
