/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the list of memory that the matrix products prefetch. A tile of a dense block reads a few
 * hundred bytes per pixel at distances of up to 2 KiB. Hardware prefetchers do not detect this
 * pattern; without software prefetch a sixth of the step was spent waiting for it.
 */
#include "engine/cpu/cpu_engine.h"

void chex_cpu_prefetch_rows(struct cpu_prefetch *h, struct cpu_stored from, int hw,
                            struct cpu_tile tile, int lo, int hi, int channels) {
    size_t bytes = from.bf16 ? 2 : 4;
    lo = lo < 0 ? 0 : lo;
    hi = hi > hw - 1 ? hw - 1 : hi;
    if (hi < lo || !from.at)
        return;
    int k = 0, rows = tile.images > 1 ? tile.images * hw * hw : (hi - lo + 1) * hw;
    while (k < CPU_PREFETCH_PARTS && h->part[k].rows)
        k++;
    if (k == CPU_PREFETCH_PARTS)
        return;
    size_t first = chex_cpu_row(hw, tile.image, tile.images > 1 ? 0 : lo);
    h->part[k].at = (const char *)from.at + first * from.step * bytes;
    h->part[k].pitch = from.step * bytes;
    h->part[k].rows = rows;
    h->part[k].lines = (int)(((size_t)channels * bytes + CPU_LINE - 1) / CPU_LINE);
    h->rows = rows > h->rows ? rows : h->rows;
}
