/* SPDX-License-Identifier: Apache-2.0
 *
 * DIR/provenance.json: from what the states of a run were computed.
 *
 * `starts` has one object for each start of the run whose steps still count: the step from which it
 * went on, the digests of data, program and --init, the engines and devices of the ranks, the
 * options, and at its end its energy (launch/energy.h), if it is known. A start that goes on from
 * step N replaces the starts at N and after it. `checkpoints` has the lines of checkpoints.jsonl
 * (train/store/checkpoint_log.h), as they were when the last start began or ended.
 */
#ifndef CHEX_TRAIN_STORE_PROVENANCE_H
#define CHEX_TRAIN_STORE_PROVENANCE_H

#include "train/session.h"

#define CHEX_PROVENANCE "provenance.json"

/* What one rank computes with. Ranks send it to each other as bytes. */
struct chex_machine {
    char engine[32], variant[64], precision[16];
    char device[160]; /* the processor, or the GPU and its UUID */
};
void chex_machine_of(const struct chex_session *s, struct chex_machine *out);
/* "cpu:avx2, fp32": two machines with the same text get the same bits from the same batch, as far
 * as their names tell. Returns `text`. */
enum { CHEX_MACHINE_BITS_BYTES = 128 };
const char *chex_machine_bits(const char *engine, const char *variant, const char *precision,
                              char text[CHEX_MACHINE_BITS_BYTES]);

/* Adds this start, before its first step. Rank 0 writes the file. Collective. */
enum chex_status chex_provenance_begin(struct chex_session *s, struct chex_error *err);
/* Writes the checkpoints and the energy of this start. Rank 0. */
enum chex_status chex_provenance_end(struct chex_session *s, struct chex_error *err);

/* Reads the file of a run. *out: NULL if there is none; the caller releases it. CHEX_E_DATA: it is
 * damaged. */
enum chex_status chex_provenance_read(const char *dir, json_t **out, struct chex_error *err);
/* The start that computed the state after `step`; NULL: unknown. Borrowed from `provenance`, which
 * may be NULL. */
json_t *chex_provenance_start_of(const json_t *provenance, uint64_t step);

#endif
