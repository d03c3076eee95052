/* SPDX-License-Identifier: Apache-2.0
 *
 * DICOM against pixels recorded from pydicom (tests/peers/record_dicom.py), and files that are
 * refused. Without the module only its absence is tested.
 */
#include "image/image.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/module.h"
#include "images.h"
#include "tap.h"

static struct chex_image_reader *reader;
static struct chex_image image;

static enum chex_status load(const char *name, struct chex_error *err) {
    char path[512];
    snprintf(path, sizeof path, "%s/dicom/%s.dcm", TEST_DATA, name);
    return image_load(reader, path, &image, err);
}

/* In a process of its own: whether there is a module is asked once. */
static void check_absent(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct chex_error err = {0};
        setenv("CHEX_LIBDIR", "/nonexistent", 1);
        bool same = true;
        for (int i = 0; i < 2; i++)
            same = same && load("mono2-8", &err) == CHEX_E_ENV &&
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

static void check_recorded(void) {
    char *text = NULL, *save = NULL;
    struct chex_error err = {0};
    BAIL_UNLESS(chex_fs_read(TEST_DATA "/dicom/expected.txt", 1 << 20, &text, NULL, &err) ==
                    CHEX_OK,
                "%s", err.text);
    int files = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char name[64], hex[1024];
        int w, h;
        BAIL_UNLESS(sscanf(line, "%63s %d %d %1023s", name, &w, &h, hex) == 4, "%s", line);
        memset(&err, 0, sizeof err);
        enum chex_status st = load(name, &err);
        OK(st == CHEX_OK && image.width == w && image.height == h && image_equals_hex(&image, hex),
           "%s equals pydicom's grey %s", name, err.text);
        files++;
    }
    OK(files == 25, "%d recorded files", files);
    free(text);
}

static void check_one(const char *name, const char *needle) {
    struct chex_error err;
    OK_STATUS(load(name, &err), CHEX_E_DATA, err, needle);
    OK(strstr(err.text, ".dcm: ") && image.width == 0, "%s: named, and the sizes are 0", name);
}

static void check_truncated(const char *name) {
    char path[512];
    const uint8_t *data;
    size_t size, passed = 0;
    struct chex_error err = {0};
    snprintf(path, sizeof path, "%s/dicom/%s.dcm", TEST_DATA, name);
    BAIL_UNLESS(chex_image_read(reader, path, &data, &size, &err) == CHEX_OK, "%s", err.text);
    for (size_t n = 132; n < size; n++) {
        uint8_t *copy = malloc(n);
        memcpy(copy, data, n);
        memset(&err, 0, sizeof err);
        bool refused = chex_image_decode(reader, copy, n, "x", &image, &err) == CHEX_E_DATA;
        if (!refused)
            printf("# passed with %zu of %zu bytes\n", n, size);
        passed += !refused;
        free(copy);
    }
    OK(passed == 0, "%s: every truncation is refused (%zu passed)", name, passed);
}

int main(void) {
    struct chex_error err = {0};
    void *symbol;
    BAIL_UNLESS(chex_image_reader_create(&reader, &err) == CHEX_OK, "%s", err.text);
    check_absent();
    if (chex_module_symbol("dicom", "chexnet_image_dicom", &symbol, &err) == CHEX_OK) {
        check_recorded();
        check_one("no-rgb", "PhotometricInterpretation is 'RGB', expected MONOCHROME1");
        check_one("no-window", "WindowWidth is 0, expected 1 or more");
        check_one("no-slope", "RescaleSlope is 0");
        check_one("no-function", "VOILUTFunction is 'CURVE', expected LINEAR");
        check_one("deflated", "deflated transfer syntax");
        check_one("huge", "the limit is");
        check_one("many-frames", "2000000000 frames of 11 x 9 pixels, the limit is");
        check_one("short", "PixelData has 99 values, expected 11 x 10");
        if (CHEXNET_HAVE_OPENJPEG)
            check_one("jpeg-2000", "PixelData is no JPEG 2000 codestream");
        check_one("modality-lut", "has a modality LUT");
        check_one("no-pixels", "PixelData");
        check_one("no-voi-bits", "the VOI LUT has 17 bits, expected 8 to 16");
        check_one("no-voi-entries", "LUTData of the VOI LUT has 8 bytes, expected 5 entries of 8");
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
