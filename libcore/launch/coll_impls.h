/* SPDX-License-Identifier: Apache-2.0
 *
 * The collective libraries that are compiled in; the others are modules.
 */
#ifndef CHEX_LAUNCH_COLL_IMPLS_H
#define CHEX_LAUNCH_COLL_IMPLS_H

#include "launch/coll.h"

extern const struct chex_coll_impl chex_coll_self;

#endif
