#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A preemption signal in the first moments makes chex-train save. The other commands continue.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

phantom_set 40
common=(--data set --model densenet_tiny --image-size 32 --batch-size 2 --engine cpu --threads 1 --epochs 100000 -q)

for signal in USR2 TERM INT; do
    # INT is ignored by what a script starts in the background, until chex-train handles it.
    chex-train "${common[@]}" --output "run-$signal" 2>err &
    pid=$!
    usr2_set $pid chex-train SigCgt && kill "-$signal" $pid
    wait $pid
    is $? 6 "$signal as soon as chex-train can take it: saved, status 6"
done
(trap '' USR2 && exec chex-train "${common[@]}" --output ignored) 2>err &
pid=$!
usr2_set $pid chex-train SigCgt && kill -USR2 $pid
wait $pid
is $? 6 "whoever started it may have ignored USR2"

chex-env >env.out 2>&1
want=$?
chex-env >env.out 2>&1 &
pid=$!
while usr2_set $pid chex-env SigIgn && kill -USR2 $pid 2>/dev/null; do
    sleep 0.02
done
wait $pid
is $? $want "chex-env goes on under USR2"

# The signals are set before the command line is read.
echo 'log-level = info' >options.conf
if have strace && strace -o /dev/null true 2>/dev/null; then
    for command in train eval shard env; do
        strace -f -qq -e trace=rt_sigaction,openat -o trace "chex-$command" \
            --config "$PWD/options.conf" --print-config >/dev/null 2>&1
        is "$(grep -oE 'SIGUSR2|options.conf' trace | head -n 1)" SIGUSR2 "chex-$command: signals come first"
    done
else
    skip "no strace here" 4
fi
done_testing
