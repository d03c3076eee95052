/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and versions of the libraries that read and write data, for the log.
 */
#ifndef CHEX_SHARD_VERSIONS_H
#define CHEX_SHARD_VERSIONS_H

#include <stddef.h>

/* Writes "HDF5 1.10.8, libpng 1.6.39, ..." to buf (size bytes) and returns buf. */
const char *chex_data_libraries(char *buf, size_t size);

#endif
