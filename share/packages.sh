# shellcheck shell=bash disable=SC2034
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by share/quickstart.sh and tests/run.sh: the Debian packages that each needs, and how they
# are installed. The only such list.
packages_build="gcc libc6-dev cmake ninja-build pkg-config libhdf5-dev libpmix-dev libhwloc-dev
    libpng-dev libjpeg62-turbo-dev zlib1g-dev libjansson-dev libxxhash-dev libisal-dev libdeflate-dev
    libarchive-dev libopenmpi-dev"
packages_test="git ccache clang libclang-rt-dev clang-format cppcheck valgrind shellcheck mandoc man-db
    procps iproute2 python3 python3-h5py python3-numpy python3-pil python3-xxhash python3-yaml hdf5-tools g++ libdcmtk-dev
    libopenjp2-7-dev libopenjp2-tools openmpi-bin mpich libmpich-dev librsvg2-bin fonts-dejavu-core slurm-wlm slurmctld slurmd
    slurm-wlm-basic-plugins
    slurm-client libslurm-dev munge lmod rpm bash-completion zsh fish tcl libxml2-utils strace dpkg-dev file
    xxhash"
# Debian installs either lmod or environment-modules. The tests name their files, so the second one
# is only unpacked.
packages_test_unpacked="environment-modules"

# Those of the given packages that are not installed.
packages_missing() {
    local package
    for package; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed ||
            printf '%s ' "$package"
    done
}

# packages_unpack DIR PACKAGE...: the files of packages that cannot be installed beside others. The
# folder appears when it is complete. Without a way to download it returns 1; what needs it skips.
packages_unpack() {
    local dir=$1 part
    shift
    command -v dpkg-deb >/dev/null && command -v apt-get >/dev/null || return 1
    [ ! -d "$dir" ] || return 0
    echo "unpacking: $*"
    part=$(mktemp -d "$dir.XXXXXX") || return 1
    if (cd "$part" && { apt-get download "$@" || { apt-get update && apt-get download "$@"; }; } &&
        for deb in *.deb; do dpkg-deb -x "$deb" . || exit 1; done) >"$part/log" 2>&1; then
        mv "$part" "$dir"
    else
        tail -n 3 "$part/log" >&2
        rm -rf "$part"
        return 1
    fi
}

# packages_install PACKAGE...: installs what is missing. Without the right to do so it says in one
# line what is to be run, and returns 4. Elsewhere than on Debian the build says what it misses.
packages_install() {
    command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || return 0
    local missing as_root=() log
    read -ra missing <<<"$(packages_missing "$@")"
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "please run: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
            return 4
        fi
        as_root=(sudo -n)
    fi
    echo "installing: ${missing[*]}"
    log=$(mktemp) || return 1
    if ! "${as_root[@]}" apt-get update >"$log" 2>&1 ||
        ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "apt-get could not install: ${missing[*]}" >&2
        rm -f "$log"
        return 4
    fi
    rm -f "$log"
}
