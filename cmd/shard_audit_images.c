/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-shard audit --near: equal and nearly equal images in two splits or in two sets.
 */
#include <stdio.h>

#include "base/result.h"
#include "base/text.h"
#include "shard/near.h"
#include "shard_commands.h"

enum { SHOWN_PAIRS = 50 };

/* Where an image is: set, split and id. */
struct place {
    const char *dir, *split, *image;
};

static struct place place_of(const struct chex_near_audit *a, size_t image) {
    const struct chex_near_image *i = &a->images[image];
    const struct chex_near_group *g = &a->groups[i->group];
    size_t row;
    const struct chex_shard *shard = chex_set_locate(g->set, i->row, &row);
    return (struct place){g->dir, chex_split_names[g->set->split], chex_shard_image_id(shard, row)};
}

static json_t *place_json(struct place p) {
    return chex_result(CHEX_FIELD("set", p.dir), CHEX_FIELD("split", p.split),
                       CHEX_FIELD("image", p.image));
}

static size_t count_same(const struct chex_near_audit *a) {
    size_t same = 0;
    for (size_t i = 0; i < a->found.count; i++)
        same += a->found.pairs[i].same;
    return same;
}

static json_t *images_json(const struct chex_near_audit *a, int bits) {
    json_t *pairs = json_array();
    for (size_t i = 0; i < a->found.count; i++) {
        const struct chex_near_pair *p = &a->found.pairs[i];
        json_array_append_new(pairs, chex_result(CHEX_FIELD("a", place_json(place_of(a, p->a))),
                                                 CHEX_FIELD("b", place_json(place_of(a, p->b))),
                                                 CHEX_MEMBER(p, distance),
                                                 CHEX_FIELD("same_pixels", p->same)));
    }
    return chex_result(
        CHEX_FIELD("schema", "chexnet-shard-audit-images"), CHEX_FIELD("version", 1),
        CHEX_FIELD("near_bits", bits), CHEX_FIELD("images", a->count), CHEX_MEMBER(a, read_s),
        CHEX_MEMBER(a, search_s), CHEX_FIELD("same_pixels", count_same(a)),
        CHEX_FIELD("pairs_complete", (bool)!a->found.more), CHEX_FIELD("pairs", pairs));
}

static void print_images(const struct chex_near_audit *a, json_t *o) {
    for (size_t i = 0; i < a->found.count && i < SHOWN_PAIRS; i++) {
        const struct chex_near_pair *p = &a->found.pairs[i];
        const struct place x = place_of(a, p->a), y = place_of(a, p->b);
        if (p->same)
            printf("same pixels: ");
        else
            printf("%2d bits:     ", p->distance);
        chex_text_printf(stdout, "%s %s %s, %s %s %s\n", x.dir, x.split, x.image, y.dir, y.split,
                         y.image);
    }
    if (a->found.count > SHOWN_PAIRS)
        printf("and %zu more pairs; --json lists them\n", a->found.count - SHOWN_PAIRS);
    chex_result_text(stdout, o,
                     "{images image} compared up to {near_bits} of 64 bits: {pairs pair}, "
                     "{same_pixels} with equal pixels; read in {read_s:t}, searched in "
                     "{search_s:t}\n");
}

static enum chex_status judge(const struct chex_near_audit *a, struct chex_error *err) {
    if (!a->found.count)
        return CHEX_OK;
    const struct chex_near_pair *p = &a->found.pairs[0];
    const struct place x = place_of(a, p->a), y = place_of(a, p->b);
    return chex_error_set(
        err, CHEX_E_DATA,
        "%s%zu pair%s of images in two splits or sets, %zu with equal pixels; the first is %s (%s "
        "%s) and %s (%s %s)",
        a->found.more ? "more than " : "", a->found.count, a->found.count == 1 ? "" : "s",
        count_same(a), x.image, x.dir, x.split, y.image, y.dir, y.split);
}

enum chex_status shard_audit_images(const char *const *sets, size_t count, int bits, int threads,
                                    bool json, struct chex_error *err) {
    struct chex_near_audit a;
    enum chex_status st = CHEX_OK;
    for (size_t i = 0; json && i < count && st == CHEX_OK; i++)
        st = chex_text_for_json("SET", sets[i], "--json", err);
    if (st != CHEX_OK)
        return st;
    st = chex_near_audit(sets, count, bits, threads, true, &a, err);
    if (st == CHEX_OK) {
        json_t *o = images_json(&a, bits);
        if (json || !o)
            st = chex_result_print(stdout, o, NULL, JSON_INDENT(1), err);
        else {
            print_images(&a, o);
            json_decref(o);
        }
    }
    if (st == CHEX_OK)
        st = judge(&a, err);
    chex_near_release(&a);
    return st;
}
