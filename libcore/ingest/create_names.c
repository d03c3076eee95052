/* SPDX-License-Identifier: Apache-2.0
 *
 * What the other files of create look up: the file of a row, the name of a shard, and when a run is
 * hopeless. Nothing here changes the run.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "image/resize.h"
#include "ingest/create_private.h"
#include "shard/shard_write.h"

/* If the image id is the bare file name, folders of the path need not match. Otherwise the id
 * contains folders because names repeat, and the whole path must match. */
const struct chex_folder_file *chex_create_find(const struct chex_create *c, size_t row,
                                                const struct chex_folder_file **rival_out) {
    const struct chex_label_row *r = &c->table->rows[row];
    bool by_name = strcmp(chex_fs_name(r->path), r->image_id) == 0;
    return by_name ? chex_folder_find(c->folder, r->path, rival_out)
                   : chex_folder_find_whole(c->folder, r->path, rival_out);
}

bool chex_create_hopeless(const struct chex_create *c, size_t bad, size_t count) {
    return bad > c->o->max_bad + CHEX_BAD_MARGIN + count / 10;
}

static uint64_t mix_text(uint64_t h, const char *text) {
    return chex_hash64_mix(h, text, strlen(text) + 1);
}

bool chex_create_same_study(const struct chex_label_row *row, const struct chex_shard *s,
                            size_t i) {
    const char *there = chex_shard_study_id(s, i);
    return strcmp(row->study_id ? row->study_id : "", there ? there : "") == 0;
}

const char *chex_create_resize_name(const struct chex_create *c) {
    return c->origin ? c->origin->manifest->resize : CHEX_RESIZE_NAME;
}

/* Digest of everything that the shard's bytes depend on. The content of an image file is
 * represented by its size and modification time. */
static uint64_t shard_key(const struct chex_create *c, const struct chex_layout_shard *s) {
    const struct chex_label_table *t = c->table;
    uint64_t numbers[] = {CHEX_SHARD_VERSION,
                          CHEX_CREATE_REVISION,
                          (uint64_t)c->o->size,
                          s->split,
                          s->index,
                          s->count};
    uint64_t h = chex_hash64_mix(0, numbers, sizeof numbers);
    h = mix_text(h, c->o->tool_version);
    h = mix_text(h, chex_create_resize_name(c));
    for (size_t i = 0; i < t->class_count; i++)
        h = mix_text(h, t->classes[i]);
    for (size_t i = 0; i < s->row_count; i++) {
        const struct chex_label_row *r = &t->rows[s->rows[i]];
        int64_t facts[] = {0, 0, r->view, r->age_years, r->sex};
        if (c->origin) {
            facts[0] = (int64_t)c->origin->content[s->rows[i]];
        } else {
            facts[0] = (int64_t)c->files[s->rows[i]]->bytes;
            facts[1] = c->files[s->rows[i]]->modified_ns;
        }
        h = mix_text(h, r->image_id);
        h = mix_text(h, r->patient_id);
        h = mix_text(h, r->study_id ? r->study_id : "");
        h = chex_hash64_mix(h, r->labels, t->class_count);
        h = chex_hash64_mix(h, facts, sizeof facts);
    }
    return h;
}

char *chex_create_shard_path(const struct chex_create *c, const struct chex_layout_shard *shard) {
    char *name = chex_layout_shard_name(shard);
    char *path = name ? chex_fs_format("%s/%s.%016llx.h5", c->partial, name,
                                       (unsigned long long)shard_key(c, shard))
                      : NULL;
    free(name);
    return path;
}
