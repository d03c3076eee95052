/* SPDX-License-Identifier: Apache-2.0 */
#include "op/tiles/tiles.h"

const struct tile_ops tile_ops_real = {"amx", tiles_multiply, tiles_copy, tiles_zero};
