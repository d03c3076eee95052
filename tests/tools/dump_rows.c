/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: dump_rows SHARDS SPLIT OUTPUT
 * Writes the rows of a split as libcore reads them: for each row in order the pixels (size, size)
 * and the labels (classes), a byte each. Prints image id, tab and patient id of each row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard/shard.h"

static enum chex_status dump(const struct chex_set *set, FILE *to, struct chex_error *err) {
    const size_t bytes = (size_t)set->size * (size_t)set->size, classes = (size_t)set->classes;
    uint8_t *pixels = malloc(bytes);
    enum chex_status st = pixels ? CHEX_OK : chex_error_memory(err, NULL);
    for (size_t row = 0; st == CHEX_OK && row < set->rows; row++) {
        size_t at;
        const struct chex_shard *s = chex_set_locate(set, row, &at);
        st = chex_shard_read(s, at, 1, true, pixels, err);
        if (st == CHEX_OK && (fwrite(pixels, 1, bytes, to) != bytes ||
                              fwrite(chex_shard_labels(s, at), 1, classes, to) != classes))
            st = chex_error_set(err, CHEX_E_RESOURCE, "the output: cannot write");
        printf("%s\t%s\n", chex_shard_image_id(s, at), chex_shard_patient_id(s, at));
    }
    free(pixels);
    return st;
}

int main(int argc, char **argv) {
    int split = 0;
    while (argc == 4 && chex_split_names[split] && strcmp(chex_split_names[split], argv[2]) != 0)
        split++;
    if (argc != 4 || !chex_split_names[split]) {
        fprintf(stderr, "usage: dump_rows SHARDS SPLIT OUTPUT\n");
        return CHEX_E_USAGE;
    }
    struct chex_error err = {0};
    struct chex_set *set = NULL;
    enum chex_status st = chex_set_open(argv[1], (enum chex_split)split, 0, SIZE_MAX, &set, &err);
    FILE *to = st == CHEX_OK ? fopen(argv[3], "wb") : NULL;
    if (st == CHEX_OK)
        st = to ? dump(set, to, &err)
                : chex_error_set(&err, CHEX_E_RESOURCE, "%s: cannot write", argv[3]);
    if (to && fclose(to) != 0 && st == CHEX_OK)
        st = chex_error_set(&err, CHEX_E_RESOURCE, "%s: cannot write", argv[3]);
    chex_set_close(set);
    if (st != CHEX_OK)
        fprintf(stderr, "dump_rows: %s\n", err.text);
    return (int)st;
}
