#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Another reader, written from doc/shard-format.md alone, finds in a set what create and
# reshard say is there.
source "$(dirname "$0")/lib.sh"
python_with h5py || skip_all "no python3 with h5py here"

chex-shard phantom --count 150 --size 40 --output ph -q >/dev/null || exit 1
truncate -s 100 ph/images/00000003_000.png
chex-shard --images ph/images --labels ph/labels.csv --split patient --size 32 --shards 4 \
    --max-bad 1 --output four -q >/dev/null || exit 1
chex-shard reshard four --output three --shards 3 -q >/dev/null || exit 1
read_set() { expect_status 0 "$python" "$SOURCE/tests/peers/read_shard.py" "$@"; }
read_set four --images ph/images
like "$(out | head -n 1)" "^train [0-9]+ 4 [0-9]+$" "types, ranges, ids, checksums, digests and sources"
if grep -q "no xxhash" err; then
    skip "checksums: no xxhash here"
else
    pass "checksums were compared"
fi
out | cut -d' ' -f1,2,4 >want
read_set three
is "$(out | cut -d' ' -f1,2,4)" "$(cat want)" "after resharding the pixels have the same sum"

# Files of another writer: other versions of the format, texts of variable length, a user block.
"$python" - "$(ls four/train/*.h5 | head -n 1)" <<'END' || exit 1
import h5py
import sys
for name, options in (("earliest", {}), ("latest", {"libver": "latest"}),
                      ("block", {"userblock_size": 512})):
    with h5py.File(sys.argv[1]) as old, h5py.File(f"{name}.h5", "w", **options) as new:
        for key, value in old.attrs.items():
            if key == "classes":
                new.attrs.create(key, [v.decode() for v in value], dtype=h5py.string_dtype())
            else:
                new.attrs[key] = value.decode() if isinstance(value, bytes) else value
        for key in old:
            new.create_dataset(key, data=old[key][()])
END
"$python" "$SOURCE/tests/tools/checksum_record.py" {earliest,latest,block}.h5 || exit 1
for name in earliest latest block; do
    expect_status 0 chex-shard verify $name.h5
    like "$(out)" "$name.h5: sound" "a shard that h5py wrote ($name) is read"
done
cp "$(ls four/train/*.h5 | head -n 1)" changed.h5
"$python" -c 'import h5py; h5py.File("changed.h5", "r+").attrs["note"] = "text"'
expect_status 3 chex-shard verify changed.h5
error_line 'changed.h5: no checksum record at its end: another program wrote or changed it \(make it again; or, if it is right, append the record as doc/shard-format.md describes\)' \
    "a shard that h5py changed loses its checksum record and is refused"
"$python" "$SOURCE/tests/tools/checksum_record.py" changed.h5
expect_status 0 chex-shard verify changed.h5
like "$(out)" "changed.h5: sound" "a changed shard with a new record is read"
done_testing
