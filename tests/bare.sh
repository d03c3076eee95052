#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Long: share/quickstart.sh and tests/run.sh from a fresh clone in a minimal Debian made by
# debootstrap, twice each where asked; or Debian packages there. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=debian_root.sh
. "$root/tests/debian_root.sh"
# shellcheck source=options.sh
. "$root/tests/options.sh"

usage() {
    cat <<'END'
usage: tests/bare.sh [OPTION...]
Makes a minimal Debian with git in a folder, clones this tree's HEAD into it, and runs
share/quickstart.sh and tests/run.sh there as root. Packages come from where this machine's apt gets
its own. Needs root, debootstrap, 5 GB of disk and about half an hour.
  --suite NAME   the release of Debian: bookworm (12, the default) or trixie (13)
  --dir DIR      where (a temporary folder, removed at the end)
  --twice        run both a second time
  --only NAME    quickstart or tests
  --run COMMAND  instead of both, such as 'tests/run.sh --stage release --tests slurm-1001'
  --packages DIR instead: apt installs the chexnet*.deb of DIR, three steps are trained, and the
                 packages are removed; some three minutes
  --keep         leave the folder
  --help
Exit status: 0 both succeeded, 1 one failed, 2 usage, 77 it cannot be tried here.
END
}

die() {
    echo "bare: $2" >&2
    exit "$1"
}

suite=bookworm dir='' twice='' only='' run='' keep='' packages=''
read_options "suite dir twice+ only run packages keep+" "$@"
no_words
[[ $only = '' || $only = quickstart || $only = tests ]] ||
    die 2 "--only '$only': expected quickstart or tests"
[ -z "$packages" ] || compgen -G "$packages/chexnet*.deb" >/dev/null ||
    die 2 "--packages '$packages': no chexnet*.deb there"
PATH=$PATH:/usr/sbin:/sbin
why=$(debian_root_needs) || die 77 "$why"
command -v git >/dev/null || die 77 "git is not installed"

[ -n "$dir" ] || dir=$(mktemp -d "${TMPDIR:-/var/tmp}/chex-bare.XXXXXX")
mkdir -p "$dir" || die 1 "cannot make $dir"
dir=$(cd "$dir" && pwd)
target=$dir/root
[ ! -e "$target" ] || die 1 "$target exists"

leave() {
    local status=$?
    trap - EXIT
    if [ "$keep" = yes ]; then
        echo "kept: $dir"
    else
        debian_root_remove "$dir"
    fi
    exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "== a minimal Debian ($suite) in $target"
debian_root_make "$target" "$suite" || die 1 "debootstrap failed"
git clone -q --no-hardlinks "$root" "$target/root/chexnet" || die 1 "cannot clone $root"
echo "== packages before: $(debian_root_run "$target" "dpkg-query -f . -W" | wc -c)"

failed=0
try() { # label, command
    local began=$SECONDS
    echo "== $1"
    debian_root_run "$target" "cd chexnet && $2"
    local status=$?
    echo "== $1: status $status after $((SECONDS - began)) s"
    [ $status = 0 ] || failed=1
}
if [ -n "$packages" ]; then
    cp "$packages"/chexnet*.deb "$target/root/chexnet/"
    try "the packages are installed" "apt-get -qq update && apt-get -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 install ./*.deb >/dev/null"
    try "training" "chex-env -q --mode login && cd /tmp && chex-shard phantom --count 16 --size 32 --output phantom &&
        chex-shard create --images phantom/images --labels phantom/labels.csv --split patient --size 32 \
            --shards 1 --output shards &&
        chex-train --data shards --output run --engine cpu --image-size 32 --batch-size 2 --max-steps 3"
    ! compgen -G "$packages/chexnet-cuda_*.deb" >/dev/null ||
        try "without a driver the engine is there and no GPU" "chex-env -v --mode login >/tmp/table; cat /tmp/table
            grep -q '^modules .*cuda \(loads\|lacks libcudnn\)' /tmp/table &&
            grep -q '^engine-auto *pass *cpu' /tmp/table && ! chex-train --engine cuda --bench 1"
    try "the packages are removed" "apt-get -y -o Dpkg::Use-Pty=0 purge 'chexnet*' >/dev/null &&
        ! find / -xdev -name '*chex[n-]*' ! -path '/root/chexnet*' -print | grep ."
    exit $failed
fi
if [ -n "$run" ]; then
    try "$run" "$run"
    exit $failed
fi
for round in 1 ${twice:+2}; do
    [ "$only" = tests ] || try "quickstart, round $round" share/quickstart.sh
    [ "$only" = quickstart ] || try "tests, round $round" tests/run.sh
done
exit $failed
