/* SPDX-License-Identifier: Apache-2.0
 *
 * Logs what a run is about to do.
 */
#ifndef CHEX_TRAIN_DESCRIBE_H
#define CHEX_TRAIN_DESCRIBE_H

#include "train/session.h"

void chex_session_describe(const struct chex_session *s);

#endif
