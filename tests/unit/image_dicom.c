/* SPDX-License-Identifier: Apache-2.0
 *
 * DICOM against pixels recorded from pydicom (tests/peers/record_dicom.py), and files that are
 * refused. Without the module only its absence is tested.
 */
#include "image/image.h"

#include <sys/wait.h>

#include "base/module.h"
#include "image_bytes.h"
#include "tap.h"

static enum chex_status load(const char *name) {
    return image_load(reader, data_path("dicom/%s.dcm", name), &image, &err);
}

/* In a process of its own: whether there is a module is asked once. */
static void check_absent(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        setenv("CHEX_LIBDIR", "/nonexistent", 1);
        bool same = true;
        for (int i = 0; i < 2; i++)
            same = same && load("mono2-8") == CHEX_E_ENV &&
                   strstr(err.text, "mono2-8.dcm is DICOM: module chexnet-dicom.so: ") &&
                   strstr(err.text, "CHEX_WITH_DICOM=ON");
        printf("# %s\n", err.text);
        fflush(stdout);
        _exit(same ? 0 : 1);
    }
    int status = -1;
    OK(child > 0 && waitpid(child, &status, 0) == child && status == 0,
       "without the module: an environment error with the remedy, each time");
    uint8_t bytes[132] = {0};
    memcpy(bytes + 128, "DICM", 4);
    OK(chex_image_format(bytes, 132) && !strcmp(chex_image_format(bytes, 132), "dicom"),
       "DICOM is recognised by its bytes");
    OK(!chex_image_format(bytes, 131), "by all of them");
}

static void check_file(const char *name, const char *needle) {
    OK_STATUS(load(name), CHEX_E_DATA, err, needle);
    OK(strstr(err.text, ".dcm: ") && image.width == 0, "%s: named, and the sizes are 0", name);
}

static void check_truncated(const char *name) {
    struct bytes *b = bytes_read(data_path("dicom/%s.dcm", name));
    const size_t passed = cuts_that_pass(b, 132, "x: ");
    OK(passed == 0, "%s: every truncation is refused (%zu passed)", name, passed);
    free(b);
}

int main(void) {
    void *symbol;
    MUST(chex_image_reader_create(&reader, &err));
    check_absent();
    if (chex_module_symbol("dicom", "chexnet_image_dicom", &symbol, &err) == CHEX_OK) {
        check_recorded_pixels("dicom", "dcm", 25, "pydicom's grey");
        check_file("no-rgb", "PhotometricInterpretation is 'RGB', expected MONOCHROME1");
        check_file("no-window", "WindowWidth is 0, expected 1 or more");
        check_file("no-slope", "RescaleSlope is 0");
        check_file("no-function", "VOILUTFunction is 'CURVE', expected LINEAR");
        check_file("deflated", "deflated transfer syntax");
        check_file("huge", "the limit is");
        check_file("many-frames", "2000000000 frames of 11 x 9 pixels, the limit is");
        check_file("short", "PixelData has 99 values, expected 11 x 10");
        if (CHEXNET_HAVE_OPENJPEG)
            check_file("jpeg-2000", "PixelData is no JPEG 2000 codestream");
        check_file("modality-lut", "has a modality LUT");
        check_file("no-pixels", "PixelData");
        check_file("no-voi-bits", "the VOI LUT has 17 bits, expected 8 to 16");
        check_file("no-voi-entries", "LUTData of the VOI LUT has 8 bytes, expected 5 entries of 8");
        check_truncated("mono2-12-window");
        check_truncated("implicit");
        check_truncated("jpeg-lossless");
        check_truncated("jpeg-baseline");
        check_truncated("voi-lut-packed");
        check_truncated("rle");
        check_truncated("jpeg-ls");
    } else {
        printf("# %s: no more is tested\n", err.text);
    }
    chex_image_release(&image);
    chex_image_reader_destroy(reader);
    return tap_done();
}
