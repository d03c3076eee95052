/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target once over every file of the folders and files named on the command line: the
 * corpus as a test in builds without a fuzzer.
 */
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

static size_t files;

static int replay(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)ftw;
    if (kind != FTW_F)
        return 0;
    size_t size = (size_t)st->st_size;
    uint8_t *bytes = malloc(size ? size : 1); /* exactly as large: a sanitizer sees an overrun */
    FILE *f = fopen(path, "rb");
    if (!bytes || !f || fread(bytes, 1, size, f) != size) {
        printf("Bail out! cannot read %s\n", path);
        exit(1);
    }
    fclose(f);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    files++;
    return 0;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (nftw(argv[i], replay, 16, FTW_PHYS) != 0) {
            printf("Bail out! cannot walk %s\n", argv[i]);
            return 1;
        }
    printf("%sok 1 - %zu inputs\n1..1\n", files ? "" : "not ", files);
    return files == 0;
}
