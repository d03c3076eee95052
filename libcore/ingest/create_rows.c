/* SPDX-License-Identifier: Apache-2.0
 *
 * What the other files of create look up: the file of a row, whether it equals a row of a shard,
 * what the manifest says, and when a run is hopeless. Nothing here changes the run.
 */
#include <string.h>

#include "base/fs.h"
#include "ingest/create_private.h"

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

const char *chex_create_difference(const struct chex_create *c, size_t r,
                                   const struct chex_shard *s, size_t i) {
    const struct chex_label_row *row = &c->table->rows[r];
    const char *study = chex_shard_study_id(s, i);
    const int age = row->age_years < INT16_MAX ? row->age_years : INT16_MAX;
    if (strcmp(row->image_id, chex_shard_image_id(s, i)) != 0)
        return "image id";
    if (strcmp(row->patient_id, chex_shard_patient_id(s, i)) != 0)
        return "patient";
    if (strcmp(row->study_id ? row->study_id : "", study ? study : "") != 0)
        return "study";
    if (memcmp(row->labels, chex_shard_labels(s, i), c->table->class_count) != 0)
        return "labels";
    if (row->view != chex_shard_view(s, i))
        return "view";
    if (age != chex_shard_age_years(s, i))
        return "age";
    if (row->sex != chex_shard_sex(s, i))
        return "sex";
    if (c->origin && c->origin->content[r] != chex_shard_checksum(s, i))
        return "checksum";
    return NULL;
}

struct chex_create_facts chex_create_facts(const struct chex_create *c) {
    const struct chex_manifest *old = c->origin ? c->origin->manifest : NULL;
    if (old)
        return (struct chex_create_facts){old->resize, old->label_format, old->uncertain,
                                          old->split_mode, old->png16 ? old->png16 : "unknown"};
    return (struct chex_create_facts){CHEX_RESIZE_NAME, c->table->format,
                                      chex_uncertain_names[c->o->uncertain],
                                      chex_split_mode_names[c->o->split_mode], CHEX_IMAGE_PNG16};
}
