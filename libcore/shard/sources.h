/* SPDX-License-Identifier: Apache-2.0
 *
 * The sets of --data: one folder of shards, or several with names.
 */
#ifndef CHEX_SHARD_SOURCES_H
#define CHEX_SHARD_SOURCES_H

#include "base/error.h"

struct chex_sources {
    struct chex_source {
        char *name, *dir;
    } * set;
    int count;
};

/* Parses "DIR" or "DIR,DIR,..." where DIR may be NAME=DIR. The name of a folder is its last part.
 * An existing folder is one set, whatever is in its name. The caller calls chex_sources_release,
 * after an error too. CHEX_E_USAGE: an empty name, a name or a folder twice, a name that cannot be
 * a folder.
 */
enum chex_status chex_sources_parse(const char *text, struct chex_sources *out,
                                    struct chex_error *err);
void chex_sources_release(struct chex_sources *s);

#endif
