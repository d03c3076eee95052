/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: dump_rows SHARDS SPLIT OUTPUT
 * Writes the rows of a split as libcore reads them: for each row in order the pixels (size, size)
 * and the labels (classes), a byte each. Prints image id, tab and patient id of each row.
 */
#include "shard/shard.h"
#include "tool.h"

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
    must(chex_set_open(argv[1], (enum chex_split)split, 0, SIZE_MAX, &set, &err), &err);
    FILE *to = open_output(argv[3]);
    const size_t bytes = (size_t)set->size * (size_t)set->size;
    uint8_t *pixels = take(bytes, 1);
    for (size_t row = 0; row < set->rows; row++) {
        size_t at;
        const struct chex_shard *s = chex_set_locate(set, row, &at);
        must(chex_shard_read(s, at, 1, true, pixels, &err), &err);
        put(pixels, bytes, to);
        put(chex_shard_labels(s, at), (size_t)set->classes, to);
        printf("%s\t%s\n", chex_shard_image_id(s, at), chex_shard_patient_id(s, at));
    }
    free(pixels);
    close_output(to);
    chex_set_close(set);
    return 0;
}
