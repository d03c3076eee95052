#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-shard reads DICOM in JPEG 2000, as VinDr-CXR has it: the shards are those of the uncompressed
# files. The codestreams come from opj_compress.
source "$(dirname "$0")/lib.sh"
require PYTHON
need opj_compress python3
[ -f "$BUILD/lib/chexnet-dicom.so" ] || skip_all "no module chexnet-dicom.so"
ldd "$BUILD/lib/chexnet-dicom.so" | grep -q libopenjp2 || skip_all "the module was built without OpenJPEG"

cat >make.py <<'PY'
"""make.py pgm: 2 radiographs as PGM. make.py dicom: PGM and j2k to plain/*.dcm and packed/*.dcm."""
import struct, sys

WIDTH, HEIGHT, BITS = 300, 240, (12, 14)


def element(tag, vr, value):
    value += (b"\0" if vr in ("UI", "OW", "OB") else b" ") * (len(value) % 2)
    length = struct.pack("<HI", 0, len(value)) if vr in ("OW", "OB") else struct.pack("<H", len(value))
    return struct.pack("<HH", tag >> 16, tag & 0xffff) + vr.encode() + length + value


def dicom(bits, syntax, pixels):
    short = lambda tag, v: element(tag, "US", struct.pack("<H", v))
    meta = element(0x00020010, "UI", syntax.encode())
    return (bytes(128) + b"DICM" + element(0x00020000, "UL", struct.pack("<I", len(meta))) + meta +
            short(0x00280002, 1) + element(0x00280004, "CS", b"MONOCHROME1") +
            short(0x00280010, HEIGHT) + short(0x00280011, WIDTH) + short(0x00280100, 16) +
            short(0x00280101, bits) + short(0x00280102, bits - 1) + short(0x00280103, 0) +
            element(0x00281050, "DS", b"2000") + element(0x00281051, "DS", b"3500") + pixels)


def item(data):
    data += b"\0" * (len(data) % 2)
    return struct.pack("<HHI", 0xfffe, 0xe000, len(data)) + data


for n, bits in enumerate(BITS, 1):
    name = f"{n:08d}_000"
    values = [(x * y * 7 + x * 31 + (x * 7919 ^ y * 104729) % 61) % 2**bits
              for y in range(HEIGHT) for x in range(WIDTH)]
    if sys.argv[1] == "pgm":
        with open(name + ".pgm", "wb") as f:
            f.write(b"P5\n%d %d\n%d\n" % (WIDTH, HEIGHT, 2**bits - 1) + struct.pack(f">{len(values)}H", *values))
        continue
    raw = element(0x7fe00010, "OW", struct.pack(f"<{len(values)}H", *values))
    open(f"plain/{name}.dcm", "wb").write(dicom(bits, "1.2.840.10008.1.2.1", raw))
    stream = open(name + ".j2k", "rb").read()
    cut = len(stream) // 3 * 2
    pixels = (struct.pack("<HH2sHI", 0x7fe0, 0x0010, b"OB", 0, 0xffffffff) + item(b"") +
              item(stream[:cut]) + item(stream[cut:]) + struct.pack("<HHI", 0xfffe, 0xe0dd, 0))
    open(f"packed/{name}.dcm", "wb").write(dicom(bits, "1.2.840.10008.1.2.4.90", pixels))
    open(f"cut/{name}.dcm", "wb").write(dicom(bits, "1.2.840.10008.1.2.4.90", pixels[:-len(stream) // 4]))
PY
mkdir plain packed cut
python3 make.py pgm
for image in 0000000?_000.pgm; do
    opj_compress -i "$image" -o "${image%.pgm}.j2k" -t 128,128 >opj.log 2>&1 || cat opj.log
done
python3 make.py dicom
for image in plain/*; do echo "${image#*/} 0 1 0 0 0 0 0 0 0 0 0 0 0 0"; done >labels.txt

shard() { chex-shard --images "$1" --labels labels.txt --split none --size 64 --shards 1 --output "$2" "${@:3}"; }
expect_status 0 shard plain a
expect_status 0 shard packed b --workers 2
like "$(out)" "b: 2 images in" "files in JPEG 2000 make a set"
expect_status 0 chex-shard verify b
if have h5dump; then
    for set in a b; do h5dump -d image "$set"/all/*.h5 | sed 1d >$set.pixels; done
    cmp a.pixels b.pixels && [ "$(wc -l <a.pixels)" -gt 500 ]
    ok $? "the pixels are those of the uncompressed files"
else
    skip "no h5dump here"
fi
expect_status 3 shard cut c
error_line '0000000[12]_000.dcm: ' "a file that is cut short is a bad image, and is named"
done_testing
