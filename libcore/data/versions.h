/* SPDX-License-Identifier: Apache-2.0
 *
 * The libraries that the data layer runs on.
 */
#ifndef CHEX_DATA_VERSIONS_H
#define CHEX_DATA_VERSIONS_H

#include <stddef.h>

/* "HDF5 1.10.8, libpng 1.6.39, ..." as found at run time; buf is returned. */
const char *chex_data_libraries(char *buf, size_t size);

#endif
