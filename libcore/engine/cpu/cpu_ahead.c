/* SPDX-License-Identifier: Apache-2.0
 *
 * Which memory the products ask for in advance. A tile of a dense block reads a few hundred bytes
 * a pixel at distances of up to 2 KiB, a pattern that processors do not foresee; without this a
 * sixth of the step was spent waiting for it.
 */
#include "engine/cpu/cpu.h"

void chex_cpu_want(struct cpu_ahead *h, struct cpu_stored from, int hw, struct cpu_tile tile,
                   int lo, int hi, int channels) {
    size_t bytes = from.bf16 ? 2 : 4;
    lo = lo < 0 ? 0 : lo;
    hi = hi > hw - 1 ? hw - 1 : hi;
    if (hi < lo || !from.at)
        return;
    int k = 0, rows = tile.images > 1 ? tile.images * hw * hw : (hi - lo + 1) * hw;
    while (k < CPU_AHEAD && h->part[k].rows)
        k++;
    if (k == CPU_AHEAD)
        return;
    size_t first =
        ((size_t)tile.image * (size_t)hw + (size_t)(tile.images > 1 ? 0 : lo)) * (size_t)hw;
    h->part[k].at = (const char *)from.at + first * from.step * bytes;
    h->part[k].pitch = from.step * bytes;
    h->part[k].rows = rows;
    h->part[k].lines = (int)(((size_t)channels * bytes + CPU_LINE - 1) / CPU_LINE);
    h->rows = rows > h->rows ? rows : h->rows;
}
