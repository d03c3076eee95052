/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry of DICOM in the table of formats. It recognises a DICOM file and loads the module
 * chexnet-dicom.so (image_dicom_dcmtk.cpp), which decodes it.
 */
#include <pthread.h>
#include <string.h>

#include "base/module.h"
#include "image/image_format.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct chex_image_format *module;
static struct chex_error absent; /* why the module could not be loaded */

static bool match(const uint8_t *data, size_t size) {
    return size >= 132 && memcmp(data + 128, "DICM", 4) == 0;
}

static void open_module(void) {
    void *symbol = NULL;
    if (chex_module_symbol("dicom", "chexnet_image_dicom", &symbol, &absent) == CHEX_OK)
        module = symbol;
}

static enum chex_status decode(struct chex_image_reader *reader, const uint8_t *data, size_t size,
                               const char *name, struct chex_image *image, struct chex_error *err) {
    pthread_once(&once, open_module);
    if (module)
        return module->decode(reader, data, size, name, image, err);
    return chex_error_set(err, CHEX_E_ENV,
                          "%s is DICOM: %s; build chexnet with DCMTK (libdcmtk-dev, "
                          "-DCHEX_WITH_DICOM=ON), or give PNG or JPEG",
                          name, absent.text);
}

const struct chex_image_format chex_image_format_dicom = {"dicom", match, decode};
