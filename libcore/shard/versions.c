/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the data libraries. Optional libraries (ISA-L, libdeflate, libarchive) appear if they were
 * built in.
 */
#include <jansson.h>
#include <png.h>

#include <jpeglib.h>
#include <zlib.h>

#include "base/h5_private.h"
#include "base/text.h"
#include "shard/versions.h"

#if CHEXNET_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif
#if CHEXNET_HAVE_ISAL
#include <isa-l.h>
#endif
#if CHEXNET_HAVE_ARCHIVE
#include <archive.h>
#endif

const char *chex_data_libraries(char *buf, size_t size) {
    unsigned major = 0, minor = 0, release = 0;
    chex_h5_enter();
    H5get_libversion(&major, &minor, &release);
    chex_h5_leave();
    struct chex_text_line l = {.text = buf, .size = size};
    chex_text_append(&l, "HDF5 %u.%u.%u, libpng %s, libjpeg-turbo %d.%d.%d, zlib %s, jansson %s",
                     major, minor, release, png_get_libpng_ver(NULL),
                     LIBJPEG_TURBO_VERSION_NUMBER / 1000000,
                     LIBJPEG_TURBO_VERSION_NUMBER / 1000 % 1000,
                     LIBJPEG_TURBO_VERSION_NUMBER % 1000, zlibVersion(), JANSSON_VERSION);
#if CHEXNET_HAVE_ISAL
    chex_text_append(&l, ", ISA-L %d.%d.%d", ISAL_MAJOR_VERSION, ISAL_MINOR_VERSION,
                     ISAL_PATCH_VERSION);
#endif
#if CHEXNET_HAVE_LIBDEFLATE
    chex_text_append(&l, ", libdeflate %s", LIBDEFLATE_VERSION_STRING);
#endif
#if CHEXNET_HAVE_ARCHIVE
    chex_text_append(&l, ", %s", archive_version_string());
#endif
    return buf;
}
