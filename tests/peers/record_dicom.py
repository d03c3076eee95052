# SPDX-License-Identifier: Apache-2.0
"""Records what tests/unit/image_dicom.c compares with, from pydicom.

    record_dicom.py TESTS_DATA      writes TESTS_DATA/dicom/*; needs dcmcjpeg and dcmcjpls (dcmtk)

Small files of every kind that is read or refused, and expected.txt: name, width, height and the grey
pixels in hex: pydicom's modality and VOI functions on the first frame, spread to 0..255 and rounded
half up, MONOCHROME1 inverted. What pydicom cannot decompress was compressed without loss.
"""
import io
import os
import subprocess
import sys

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.filewriter import dcmwrite
from pydicom.pixels import apply_modality_lut, apply_voi, apply_windowing
from pydicom.uid import (DeflatedExplicitVRLittleEndian, ExplicitVRBigEndian,
                         ExplicitVRLittleEndian, ImplicitVRLittleEndian, JPEG2000Lossless,
                         JPEGBaseline8Bit, RLELossless)

WIDTH, HEIGHT = 11, 9


def stored(bits, signed, frames):
    rng = np.random.default_rng(bits * 2 + signed)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else (0, 2**bits)
    values = rng.integers(low, high, (frames, HEIGHT, WIDTH))
    values[:, 0, 0], values[:, -1, -1] = low, high - 1
    return values


def make(bits=12, allocated=16, signed=False, frames=1, photometric="MONOCHROME2",
         syntax=ExplicitVRLittleEndian, shift=0, **tags):
    ds = Dataset()
    ds.file_meta = FileMetaDataset()
    ds.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1"
    ds.file_meta.MediaStorageSOPInstanceUID = "1.2.3.4"
    ds.file_meta.TransferSyntaxUID = syntax
    ds.SOPClassUID, ds.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.1", "1.2.3.4"
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, photometric
    ds.Rows, ds.Columns = HEIGHT, WIDTH
    ds.BitsAllocated, ds.BitsStored, ds.HighBit = allocated, bits, bits - 1 + shift
    ds.PixelRepresentation = int(signed)
    if frames > 1:
        ds.NumberOfFrames = frames
    for tag, value in tags.items():
        setattr(ds, tag, value)
    values = stored(bits, signed, frames)
    raw = (values & (2**bits - 1)) << shift
    order = ">" if syntax == ExplicitVRBigEndian else "<"
    data = raw.astype("u1" if allocated == 8 else order + "u2").tobytes()
    ds.PixelData = data + b"\0" * (len(data) % 2)
    ds["PixelData"].VR = "OB" if allocated == 8 else "OW"
    return ds, values[0]


def voi_lut(first, bits, entries, signed=False, packed=False):
    item = Dataset()
    item.LUTDescriptor = [len(entries) % 65536, first, bits]
    item["LUTDescriptor"].VR = "SS" if signed else "US"
    data = np.asarray(entries).astype("u1" if packed else "<u2").tobytes()
    item.LUTData = data + b"\0" * (len(data) % 2)
    item["LUTData"].VR = "OW"
    return item


def curve(count, bits):
    """An S-shaped curve with steps, which no window can give."""
    x = np.linspace(-3, 3, count)
    return np.floor((np.tanh(x) * 0.5 + 0.5) * (2**bits - 1) / 3) * 3


def look_up(ds, values):
    """PS3.3 C.11.2.1.1: the first item; not by pydicom, which does not read packed entries."""
    item = ds.VOILUTSequence[0]
    count, first, bits = item.LUTDescriptor
    count = count or 65536
    packed = len(item.LUTData) < 2 * count
    entries = np.frombuffer(item.LUTData, "u1" if packed else "<u2")[:count]
    at = np.clip(np.floor(values) - first, 0, count - 1).astype(int)
    out = entries[at] / (2**bits - 1)
    if not packed:  # and pydicom agrees
        theirs = apply_voi(np.floor(values).astype(np.int64), ds, index=0) / (2**bits - 1)
        assert np.array_equal(out, theirs)
    return out


def grey(ds, frame):
    """0..255; `frame` as stored values."""
    dtype = {(False, 8): "u1", (True, 8): "i1", (False, 16): "u2", (True, 16): "i2"}[
        bool(ds.PixelRepresentation), ds.BitsAllocated]
    values = apply_modality_lut(frame.astype(dtype), ds).astype(np.float64)
    if "VOILUTSequence" in ds:
        out = look_up(ds, values)
    elif "WindowCenter" in ds:
        ramp = np.array([-1e9, 1e9])  # what pydicom's window makes of far left and far right
        low, high = apply_windowing(ramp, ds)
        out = (apply_windowing(values, ds) - low) / (high - low)
    else:
        out = (values - values.min()) / max(values.max() - values.min(), 1)
    out = np.floor(out * 255 + 0.5).astype(np.uint8)
    return 255 - out if ds.PhotometricInterpretation == "MONOCHROME1" else out


def save(folder, name, ds):
    dcmwrite(os.path.join(folder, name + ".dcm"), ds, enforce_file_format=True)


def jpeg_baseline():
    ds, _ = make(bits=8, allocated=8, syntax=JPEGBaseline8Bit)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    buffer = io.BytesIO()
    Image.fromarray((x * 15 + y * 8).astype(np.uint8)).save(buffer, "JPEG", quality=95)
    ds.PixelData = encapsulate([buffer.getvalue()])
    ds["PixelData"].is_undefined_length = True
    return ds, np.asarray(Image.open(io.BytesIO(buffer.getvalue())))


def main(folder):
    os.makedirs(folder, exist_ok=True)
    kinds = {
        "mono2-8": dict(bits=8, allocated=8),
        "mono2-10-of-16": dict(bits=10),
        "mono2-12-window": dict(WindowCenter=2000, WindowWidth=1500),
        "mono1-12-window": dict(WindowCenter=1800.5, WindowWidth=2500, photometric="MONOCHROME1"),
        "mono1-16": dict(bits=16, photometric="MONOCHROME1"),
        "two-windows": dict(WindowCenter=[1000, 3000], WindowWidth=[900, 100]),
        "window-1": dict(WindowCenter=2048, WindowWidth=1),
        "window-exact": dict(WindowCenter=2048, WindowWidth=700, VOILUTFunction="LINEAR_EXACT"),
        "window-sigmoid": dict(WindowCenter=2048, WindowWidth=900, VOILUTFunction="SIGMOID"),
        "rescale": dict(RescaleSlope="0.5", RescaleIntercept="-100", WindowCenter=900,
                        WindowWidth=1200),
        "rescale-falling": dict(RescaleSlope="-1", RescaleIntercept="4095"),
        "signed": dict(signed=True, WindowCenter=0, WindowWidth=3000),
        "signed-16": dict(bits=16, signed=True),
        "high-bit": dict(bits=12, shift=4),
        "frames": dict(frames=3),
        "implicit": dict(syntax=ImplicitVRLittleEndian, WindowCenter=2000, WindowWidth=1500),
        "big-endian": dict(syntax=ExplicitVRBigEndian),
        # More values than entries; the second item and the window are not used.
        "voi-lut": dict(VOILUTSequence=[voi_lut(500, 12, curve(3000, 12)), voi_lut(0, 8, [0, 1])],
                        WindowCenter=2000, WindowWidth=1500),
        "voi-lut-rescaled": dict(photometric="MONOCHROME1", RescaleSlope="0.5",
                                 RescaleIntercept="-700", VOILUTSequence=[
                                     voi_lut(-600, 16, curve(1500, 16), signed=True)]),
        "voi-lut-packed": dict(bits=16, VOILUTSequence=[voi_lut(40000, 8, curve(4001, 8),
                                                                packed=True)]),
        "voi-lut-65536": dict(bits=16, signed=True, syntax=ImplicitVRLittleEndian, VOILUTSequence=[
            voi_lut(-32768, 8, curve(65536, 8), signed=True, packed=True)]),
    }
    with open(os.path.join(folder, "expected.txt"), "w") as out:
        def record(name, ds, frame):
            out.write(f"{name} {WIDTH} {HEIGHT} {grey(ds, frame).tobytes().hex()}\n")

        for name, options in kinds.items():
            ds, frame = make(**options)
            save(folder, name, ds)
            record(name, ds, frame)
        ds, frame = make(WindowCenter=2000, WindowWidth=1500)
        record("rle", ds, frame)
        ds.compress(RLELossless, generate_instance_uid=False)
        save(folder, "rle", ds)
        ds, frame = jpeg_baseline()
        save(folder, "jpeg-baseline", ds)
        record("jpeg-baseline", ds, frame)
        for tool, name, source in (("dcmcjpeg", "jpeg-lossless", "mono2-12-window"),
                                   ("dcmcjpls", "jpeg-ls", "mono1-12-window")):
            path = os.path.join(folder, "{}.dcm")
            subprocess.run([tool, path.format(source), path.format(name)], check=True)
            options = kinds[source]
            ds, frame = make(**options)
            record(name, ds, frame)
    refused = {
        "no-rgb": dict(photometric="RGB"),
        "no-window": dict(WindowCenter=5, WindowWidth=0),
        "no-slope": dict(RescaleSlope="0", RescaleIntercept="0"),
        "no-function": dict(WindowCenter=5, WindowWidth=10, VOILUTFunction="CURVE"),
        "deflated": dict(syntax=DeflatedExplicitVRLittleEndian),
        "huge": dict(Rows=65535, Columns=65000),
        "many-frames": dict(NumberOfFrames=2000000000),
        "short": dict(Rows=HEIGHT + 1),
        "no-voi-bits": dict(VOILUTSequence=[voi_lut(0, 17, [0, 1])]),
        "no-voi-entries": dict(VOILUTSequence=[voi_lut(0, 8, [0, 1, 2, 3])]),
    }
    for name, options in refused.items():
        ds, _ = make(**{k: v for k, v in options.items()})
        if name == "no-voi-entries":
            ds.VOILUTSequence[0].LUTDescriptor = [5, 0, 8]
        save(folder, name, ds)
    ds, _ = make(syntax=JPEG2000Lossless)
    ds.PixelData = encapsulate([b"\xff\x4f\xff\x51" + bytes(40)])
    ds["PixelData"].is_undefined_length = True
    save(folder, "jpeg-2000", ds)
    ds, _ = make()
    lut = Dataset()
    lut.LUTDescriptor, lut.ModalityLUTType, lut.LUTData = [2, 0, 16], "US", b"\1\0\2\0"
    lut["LUTDescriptor"].VR, lut["LUTData"].VR = "US", "OW"
    ds.ModalityLUTSequence = [lut]
    save(folder, "modality-lut", ds)
    ds, _ = make()
    del ds.PixelData
    save(folder, "no-pixels", ds)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(os.path.join(sys.argv[1], "dicom"))
