#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Four nodes with one task and a network each, and Slurm's default TreeWidth. If one node lacks the command,
# or its only task dies, the daemon of its step is gone; PMIx of other nodes then stalls when it is asked for
# values of that node. chex-env and the stall report still name that node, and no other. Faults of a folder
# on some nodes alone are faults of these nodes.
# shellcheck disable=SC2016
. "$(dirname "$0")/lib.sh"
slurm_fixture --own --nodes 4 --network own --set TaskPlugin=task/none
need_training
[ -x "$BUILD/lib/chexnet-slurm-step" ] || skip_all "built without libslurm"
on_all() { in_job -N4 -n4 --ntasks-per-node=1 "$@"; }
is "$(grep -c '^TreeWidth' "$SLURM_CONF") $(on_all ip -4 -o addr show eth0 | grep -o '10\.[0-9.]*/' | sort | tr '\n' ' ')" \
    "0 10.203.0.10/ 10.203.0.11/ 10.203.0.12/ 10.203.0.13/ " "each node has its own network, and TreeWidth its default"

# on NODE,... COMMAND -- REST...: COMMAND (shell text) first on these nodes, then REST on all of them.
cat >on <<'END'
#!/bin/bash
nodes=,$1, first=$2
shift 3
[[ $nodes != *,$SLURMD_NODENAME,* ]] || eval "$first"
exec "$@"
END
chmod +x on
# Each case waits for its ranks for 11 s, so they run side by side.
run() { # NAME NODE COMMAND -- REST...: output in NAME.out and NAME.err, status in NAME.rc
    on_all --cpu-bind=none ./on "${@:2}" >"$1.out" 2>"$1.err"
    echo $? >"$1.rc"
}
for node in n0 n1 n2 n3; do
    run lacks-$node $node 'exit 127' -- chex-env --timeout 1s &
done
run early n2 'sleep 1; kill -9 $$' -- chex-env --timeout 1s &
mkdir none
export without=--export="ALL,CHEX_LIBDIR=$PWD/none"
on_all "$without" ./on n1 'exec sleep 40' -- chex-env --timeout 1s >silent.out 2>silent.err &
on_all "$without" ./on n1 'exit 127' -- chex-env --timeout 1s >guess.out 2>guess.err &
wait
named() { # NAME NODE LABEL: the table blames the node, and no text names another one
    is "$(grep -cE '^(ranks|check) ' "$1.out") $(cat "$1".??? | grep -oE 'rank [0-9]+ \(n[0-9]\)' | sed 's/.*(//' | sort -u)" "2 $2)" "$3"
    is "$(grep -c 'fault: ' "$1.out") $(grep -c 'fault: node' "$1.out")" "1 1" "$3: its fault"
}
for node in n0 n1 n2 n3; do
    named lacks-$node $node "$node, which lacks the command, is named alone"
done
named early n2 "a node whose task dies early is named alone"
named silent n1 "one silent node is named without libslurm"
# If look-ups of several nodes fail, the fault is unknown; if only the right one fails, it is named.
like "$(cat guess.out)" "fault: (unknown|node)" "without libslurm there is a table of lost ranks"
unlike "$(cat guess.*)" 'rank [023] \(n' "without libslurm no node that runs is named"

# Training. Slurm may notice the death at once and end the step.
phantom_shards 80 4
for node in n0 n2; do
    run dies-$node $node "(until [ -s $node/metrics.jsonl ]; do sleep 0.1; done; kill -9 \$\$) &" -- \
        chex-train --data shards --image-size 32 --batch-size 2 --engine cpu --threads 1 --seed 3 --epochs 100000 -q \
        --stall-warn 1500ms --stall-abort 8s --output $node &
done
run dies-env n1 '(sleep 0.3; kill -9 $$) &' -- chex-env --timeout 1s &
wait
for node in n0 n2; do
    like "$(cat dies-$node.err)" "$node: task ${node#n}: Killed" "srun names the task of $node that was killed"
    if grep -q 'error: stalled' dies-$node.err; then
        is "$(cat dies-$node.rc)" 7 "a run that lost $node ends with 7"
        like "$(cat dies-$node.err)" "error: stalled: .*; rank ${node#n} on $node has ended; [^;]* wait; ending the job" \
            "the stall report names the rank of $node that has ended"
        unlike "$(cat dies-$node.err)" "not answer|did not come" "no other rank of a run that lost $node is named"
    else
        skip "Slurm has ended the step at once" 3
    fi
done
if [ -s dies-env.out ]; then
    unlike "$(cat dies-env.*)" 'rank [023] \(n' "no node but that of a killed chex-env is named"
else
    like "$(cat dies-env.err)" 'n1: task 1: Killed' "a chex-env that is killed is named by srun"
fi

# Folders that fail on some nodes only.
expect_status 5 on_all ./on n1,n3 'mkdir -p /dev/shm/tmp; mount -t tmpfs -o ro none /dev/shm/tmp' -- \
    bash -c 'mkdir -p /dev/shm/tmp; TMPDIR=/dev/shm/tmp exec chex-env'
like "$(out)" '^tmpdir +fail +rank 1 \(n1\), rank 3 \(n3\): /dev/shm/tmp: ' "all nodes with the fault are named"
like "$(out)" 'remedy: the other nodes are fine: leave out with --exclude=n1,n3; or there: set TMPDIR' "the remedy leaves them out"
expect_status 4 on_all ./on n1,n2,n3 'mount -t tmpfs -o ro none /dev/shm/tmp' -- bash -c 'TMPDIR=/dev/shm/tmp exec chex-env'
like "$(out)" '^tmpdir +fail +rank 1 \(n1\), rank 2 \(n2\), rank 3 \(n3\)' "most nodes"
expect_status 4 on_all env TMPDIR=/nosuch chex-env
like "$(out)" '^tmpdir +fail +rank 0 \(n0\), as all others: /nosuch' "a folder that is missing on all nodes is the user's fault"

# A folder of results that is another one on each node.
expect_status 4 on_all chex-env --output /dev/shm
like "$(out)" '^output +fail +rank 1 \(n1\), rank 2 \(n2\), rank 3 \(n3\): /dev/shm is not the folder of rank 0 \(n0\)' \
    "a folder of results of each node's own is refused"
expect_status 0 on_all chex-env --output "$PWD/run"
expect_status 4 on_all bash -c 'ulimit -f 0; exec chex-env'
like "$(out)" '^file-size +fail +rank 0 \(n0\), as all others: 0 B' "a limit of file sizes is the user's fault"

# What an ended job left in /dev/shm, and what a running one has there.
fill='mount -o remount,size=80m /dev/shm && head -c 83500000 /dev/zero >/dev/shm/left'
for mode in health prolog; do
    expect_status 5 in_job -N1 -w n2 bash -c "$fill && chown 12345 /dev/shm/left && chex-env --mode $mode"
    like "$(out)" '^shm +fail .*; users without a process here left 7[0-9.]* MiB' "mode $mode finds what an ended job left in /dev/shm"
    like "$(out)" 'remedy: ended jobs left files: remove them, first /dev/shm/left of uid 12345' "mode $mode names file and user"
    expect_status 0 in_job -N1 -w n2 bash -c "$fill && chown 12345 /dev/shm/left && { setpriv --reuid=12345 --clear-groups sleep 20 & } && sleep 0.5; chex-env --mode $mode; s=\$?; kill %1; exit \$s"
    like "$(out)" '^shm +warn' "files of a user with a process there drain no node in mode $mode"
done
done_testing
