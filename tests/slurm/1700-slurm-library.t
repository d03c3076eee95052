#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The end of a job, from libslurm and without it: a run saves by itself before its time limit.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none
need_training
[ -e "$BUILD/lib/chexnet-slurm.so" ] || skip_all "built without libslurm"

phantom_shards 60 2
options=(--data shards --engine cpu --threads 1 --image-size 32 --batch-size 2 --seed 5 --deterministic
    --logical-ranks 2)
train() { chex-train "${options[@]}" "$@"; }
# The limit is one minute, and the margin 53 s. The second start ends two steps later.
cat >job.sh <<END
#!/bin/bash
trap '' USR2
more=(--save-before-end 53s)
[ -z "\${SLURM_RESTART_COUNT-}" ] || more=(--save-before-end off --max-steps \$((\$(grep -c '"kind": *"step"' run/metrics.jsonl) + 2)))
srun chex-train ${options[*]} --output run --epochs 100000 "\${more[@]}"
status=\$?
echo "status \$status"
[ \$status != 6 ] || scontrol requeue \$SLURM_JOB_ID
END
job=$(sbatch_id -N2 --ntasks-per-node=1 -t 1 --requeue --open-mode=append -o job.out job.sh)
wait_for grep -qs '^status 6' job.out
like "$(cat job.out)" "the job ends in [0-9.]* s \(libslurm\); the run saves before" "libslurm gives the end of the job"
is "$(grep -c 'libslurm): the run saves now, [0-9.]* s before the end' job.out)" 1 "the run saves before its limit, once"
done=$(steps run)
like "$(cat job.out)" "asked to stop: saved at step ${done}[,;]" "all ranks save at the same step"
is "$(grep '^status' job.out)" "status 6" "and end with 6, without a signal"

# While the job waits in the queue. libslurm without its configuration takes 10 s. Newer releases of Slurm
# set SLURM_JOB_END_TIME themselves.
in_job -N1 -t 1 env -u SLURM_JOB_END_TIME SLURM_CONF=/nonexistent chex-train "${options[@]}" --output lost --epochs 9 --max-steps 1 \
    --save-before-end 10s 2>lost.err &
lost=$!
expect_status 0 train --output whole --epochs 100000 --max-steps $((done + 2))
without=$PWD/without
mkdir "$without"
cp "$BUILD/lib/chexnet-mpi.so" "$without"
expect_status 0 in_job -N1 -t 1 --export="ALL,CHEX_LIBDIR=$without" env -u SLURM_JOB_END_TIME \
    chex-train "${options[@]}" --output absent --epochs 9 --max-steps 1 --save-before-end 10s
like "$(err)" "warn: --save-before-end: the end of the job is unknown: .*module chexnet-slurm.so: " \
    "an absent module is reported if the option was given"
expect_status 0 in_job -N1 -t 1 --export="ALL,CHEX_LIBDIR=$without" env SLURM_JOB_END_TIME=$(($(date +%s) + 3000)) \
    chex-train "${options[@]}" --output environment --epochs 9 --max-steps 1
like "$(err)" "the job ends in (49m|50m)[0-9s]* \(SLURM_JOB_END_TIME\)" "the environment gives the end without the module"
expect_status 0 in_job -N1 -t 1 chex-train --plan "${options[@]}" --output planned --epochs 100000
is "$(out | grep -c 'the job has .* left and the run takes at least .*: the job ends first')" 1 \
    "--plan warns once of a run that is longer than the job"
expect_status 0 in_job -N1 chex-train "${options[@]}" --output endless --epochs 9 --max-steps 1
unlike "$(err)" "the job ends" "a job without a limit has no end"
wait $lost
is $? 0 "a library without its configuration does not end the run"
like "$(cat lost.err)" "libslurm finds no configuration.*SLURM_CONF=/nonexistent" "the reason is reported"
expect_status 0 in_job -N2 -n4 -t 10 chex-env -v
like "$(out)" "^modules +pass .*slurm loads" "chex-env lists the module"
like "$(out)" "^slurm-job +pass +(9m|10m)[0-9s]* left, 0 restarts; n0: features none, GRES gpu:2$" \
    "chex-env shows time left, restarts and the node"

# The comment of a job, before and after.
cat >comment.sh <<END
#!/bin/bash
srun chex-train ${options[*]} --output noted --epochs 9 --max-steps 1 --job-comment
scontrol update JobId=\$SLURM_JOB_ID Comment="\$(scontrol show job \$SLURM_JOB_ID | sed -n 's/^ *Comment=//p')chexnet-retries=1"
srun chex-train ${options[*]} --output noted --epochs 9 --max-steps 2 --job-comment
scontrol show job \$SLURM_JOB_ID | sed -n 's/^ *Comment=/ended: /p'
END
timeout "$CHEX_TEST_WAIT" sbatch -N1 -n1 -t 10 --comment="of user" -o comment.out comment.sh >/dev/null
wait_for grep -qs ^ended: comment.out
like "$(grep ^ended: comment.out)" "^ended: chexnet-images-per-s=[0-9]+\.[0-9]( chexnet-node-joules=[0-9]+)? of user *chexnet-retries=1 *$" \
    "the speed is put before the comment of user and batch script, once"

start_soon "$job"
wait_for grep -qs '^status 0' job.out
is "$(grep '^status' job.out | tr '\n' ' ')" "status 6 status 0 " "the requeued job goes on to the end"
h5diff whole/last.h5 run/last.h5 /params /params >/dev/null
ok $? "the bits are those of a run without interruption"
done_testing
