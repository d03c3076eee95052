/* SPDX-License-Identifier: Apache-2.0
 *
 * --audit-steps N: finds devices that compute wrong numbers without an error.
 *
 * A processor or GPU with a silent fault gives wrong gradients, and the run looks healthy
 * (Hochschild et al., "Cores that don't count", HotOS 2021; Dixit et al., "Silent data corruptions
 * at scale", 2021). Every rank has the same parameters, and a batch is a function of seed and
 * position. So any rank can repeat the pass of any logical rank, and must get the same bits.
 *
 * Every N steps:
 *   1. The audited rank hashes the gradient of one of its logical ranks, before it is added.
 *   2. The auditor, another rank, reads the same batch from the shards, repeats the pass and
 * hashes.
 *   3. All ranks compare digests of their parameters, which must be equal too.
 * If the hashes differ, a third rank repeats the pass and decides, and the other two do it once
 * more: a fault that shows again is one of the device, another one is a transient. The run then
 * ends with CHEX_E_NODE. Its text names rank, node and device. The checkpoints since the last step
 * at which the accused ranks passed an audit are set aside (.abandoned), so that the next start
 * goes back before them.
 *
 * The audited rank rotates (train/watch/pass_audit_rules.h). Before the first step all ranks repeat
 * the same pass: a device that is always wrong does not begin the run, and kinds of devices with
 * different bits are refused. With two ranks there is no third: both are named, and
 * neither is accused.
 * One rank repeats its own pass: a device that is always wrong stays unnoticed.
 *
 * Cost: one more pass in every N steps, a hash of the gradient and of the parameters, and memory
 * for a gradient and a state.
 */
#ifndef CHEX_TRAIN_WATCH_PASS_AUDIT_H
#define CHEX_TRAIN_WATCH_PASS_AUDIT_H

#include "train/session.h"

/* Makes s->audit with --audit-steps, else leaves it NULL. Not with --sync-bn or --pipeline old.
 * CHEX_E_ENV: ranks have engines with different bits. Collective. */
enum chex_status chex_pass_audit_open(struct chex_session *s, struct chex_error *err);
void chex_pass_audit_close(struct chex_session *s); /* without an audit it does nothing */

/* All ranks repeat the first pass of logical rank 0, twice. CHEX_E_NODE: a rank differs from more
 * than half of the ranks, or from itself. CHEX_E_ENV: ranks with another kind of device differ.
 * Logs the cost. Collective. */
enum chex_status chex_pass_audit_first(struct chex_session *s, struct chex_error *err);

/* Prunes the checkpoints of a run with audits, so that one remains from which the run can go back
 * before a fault. Rank 0; does nothing on the others and without audits. */
void chex_pass_audit_prune(const struct chex_session *s);

/* Extra time of an audit as a share of the time without, at least: one pass in N steps. */
double chex_pass_audit_share(const struct chex_session *s);

/* chex_engine_pass with the reduction, for logical rank v of the present step. If the pass is
 * audited, its gradient is hashed before the reduction gets it. */
enum chex_status chex_pass_audit_step_pass(struct chex_session *s, const struct chex_ready *ready,
                                           int v, struct chex_pass_result *result_out,
                                           struct chex_error *err);

/* Repeats the audited pass and compares, in a step that is audited; else returns CHEX_OK at once.
 * Comes after the reduction and before the update. CHEX_E_NODE as above. Collective. */
enum chex_status chex_pass_audit_compare(struct chex_session *s, struct chex_error *err);

#endif
