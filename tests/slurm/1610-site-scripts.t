#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The scripts for Prolog, Epilog, TaskProlog and HealthCheckProgram in a real cluster: a node's fault
# drains the node with a reason, a user's fault does not; a killed job leaves a report; root opens no
# file of a user. The GPUs are those of tests/fake.
. "$(dirname "$0")/lib.sh"
slurm_fixture --own --set TaskPlugin=task/none
have chex-env || skip_all "chex-env is not built"
[ -f "$BUILD/tests/fake/nvml.so" ] || skip_all "the stand-ins are not built"
chmod 1777 .
cmake --install "$BUILD" --prefix "$SCRATCH/opt" >/dev/null || exit 1
site=$SCRATCH/opt/share/chexnet/slurm
mkdir -p driver opt/etc/chexnet
ln -s "$BUILD/tests/fake/nvml.so" driver/libnvidia-ml.so.1
cat >opt/etc/chexnet/site.conf <<EOF
record=$CLUSTER/spool/record/node.json
reports=$SCRATCH/reports
keep=4
export SLURM_CONF=$CLUSTER/slurm.conf
export LD_LIBRARY_PATH=$SCRATCH/driver FAKE_NVML=$CLUSTER/spool/gpu.txt
EOF
gpus() { cp "$SOURCE/tests/data/gpu/$2.txt" "$CLUSTER/spool.$1/gpu.txt"; } # NODE FILE
gpus n0 two-h200
gpus n1 two-h200

like "$(cat "$site/slurm.conf.sample")" "^Epilog=$site/epilog.sh$" "the sample for slurm.conf names the prefix of the installation"
grep -E '^(Prolog|Epilog|TaskProlog|SchedulerParameters|PrologFlags)=' "$site/slurm.conf.sample" >lines
is "$(sed -n 's/^[A-Za-z]*=\(.*sh\)$/\1/p' lines | xargs -n 1 basename | tr '\n' ' ')" \
    "prolog.sh epilog.sh task_prolog.sh " "the sample for slurm.conf names the scripts"
while read -r file; do [ -x "$site/$(basename "$file")" ] || echo "$file"; done \
    < <(sed -n 's/^[A-Za-z]*=\(.*sh\)$/\1/p' lines) >missing
is "$(cat missing)" "" "the scripts of the sample are installed"
sed -i "/^SchedulerParameters=/s/$/,nohold_on_prolog_fail/" "$CLUSTER/slurm.conf"
cat >>"$CLUSTER/slurm.conf" <<EOF
Prolog=$site/prolog.sh
Epilog=$site/epilog.sh
TaskProlog=$site/task_prolog.sh
PrologFlags=Alloc
EOF
scontrol reconfigure
sleep 1

state() { sinfo -hN -n "$1" -o %T | sort -u | tr -d '*'; }
why() { scontrol show node "$1" | sed -n 's/^ *Reason=//p' | sed 's/ \[[a-z]*@.*//'; }
settled() { # NODE STATE
    wait_for eval "[ \"\$(state $1)\" = $2 ]" || diag "$1 is $(state "$1")"
}
resume() {
    scontrol update NodeName="$1" State=RESUME
    settled "$1" idle
}
as_nobody() { timeout -k 5 "$CHEX_TEST_WAIT" setpriv --reuid=nobody --regid=nogroup --clear-groups "$@" </dev/null; }
step() { as_nobody srun -n1 "$@"; }

in_node() { # NODE COMMAND...: as root, inside the node's namespaces
    timeout -s KILL "$CHEX_TEST_WAIT" nsenter -t "$(pgrep -P "$(cat "$CLUSTER/$1.pid")" | head -n 1)" -m -u -p "${@:2}"
}
script() { # NAME NODE [NAME=VALUE...]: as slurmd runs it
    in_node "$2" env -i SLURM_CONF="$CLUSTER/slurm.conf" SLURMD_NODENAME="$2" "${@:3}" "$site/$1.sh" >"$SCRATCH/$1.out" 2>&1
}
health() { script health "$@"; }

# ---- prolog ----
expect_status 0 step -w n1 --gres=gpu:1 hostname
is "$(out)" n1 "a job starts on a sound node"
step -w n1 bash -c 'head -c 511M /dev/zero >/dev/shm/mine' 2>/dev/null
expect_status 0 step -w n1 hostname
settled n1 idle
is "$(state n1) $(out)" "idle n1" "shared memory that a user filled drains no node"
wait_for eval '[ -z "$(in_node n1 ls /dev/shm)" ]'
is "$(in_node n1 ls /dev/shm)" "" "the epilog removes what a job left in /dev/shm"
CHEX_LIBDIR=/tmp CHEX_NVML=/nosuch HDF5_DRIVER=x expect_status 0 step -w n1 true
settled n1 idle
is "$(state n1)" idle "variables of a user drain no node"

gpus n1 sick
cat >job.sh <<'EOF'
#!/bin/bash
hostname
EOF
job=$(sbatch --parsable -n1 --gres=gpu:1 -w n1 -o late.out job.sh)
settled n1 drained
ok $? "a sick GPU drains its node"
like "$(why n1)" "^chexnet prolog: gpu-health: found GPU 0000:1b:00.0: .*uncorrected.*; expected no memory errors" \
    "the reason names check, found and expected"
wait_for eval '[ "$(squeue -h -j "$job" -o %T)" = PENDING ]'
is "$(squeue -h -j "$job" -o '%T')" PENDING "the job waits in the queue"
unlike "$(squeue -h -j "$job" -o '%r')" "[Hh]eld" "the job is not held"
gpus n1 two-h200
resume n1
start_soon "$job"
wait_for [ -s late.out ]
is "$(cat late.out)" n1 "the job starts when the node is well again"

cp opt/bin/chex-env real-env
echo limit=1 >>opt/etc/chexnet/site.conf
for end in 'kill -9 $$' 'exec sleep 100' 'echo "gpu-health fail found bad"; exit 5' 'exit 127'; do
    printf '#!/bin/bash\n%s\n' "$end" >opt/bin/chex-env
    script prolog n1
    is "$? $(state n1)" "0 idle" "a chex-env without a finding drains no node: $end"
done
sed -i 's/^limit=1$/limit=5/' opt/etc/chexnet/site.conf
cat >opt/bin/chex-env <<'EOF'
#!/bin/bash
printf '%s\n' "gpu-driver  fail     found no answer" "    expected: one that answers" "    fault: node"
exec sleep 100
EOF
script prolog n1
settled n1 drained
is "$(why n1)" "chexnet prolog: gpu-driver: found no answer; expected one that answers" \
    "a finding counts although chex-env does not end after it"
sed -i '$d' opt/etc/chexnet/site.conf
mv real-env opt/bin/chex-env
resume n1

scontrol update NodeName=n0 State=DRAIN Reason="a person: new memory"
gpus n0 sick
settled n0 drained
health n0
is "$(why n0)" "a person: new memory" "a reason of a person stays"
gpus n0 two-h200
resume n0

# ---- task prolog ----
mkdir -m 777 home
CHEX_STATUS_FILE=$PWD/home/said CHEXNET_PREFLIGHT=1 expect_status 0 as_nobody srun -N2 --ntasks-per-node=1 echo program
is "$(out | sed 's/:.*//' | sort | tr '\n' ' ')" "fit to train program program " \
    "a job that asks for a preflight gets it before the program"
[ ! -e home/said ]
ok $? "a preflight leaves no status in place of the program's"
CHEXNET_PREFLIGHT=1 expect_status 0 as_nobody srun --mpi=pmi2 -N2 --ntasks-per-node=1 echo program
is "$(out | sed 's/:.*//' | sort | tr '\n' ' ')" "fit to train program program " "so does a job with PMI-2"
CHEX_STEP_DIR=/sys CHEXNET_PREFLIGHT=1 expect_status 4 as_nobody srun --mpi=none -N2 --ntasks-per-node=1 echo program
like "$(out)" "^launch +fail" "a preflight that fails shows the table in the job"
unlike "$(out)" "^program" "a preflight that fails starts no program"
CHEXNET_PREFLIGHT=9 expect_status 2 as_nobody srun -N1 echo program
is "$(out)" "CHEXNET_PREFLIGHT: '9' is no level of the preflight (0, 1 or 2)" \
    "a level that does not exist is refused, and starts no program"
settled n0 idle
settled n1 idle
is "$(state n0) $(state n1)" "idle idle" "a user's fault in a preflight drains no node"

# ---- health check ----
sed '/^gpu 00000000:5D/,$d' "$SOURCE/tests/data/gpu/two-h200.txt" >"$CLUSTER/spool.n1/gpu.txt"
health n1
settled n1 drained
like "$(why n1) $(ls "$CLUSTER/spool.n1/record")" "^chexnet health: gpu-count: found 1; expected 2 or more .* $" \
    "the first health check expects the GPUs of slurm.conf" || diag "$(cat health.out)"
gpus n1 two-h200
health n1
settled n1 idle
is "$(state n1)" idle "a sound node stays in service"
[ -s "$CLUSTER/spool.n1/record/node.json" ]
ok $? "the first health check records the node's GPUs" || diag "$(cat health.out)"
sed '/^gpu 00000000:5D/,$d' "$SOURCE/tests/data/gpu/two-h200.txt" >"$CLUSTER/spool.n1/gpu.txt"
health n1
settled n1 drained
ok $? "a node that has lost a GPU is drained"
is "$(why n1)" "chexnet health: gpu-count: found 1; expected 2 or more (from $CLUSTER/spool/record/node.json)" \
    "the reason says how many GPUs are left"
gpus n1 two-h200
health n1
settled n1 idle
ok $? "a node whose fault is gone returns to service"
scontrol update NodeName=n1 State=DRAIN Reason="a person"
health n1
is "$(state n1) $(why n1)" "drained a person" "a node that a person drained stays drained"
resume n1
echo "touch $SCRATCH/sourced" >>opt/etc/chexnet/site.conf
chmod 666 opt/etc/chexnet/site.conf
"$site/prolog.sh" 2>/dev/null
[ ! -e sourced ]
ok $? "settings that others can write are ignored"
chmod 644 opt/etc/chexnet/site.conf
"$site/prolog.sh"
[ -e sourced ]
ok $? "settings of root are read"
sed -i '/sourced/d' opt/etc/chexnet/site.conf

# ---- health check with a hostile environment and hostile files ----
mkdir evil
for tool in chex-env scontrol timeout env sh readlink stat logger; do
    printf '#!/bin/bash\ntouch %s/evil.ran\n' "$SCRATCH" >evil/$tool
done
chmod +x evil/*
health n1 PATH="$SCRATCH/evil" CHEX_LIBDIR=/nosuch CHEX_NVML=/nosuch CHEX_MODE=job HDF5_DRIVER=x ENV="$SCRATCH/evil/sh" \
    BASH_ENV="$SCRATCH/evil/sh" LD_LIBRARY_PATH="$SCRATCH/evil" TMPDIR=/nosuch CHEXNET_STARTED=1 record=/nosuch
[ "$(state n1)" = idle ] && [ ! -e evil.ran ]
ok $? "variables of a hostile environment drain no node and choose no program" || diag "$(cat health.out)"
record=$CLUSTER/spool.n1/record/node.json
cp "$record" good.json
sed 's/"2"/"99"/' good.json >"$record"
like "$(cat "$record")" '"99"' "a record expects 99 GPUs"
chown nobody "$record"
health n1
settled n1 idle
is "$(state n1) $(stat -c %U "$record") $(grep -c 99 "$record")" "idle root 0" "a record of a user is not believed, but written anew" ||
    diag "$(cat health.out)"
echo precious >target
ln -sf "$SCRATCH/target" "$record"
health n1
is "$(state n1) $(cat target)" "idle precious" "a link in place of the record is not followed"
rm -f "$record"
chmod 777 "${record%/*}"
health n1
[ ! -e "$record" ]
ok $? "into a folder that others can write no record is written"
chmod 755 "${record%/*}"
echo '{"gpu-count": ' >"$record"
health n1
is "$(state n1)" idle "a damaged record of root drains no node"
cp good.json "$record"

# ---- epilog ----
secret=$SCRATCH/secret
echo "for root only" >"$secret"
chmod 600 "$secret"
report() { wait_for [ -s "reports/$1-$2.txt" ]; } # JOB NODE: waits for the report
cat >home/good.sh <<'EOF'
#!/bin/bash
exit 0
EOF
cat >home/killed.sh <<'EOF'
#!/bin/bash
mkdir -p run/checkpoints
echo x >run/checkpoints/step-0000000007.h5
echo xx >run/checkpoints/step-0000000012.h5
echo "results in run"
echo "chex-train[r0/2 n0] warn: rank 1 on n1 has been waiting for data, for 70 s (stall)"
echo "the last line"
kill -9 $$
EOF
cat >home/links.sh <<EOF
#!/bin/bash
rm -f "\$1"
ln -s $secret "\$1"
mkdir -p run2
ln -sfn $SCRATCH run2/checkpoints
exit 3
EOF
chmod 755 home/*.sh
cd home || exit 1
submit() { as_nobody sbatch --parsable -n1 -w n0 -o "$1" "${@:2}"; }
good=$(submit good.out good.sh)
killed=$(submit killed.out killed.sh)
links=$(submit links.out links.sh links.out)
pipe=$(submit pipe.out --wrap 'rm -f pipe.out; mkfifo pipe.out; exit 4')
cd ..
report "$killed" n0 && report "$links" n0 && report "$pipe" n0
ok $? "jobs that failed leave reports" || diag "$(ls -la reports)"
text=$(cat "reports/$killed-n0.txt")
like "$text" "^job $killed of user $(id -u nobody) on n0" "the report names job, user and node"
like "$text" "^the last line$" "the report has the last lines of the log"
like "$text" "^chex-train.* warn: rank 1 on n1 .*stall" "the report has the stall report"
like "$text" "^step-0000000012.h5 3 bytes" "the report names the newest checkpoint"
like "$text" "^gpu-health +pass +2 healthy" "the report has the state of the GPUs"
is "$(stat -c '%U %a' reports "reports/$killed-n0.txt" | tr '\n' ' ')" "root 700 root 600 " "only root reads reports"
unlike "$(cat "reports/$links-n0.txt")" "for root only" "root reads no file that a link of a user leads to"
like "$(cat "reports/$pipe-n0.txt")" "^exit code 4:0" "a pipe in place of the log stops nothing"
[ ! -e "reports/$good-n0.txt" ]
ok $? "a job that ended well leaves no report"
settled n0 idle
is "$(state n0)" idle "a job that failed drains no node"
is "$(ls reports | wc -l)" 4 "the newest reports are kept, as many as site.conf says"

# ---- what a user can hold ----
# A scontrol that counts its calls, and commands of the report that the user's other process stops.
mkdir counted
printf '#!/bin/sh\n[ "$1 $2" = "show hostnames" ] || echo "$*" >>%s/asked\nexec %s "$@"\n' "$SCRATCH" "$(command -v scontrol)" \
    >counted/scontrol
chmod -R a+rx counted
echo "PATH=$SCRATCH/counted:\$PATH" >>opt/etc/chexnet/site.conf
: >asked
chmod 666 asked
as_nobody srun -N2 true
settled n1 idle
is "$(cat asked)" "" "an epilog asks slurmctld nothing for a job that ended well" || diag "$(cat asked)"
echo collect_limit=1 >>opt/etc/chexnet/site.conf
cat >home/stop.sh <<'EOF'
touch ready
while :; do pkill -STOP -u nobody -f collect.sh && touch stopped; sleep 0.01; done
EOF
(cd home && exec setsid nsenter -t "$(pgrep -P "$(cat "$CLUSTER/n0.pid")" | head -n 1)" -m -p --wd="$PWD" \
    setpriv --reuid=nobody --regid=nogroup --clear-groups bash stop.sh) &
stopper=$!
rm -f reports/*
truncate -s 1G home/killed.out # to be read long enough
until [ -e home/ready ]; do sleep 0.1; done
script epilog n0 SLURM_JOB_ID="$killed" SLURM_JOB_UID="$(id -u nobody)" SLURM_JOB_EXIT_CODE2=0:9 SLURM_NODELIST=n0
kill -9 -- -$stopper
like "$(ls home/stopped) $(tr '\n' ' ' <"reports/$killed-n0.txt")" "^home/stopped job $killed .*== node" \
    "a user who stops the processes of a report does not hold the epilog"
wait_for eval '! pgrep -u nobody -f collect.sh >/dev/null'
is "$(grep -c "^show job $killed" asked) $(pgrep -u nobody -f collect.sh)" "1 " \
    "the first node of a job that failed asks once, and no process stays"
script epilog n0 SLURM_JOB_ID="$killed" SLURM_JOB_UID="$(id -u nobody)" SLURM_JOB_EXIT_CODE2=0:9 'SLURM_NODELIST=n[1-2],n0'
is "$(grep -c "^show job $killed" asked)" 1 "the other nodes ask nothing"
sed -i '/counted\|collect_limit/d' opt/etc/chexnet/site.conf

# ---- the health check as slurmd starts it, with an empty environment ----
printf '%s\n' "HealthCheckProgram=$site/health.sh" HealthCheckInterval=1 >>"$CLUSTER/slurm.conf"
scontrol reconfigure
gpus n0 mismatch
settled n0 drained
ok $? "slurmd's health check drains a node with a broken driver"
like "$(why n0)" "^chexnet health: gpu-driver: found .*; expected one that answers" "the reason names the driver"
gpus n0 two-h200
settled n0 idle
ok $? "slurmd's health check resumes the node"
done_testing
