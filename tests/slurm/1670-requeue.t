#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-train --requeue: the run itself puts its batch job back into the queue, after a save and after
# lost ranks; otherwise it warns and goes on.
. "$(dirname "$0")/lib.sh"
slurm_fixture --set TaskPlugin=task/none
need_training
[ -e "$BUILD/lib/chexnet-slurm.so" ] || skip_all "built without libslurm"

phantom_shards 60 2
options=(--data shards --engine cpu --threads 1 --image-size 32 --batch-size 2 --seed 5 --deterministic
    --logical-ranks 2 --save-before-end off --requeue)
train() { chex-train "${options[@]}" "$@"; }
started() { [ "$(steps "$1")" -gt 0 ]; }

# The first start has no end; rank 1 stops for ever if the file says so. The second start does two
# steps more.
cat >job.sh <<END
#!/bin/bash
# RUN
trap '' USR2
more=()
[ -z "\${SLURM_RESTART_COUNT-}" ] || more=(--max-steps \$((\$(grep -c '"kind": *"step"' \$1/metrics.jsonl) + 2)))
srun bash -c 'if [ \$SLURM_PROCID = 1 ] && [ -e \$0.stops ]; then
        (until [ -s \$0/metrics.jsonl ]; do sleep 0.1; done; kill -STOP \$\$) &
    fi
    exec "\$@"' \$1 chex-train ${options[*]} --output \$1 --epochs 100000 --stall-warn 3s --stall-abort 10s "\${more[@]}"
END
batch() { # RUN [OPTION OF sbatch...]
    sbatch_id -N2 --ntasks-per-node=1 -t 5 --open-mode=append -o "$1.out" "${@:2}" job.sh "$1"
}

saved=$(batch saved --requeue --comment="of user chexnet-retries=2")
wait_for started saved
scancel --signal=USR2 "$saved"
wait_for job_is "$saved" "Restarts=1"
ok $? "a run that was asked to save puts its job back into the queue" || diag "$(cat saved.out)"
like "$(cat saved.out)" "saved; this job is put back into the queue \(--requeue\)" "the log says so"
done=$(steps saved)

# Lost ranks, in two jobs at once. The saved one waits in the queue and starts again beside them.
touch lost.stops often.stops
lost=$(batch lost --requeue)
often=$(batch often --requeue --comment=chexnet-retries=3)
wait_for job_is "$lost" "Restarts=1"
ok $? "a run whose ranks are lost puts its job back into the queue" || diag "$(cat lost.out)"
is "$(about "$lost" Comment)" "Comment=chexnet-retries=1" "the retry is counted in the comment of the job"
# It starts no second time: slurmstepd of a lost step keeps its socket for some 20 s, and the next start
# has the same step.
scancel "$lost"
like "$(cat lost.out)" "ranks were lost; this job is put back into the queue \(--requeue\)" "the log says that ranks were lost"

# The option where it cannot work.
expect_status 0 train --output whole --epochs 100000 --max-steps $((done + 2))
like "$(err)" "warn: --requeue is ignored: not in a Slurm job" "outside of Slurm the option is ignored with a warning"
expect_status 0 in_job -N2 chex-train "${options[@]}" --output plain --epochs 9 --max-steps 1
like "$(err)" "warn: --requeue is ignored: only a job of sbatch" "a job of srun cannot be put back, and the run goes on"
mkdir without
cp "$BUILD/lib/chexnet-mpi.so" without
expect_status 0 in_job -N1 --export="ALL,CHEX_LIBDIR=$PWD/without" chex-train "${options[@]}" \
    --output absent --epochs 9 --max-steps 1
like "$(err)" "warn: --requeue is ignored: .*chexnet-slurm.so" "without the module the option is ignored with a warning"
is "$(err | grep -c requeue)" 1 "there is one warning"

finishes "$saved"
is "$(about "$saved" JobState) $(about "$saved" Restarts)" "JobState=COMPLETED Restarts=1" \
    "the job starts again and ends well" || diag "$(cat saved.out)"
like "$(scontrol show job "$saved")" "Comment=of user chexnet-retries=0" "after a save the count of retries starts again"
h5diff whole/last.h5 saved/last.h5 /params /params >/dev/null
ok $? "the bits are those of a run without interruption"

finishes "$often"
is "$(about "$often" JobState) $(about "$often" Restarts)" "JobState=FAILED Restarts=0" "after three retries the job ends"
like "$(cat often.out)" "not put back into the queue: ranks were lost again after 3 retries" "the log says why it ends"
done_testing
