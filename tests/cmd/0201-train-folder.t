#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The folder of a run decides what the run resumes from. The test goes back to old checkpoints,
# cuts validations off, starts two runs at once, and tries foreign files, full disks and changed
# settings.
# shellcheck source=tests/cmd/lib.sh
source "$(dirname "$0")/lib.sh"
need h5diff chex-train chex-shard

phantom_set 60
base=(--data set --model densenet_tiny --image-size 32 --batch-size 4 --engine cpu --threads 1 --lr 1e-3 --seed 5)
common=("${base[@]}" --epochs 3)
train() { chex-train "${common[@]}" "$@"; }
same() { # FILE FILE NAME: equal parameters and moments, to the last bit
    h5diff "$1" "$2" /params /params && h5diff "$1" "$2" /moment1 /moment1 &&
        h5diff "$1" "$2" /moment2 /moment2
    ok $? "$3"
}
results() { # FILE: what the metrics say without times
    grep -v '"kind":"validation"' "$1" |
        sed -E 's/"(step_ms|epoch_s|images_per_s|slowest_ratio)":[^,}]*//g; s/"time_shares".*//'
}
step_of() { # FILE: the step in its name or that of its twin
    find "${1%%/*}/checkpoints" -samefile "$1" -name 'step-*.h5' -printf '%f\n' | tr -dc '0-9\n' | sed 's/^0*//;s/5$//'
}

expect_status 0 train --output whole
steps=$(grep -c '"kind":"step"' whole/metrics.jsonl)
per=$((steps / 3))
like "$(err)" "done: $steps steps, 3 of 3 epochs; best (val AUROC|loss) [0-9.]+ in epoch [123]; $steps steps of this start took" \
    "the end is summed up"
like "$(err)" 'time of all steps: data wait [0-9.]+ %.*; [a-z]' "the last lines have the shares of all steps and an advice"
like "$(err)" 'files: whole/best.h5, whole/last.h5' "the last lines name the files of the run"
expect_status 0 train --output quiet --max-steps 1 -q
is "$(grep -v "warn: split [a-z]*: no positives of" err)" "" "--quiet says nothing of it"

# last.h5 and best.h5 are gone on from where the numbered ones are lost.
expect_status 0 train --output lost --max-steps $((per + 2)) --checkpoint-keep 1
rm -r lost/checkpoints
expect_status 0 train --output lost
like "$(err)" "going on from step $((per + 2)) " "last.h5 alone is gone on from"
same whole/last.h5 lost/last.h5 "the weights are those of an uninterrupted run"
is "$(results lost/metrics.jsonl)" "$(results whole/metrics.jsonl)" "the metrics are those of an uninterrupted run"
expect_status 0 train --output bare --max-steps 3
rm bare/last.h5 bare/checkpoints/*.h5
expect_status 0 train --output bare --max-steps 4
like "$(err)" 'going on from step 3 ' "best.h5 alone is gone on from"
cp -r lost none
rm none/*.h5 none/checkpoints/*.h5
expect_status 3 train --output none
error_line 'none holds the metrics of a run, but no checkpoint of it: bring none/last.h5 back' \
    "metrics of epochs without any checkpoint are no new run"
is "$(results none/metrics.jsonl)" "$(results lost/metrics.jsonl)" "metrics without a checkpoint stay unchanged"
head -c 5000 whole/last.h5 >none/last.h5
expect_status 3 train --output none
error_line 'none/last.h5.*no other checkpoint in none can be read: bring one back' "a damaged last.h5 alone is an error"
mkdir -p early/checkpoints
cp whole/metrics.jsonl early
touch early/checkpoints.jsonl
expect_status 0 train --output early --max-steps 1
like "$(err)" 'ended before its first checkpoint; it starts again' "a run killed while it writes its first one starts again"

# Going back to an older checkpoint stays so.
expect_status 0 train --output back --max-steps $((2 * per)) --checkpoint-keep 2
old=back/checkpoints/step-$(printf %010d "$per").h5
late=back/checkpoints/step-$(printf %010d $((2 * per))).h5
expect_status 0 train --output back --resume "$old" --max-steps $((per + 1)) --checkpoint-keep 1
like "$(err)" "warn: $late is of step $((2 * per)), and the run goes on from step $per: kept as $late.abandoned" \
    "what came later is kept under another name"
[ -s "$late.abandoned" ] && [ ! -e "$late" ]
ok $? "the set-aside checkpoint exists"
is "$(grep -c '"kind":"step"' back/metrics.jsonl.abandoned)" $((2 * per)) "the metrics of the abandoned steps are kept"
is "$(step_of back/last.h5)" $((per + 1)) "last.h5 is of the new branch"
start=$(printf '\\x10\\x%02x\\x3a\\x02\\x08\\x01' $((per + 1))) # step N, session_log START
is "$(cat back/events.out.tfevents.* | LC_ALL=C grep -caP "$start")" 1 \
    "the event file says from which step on earlier events are void"
is "$(find back -name 'events.out.tfevents.*' | wc -l)" 2 "each start has its own event file"
[ -s back/best.h5 ]
ok $? "best.h5 exists"
expect_status 0 train --output back --checkpoint-keep 1
like "$(err)" "going on from step $((per + 1)) " "the next start goes on from there"
same whole/last.h5 back/last.h5 "the run ends with the same weights"
expect_status 0 train --output twice --resume "$late.abandoned" --max-steps $((2 * per + 1))
like "$(err)" "going on from step $((2 * per)) " "an abandoned checkpoint can be resumed from"

# The best of before comes back with its checkpoint.
expect_status 0 train --output best --max-steps $((per + 2)) --lr 1e-4
best=$(step_of best/best.h5)
expect_status 0 train --output best --max-steps $((2 * per)) --lr 1e-4
expect_status 0 train --output best --resume best/checkpoints/step-"$(printf %010d $((per + 2)))".h5 \
    --max-steps $((per + 3)) --lr 1e-9
[ -s best/best.h5 ] && [ "$(step_of best/best.h5)" -le $((per + 3)) ]
ok $? "best.h5 (of step $best before) is of this branch"

# A run that ends while it moves the names of its last checkpoint leaves old ones.
cp -a whole names
best=$(step_of whole/best.h5)
neither=$((best == per ? 2 * per : per))
old=names/checkpoints/step-$(printf %010d $neither).h5
for name in last best; do ln -f "$old" names/$name.h5; done
expect_status 0 train --output names
is "$(step_of names/last.h5) $(step_of names/best.h5)" "$((3 * per)) $best" \
    "the next start sets them, even if nothing is left to do"
for name in last best; do ln -f "$old" names/$name.h5; done
expect_status 0 train --output names --epochs 4 --max-steps $((3 * per + 1)) --lr 1e-9
cmp -s names/best.h5 whole/best.h5 || [ "$(step_of names/best.h5)" -gt $((3 * per)) ]
ok $? "a name is repaired if the file exists"
head -c 5000 names/best.h5 >cut.h5
mv cut.h5 names/best.h5
expect_status 0 train --output names --epochs 4 --max-steps $((3 * per + 2)) --lr 1e-9
like "$(err)" 'names/best.h5.*going on from|names/best.h5 is not there or is damaged' "a damaged best.h5 is reported"

# --max-steps within an epoch validates, so that best.h5 is there, and moves no schedule.
expect_status 0 train --output short --max-steps 2
like "$(err)" 'epoch 1/3, stopped at step 2 \(--max-steps\): loss .*val AUROC .*best so far' "it says so"
[ -s short/best.h5 ]
ok $? "--max-steps within the first epoch leaves a best.h5"
is "$(grep -c '"kind":"validation"' short/metrics.jsonl)" 1 "a run cut by --max-steps has one validation line"
expect_status 0 train --output short --max-steps 2
like "$(err)" 'complete at step 2; nothing to do \(raise --max-steps' "once"
expect_status 0 train --output short
same whole/last.h5 short/last.h5 "going on from there gives the same bits"
# Its first validation may have been the best one.
is "$(results short/metrics.jsonl | sed 's/"best":[a-z]*//')" "$(results whole/metrics.jsonl | sed 's/"best":[a-z]*//')" \
    "the metrics and the schedule are those of an uninterrupted run"

# A signal within a validation: left at once, and gone on with it.
chex-shard phantom --count 1200 --size 32 --seed 2 --output phv -q
chex-shard create --images phv/images --labels phv/labels.csv --size 48 --shards 1 --split patient \
    --fractions 0.02,0.96,0.02 --seed 1 --output large-val -q || fail "shards with a large val"
val=("${base[@]/set/large-val}" --image-size 48 --patience-epochs 0 --epochs 2)
expect_status 0 chex-train "${val[@]}" --output val-whole
valid=$(grep -c '"kind":"step","epoch":1,' val-whole/metrics.jsonl) # steps before the first validation
for signal in TERM HUP; do # TERM: the state before is being written; HUP: it is held back
    every=$([ $signal = TERM ] && echo "$valid")
    (trap - HUP; exec chex-train "${val[@]}" --checkpoint-every "${every:-9999}steps" \
        --output val$signal >/dev/null 2>val.err) &
    pid=$!
    wait_for grep -qs "\"step\":$valid," val$signal/metrics.jsonl
    kill -$signal $pid
    wait $pid
    is $? 6 "$signal within the validation: exit 6"
    like "$(cat val.err)" 'asked to stop: saved at step [0-9]+, before its validation' "it says where"
    [ ! -e val$signal/best.h5 ]
    ok $? "the validation had not ended"
    [ -s "val$signal/checkpoints/step-$(printf %010d "$valid").h5" ]
    ok $? "the state before the validation is on disk"
done
expect_status 0 chex-train "${val[@]}" --output valTERM
same val-whole/last.h5 valTERM/last.h5 "gone on with: the same bits"
is "$(results valTERM/metrics.jsonl)" "$(results val-whole/metrics.jsonl)" "the metrics and the schedule are those of an uninterrupted run"
chex-train "${val[@]}" --checkpoint-every "${valid}steps" --output valKILL -q &
pid=$!
wait_for test -e valKILL/last.h5
kill -KILL $pid
wait $pid 2>/dev/null
expect_status 0 chex-train "${val[@]}" --output valKILL
is "$(results valKILL/metrics.jsonl)" "$(results val-whole/metrics.jsonl)" "killed within a validation: the same too"

# One run at a time. Without a standard error its lock file must not be written to in place of that.
mkdir busy
chex-train "${base[@]}" --epochs 100000 --output busy 2>&- &
pid=$!
wait_for test -e busy/metrics.jsonl
expect_status 4 train --output busy
error_line "busy is in use by process $pid on .*: wait for that run to end, or name a new folder" \
    "a second run on one folder is refused"
kill -KILL $pid
wait $pid 2>/dev/null
expect_status 0 train --output busy --max-steps 1
# A folder that is removed while a run uses it, and then used by another run.
expect_status 0 train --output other --max-steps 1
chex-train "${base[@]}" --data-weights 1000 --epochs 1 --output again 2>again.err &
pid=$!
wait_for grep -qs '"step":2,' again/metrics.jsonl # no checkpoint until the end of the epoch
rm -r again
mv other again
kill -USR2 $pid
wait $pid
is $? 4 "a run whose folder another run has made again ends with 4"
like "$(cat again.err)" 'error: output folder again was removed while this run used it, and holds another run now: nothing more is written there$' \
    "its text says why"
is "$(cd again/checkpoints && echo *)" step-0000000001.h5 "it leaves no checkpoint in the folder of the other"

if have strace; then # a file system without locks: the text decides
    nolock=(strace -f -qq -o /dev/null -P busy/.lock -e inject=fcntl:error=ENOLCK)
    locked() { # TEXT STATUS NAME
        echo "$1" >busy/.lock
        expect_status "$2" "${nolock[@]}" chex-train "${common[@]}" --output busy --max-steps 1
        like "$(err)" "$3" "$1: $3"
    }
    sleep 600 &
    at_exit kill $!
    here=$(uname -n)
    if "${nolock[@]}" true 2>/dev/null; then
        locked "host ${here%%.*} pid $! job -" 4 "in use by process $! on ${here%%.*}"
        locked "host elsewhere pid 1 job 7" 4 'process 1 on elsewhere, job 7: .*if it has ended, remove busy/.lock'
        locked "host ${here%%.*} pid $pid job -" 0 'complete'
    else
        skip "strace cannot trace here" 6
    fi
else
    skip "no strace here" 6
fi

# Files of others.
mkdir slurm && touch slurm/slurm-1.out slurm/.nfs0001 slurm/last.h5.tmp.k3x09qwz
expect_status 0 train --output slurm --max-steps 1
touch slurm/report.tmp.doc slurm/last.h5.tmp.k3x09qw1 slurm/my.tmp.k3x09qwz
expect_status 0 train --output slurm --max-steps 1
is "$(cd slurm && echo *tmp*)" 'my.tmp.k3x09qwz report.tmp.doc' "only our own temporary files are removed"
for name in config.json photo.png; do
    rm -rf other && mkdir other && touch other/$name
    expect_status 2 train --output other
    error_line "output folder other holds no training run, but other files \($name\)" "a folder with another's $name"
    is "$(ls -A other)" $name "a folder with other files keeps them"
done

# Settings that change on the way.
expect_status 0 train --output slurm --max-steps 2 --lr 2e-3 --sched cosine --crop-scale 0.6
like "$(err)" "changed since slurm/checkpoints/step-0000000001.h5: max-steps '1' -> '2', lr '0.001' -> '0.002', sched 'plateau' -> 'cosine', crop-scale '0.5' -> '0.6'" \
    "one line names them, old and new"
expect_status 2 train --output slurm --image-size 48
error_line 'image_size is 32 in the checkpoint and 48 now' "another image size is refused"

# The newest checkpoint is named where the loss is no number.
expect_status 8 train --lr 1000 --opt sgd --weight-decay 1000 --output boom
error_line 'lower --lr.*; no checkpoint was written' "the error says that there is no checkpoint"

# Space.
mkdir full
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=3m tmpfs full 2>/dev/null; then
    at_exit umount full
    expect_status 9 train --max-steps 2 --output full/run
    error_line 'a checkpoint takes [0-9.]+ MiB and full/run has only [0-9.]+ MiB free' "no space for one checkpoint"
    mount -o remount,size=8m full
    mkdir -p full/run/checkpoints
    head -c 4M /dev/zero >full/run/checkpoints/step-0000000009.h5.tmp.k3x09qwz # killed while it wrote
    expect_status 9 train --max-steps 2 --checkpoint-every 1steps --output full/run
    like "$(err)" 'warn: full/run has [0-9.]+ MiB free, and the checkpoints of this run take up to [0-9.]+ MiB more' \
        "a warning where not all fit"
    error_line 'No space left on device.*; make room and run again: it goes on from full/run/checkpoints/step-0000000001.h5$' \
        "a full disk, and what is left"
    is "$(find full -name '*.h5.tmp*' | wc -l)" 0 "leaves no half-written checkpoint"
else
    skip "cannot mount a tmpfs here" 6
fi

# A measurement ends on a signal.
for signal in INT TERM; do
    (trap - INT; exec chex-train --bench 1000000 --model densenet_tiny --image-size 32 --batch-size 1 --engine cpu --threads 1 >/dev/null 2>&1) &
    pid=$!
    usr2_set $pid chex-train SigCgt
    kill -$signal $pid
    wait $pid
    is $? 6 "--bench ends on $signal"
done
done_testing
