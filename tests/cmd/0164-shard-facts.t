#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Shards keep the study of an image where the labels state it, and the size of its file: from files,
# from archives, after resharding. Both are optional.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "$0")/lib.sh"
quiet() { "$@" >setup.log 2>&1 || { cat setup.log; exit 1; }; }
info() { chex-shard info "$1" --json | grep -oE '"(study_ids|original_sizes)": [0-9]+' | tr -d '" ' | tr '\n' ' '; }
digest() { chex-shard info "$1" --json | grep -o '"digest": "[0-9a-f]*"'; }
shard=all/all-00000-of-00001.h5
make=(--split none --size 24 --shards 1)

quiet chex-shard phantom --count 12 --size 48 --output ph
awk -F, 'NR == 1 {print "image,patient,exam,Effusion"}
    NR > 1 {print $1 "," $4 "," (NR % 3 ? "e" int(NR / 2) : "") "," ($2 ~ /Effusion/)}' ph/labels.csv >labels.csv
columns=(--labels labels.csv --format csv --columns "image=image,patient=patient,study=exam,labels=Effusion")
expect_status 0 chex-shard --images ph/images "${columns[@]}" "${make[@]}" --output files
is "$(info files/$shard)" "study_ids:8 original_sizes:12 " "studies of the named column, and sizes"
like "$(chex-shard info files/$shard)" '^rows with a study id: 8, with the size of the image file: 12$' "info says so"
expect_status 0 chex-shard verify files
expect_status 0 chex-shard --images ph/images --labels ph/labels.csv "${make[@]}" --output nih
is "$(info nih/$shard)" "study_ids:0 original_sizes:12 " "the NIH's table has no studies"
mkdir tar && tar -C ph -czf tar/images.tar.gz images && tar -C ph -cf plain.tar images
expect_status 0 chex-shard --images tar "${columns[@]}" "${make[@]}" --output packed
cmp -s files/$shard packed/$shard
ok $? "a compressed archive gives the same shard"
expect_status 0 chex-shard reshard files --shards 3 --output three
expect_status 0 chex-shard reshard three --shards 1 --output back
is "$(digest back/$shard)" "$(digest files/$shard)" "resharding keeps studies and sizes"
before=$(stat -c %i:%Y files/$shard)
expect_status 0 chex-shard --images ph/images "${columns[@]}" "${make[@]}" --output files --resume
is "$(stat -c %i:%Y files/$shard)" "$before" "a complete set with studies is not made again"
sed -i '2s/,e[0-9]*,/,other,/' labels.csv
expect_status 0 chex-shard --images ph/images "${columns[@]}" "${make[@]}" --output changed
[ "$(digest changed/$shard)" != "$(digest files/$shard)" ]
ok $? "another study is another digest"
expect_status 0 chex-shard info "$SOURCE/tests/data/broken/good.h5"
like "$(out)" 'rows with a study id: 0, with the size of the image file: 0' "a shard without the two datasets is read"

if ! python_with h5py,numpy,PIL; then
    skip "no python3 with h5py, numpy and Pillow here" 11
else
    mkdir -p cx/train/patient00001/study{1,2}
    "$python" - <<'END'
from PIL import Image
import numpy as np
for study, size in ((1, (900, 500)), (2, (64, 48))):
    noise = np.random.default_rng(study).integers(0, 255, size[::-1], dtype=np.uint8)
    Image.fromarray(noise).save(f"cx/train/patient00001/study{study}/view1_frontal.jpg")
END
    findings="No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
    { echo "Path,Sex,Age,Frontal/Lateral,AP/PA,$findings"
        for s in 1 2; do echo "CheXpert-v1.0/train/patient00001/study$s/view1_frontal.jpg,Male,50,Frontal,AP,,,,,,1.0,,,,,,,,"; done; } >cx.csv
    expect_status 0 chex-shard --images cx --labels cx.csv "${make[@]}" --output cxs
    expect_status 0 "$python" - cxs/$shard <<'END'
import sys, h5py
f = h5py.File(sys.argv[1], "r")
for row in sorted(zip(f["study_id"][()], f["original_size"][()].tolist())):
    print(row[0].decode(), *row[1])
END
    is "$(out)" "patient00001/study1 500 900
patient00001/study2 48 64" "CheXpert's studies; sizes of JPEG files that were decoded at a fraction"
    expect_status 0 "$python" - <<END
import sys
sys.path.insert(0, "$SOURCE/share/python")
from chexnet_dataset import ChexnetDataset
d = ChexnetDataset("cxs", "all")
print(sorted(d.study_ids), sorted(d.original_sizes.tolist()), ChexnetDataset("nih", "all").study_ids[:2])
END
    is "$(out)" "['patient00001/study1', 'patient00001/study2'] [[48, 64], [500, 900]] ['', '']" \
        "the Python reader has both"
    cp files/$shard bad.h5
    for fault in "del f['original_size']; f['original_size'] = numpy.zeros((12, 3), 'u2')|has 3 columns, expected height and width" \
        "del f['original_size']; f['original_size'] = numpy.zeros((12, 2), 'u4')|not of type u16" \
        "del f['study_id']; f['study_id'] = numpy.zeros(11, 'S4')|has 11 rows, 'image' has 12"; do
        "$python" - "${fault%%|*}" <<'END'
import sys, h5py, numpy, shutil
shutil.copy("bad.h5", "fault.h5")
with h5py.File("fault.h5", "r+") as f:
    exec(sys.argv[1])
END
        "$python" "$SOURCE/tests/tools/checksum_record.py" fault.h5
        expect_status 3 chex-shard info fault.h5
        error_line "${fault##*|}" "a wrong dataset is refused: ${fault##*|}"
    done
fi
done_testing
