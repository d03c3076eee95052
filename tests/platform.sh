#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Long: tests/run.sh in another release of Debian, with its compiler, HDF5, PMIx, Open MPI and Slurm.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=debian_root.sh
. "$root/tests/debian_root.sh"

usage() {
    cat <<'END'
usage: tests/platform.sh SUITE [STAGE | --tests REGEX]
Makes a minimal Debian SUITE, such as trixie or sid, in a temporary folder, clones this tree's HEAD into it,
prints the versions of what chexnet depends on, and runs tests/run.sh there as root. The folder is
removed at the end. Packages come from where this machine's apt gets its own. Needs root, debootstrap
and 6 GB of disk; half an hour or more.
  STAGE          this stage of tests/run.sh only, or several, with commas
  --tests REGEX  of stage release, only the tests whose names match, such as 'slurm-13|unit-coll'
  --help
Exit status: that of tests/run.sh, 2 usage, 77 it cannot be tried here.
END
}

die() {
    echo "platform: $2" >&2
    exit "$1"
}

case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
'' | -*) die 2 "SUITE is missing; try --help" ;;
esac
suite=$1
shift
case $# in
0) options=() ;;
1) options=(--stage "$1") ;;
*) options=(--stage release "$@") ;;
esac
[[ $# -le 1 && ${1-} != -* ]] || [[ $# = 2 && $1 = --tests ]] ||
    die 2 "'$*': expected STAGE or --tests REGEX; try --help"
why=$(debian_root_needs) || die 77 "$why"
command -v git >/dev/null || die 77 "git is not installed"

dir=$(mktemp -d "${TMPDIR:-/var/tmp}/chex-platform.XXXXXX") || die 1 "no temporary folder can be made"
trap 'debian_root_remove "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
echo "== a minimal Debian ($suite) in $dir/root"
debian_root_make "$dir/root" "$suite" || die 77 "debootstrap makes no $suite here"
git clone -q --no-hardlinks "$root" "$dir/root/root/chexnet" || die 1 "cannot clone $root"

# shellcheck disable=SC2016 # the shell in the root expands it
debian_root_run "$dir/root" '. chexnet/share/packages.sh
    packages_install $packages_build $packages_test || exit
    for package in gcc libhdf5-dev libpmix-dev libopenmpi-dev slurmctld; do
        dpkg-query -W -f "== \${Package} \${Version}\n" $package
    done' || die 1 "the packages of tests/run.sh cannot be installed in $suite"
debian_root_run "$dir/root" "cd chexnet && tests/run.sh ${options[*]@Q}"
