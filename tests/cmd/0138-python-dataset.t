#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# share/python/chexnet_dataset.py reads the rows that libcore reads: order, pixels, labels and ids.
# With torch a DataLoader with two processes gives them, too.
source "$(dirname "$0")/lib.sh"
python_with h5py || skip_all "no python3 with h5py here"
export PYTHONPATH=$SOURCE/share/python PYTHONDONTWRITEBYTECODE=1

chex-shard phantom --count 150 --size 40 --output ph -q >/dev/null || exit 1
chex-shard --images ph/images --labels ph/labels.csv --split patient --size 32 --shards 4 \
    --output shards -q >/dev/null || exit 1
# A set whose second shard is of another writer: chunks, texts of variable length.
cp -r shards foreign
"$python" - foreign/train/train-00001-of-00004.h5 <<'END' || exit 1
import sys
import h5py
with h5py.File(sys.argv[1]) as old, h5py.File("new.h5", "w") as new:
    for key in old:
        text = old[key].dtype.kind == "S"
        new.create_dataset(key, data=old[key][()], dtype=h5py.string_dtype() if text else None,
                           chunks=True)
    new.attrs.update(old.attrs)
END
mv new.h5 foreign/train/train-00001-of-00004.h5
cat >dump.py <<'END'
import pickle
import sys
from chexnet_dataset import ChexnetDataset, torch
data = ChexnetDataset(sys.argv[1], sys.argv[2])
data[0]
data = pickle.loads(pickle.dumps(data))  # as for a worker process that is not forked
rows = data if sys.argv[4:] != ["loader"] else (
    (image[0], label[0]) for image, label in torch.utils.data.DataLoader(data, num_workers=2))
with open(sys.argv[3], "wb") as file:
    for (image, label), name, patient in zip(rows, data.image_ids, data.patient_ids):
        assert image.shape == (1, data.size, data.size) and label.shape == (len(data.classes),)
        file.write(bytes(memoryview(image.numpy() if torch else image)))
        file.write(bytes(memoryview(label.numpy() if torch else label)))
        print(name, patient, sep="\t")
assert (data[-1][0] == data[len(data) - 1][0]).all()
END
for split in train val test; do
    expect_status 0 "$BUILD/tests/dump_rows" shards $split want
    mv out want.ids
    for set in shards foreign; do
        expect_status 0 "$python" dump.py $set $split got
        cmp got want && cmp out want.ids
        ok $? "$set, $split: rows in the same order have the same pixels, labels and ids"
    done
done
if "$python" -c 'import torch' 2>/dev/null; then
    expect_status 0 "$python" dump.py foreign train got loader
    "$BUILD/tests/dump_rows" shards train want >/dev/null
    cmp got want
    ok $? "a DataLoader with two processes gives the same rows"
else
    skip "no torch here" 2
fi
# The lines of doc/export.md, as a user pastes them.
mkdir -p root/share/chexnet bin
ln -s "$SOURCE/share/python" root/share/chexnet/python
ln -s "$(command -v "$python")" bin/python3
sed -n '/^PYTHONPATH=/,/^```/p' "$SOURCE/doc/export.md" | grep -v '^```' >lines
PATH=$SCRATCH/bin:$PATH CHEXNET_ROOT=$SCRATCH/root expect_status 0 bash lines
like "$(out)" "^[0-9]+ .*\(?\[?1, 32, 32\]?\)? \['Atelectasis', " "the lines of doc/export.md read a set"

expect_status 1 "$python" -c 'from chexnet_dataset import *; ChexnetDataset("shards", "all")'
like "$(err)" "^ValueError: shards: no split all \(it has train, val, test\)" "a split that does not exist is named"
expect_status 1 "$python" -c 'from chexnet_dataset import *; data = ChexnetDataset("shards"); data[len(data)]'
like "$(err)" "^IndexError" "a row after the last is an IndexError"
sed -i 's/"version": *1/"version":2/' shards/manifest.json
expect_status 1 "$python" -c 'from chexnet_dataset import *; ChexnetDataset("shards")'
like "$(err)" "^ValueError: shards: not a chexnet set of version 1" "a set of a later version is refused"
done_testing
