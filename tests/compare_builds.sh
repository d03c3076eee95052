#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shows that two builds compute the same bits: the sample's shards, a training of 20 steps on each
# engine and precision, and the evaluation of its network. Trainings at 224 px have maps of several
# tiles, whose sums depend on the tiles. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
    cat <<END
usage: tests/compare_builds.sh [--steps N] OLD/bin NEW/bin
Runs the same small jobs with the commands of two build folders and compares the contents of what
they write: pixels, labels and ids of shards, parameters and optimiser state after N (20) steps,
and predictions. File formats may differ; contents may not. Needs python3-h5py (CHEX_TEST_PYTHON
names another Python). Minutes.
Exit status: 0 all equal, 1 something differs, 2 usage.
END
}

die() {
    echo "tests/compare_builds.sh: $2" >&2
    exit "$1"
}

steps=20 bins=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --steps)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] || die 2 "--steps '${2-}': expected a number from 1"
        steps=$2
        shift
        ;;
    -*) die 2 "unknown option '$1'; try --help" ;;
    *) bins+=("$1") ;;
    esac
    shift
done
[ ${#bins[@]} = 2 ] || die 2 "expected two folders with chex-shard, chex-train and chex-eval"
for bin in "${bins[@]}"; do
    [ -x "$bin/chex-train" ] || die 2 "$bin: no chex-train"
done

python=''
for candidate in "${CHEX_TEST_PYTHON:-python3}" /usr/bin/python3; do
    [ -n "$python" ] || ! "$candidate" -c 'import h5py' 2>/dev/null || python=$candidate
done
[ -n "$python" ] || die 2 "no h5py in ${CHEX_TEST_PYTHON:-python3}; CHEX_TEST_PYTHON names another"

scratch=$(mktemp -d "${TMPDIR:-/tmp}/chex-compare.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT

# Prints one line per dataset of an HDF5 file: its name, type, shape and the SHA-256 of its values.
digest_h5='
import h5py, hashlib, sys
def show(name, node):
    if isinstance(node, h5py.Dataset) and name not in ("config", "meta"):
        values = node[()]
        data = values.tobytes() if hasattr(values, "tobytes") else repr(values).encode()
        print(name, node.shape, hashlib.sha256(data).hexdigest()[:16])
with h5py.File(sys.argv[1], "r") as file:
    file.visititems(show)
    for name in ("classes", "size", "resize", "split", "source_digest"):
        if name in file.attrs:
            value = file.attrs[name]
            values = [value] if isinstance(value, (str, bytes)) or not hasattr(value, "__len__") else value
            print("@" + name, [v.decode() if isinstance(v, bytes) else str(v) for v in values])
'

# run BIN NAME: all jobs of one build, and the digests of their results in $scratch/NAME.txt.
run() {
    local bin=$1 dir=$scratch/$2 out=$scratch/$2.txt sample=$root/datasets/nih-sample file files name
    local engine precision model size limit
    mkdir -p "$dir"
    "$bin/chex-shard" --images "$sample/images" --labels "$sample/Data_Entry_2017.csv" \
        --split patient --size 64 --shards 3 --output "$dir/shards-64" >"$dir/log" 2>&1 &&
        "$bin/chex-shard" phantom --count 40 --size 224 --seed 2 --output "$dir/phantom" \
            >>"$dir/log" 2>&1 &&
        "$bin/chex-shard" --images "$dir/phantom/images" --labels "$dir/phantom/labels.csv" \
            --split patient --fractions 0.6,0.2,0.2 --size 224 --shards 1 \
            --output "$dir/shards-224" >>"$dir/log" 2>&1 ||
        die 1 "$bin/chex-shard failed: $(tail -n 1 "$dir/log")"
    while read -r engine precision model size limit; do
        name=$engine-$precision-$model-$size
        "$bin/chex-train" --data "$dir/shards-$size" --output "$dir/$name" --engine "$engine" \
            --precision "$precision" --model "$model" --image-size "$size" --batch-size 4 \
            --logical-ranks 2 --threads 2 --seed 3 --deterministic --max-steps "$limit" \
            >>"$dir/log" 2>&1 || die 1 "$bin/chex-train failed: $(tail -n 1 "$dir/log")"
        "$bin/chex-eval" --data "$dir/shards-$size" --checkpoint "$dir/$name/last.h5" --engine "$engine" \
            --precision "$precision" --bootstrap 50 --output "$dir/$name/eval" >>"$dir/log" 2>&1 ||
            die 1 "$bin/chex-eval failed: $(tail -n 1 "$dir/log")"
    done <<END
cpu bf16 densenet121 64 $steps
cpu fp32 densenet121 64 $steps
cpu fp32-strict resnet50 64 $steps
cpu bf16 densenet121 224 2
cpu fp32 densenet121 224 2
cpu fp32 resnet50 224 2
END
    (
        cd "$dir" || exit 1
        mapfile -t files < <(find . -name '*.h5' ! -path '*/checkpoints/*' | sort)
        for file in "${files[@]}"; do
            echo "== $file"
            "$python" -c "$digest_h5" "$file" || exit 1
        done
        find . -name predictions.csv | sort | xargs sha256sum
    ) >"$out" || die 1 "cannot read the results of $bin"
}

run "${bins[0]}" old
run "${bins[1]}" new
if ! diff "$scratch/old.txt" "$scratch/new.txt"; then
    echo "the two builds differ"
    exit 1
fi
echo "equal: $(grep -c '^== ' "$scratch/new.txt") files, $(wc -l <"$scratch/new.txt") lines of digests"
