#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Long: share/quickstart.sh and tests/run.sh from a fresh clone in a minimal Debian 12 made by
# debootstrap, twice each where asked; or Debian packages there. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
    cat <<'END'
usage: tests/bare.sh [OPTION...]
Makes a minimal Debian 12 with git in a folder, clones this tree's HEAD into it, and runs
share/quickstart.sh and tests/run.sh there as root. Packages come from where this machine's apt gets
its own. Needs root, debootstrap, 5 GB of disk and about half an hour.
  --dir DIR      where (a temporary folder, removed at the end)
  --twice        run both a second time
  --only NAME    quickstart or tests
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

dir='' rounds=1 only='' keep=no packages=''
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --twice) rounds=2 ;;
    --keep) keep=yes ;;
    --dir | --only | --packages)
        [ $# -gt 1 ] || die 2 "$1 needs a value; try --help"
        case $1 in
        --dir) dir=$2 ;;
        --only) only=$2 ;;
        *) packages=$2 ;;
        esac
        shift
        ;;
    *) die 2 "unknown argument '$1'; try --help" ;;
    esac
    shift
done
[[ $only = '' || $only = quickstart || $only = tests ]] ||
    die 2 "--only '$only': expected quickstart or tests"
[ -z "$packages" ] || compgen -G "$packages/chexnet*.deb" >/dev/null ||
    die 2 "--packages '$packages': no chexnet*.deb there"
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || die 77 "needs root"
for tool in debootstrap chroot mount git; do
    command -v $tool >/dev/null || die 77 "$tool is not installed"
done

# The address from which apt takes Debian 12 on this machine; security and updates come from the
# copied configuration, once the base is there.
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk '$2 == "bookworm" || $2 == "stable" { print $3; exit }')
[ -n "$mirror" ] || die 77 "apt on this machine knows no source of Debian 12 (bookworm)"

[ -n "$dir" ] || dir=$(mktemp -d "${TMPDIR:-/var/tmp}/chex-bare.XXXXXX")
mkdir -p "$dir" || die 1 "cannot make $dir"
dir=$(cd "$dir" && pwd)
target=$dir/root
[ ! -e "$target" ] || die 1 "$target exists"

leave() {
    local status=$? mounted
    trap - EXIT
    # The deepest first; a tree with something mounted in it is never removed.
    mounted=$(awk -v t="$target/" 'index($2, t) == 1 { print $2 }' /proc/mounts | sort -r)
    [ -z "$mounted" ] || xargs -d '\n' -n 1 umount -l <<<"$mounted"
    if [ "$keep" = yes ]; then
        echo "kept: $dir"
    elif ! grep -qF " $target/" /proc/mounts; then
        rm -rf --one-file-system "$dir"
    fi
    exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

echo "== a minimal Debian 12 in $target"
debootstrap --variant=minbase --include=git,ca-certificates bookworm "$target" "$mirror" \
    >"$dir/debootstrap.log" 2>&1 || {
    tail -n 20 "$dir/debootstrap.log" >&2
    die 1 "debootstrap failed"
}
# The sources of Debian 12 that this machine uses, with its proxies and certificates.
apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    grep ' bookworm' | sort -u >"$target/etc/apt/sources.list"
for path in /etc/apt/apt.conf.d /etc/apt/auth.conf.d /etc/resolv.conf \
    /usr/local/share/ca-certificates; do
    [ -e "$path" ] || continue
    mkdir -p "$target$(dirname "$path")"
    cp -rL "$path" "$target$(dirname "$path")/"
done
chroot "$target" update-ca-certificates >/dev/null 2>&1
mount -t proc proc "$target/proc"
mount --rbind /dev "$target/dev" && mount --make-rslave "$target/dev"
mount --rbind /sys "$target/sys" && mount --make-rslave "$target/sys"
mount -t tmpfs -o mode=1777 tmpfs "$target/tmp"

git clone -q --no-hardlinks "$root" "$target/root/chexnet" || die 1 "cannot clone $root"
echo "== packages before: $(chroot "$target" dpkg-query -f '.' -W | wc -c)"

failed=0
try() { # label, command
    local began=$SECONDS
    echo "== $1"
    chroot "$target" /usr/bin/env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
        bash -c "cd /root/chexnet && $2"
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
for ((round = 1; round <= rounds; round++)); do
    [ "$only" = tests ] || try "quickstart, round $round" share/quickstart.sh
    [ "$only" = quickstart ] || try "tests, round $round" tests/run.sh
done
exit $failed
