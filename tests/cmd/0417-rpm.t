#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The packages for RHEL 9 that cpack makes: their requirements, owners and files; installation and
# removal in a root with rpm's own database, in which a stand-in provides RHEL's packages.
source "$(dirname "$0")/lib.sh"
need cpack rpm rpmbuild
[ "$(id -u)" = 0 ] || skip_all "rpm --root needs root"
prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$BUILD/CMakeCache.txt")
export HOME=$SCRATCH # the user's ~/.rpmmacros is not the point

expect_status 0 cpack --config "$BUILD/CPackConfig.cmake" -G RPM -B "$SCRATCH/rpm"
parts=chexnet
for part in cuda dicom mpi mpich; do
    [ ! -f "$BUILD/lib/chexnet-$part.so" ] || parts="$parts chexnet-$part"
done
of() { rpm -qp "$@" 2>/dev/null; }
is "$(of --qf '%{name}\n' rpm/*.rpm | sort | tr '\n' ' ')" "$parts chexnet-slurm " \
    "there is a package for each part that was built"
is "$(of --scripts --triggers rpm/*.rpm)" "" "no script runs as root"
is "$(of --qf '[%{fileusername}:%{filegroupname}\n]' rpm/*.rpm | sort -u)" root:root "root owns every file"
is "$(of --qf '[%{filemodes:perms}\n]' rpm/*.rpm | grep -cE '^.(.{4}w|.{7}w)')" 0 "only root can write them"
is "$(of --qf '[%{filemodes:perms} %{filenames}\n]' rpm/*.rpm | grep '^d' | grep -v /chexnet)" "" \
    "no package owns a folder of another package"

needs() { # PACKAGE NAME...: the package requires these packages
    local required name
    required=$(of --requires "rpm/$1"-0*.rpm "rpm/$1"-[1-9]*.rpm)
    for name in "${@:2}"; do
        grep -qx "$name" <<<"$required" || echo "$name"
    done
}
is "$(needs chexnet hdf5 pmix hwloc-libs libpng libjpeg-turbo zlib jansson)" "" \
    "chexnet requires packages by their names in RHEL 9 and EPEL 9"
like "$(of --requires rpm/chexnet-0*.rpm)" "^libjansson[.]so[.]4\(\)\(64bit\)$" "it requires the sonames, too"
for package in $parts chexnet-slurm; do
    [ "$package" = chexnet ] || like "$(of --requires rpm/"$package"-0*.rpm)" \
        "^chexnet = $(of --qf '%{version}-%{release}' rpm/chexnet-0*.rpm)$" "$package needs chexnet of its version"
done
is "$(needs chexnet-slurm slurm)" "" "chexnet-slurm requires slurm"
if [ -f "$BUILD/lib/chexnet-mpi.so" ]; then
    is "$(needs chexnet-mpi openmpi)" "" "chexnet-mpi requires openmpi"
    unlike "$(of --requires rpm/chexnet-mpi-*.rpm)" "libmpi" \
        "it does not require libmpi, which RHEL's package provides under another name"
else
    skip "built without MPI" 2
fi

# The stand-in provides all that is required, except chexnet itself and features of rpm.
rpms() { rpm --root "$SCRATCH/root" --dbpath /var/lib/rpm "$@"; }
{
    printf '%s\n' "Name: rhel" "Version: 9" "Release: 1" "Summary: stand-in" "License: none" "BuildArch: noarch" \
        "AutoReqProv: no"
    of --requires rpm/*.rpm | grep -vE '^(rpmlib|chexnet)' | sort -u | sed 's/^/Provides: /'
    printf '%s\n' "%description" "stand-in" "%files"
} >rhel.spec
expect_status 0 rpmbuild -bb --define "_topdir $SCRATCH/stand-in" rhel.spec
mkdir root
rpms --initdb
! rpms -i rpm/*.rpm 2>err
ok $? "without RHEL's packages the installation is refused"
like "$(err)" "hdf5 is needed by chexnet-" "the missing packages are named"
expect_status 0 rpms -i stand-in/RPMS/noarch/rhel-9-1.noarch.rpm
expect_status 0 rpms -i rpm/*.rpm
# shellcheck disable=SC2086
is "$(rpms -V $parts chexnet-slurm)" "" "rpm finds every file as it was packed"
expect_status 0 "root$prefix/bin/chex-train" --version
if [ -f "$BUILD/lib/chexnet-mpi.so" ]; then
    expect_status 0 "root$prefix/bin/chex-env" -v --mode login
    like "$(out)" "modules +(pass|warn) +mpi loads" "the commands find their parts"
else
    skip "built without MPI" 2
fi
# shellcheck disable=SC2086
expect_status 0 rpms -e $parts chexnet-slurm
is "$(find root -path root/var/lib/rpm -prune -o -name '*chex*' -print)" "" "the removal leaves no file and no folder"
done_testing
