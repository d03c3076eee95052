#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# CheXNet on the official split of ChestX-ray14: from the archives of the NIH to the table of three seeds
# and their ensemble. --help says more; doc/reference-run.md has the method.
set -u
PATH=$PATH:$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/release/bin
sample=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/datasets/nih-sample
data='' output='' rehearse='' init='' launch='' model=densenet121 seeds=1,2,3 epochs=15 size=224 plan=no

usage() {
    cat <<END
usage: share/reference_run.sh --data DIR --output DIR [OPTION...] [-- OPTION of chex-train...]
       share/reference_run.sh --rehearse sample|phantom --output DIR [OPTION...]
Makes shards of the official split, trains a DenseNet-121 with each seed, evaluates each and their
ensemble beside the published values, repeats a stretch of each training, and writes digests.txt, which
another site can compare. First it prints how long that takes and how much disk it needs. It can be run
again: what is done is not repeated, and a training goes on from its last checkpoint.
  --data DIR       Data_Entry_2017_v2020.csv, train_val_list.txt, test_list.txt, and in images/ the
                   archives images_001.tar.gz to images_012.tar.gz or the files from them
  --rehearse SET   the same with the 1,000 radiographs of datasets/nih-sample, or with 1,000 synthetic
                   images, at 64 px and for 2 epochs; minutes on two cores
  --output DIR     shards, runs and tables
  --init FILE      start from these parameters, such as torchvision's densenet121 for ImageNet; the
                   published networks did. Without it, each training starts from its seed alone
  --seeds LIST     ($seeds)
  --epochs N       passes over the training images ($epochs)
  --size PX        side of the training crops ($size); images are stored with 8/7 of it
  --launch COMMAND how several processes are started, such as "srun -n4 --gpus-per-task=1": 1, 2 or 4 of
                   them end with equal bits
  --model NAME     another network ($model)
  --plan           print the estimate and do nothing
  --help
Commands are taken from PATH (module load chexnet), else from build/release/bin.
Exit status: that of the command that failed; 2 usage; 3 bad input data.
END
}

die() {
    local status=$1
    shift
    echo "reference_run: $*" >&2
    exit "$status"
}

step() {
    printf '\n== %s\n' "$*"
}

run() {
    printf '$ %s\n' "$*"
    "$@" || {
        local status=$?
        die $status "$1 ended with status $status; after a repair, run the same command again"
    }
}

while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit ;;
    --) shift && break ;;
    --plan) plan=yes && shift && continue ;;
    --data | --output | --rehearse | --init | --launch | --model | --seeds | --epochs | --size) ;;
    *) die 2 "unknown argument '$1'; try --help" ;;
    esac
    [ $# -gt 1 ] || die 2 "$1 needs a value; try --help"
    printf -v "${1#--}" %s "$2"
    # A rehearsal is short, unless later options say otherwise.
    [ "$1" != --rehearse ] || { size=64 epochs=2; }
    shift 2
done
[ -n "$output" ] || die 2 "--output is missing; try --help"
[[ $seeds =~ ^[0-9]+(,[0-9]+)*$ ]] || die 2 "--seeds '$seeds': expected numbers with commas"
[[ $epochs =~ ^[1-9][0-9]*$ ]] || die 2 "--epochs '$epochs': expected a number from 1"
[[ $size =~ ^[1-9][0-9]*$ ]] || die 2 "--size '$size': expected a number of pixels"
case $rehearse in
'') [ -n "$data" ] || die 2 "--data or --rehearse is missing; try --help" ;;
sample | phantom) [ -z "$data" ] || die 2 "--data and --rehearse: expected one of them" ;;
*) die 2 "--rehearse '$rehearse': expected sample or phantom" ;;
esac
[ -z "$init" ] || [ -r "$init" ] || die 3 "--init '$init': cannot be read"
for command in chex-shard chex-train chex-eval; do
    command -v $command >/dev/null || die 4 "$command is not in PATH; module load chexnet, or build it"
done
read -ra launch_words <<<"$launch"
IFS=, read -ra seed_list <<<"$seeds"
mkdir -p "$output" || die 9 "cannot make $output"

# as_nih IMAGES LABELS: what the NIH ships, made of a folder of images: two archives, and the lists of
# the official split, with every fifth patient in the test list.
as_nih() {
    local part files
    mkdir -p "$data/images"
    cp "$2" "$data/Data_Entry_2017_v2020.csv"
    files=$(cd "$1" && find . -name '*.png' | sed 's|^\./||' | sort)
    awk '{ print > (int(substr($0, 1, 8)) % 5 ? train : test) }' train="$data/train_val_list.txt" \
        test="$data/test_list.txt" <<<"$files"
    for part in 1 2; do
        awk -v part=$part 'NR % 2 == part % 2' <<<"$files" |
            tar -czf "$data/images/images_00$part.tar.gz" -C "$1" --transform 's|^|images/|' -T - ||
            die 9 "cannot write $data/images/images_00$part.tar.gz"
    done
    touch "$data/complete"
}

if [ -n "$rehearse" ]; then
    data=$output/nih
    step "rehearsal: $rehearse, in the form in which the NIH ships its set"
    if [ -e "$data/complete" ]; then
        echo "$data is there"
    elif [ "$rehearse" = sample ]; then
        [ -d "$sample/images" ] || die 3 "$sample is not there; it comes with the sources"
        as_nih "$sample/images" "$sample/Data_Entry_2017.csv"
    else
        run chex-shard phantom --count 1000 --size 64 --output "$output/phantom" -q
        as_nih "$output/phantom/images" "$output/phantom/labels.csv"
    fi
fi

labels=$data/Data_Entry_2017_v2020.csv
[ -r "$labels" ] || labels=$data/Data_Entry_2017.csv
for file in "$labels" "$data/train_val_list.txt" "$data/test_list.txt" "$data/images"; do
    [ -r "$file" ] || die 3 "$file: not there; the page of the NIH has it beside the archives"
done
train=$(grep -c . "$data/train_val_list.txt") test=$(grep -c . "$data/test_list.txt")
if [ -z "$rehearse" ] && [ "$train/$test" != 86524/25596 ]; then
    echo "warning: the lists have $train and $test images; the official ones have 86524 and 25596"
fi
stored=$(((size * 8 + 6) / 7)) runs=${#seed_list[@]}
same=(--model "$model" --image-size "$size" --batch-size 16 "$@")

step "estimate"
bench=$("${launch_words[@]}" chex-train --bench 4 "${same[@]}" --json 2>"$output/bench.log") || {
    tail -n 20 "$output/bench.log" >&2
    die 4 "chex-train --bench failed; chex-env says what is wrong with the machine"
}
value() { # KEY: of the benchmark's JSON
    [[ $bench =~ \"$1\":\ \"?([^,\"]*) ]] && echo "${BASH_REMATCH[1]}"
}
awk -v train="$train" -v test="$test" -v stored="$stored" -v runs="$runs" -v epochs="$epochs" \
    -v rate="$(value images_per_s_median)" -v engine="$(value engine) ($(value variant))" \
    -v memory="$(value engine_bytes)" -v shipped="$(du -sk "$data/images" | cut -f1)" '
    function gb(bytes) { return sprintf("%.*f GB", bytes < 1e9 ? 3 : 1, bytes / 1e9) }
    function time(s) { return s < 5400 ? sprintf("%.0f min", s / 60 + 0.5) : sprintf("%.1f h", s / 3600) }
    BEGIN {
    all = train + test
    printf "images      %d for training and validation, %d for the test; %s as shipped\n", train, test,
        gb(shipped * 1024)
    # A run: a checkpoint of 85 MB for each epoch, last.h5 and best.h5; tables and reports.
    printf "disk        %s of shards at %d px, %s for %d runs; while archives are read, %s more\n",
        gb(all * stored ^ 2), stored, gb(runs * (epochs + 3) * 85e6), runs, gb(shipped * 1024)
    printf "speed       %.1f images/s in training: %s, %s of memory\n", rate, engine, gb(memory)
    printf "time        %s for %d trainings, epochs: %d; and a tenth of that for the rest\n",
        time(runs * epochs * train / rate), runs, epochs
    printf "            shards, from files of 1024 px: %s on a core\n", time(all / 400)
}'
df -Pk "$output" | awk 'NR == 2 { printf "free        %.1f GB on %s\n", $4 * 1024 / 1e9, $6 }'
[ $plan = no ] || exit 0

step "shards of the official split"
shards=$output/shards
if [ -e "$shards/manifest.json" ]; then
    echo "$shards is complete"
else
    run "${launch_words[@]}" chex-shard --images "$data/images" --labels "$labels" --split official --size $stored \
        --output "$shards"
fi

checkpoints=''
for seed in "${seed_list[@]}"; do
    step "training with seed $seed"
    run "${launch_words[@]}" chex-train --data "$shards" --output "$output/seed-$seed" --seed "$seed" "${same[@]}" \
        --epochs "$epochs" --checkpoint-every 1epochs --checkpoint-keep 0 --logical-ranks 4 --deterministic \
        ${init:+--init "$init"}
    checkpoints+=${checkpoints:+,}$output/seed-$seed/best.h5
done

evaluate() { # NAME CHECKPOINTS
    local results=$output/eval-$1/auroc.json file files
    step "evaluation: $1"
    IFS=, read -ra files <<<"$2"
    for file in "${files[@]}"; do
        [ "$results" -nt "$file" ] || {
            run "${launch_words[@]}" chex-eval --data "$shards" --checkpoint "$2" --output "$output/eval-$1" --force
            return
        }
    done
    echo "$output/eval-$1 is complete"
}
for seed in "${seed_list[@]}"; do
    evaluate "seed-$seed" "$output/seed-$seed/best.h5"
done
[ "$runs" = 1 ] || evaluate "ensemble-${seeds//,/-}" "$checkpoints"

for seed in "${seed_list[@]}"; do
    step "proof: a stretch of seed $seed, repeated"
    run "${launch_words[@]}" chex-train --prove "$output/seed-$seed" --stretches 1
done

step "digests"
{
    for seed in "${seed_list[@]}"; do
        sed -n 's/.*"step":\([0-9]*\),.*"digest":"\([0-9a-f]*\)".*/\2  seed-'"$seed"' step \1/p' \
            "$output/seed-$seed/checkpoints.jsonl"
    done
    (cd "$output" && sha256sum shards/manifest.json eval-*/auroc.csv eval-*/predictions.csv)
} >"$output/digests.txt" || die 9 "cannot write $output/digests.txt"
cat "$output/digests.txt"
echo
printf 'report: %s\n' "$output"/eval-*/report.html
