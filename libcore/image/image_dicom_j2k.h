/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes the JPEG 2000 codestream of a DICOM frame, with OpenJPEG. Part of the module
 * chexnet-dicom.so, only if it is built with OpenJPEG.
 */
#ifndef CHEX_IMAGE_IMAGE_DICOM_J2K_H
#define CHEX_IMAGE_IMAGE_DICOM_J2K_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Most tiles of a codestream: OpenJPEG allocates some 6 KiB for each before it reads them. */
enum { CHEX_J2K_MAX_TILES = 4096 };

/* What the DICOM file says of the frame. The caller has checked its limits. */
struct chex_j2k_frame {
    int width, height;
    unsigned bits; /* stored; 2 to 16 */
    bool is_signed;
};

/* Decodes one codestream (ISO/IEC 15444-1, no JP2 boxes) at full size.
 * - samples_out: (height, width), the lowest `bits` bits as an uncompressed file stores them.
 * - name: the image's name for the error text.
 * - CHEX_E_DATA: no codestream; another size or sign than `frame`; several components; more tiles
 *   than the limit; values beyond the stored bits; a missing tile, part of a tile or end mark; any
 *   error or warning of OpenJPEG.
 * - All of the header is checked before OpenJPEG allocates memory.
 * - CHEX_E_RESOURCE: out of memory. */
enum chex_status chex_j2k_decode(const uint8_t *data, size_t size, const char *name,
                                 const struct chex_j2k_frame *frame, uint16_t *samples_out,
                                 struct chex_error *err);

#endif
