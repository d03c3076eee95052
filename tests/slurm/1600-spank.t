#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The SPANK plugin: preflight, staging, variables; what it exports and links; root follows nothing
# that the user made.
. "$(dirname "$0")/lib.sh"
# slurmd asks at its start which plugins have an epilog.
plugin=${CHEX_TEST_BUILD:-$(cd "$(dirname "$0")/../.." && pwd)/build/debug}/lib/spank_chexnet.so
[ -f "$plugin" ] || slurm_skip "built without slurm/spank.h"
slurm_fixture --own --set TaskPlugin=task/none --plugin "$plugin"
have chex-env || skip_all "chex-env is not built"
chmod 1777 .
# Only root may enter its home, where a checkout can be: plain users have an installed copy.
plugin=$CLUSTER/spank_chexnet.so prefix=$SCRATCH/opt
cmake --install "$BUILD" --prefix "$prefix" >/dev/null || exit 1

is "$(nm -D --defined-only "$plugin" | awk '{ print $3 }' | sort | tr '\n' ' ')" \
    "plugin_name plugin_type plugin_version slurm_spank_init slurm_spank_job_epilog \
slurm_spank_task_init slurm_spank_task_init_privileged spank_plugin_version " \
    "the plugin exports only what Slurm looks up"
is "$(readelf -d "$plugin" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | tr '\n' ' ')" "libc.so.6 " \
    "the plugin links the C library only"

# plugins ARGUMENT...: the cluster's plugstack.conf. The base folder is one on each node.
base=$CLUSTER/spool/stage
mkdir -m 755 "$CLUSTER"/spool.n0/stage "$CLUSTER"/spool.n1/stage
plugins() { echo "required $plugin $*" >"$CLUSTER/plugstack.conf"; }
plugins "prefix=$prefix"
# As a plain user on both nodes.
step() { timeout -k 5 "$CHEX_TEST_WAIT" setpriv --reuid=nobody --regid=nogroup --clear-groups \
    srun -N2 --ntasks-per-node=2 "$@" </dev/null; }
# What is staged on the nodes, and whether nothing is left (the epilog comes after srun).
staged() { find "$CLUSTER"/spool.n[01]/stage -mindepth 1 -maxdepth 1 | grep .; }
emptied() {
    wait_for eval '! staged >/dev/null'
}

expect_status 0 step env
unlike "$(out)" "CHEXNET_|OMP_NUM|NCCL_" "without its options the plugin sets nothing"
is "$(err)" "" "without its options the plugin says nothing"

# ---- preflight ----
CHEX_STATUS_FILE=$PWD/said expect_status 0 step --chexnet-preflight bash -c 'echo program'
[ ! -e said ]
ok $? "a preflight leaves no status in place of the program's"
is "$(grep -c '^program' "$SCRATCH/out")" 4 "after a preflight that passes the program runs in all tasks"
like "$(out)" "^fit to train: .* 4 ranks on 2 nodes" "the preflight is one chex-env of all ranks"
expect_status 0 step --mpi=pmi2 --chexnet-preflight "$prefix/bin/chex-env" --level 1
is "$(grep -c "^fit to train: .* 4 ranks on 2 nodes" "$SCRATCH/out")" 2 \
    "a preflight leaves PMI's connection to the program"
CHEX_STEP_DIR=/sys expect_status 4 step --chexnet-preflight=1 --mpi=none bash -c 'echo program'
like "$(out)" "^launch +fail" "a preflight that fails shows the table"
unlike "$(out)" "^program" "a preflight that fails keeps the program from starting"
expect_status 255 in_job -n1 --chexnet-preflight=3 true
like "$(err)" "expected 1 or 2; level 3 starts MPI" "a level that a preflight cannot have is refused"
mkdir -p tree/lib/chexnet tree/bin
cp "$plugin" tree/lib/chexnet/
printf '#!/bin/sh\necho "of the tree"\n' >tree/bin/chex-env
chmod -R a+rX tree && chmod a+x tree/bin/chex-env
ln -s "$PWD/tree/lib/chexnet/spank_chexnet.so" link.so
for file in "$PWD/tree/lib/chexnet/spank_chexnet.so" "$PWD/link.so"; do
    echo "required $file" >"$CLUSTER/plugstack.conf"
    expect_status 0 in_job -n1 --chexnet-preflight true
    is "$(out)" "of the tree" "without prefix= ${file##*/} runs the chex-env of its own tree"
done
plugins "prefix=$prefix"
if [ -e "$BUILD/lib/chexnet-mpi.so" ] && have chex-train; then
    phantom_shards 40 2
    train=(chex-train --model densenet_tiny --data shards --output run --engine cpu --threads 1 --image-size 32 --batch-size 4
        --max-steps 1 --epochs 1 --resume none)
    for level in 1 2; do
        rm -rf run
        expect_status 0 in_job -N2 -n2 "--chexnet-preflight=$level" "${train[@]}"
        like "$(out)" "^fit to train: .* 2 ranks on 2 nodes" "preflight $level and a program with MPI share a step"
    done
fi
cat >job.sh <<'EOF'
#!/bin/bash
echo "batch"
srun echo "step"
EOF
timeout "$CHEX_TEST_WAIT" sbatch --wait -n1 --chexnet-preflight -o batch.out job.sh >/dev/null
is "$(sed 's/:.*//' batch.out | tr '\n' ' ')" "batch fit to train step " \
    "asked of sbatch, the preflight comes before the step, not before the script"

# ---- staging ----
mkdir data
echo shard >data/a.h5
chmod -R a+rX data
expect_status 255 step "--chexnet-stage=$PWD/data" true
like "$(err)" "stage= is missing in plugstack.conf" "without a folder for it staging is refused"
plugins "prefix=$prefix stage=$base"
cat >look.sh <<'EOF'
[ "$CHEX_DATA" = "$CHEXNET_STAGED" ] && stat -c '%U %a' "$CHEXNET_STAGED/.." && cat "$CHEX_DATA/a.h5"
EOF
expect_status 0 step "--chexnet-stage=$PWD/data" bash look.sh
is "$(out | sort | uniq -c | tr -s ' \n' ' ')" " 4 nobody 700 4 shard " \
    "each task finds the copy, in a folder that is the user's alone"
is "$(grep -c "^spank_chexnet: staged $PWD/data to .*; set CHEX_DATA=" "$SCRATCH/err")" 1 "one line says where"
emptied
ok $? "after the job nothing is left on the nodes" || diag "$(staged)"
CHEX_DATA=mine expect_status 0 in_job -n1 "--chexnet-stage=data" bash -c 'echo "$CHEX_DATA"'
is "$(out)" mine "a value of the user is kept"
like "$(err)" "CHEX_DATA has a value" "a value of the user is reported"
expect_status 4 step "--chexnet-stage=$PWD/nosuch" echo program
is "$(out)" "" "without the folder no program starts"
like "$(err)" "^spank_chexnet: --chexnet-stage=.*nosuch: No such file" "the missing folder is named"

# A job that is cancelled; its user left links, a folder without rights, and a file of a foreign name.
mkdir outside
echo precious >outside/file
chmod -R 777 outside
cat >hostile.sh <<EOF
cd "\$CHEXNET_STAGED/.." && ln -s $PWD/outside link && ln -s / root && mkdir -p locked/in &&
    touch locked/in/x && chmod 0 locked/in locked && mkfifo pipe && : >'-rf *'
touch $PWD/ready/\$SLURM_PROCID
exec sleep 100
EOF
mkdir -m 777 ready
step --ntasks-per-node=1 -n2 "--chexnet-stage=$PWD/data" bash hostile.sh 2>err &
wait_for [ -e ready/0 ] && wait_for [ -e ready/1 ]
is "$(staged | wc -l)" 2 "while a job runs its folder is there on each node"
scancel -u nobody
wait $!
emptied
ok $? "after a cancelled job nothing is left, whatever its user made" || diag "$(ls -laR "$CLUSTER"/spool.n0/stage)"
is "$(cat outside/file)" precious "what links lead to stays"

# A process of the user stops those that remove the files.
plugins "prefix=$prefix stage=$base limit=1"
echo 'while :; do ! pkill -STOP -u nobody -x find || touch stopped; done' >stop.sh
setsid nsenter -t "$(pgrep -P "$(cat "$CLUSTER/n0.pid")" | head -n 1)" -m -p --wd="$PWD" \
    setpriv --reuid=nobody --regid=nogroup --clear-groups bash stop.sh &
stopper=$!
step --ntasks-per-node=1 -n2 "--chexnet-stage=$PWD/data" bash -c 'cd "$CHEXNET_STAGED/.." && seq 40000 | xargs touch' 2>err
wait_for eval '[ -z "$(squeue -h)$(sinfo -hN -t comp,alloc,mix -o %N)" ]'
is "$(ls stopped) $(squeue -h)$(sinfo -hN -t comp,alloc,mix -o %N)" "stopped " "a user who stops the removal does not hold the node"
is "$(pgrep -u nobody -x find)" "" "the stopped processes are killed"
kill -9 -- -$stopper
rm -rf "$CLUSTER"/spool.n[01]/stage/*
plugins "prefix=$prefix stage=$base"

# Root takes no folder that others could have prepared.
chmod 777 "$CLUSTER"/spool.n0/stage "$CLUSTER"/spool.n1/stage
expect_status 4 step "--chexnet-stage=$PWD/data" true
like "$(err)" "must belong to root and be writable by root alone" "a base folder that others can write is refused"
rmdir "$CLUSTER"/spool.n[01]/stage
mkdir elsewhere
ln -s "$PWD/elsewhere" "$CLUSTER/spool.n0/stage"
ln -s "$PWD/elsewhere" "$CLUSTER/spool.n1/stage"
expect_status 4 step "--chexnet-stage=$PWD/data" true
is "$(ls elsewhere)" "" "a base folder that is a link is not followed"

# ---- variables ----
plugins "prefix=$prefix set=NCCL_SOCKET_IFNAME=ib0"
show() { step --export=ALL "$@" bash -c 'echo "$OMP_NUM_THREADS $OPENBLAS_NUM_THREADS $NCCL_DEBUG $NCCL_SOCKET_IFNAME"'; }
expect_status 0 show --chexnet-env
like "$(out)" "^([0-9]+) \1 WARN ib0$" "threads, NCCL and the site's variables are set"
like "$(err)" "^spank_chexnet: set OMP_NUM_THREADS=.* NCCL_SOCKET_IFNAME=ib0 NCCL_DEBUG=WARN$" "one line says which"
OMP_NUM_THREADS=77 NCCL_DEBUG=INFO NCCL_SOCKET_IFNAME=eth9 expect_status 0 show --chexnet-env
like "$(out)" "^77 [0-9]+ INFO eth9$" "values of the user are kept"
unlike "$(err)" "OMP_NUM|NCCL_" "and are not reported as set"
expect_status 0 show
is "$(out | sort -u | tr ' ' -)" --- "without the option nothing is set"
plugins "color=red"
expect_status 1 show
like "$(err)" "plugstack.conf: color=red: expected prefix=" "a wrong argument in plugstack.conf is named"
done_testing
