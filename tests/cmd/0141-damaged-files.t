# SPDX-License-Identifier: Apache-2.0
# Damaged checkpoints, manifests and metrics that would change a result are refused with status 3,
# and a run resumes from the checkpoint before.
source "$(dirname "$0")/lib.sh"
need python3

# flip FILE OFFSET: changes the lowest bit of one byte. find_text FILE TEXT: its offset.
flip() {
    python3 -c 'import sys
f = open(sys.argv[1], "r+b"); f.seek(int(sys.argv[2])); c = f.read(1)[0]
f.seek(int(sys.argv[2])); f.write(bytes([c ^ 1]))' "$@"
}
find_text() { python3 -c 'import sys; print(open(sys.argv[1], "rb").read().index(sys.argv[2].encode()))' "$@"; }

chex-shard phantom --count 40 --size 32 --seed 1 --output ph --quiet || exit 1
chex-shard --images ph/images --labels ph/labels.csv --split patient --shards 2 --size 32 \
    --output set --quiet || exit 1
train=(chex-train --data set --output run --model densenet_tiny --image-size 32 --batch-size 2 --engine cpu
    --checkpoint-every 1steps --checkpoint-keep 9 --quiet)
expect_status 0 "${train[@]}" --max-steps 3
newest=run/checkpoints/step-0000000003.h5

# A class name, the image size and the size of the file's metadata: all are under the checksum.
cp $newest sound.h5
for text in Cardiomegaly image_size densenet_tiny; do
    cp sound.h5 bad.h5
    flip bad.h5 "$(find_text bad.h5 $text)"
    expect_status 3 chex-eval export --checkpoint bad.h5 --output w.safetensors
    error_line "bad.h5: damaged: its content has the checksum" "a changed '$text' is refused"
done
cp --remove-destination sound.h5 $newest
flip $newest "$(find_text $newest Cardiomegaly)"
rm run/last.h5 run/best.h5
python3 - <<'END'
lines = open("run/metrics.jsonl", "rb").read().split(b"\n")
lines[0] = b"\0" + lines[0]
open("run/metrics.jsonl", "wb").write(b"\n".join(lines))
END
before=$(grep -ac '"kind":"step"' run/metrics.jsonl)
expect_status 0 "${train[@]}" --max-steps 4 --resume auto
like "$(err)" "step-0000000003.h5: damaged.*going on from run/checkpoints/step-0000000002.h5" \
    "--resume auto goes on from the checkpoint before a damaged one"
like "$(err)" "run/metrics.jsonl: 1 damaged line is dropped \(line 1;" "a damaged line of metrics is reported"
is "$(grep -c '"kind":"step"' run/metrics.jsonl)" "$before" "all other lines of the metrics are kept"

# No checkpoint can be read: last.h5 is named, whether it is the numbered file or another one.
for file in run/checkpoints/*.h5; do flip "$file" "$(find_text "$file" Cardiomegaly)"; done
expect_status 3 "${train[@]}" --max-steps 5
like "$(err)" "step-0000000004.h5: damaged.*; run/last.h5 is the same file" "the other names of a damaged checkpoint are given"
error_line "no other checkpoint in run can be read" "a run without a sound checkpoint does not start again"
rm run/checkpoints/*.h5
for name in last best; do head -c 5000 bad.h5 >$name.h5 && mv $name.h5 run/; done
expect_status 3 "${train[@]}" --max-steps 5
error_line "run/last.h5.*run/best.h5.*no other checkpoint" "last.h5 and best.h5 are both named"

# Shards and manifest.
expect_status 0 chex-shard verify set
for text in pillow-bilinear Edema; do
    cp -r set changed
    flip changed/train/train-00000-of-00002.h5 \
        "$(find_text changed/train/train-00000-of-00002.h5 $text)"
    expect_status 3 chex-shard verify changed
    error_line "train-00000-of-00002.h5: damaged" "a changed '$text' of a shard is refused"
    rm -r changed
done
sed -i 's/"source_digest": "./"source_digest": "x/' set/manifest.json
expect_status 3 chex-shard verify set
error_line "set/manifest.json: its content does not match its digest" "a changed manifest is noticed"
python3 - <<'END'
import json
m = json.load(open("set/manifest.json"))
m.pop("digest", None)
json.dump(m, open("set/manifest.json", "w"))
END
expect_status 3 chex-shard verify set
error_line "set/manifest.json: its content does not match its digest" "a manifest needs its digest"
done_testing
