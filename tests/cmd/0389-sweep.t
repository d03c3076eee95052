#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A sweep: chex-eval compare prints its runs in one table, and sweep.sbatch stops runs by the rule of
# CHEX_SWEEP_STOP. Slurm, training and evaluation are stand-ins; the real ones are in tests/slurm/1650.
source "$(dirname "$0")/lib.sh"

real=$(command -v chex-eval)
mkdir bin
# srun starts the command on this machine.
cat >bin/srun <<'END'
#!/bin/bash
while [[ $1 = -* ]]; do shift; done
exec "$@"
END
printf '#!/bin/bash\nexec /bin/sleep 0.02\n' >bin/sleep
printf '#!/bin/bash\n[ "$1" != --signal=USR2 ] || touch signalled\necho "$*" >>calls\n' >bin/scancel
printf '#!/bin/bash\necho "scontrol $*" >>calls\n' >bin/scontrol
# A training of 4 epochs whose AUROC is its learning rate. After epoch 2 it waits for the decision, if there
# is a rule, and for the signal, if the decision is to stop.
cat >bin/chex-train <<'END'
#!/bin/bash
[ ! "${CHEX_SWEEP_STOP-}" ] || echo "chex-train sees CHEX_SWEEP_STOP" >>calls
run=$4 lr=${*: -1}
echo "train $run" >>calls
mkdir -p "$run"
echo '{}' >"$run/config.json"
for epoch in 1 2 3 4; do
    printf '{"schema":1,"kind":"epoch","epoch":%d,"step":9,"val_auroc_mean":%s,"best":true}\n' \
        $epoch "$lr" >>"$run/metrics.jsonl"
    [ $epoch = 2 ] && [ -e rule ] || continue
    until [ -e "$run/sweep-stop.json" ]; do sleep 1; done
    grep -q '"stopped":true' "$run/sweep-stop.json" || continue
    until [ -e signalled ]; do sleep 1; done
    echo 6 >"$CHEX_STATUS_FILE" && exit 6
done
echo 0 >"$CHEX_STATUS_FILE"
END
# An evaluation: the noise of the scores falls with the learning rate.
cat >bin/chex-eval <<'END'
#!/bin/bash
run=${6%/*}
mkdir -p "$run/eval"
awk -v noise="$(tail -n 1 "$run/metrics.jsonl" | sed 's/.*mean":\([0-9.]*\).*/\1/')" 'BEGIN {
    print "image_id,patient_id,y_Mass,p_Mass"
    for (i = 0; i < 60; i++)
        print "i" i ".png," i "," (i % 4 == 0) "," ((i * 37 % 60) * (1.3 - noise) / 60 + (i % 4 == 0) / 4) / 2
}' >"$run/eval/predictions.csv"
echo 0 >"$CHEX_STATUS_FILE"
END
chmod +x bin/*
sweep() { # TASK: one task of the array
    rm -f signalled
    SLURM_JOB_ID=70$1 SLURM_ARRAY_JOB_ID=70 SLURM_ARRAY_TASK_ID=$1 PATH=$SCRATCH/bin:$PATH \
        bash "$SOURCE/slurm/sweep.sbatch" shards sweep options >"task$1" 2>&1
}
decision() { sed -n "s/.*\"$2\":\([^,}]*\).*/\1/p" "sweep/$1/sweep-stop.json"; }
printf -- '--lr %s\n' 0.80 0.82 0.84 0.70 0.85 0.90 >options

touch rule
export CHEX_SWEEP_STOP=2
for task in 1 2 3 4 5; do
    sweep $task
    is $? 0 "task $task ends well"
done
is "$(decision 1 others) $(decision 1 median) $(decision 1 stopped)" "0 null false" "the first run has nothing to be compared with"
is "$(decision 3 others) $(decision 3 stopped)" "2 false" "two other runs are too few to stop one"
is "$(decision 4 val_auroc_mean) $(decision 4 others) $(decision 4 median) $(decision 4 stopped)" \
    "0.7 3 0.82 true" "a run below the median of three others stops"
is "$(wc -l <sweep/4/metrics.jsonl)" 2 "it stops after the epoch of the rule"
is "$(decision 5 stopped)$(wc -l <sweep/5/metrics.jsonl)" "false4" "a run above the median goes on"
like "$(cat calls)" '^--signal=USR2 70_4$' "the training saves by its signal"
unlike "$(cat calls)" 'requeue|sees CHEX_SWEEP_STOP' "a stopped task is not requeued, and chex-train does not see the rule"
[ -s sweep/4/eval/predictions.csv ]
ok $? "a stopped run is evaluated"
sweep 4
is "$(grep -c '^train sweep/4$' calls)" 1 "a stopped run that is started again is not trained on"
unset CHEX_SWEEP_STOP
rm rule
sweep 6
is "$?$([ -e sweep/6/sweep-stop.json ] || echo none)" "0none" "without the rule nothing is decided"
CHEX_SWEEP_STOP=x sweep 6
is $? 2 "a rule that is no epoch is refused"
like "$(cat task6)" '^CHEX_SWEEP_STOP=x .expected an epoch, from 1.$' "the log says what was expected"

# The table of several comparisons, as of the runs of a sweep.
expect_status 0 "$real" compare sweep/{1,3,4,5}/eval/predictions.csv --output results
sed '1,/^means, first: sweep.1.eval.predictions.csv$/d; /^$/,$d' out >means
is "$(cut -d' ' -f1 means | tr '\n' ' ')" \
    "second sweep/3/eval/predictions.csv sweep/4/eval/predictions.csv sweep/5/eval/predictions.csv " \
    "the table of means has a row for each run, compared with the first one"
like "$(cat means)" '^sweep/4.* [+-]0\.[0-9]{4} to [+-]0\.[0-9]{4} .* differs in: .*; the second was stopped after epoch 2$' \
    "a row has the interval, what differs, and whether the run was stopped"
is "$(grep -c stopped means)" 1 "no other run was stopped"
awk -F, 'NR > 1 && $3 == "mean" { print $14, $15 }' results/compare.csv | sort -g >p
is "$(awk 'NR == 1 { p = 3 * $1; print (p > 1 ? 1 : p) - $2 < 1e-8 ? "3 times" : "not" }' p)" "3 times" \
    "the least p value is corrected for three comparisons"
like "$(out)" '; in the table of means for the comparisons$' "a note says so"
is "$(grep -c '"stopped_epoch": 2' results/compare.json)" 1 "compare.json has the epoch"
expect_status 0 "$real" compare sweep/{1,3}/eval/predictions.csv
unlike "$(out)" '^means' "one comparison has no table of means"
done_testing
