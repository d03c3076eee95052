/* SPDX-License-Identifier: Apache-2.0
 *
 * What is in an emulated tensor map.
 */
#ifndef CHEX_TESTS_EMULATED_TENSOR_MAP_H
#define CHEX_TESTS_EMULATED_TENSOR_MAP_H

#include "include/cuda.h"

namespace emulated {

struct tensor_map {
    uint64_t magic;
    char *data;
    uint64_t columns, rows, stride; /* stride: bytes between rows */
    uint32_t element_bytes, box_columns, box_rows, swizzle;
};
static_assert(sizeof(tensor_map) <= sizeof(CUtensorMap), "a map has 128 bytes");
constexpr uint64_t TENSOR_MAP_MAGIC = 0x7465736e6f724d61;

/* Where in shared memory byte `at` of a box is that begins at a multiple of 1024. PTX ISA,
 * "swizzling modes": bits of the address from 4 on, exclusive or bits from 7 on. */
inline uint64_t swizzled(uint32_t swizzle, uint64_t at) {
    const uint64_t bits = (1u << swizzle) - 1;
    return at ^ (at >> 7 & bits) << 4;
}

} // namespace emulated

#endif
