#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# If the launcher's PMIx server stops or is killed while ranks wait for each other, each rank ends
# with status 7. Rank 1 never starts, so that the others are in an exchange.
source "$(dirname "$0")/lib.sh"
have chex-env || skip_all "chex-env is not built"
cat >rank.sh <<'END'
#!/bin/bash
rank=$OMPI_COMM_WORLD_RANK
echo $$ >pid$rank
[ "$rank" != 1 ] || exec sleep 600
"$@" >out$rank 2>err$rank
echo $? >status$rank
END
chmod +x rank.sh
mpi_ranks 3 || skip_all "mpirun does not start three ranks here"

# written FILE...: whether all are.
written() {
    local f
    for f; do [ -s "$f" ] || return 1; done
}
# waits RANK COMMAND: whether its process, which must have become COMMAND, uses no processor: it waits for rank 1.
waits() {
    local pid was
    pid=$(pgrep -P "$(cat "pid$1")" -x "$2") && was=$(cut -d' ' -f3,14,15 "/proc/$pid/stat" 2>/dev/null) || return
    sleep 0.5
    [[ $was = S* ]] && [ "$was" = "$(cut -d' ' -f3,14,15 "/proc/$pid/stat" 2>/dev/null)" ]
}

# end_job MPIRUN: what is left of it, by its ids.
end_job() {
    local pid
    # shellcheck disable=SC2013 # one word a file
    for pid in $(cat pid0 pid1 pid2 2>/dev/null); do
        # shellcheck disable=SC2046 # several ids
        kill -9 $(ps -o pid= --ppid "$pid") "$pid" 2>/dev/null
    done
    kill -CONT "$1" 2>/dev/null
    kill -9 "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}

# without_server SIGNAL COMMAND...: sends it to mpirun once ranks 0 and 2 wait for rank 1.
without_server() {
    local signal=$1 job
    shift
    rm -f pid? out? err? status?
    "${ranks[@]}" ./rank.sh "$@" >log 2>&1 &
    job=$!
    wait_for written pid0 pid1 pid2 || diag "the ranks did not start: $(cat log)"
    wait_for waits 0 "$1" && wait_for waits 2 "$1"
    kill "-$signal" $job
    wait_for written status0 status2
    ok $? "$signal, $1: ranks 0 and 2 end by themselves"
    is "$(cat status0 status2 2>/dev/null | tr '\n' ' ')" "7 7 " "$signal, $1: with status 7"
    end_job $job
}

without_server STOP chex-env --timeout 1s
like "$(cat err0)" "error: rank 1 \(.*\) of 3 did not come to exchange status" "the rank that is missing is named"
without_server KILL chex-env --timeout 50s
like "$(cat err0)" "error: .*: the PMIx server of this node is gone" "a server that is gone is named"
if have chex-shard; then
    chex-shard phantom --count 6 --size 32 --seed 1 --output ph >log 2>&1
    without_server KILL chex-shard --images ph/images --labels ph/labels.csv --split patient --size 32 \
        --shards 1 --output shards
else
    skip "chex-shard is not built" 2
fi
done_testing
