#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All ranks must see the same data set. Rank 0 reads the checkpoint and the initial parameters for
# all ranks.
# shellcheck source=tests/cmd/lib.sh
. "$(dirname "$0")/lib.sh"

mpi_ranks 3 || skip_all "no mpirun here"

# other COMMAND...: on rank 2 the paths set, run and init lead to other files.
cat >other <<'OTHER'
#!/usr/bin/env bash
cd "$([ "$OMPI_COMM_WORLD_RANK" = "$ODD" ] && echo odd || echo even)" && exec "$@"
OTHER
chmod +x other
mkdir even odd
shard() { # OUTPUT OPTIONS
    chex-shard --images ph/images --labels ph/labels.csv --size 32 --shards 3 --split patient \
        --fractions 0.6,0.2,0.2 --output "$@" -q >shard.out
}
common=(--model densenet_tiny --image-size 32 --batch-size 2 --engine cpu --threads 1 --seed 3)
train=("${ranks[@]}" ./other chex-train --data set "${common[@]}" --epochs 9)
evaluate=("${ranks[@]}" ./other chex-eval --data set --engine cpu --threads 1 --split train
    --allow-overlap)
another='rank 2 on .+ has another file than rank 0 on .+: give all ranks the same file'
export ODD=2

chex-shard phantom --count 60 --size 32 --seed 2 --output ph -q >ph.out
shard even/set --seed 1
cp -r even/set odd/set
expect_status 0 "${train[@]}" --output "$PWD/good" --max-steps 1
for what in seed:2 size:48; do
    rm -rf odd/set
    shard odd/set "--${what/:/=}"
    expect_status 3 "${train[@]}" --output "$PWD/run" --max-steps 2
    error_line "set/manifest.json: $another" "training: a set of another ${what%:*} on one rank is refused"
    [ ! -e run ]
    ok $? "no run starts"
done
expect_status 3 "${train[@]}" --output "$PWD/run" --plan
error_line "set/manifest.json: $another" "--plan tells it too"
expect_status 3 "${ranks[@]}" ./other chex-train --data set "${common[@]}" --bench-input 2
error_line "set/manifest.json: $another" "--bench-input too"
expect_status 3 "${evaluate[@]}" --checkpoint "$PWD/good/last.h5" --output "$PWD/evaluation"
error_line "set/manifest.json: $another" "evaluation: another set on one rank is refused"
[ ! -e evaluation ]
ok $? "nothing is written"
ODD=0 expect_status 3 "${evaluate[@]}" --checkpoint "$PWD/good/last.h5" --output "$PWD/evaluation"
error_line "rank 1 on .+ has another file than rank 0 on .+, and so does 1 more rank:" \
    "where rank 0 is the odd one, the others are counted"

# The manifest is rank 0's, and a shard is another set's.
rm -rf odd/set
cp -r even/set odd/set
shard elsewhere --seed 2
cp elsewhere/train/train-00002-of-00003.h5 odd/set/train/
expect_status 3 "${train[@]}" --output "$PWD/run" --max-steps 2
error_line "train-00002-of-00003.h5: .*the manifest says" "a foreign shard under a good manifest is refused"
rm -rf odd/set
cp -r even/set odd/set

# Checkpoints and initial parameters.
chex-train --data even/set "${common[@]}" --logical-ranks 3 --max-steps 2 --output more -q 2>&1
mkdir even/ck odd/ck
cp good/last.h5 even/ck/
cp more/last.h5 odd/ck/
expect_status 3 "${evaluate[@]}" --checkpoint ck/last.h5 --output "$PWD/evaluation"
error_line "ck/last.h5: $another" "evaluation: another checkpoint on one rank is refused"
parameters() { chex-eval export --checkpoint "$1" --output "$1.safetensors" -q --force; }
same() { # FILE FILE NAME
    parameters "$1" && parameters "$2" && cmp "$1.safetensors" "$2.safetensors"
    ok $? "$3"
}
expect_status 0 "${train[@]}" --output "$PWD/resumed" --max-steps 3 --deterministic --resume ck/last.h5
cp good/last.h5 odd/ck/
expect_status 0 "${train[@]}" --output "$PWD/alike" --max-steps 3 --deterministic --resume ck/last.h5
same resumed/last.h5 alike/last.h5 "--resume: all ranks go on from rank 0's checkpoint, whatever they see themselves"
rm odd/ck/last.h5
expect_status 0 "${train[@]}" --output "$PWD/alone" --max-steps 3 --deterministic --resume ck/last.h5
same alone/last.h5 alike/last.h5 "--resume: only rank 0 needs to see the file"
for run in even:good odd:more; do
    chex-eval export --checkpoint "${run#*:}/last.h5" --output "${run%:*}/init.safetensors" -q
done
expect_status 0 "${train[@]}" --output "$PWD/init1" --max-steps 1 --deterministic --init init.safetensors
rm odd/init.safetensors
expect_status 0 "${train[@]}" --output "$PWD/init2" --max-steps 1 --deterministic --init init.safetensors
same init1/last.h5 init2/last.h5 "--init: rank 0 reads the parameters for all ranks"
expect_status 3 "${train[@]}" --output "$PWD/run" --max-steps 3 --init "$PWD/even/none.safetensors"
error_line "cannot open .*none.safetensors" "a file that rank 0 cannot read ends all ranks"
done_testing
