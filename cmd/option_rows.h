/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the option tables of all commands. A row names only the members of struct chex_opt that
 * it uses; base/opt.h describes them.
 */
#ifndef CHEX_CMD_OPTION_ROWS_H
#define CHEX_CMD_OPTION_ROWS_H

#include "base/opt.h"

#define COUNT CHEX_COUNT

/* One option: long name, type without CHEX_OPT_, offset of the value in the settings struct; then
 * the other members, the help text last. */
#define OPTION(long_name, kind, offset, ...)                                                       \
    { .name = long_name, .type = CHEX_OPT_##kind, .at = offset, __VA_ARGS__ }

/* A heading in --help. */
#define OPTION_GROUP(text)                                                                         \
    { .type = CHEX_OPT_GROUP, .help = text }

#endif
