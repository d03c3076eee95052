# SPDX-License-Identifier: Apache-2.0
"""A split of a chexnet set (chex-shard) as a dataset for PyTorch. Needs h5py and numpy.

    from chexnet_dataset import ChexnetDataset
    train = ChexnetDataset("shards", "train")
    for images, labels in torch.utils.data.DataLoader(train, 32, shuffle=True, num_workers=4): ...

Row i is the pair of
- the image, uint8 (1, size, size), after transform(image) if there is one;
- the label, int8 (classes): 1 positive, 0 negative, below 0 uncertain or not stated. Leave the
  entries below 0 out of the loss: labels >= 0 is the mask.
Both are tensors, or numpy arrays where torch is not installed. Rows have the order of the manifest.
Also: classes, size, labels (rows, classes), image_ids, patient_ids; study_ids ("" unknown) and
original_sizes (rows, 2), height and width of the image files, 0 where the set does not state them. The pixels are not compared with
their checksums: `chex-shard verify` does that.
"""
import json
import os

import h5py
import numpy as np

try:
    import torch
    from torch.utils.data import Dataset
except ImportError:
    torch, Dataset = None, object


class ChexnetDataset(Dataset):
    def __init__(self, folder, split="train", transform=None):
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            manifest = json.load(file)
        if (manifest.get("schema"), manifest.get("version")) != ("chexnet-manifest", 1):
            raise ValueError(f"{folder}: not a chexnet set of version 1")
        if split not in manifest["splits"]:
            raise ValueError(f"{folder}: no split {split} (it has {', '.join(manifest['splits'])})")
        shards = manifest["splits"][split]["shards"]
        self.classes, self.size, self.transform = manifest["classes"], manifest["size"], transform
        self.paths = [os.path.join(folder, shard["file"]) for shard in shards]
        self.first = np.cumsum([0] + [shard["rows"] for shard in shards])  # of each shard, and rows
        labels, self.image_ids, self.patient_ids, self.study_ids = [], [], [], []
        sizes = []
        for path, shard in zip(self.paths, shards):
            with h5py.File(path, "r") as file:
                if file["image"].shape != (shard["rows"], self.size, self.size):
                    raise ValueError(f"{path}: image: {file['image'].shape}, not as the manifest says")
                labels.append(file["label"][()])
                self.image_ids += [name.decode() for name in file["image_id"][()]]
                self.patient_ids += [name.decode() for name in file["patient_id"][()]]
                self.study_ids += ([name.decode() for name in file["study_id"][()]]
                                   if "study_id" in file else [""] * shard["rows"])
                sizes.append(file["original_size"][()] if "original_size" in file
                             else np.zeros((shard["rows"], 2), np.uint16))
        self.labels, self.original_sizes = np.concatenate(labels), np.concatenate(sizes)
        self._pixels, self._process = {}, None

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        row = range(len(self))[row]  # from the end if negative; IndexError if there is none
        shard = int(np.searchsorted(self.first, row, "right")) - 1
        image = np.array(self._shard(shard)[row - self.first[shard]])[None]
        label = self.labels[row].copy()
        if torch:
            image, label = torch.from_numpy(image), torch.from_numpy(label)
        return (self.transform(image) if self.transform else image), label

    def _shard(self, shard):
        """The pixels of a shard. Each process opens its own: HDF5 files do not survive a fork."""
        if self._process != os.getpid():
            self._pixels, self._process = {}, os.getpid()
        if shard not in self._pixels:
            image = h5py.File(self.paths[shard], "r")["image"]
            offset = image.id.get_offset()  # None: chunks, which only files of other writers have
            self._pixels[shard] = image if offset is None or image.dtype != np.uint8 else np.memmap(
                self.paths[shard], np.uint8, "r", offset, image.shape)
        return self._pixels[shard]

    def __getstate__(self):
        return {**self.__dict__, "_pixels": {}, "_process": None}
