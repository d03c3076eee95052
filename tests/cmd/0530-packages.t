#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The Debian packages that cpack makes: their files and dependencies, a training from the installed
# files in a root of their own, and the removal, which leaves no file. The tarball trains from any folder.
source "$(dirname "$0")/lib.sh"
have cpack || skip_all "no cpack here"
mpi="not installed"
[ ! -f "$BUILD/lib/chexnet-mpi.so" ] || mpi=loads

# trained_by BIN LABEL: shards and three steps of training by the commands of a folder.
trained_by() {
    local bin=$1
    expect_status 0 "$bin/chex-train" --version
    expect_status 0 "$bin/chex-shard" phantom --count 16 --size 32 --output phantom
    expect_status 0 "$bin/chex-shard" create --images phantom/images --labels phantom/labels.csv \
        --split patient --size 32 --shards 1 --output shards
    expect_status 0 "$bin/chex-train" --data shards --output run --engine cpu --image-size 32 \
        --batch-size 2 --max-steps 3 --threads 1 --workers 1
    [ -f run/last.h5 ]
    ok $? "$2: three steps of training write a checkpoint"
    expect_status 0 "$bin/chex-env" -v --mode login
    like "$(out)" "modules +(pass|warn) +mpi $mpi" "$2: the commands find their parts"
    rm -rf phantom shards run
}

debs() {
    dpkg --root="$SCRATCH/root" --force-not-root --force-depends --force-script-chrootless "$@"
}
if have dpkg && have dpkg-shlibdeps && have file; then
    prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$BUILD/CMakeCache.txt")
    expect_status 0 cpack --config "$BUILD/CPackConfig.cmake" -G DEB -B "$SCRATCH/deb"
    parts=chexnet
    for part in cuda dicom mpi mpich; do
        [ ! -f "$BUILD/lib/chexnet-$part.so" ] || parts="$parts chexnet-$part"
    done
    is "$(for deb in deb/*.deb; do dpkg-deb -f "$deb" Package; done | sort | tr '\n' ' ')" \
        "$parts chexnet-slurm " "there is a package for each part that was built"
    for deb in deb/*.deb; do
        package=$(dpkg-deb -f "$deb" Package)
        [ "$package" = chexnet ] || like "$(dpkg-deb -f "$deb" Depends)" \
            "^chexnet \(= $(dpkg-deb -f "$deb" Version)\)" "$package needs chexnet of its version"
        for needed in $(dpkg-deb -f "$deb" Depends | sed 's/([^)]*)//g; s/chexnet *,//' | tr ',' ' '); do
            dpkg-query -W -f '${db:Status-Status}\n' "$needed" 2>&1 | grep -qx installed || echo "$needed"
        done >absent
        is "$(cat absent)" "" "$package: the dependencies are packages that this build used"
        is "$(dpkg-deb --ctrl-tarfile "$deb" | tar -t | sort | tr '\n' ' ')" "./control ./md5sums " \
            "$package: no script runs as root when it is installed"
        dpkg-deb -c "$deb" | awk '{ print $6 }' >list
        unlike "$(cat list)" "$SCRATCH|modulefiles" "$package: no modulefile, no folder of the build"
        case $package in
        chexnet-slurm) like "$(cat list)" "/chexnet/slurm/prolog\.sh$" "$package has the site's scripts" ;;
        chexnet-*) is "$(grep -c '[^/]$' list)" 1 "$package has one file" ;;
        esac
    done
    mkdir -p root/var/lib/dpkg/updates root/var/lib/dpkg/info
    touch root/var/lib/dpkg/status
    expect_status 0 debs -i deb/*.deb
    trained_by "root$prefix/bin" "packages"
    like "$(cat root"$prefix"/share/chexnet/slurm/slurm.conf.sample)" \
        "^Prolog=$prefix/share/chexnet/slurm/prolog\.sh$" "the sample names the scripts that were installed"
    # shellcheck disable=SC2086
    expect_status 0 debs -P $parts chexnet-slurm
    is "$(find root -path root/var/lib/dpkg -prune -o ! -type d -print)" "" "the removal leaves no file"
else
    skip "no dpkg, dpkg-shlibdeps or file here" 20
fi

# The tarball, in a folder whose name no build knows.
expect_status 0 cpack --config "$BUILD/CPackConfig.cmake" -G TGZ -B "$SCRATCH/tgz"
mkdir "any folder"
tar -xzf tgz/chexnet-*.tar.gz -C "any folder" --strip-components=1
trained_by "any folder/bin" "tarball"
mkdir "moved on"
mv "any folder" "moved on/chexnet"
trained_by "moved on/chexnet/bin" "moved tarball"
is "$(grep -rl "$SCRATCH" "moved on")" "" "the tarball names no folder in which it was made"
if have ldd; then
    library=$(ldd "moved on/chexnet/bin/chex-train" | awk '$1 ~ /^libjansson/ { print $3 }')
    cp "$library" "moved on/chexnet/lib/chexnet/"
    like "$(ldd "moved on/chexnet/bin/chex-train")" "libjansson[^ ]* => $SCRATCH/moved on/chexnet/" \
        "a library beside the loadable parts is preferred"
else
    skip "no ldd here"
fi
lmod=/usr/share/lmod/lmod/init/bash
if [ -f $lmod ] && ! without LMOD; then
    mv "moved on/chexnet" tree
    is "$(env -i HOME="$SCRATCH" PATH=/usr/bin:/bin bash -c ". $lmod; module use $SCRATCH/tree/share/modulefiles
        module load chexnet; command -v chex-train" 2>&1)" "$SCRATCH/tree/bin/chex-train" \
        "the modulefile of an unpacked tarball finds its tree"
else
    skip "no Lmod here"
fi
done_testing
