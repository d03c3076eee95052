# SPDX-License-Identifier: Apache-2.0
"""Spack recipe. Set `git` to your clone, put this folder into `packages` of a Spack repository, and
run `spack install chexnet`. PMIx and MPI must be those of your Slurm: make them externals."""
from spack.package import *


class Chexnet(CMakePackage, CudaPackage):
    """Chest X-rays from PNG files to a per-pathology AUROC table on a Slurm cluster."""

    homepage = "file:///opt/src/chexnet"
    git = "file:///opt/src/chexnet"
    license("Apache-2.0")

    version("main", branch="main")

    variant("mpi", default=True, description="several ranks")
    variant("dicom", default=False, description="DICOM images")
    variant("slurm", default=True, description="SPANK plugin")

    generator("ninja")
    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+dicom")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("hdf5@1.10:")
    depends_on("pmix@4:")
    depends_on("hwloc@2:")
    depends_on("libpng")
    depends_on("libjpeg-turbo")
    depends_on("zlib-api")
    depends_on("jansson")
    depends_on("xxhash")
    depends_on("isa-l")
    depends_on("libdeflate")
    depends_on("libarchive")
    depends_on("openmpi", when="+mpi")
    depends_on("dcmtk", when="+dicom")
    depends_on("openjpeg", when="+dicom")
    depends_on("slurm", when="+slurm")
    depends_on("cuda@12.9:13", when="+cuda")
    depends_on("cudnn@9:", when="+cuda")
    depends_on("nccl", when="+cuda")

    def cmake_args(self):
        args = [self.define_from_variant(f"CHEX_WITH_{part.upper()}", part)
                for part in ("mpi", "dicom", "slurm", "cuda")]
        if "+slurm" in self.spec:
            args.append(self.define("SLURM_ROOT", self.spec["slurm"].prefix))
        return args
