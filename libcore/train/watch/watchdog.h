/* SPDX-License-Identifier: Apache-2.0
 *
 * The stall watch: a thread per rank that notices when a run makes no progress. After `warn_ms` one
 * rank names the ranks that the others wait for. After `abort_ms` it ends the job with status 7, so
 * that a hang does not use up the allocation.
 *
 * Protocol.
 *   - Beat. The rank's main thread stores its phase and step. This costs a few stores; while ranks
 *     make progress, nothing else happens.
 *   - Stage. The first beat after CHEX_PHASE_WAIT begins a stage. All ranks begin it together,
 *     because a collective comes before it. So all ranks count the same stages. If a rank is lost
 *     in that collective, some ranks may leave it and others not: they are one stage apart.
 *   - Mark. If a stage lasts longer than the shorter limit, the watch thread publishes a mark
 *     (train/watch/stall.h) through the launcher's daemons. It repeats this every eighth of that
 * limit (1 s to 15 s). The mark gets out even if the rank's main thread hangs. Its key is the stage
 *     and the round, so ranks find each other's marks without an agreement. For the stage before,
 *     whose start a rank knows too, it publishes the same mark. So ranks one stage apart have the
 *     keys of the earlier stage in common.
 *   - Report. Each rank looks up the marks of lower ranks, by the keys of both stages. The lowest
 *     rank that answers looks up all marks and logs one line. With 1,000 ranks a round costs about
 *     2,000 look-ups, twice as many if a rank does not answer.
 *
 * What the report can tell:
 *   - a rank that waits for data, computes, saves, ...: it answers with its phase and duration;
 *   - a slow rank: it answers, and its last beat is recent;
 *   - a stopped rank (SIGSTOP, frozen cgroup) or a lost node: it does not answer and is named with
 *     its node. The two cases look the same;
 *   - a dead rank: Slurm ends the step at once and names the task, before any limit. It may not if
 *     the rank was the only one of its node; then it is named as ended;
 *   - all ranks answer from the same phase: the network or a device hangs.
 * After such a line the same rank logs what NCCL knows, if the run uses it (train/watch/ras.h).
 * If the launcher cannot publish (a single process), each rank reports only itself.
 */
#ifndef CHEX_TRAIN_WATCH_WATCHDOG_H
#define CHEX_TRAIN_WATCH_WATCHDOG_H

#include <stdint.h>

#include "base/error.h"
#include "launch/launch.h"
#include "launch/rank_sum.h"
#include "launch/reduce.h"
#include "train/watch/stall.h"

struct chex_watchdog;

/* Starts the thread, in CHEX_PHASE_SETUP of step 0. A limit of 0 is off. `launch` is borrowed. */
enum chex_status chex_watchdog_create(struct chex_launch *launch, uint64_t warn_ms,
                                      uint64_t abort_ms, struct chex_watchdog **out,
                                      struct chex_error *err);
void chex_watchdog_destroy(struct chex_watchdog *w); /* NULL allowed */

/* Gives the reduction whose bucket numbers appear in reports. Borrowed; it must outlive the watch.
 */
void chex_watchdog_reduce(struct chex_watchdog *w, const struct chex_reduce *reduce);
/* The same for the sums of --sync-bn: a rank that waits in one is not computing. */
void chex_watchdog_sums(struct chex_watchdog *w, const struct chex_rank_sum *sums);

/* From now on a stall ends the process with CHEX_E_PREEMPTED: the run has saved and is ending. NULL
 * does nothing. */
void chex_watchdog_saved(struct chex_watchdog *w);

/* `fn` runs on a thread of the watch before this process ends the job; it saves what would be lost.
 * `mark` says where this rank is, `status` is that of the process. Usually one rank of the job ends
 * it. `fn` must not wait for other ranks or for the main thread. Set it
 * before the first step. */
typedef void (*chex_on_abort_fn)(void *arg, const struct chex_mark *mark, enum chex_status status);
void chex_watchdog_on_abort(struct chex_watchdog *w, chex_on_abort_fn fn, void *arg);

/* A beat: the rank enters `phase` of step `step`, or is still alive in it. Call from one thread
 * only. NULL does nothing, here and below. */
void chex_watchdog_beat(struct chex_watchdog *w, enum chex_phase phase, uint64_t step);

/* A beat in the current step. */
void chex_watchdog_at(struct chex_watchdog *w, enum chex_phase phase);

/* A beat of CHEX_PHASE_WAIT in the current step. Call before a collective that no rank leaves
 * before all have entered it. Returns the phase before, for chex_watchdog_at after the collective.
 */
enum chex_phase chex_watchdog_wait(struct chex_watchdog *w);

/* chex_group_agree() with a beat of CHEX_PHASE_WAIT before it and of the present phase after it.
 * Collective. */
enum chex_status chex_watchdog_agree(struct chex_watchdog *w, struct chex_group *g,
                                     enum chex_status mine, struct chex_error *err);

/* The same for a wait without a time limit, because the work of another rank has none (copying the
 * shards). The other rank's watch still has its limits. Ends with the next beat. */
void chex_watchdog_wait_long(struct chex_watchdog *w);

#endif
