#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# If the launcher's PMIx server stops or is killed while ranks wait for each other, each rank ends
# with status 7. Rank 1 never starts, so that the others are in an exchange.
source "$(dirname "$0")/lib.sh"
have mpirun || skip_all "no mpirun"
have chex-env || skip_all "chex-env is not built"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
cat >rank.sh <<'END'
#!/bin/bash
rank=$OMPI_COMM_WORLD_RANK
echo $$ >pid$rank
[ "$rank" != 1 ] || exec sleep 600
"$@" >out$rank 2>err$rank
echo $? >status$rank
END
chmod +x rank.sh
timeout 60 mpirun -np 3 true >log 2>&1 || skip_all "mpirun does not start three ranks here: $(tail -n 1 log)"

# wait_for SECONDS FILE...: until all are there.
wait_for() {
    local i f missing
    for ((i = 0; i < $1 * 10; i++)); do
        missing=
        for f in "${@:2}"; do [ -s "$f" ] || missing=$f; done
        [ -n "$missing" ] || return 0
        sleep 0.1
    done
    return 1
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
    mpirun -np 3 ./rank.sh "$@" >log 2>&1 &
    job=$!
    wait_for 60 pid0 pid1 pid2 || diag "the ranks did not start: $(cat log)"
    sleep 2
    kill "-$signal" $job
    wait_for 100 status0 status2
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
