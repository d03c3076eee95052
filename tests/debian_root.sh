# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Sourced by scripts that run commands in a minimal Debian of another release (tests/bare.sh). It needs
# root, debootstrap and an apt that knows a source of this machine's Debian.
#
#   debian_root_needs                  0, or one line that says what is missing and 1
#   debian_root_make ROOT SUITE        a minimal Debian SUITE (bookworm, trixie, forky, sid) in the new folder ROOT,
#                                      with git and this machine's apt settings, proxies and certificates
#   debian_root_run ROOT COMMAND       runs the text COMMAND there with bash, as root, in /root. `/` is a
#                                      mount point, so that COMMAND can make name spaces of its own. All
#                                      mounts and processes end with COMMAND. The status is COMMAND's.
#                                      unshare ignores TERM: KILL to its process ends COMMAND early.
#   debian_root_remove ROOT            removes it

debian_root_needs() {
    local tool
    [ "$(id -u)" = 0 ] || { echo "needs root" && return 1; }
    for tool in debootstrap unshare pivot_root mount apt-get; do
        command -v $tool >/dev/null || { echo "$tool is not installed" && return 1; }
    done
    mountpoint -q / || { echo "/ is no mount point (a chroot): mount name spaces cannot be made" && return 1; }
    [ -n "$(debian_root_sources "")" ] || { echo "apt on this machine knows no source of Debian" && return 1; }
}

# debian_root_sources SUITE: lines of sources.list. Every archive of this machine's own release (main,
# updates, security) has the other suites beside it; sid has neither updates nor security. Nothing if
# this machine is no Debian.
debian_root_sources() {
    local here
    here=$(. /etc/os-release && [ "$ID" = debian ] && echo "$VERSION_CODENAME")
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v here="${here:-none}" -v suite="$1" '
            $3 == here || suite != "sid" && index($3, here "-") == 1 { $3 = suite substr($3, length(here) + 1); print }' | sort -u
}

debian_root_make() {
    local root=$1 suite=$2 mirror path script=/usr/share/debootstrap/scripts
    mirror=$(debian_root_sources "$suite" | awk -v suite="$suite" '$3 == suite { print $2; exit }')
    mkdir -p "$root" || return 1
    # A debootstrap that is older than the suite makes it as it makes sid.
    [ -e "$script/$suite" ] && script=$script/$suite || script=$script/sid
    debootstrap --variant=minbase --include=git,ca-certificates "$suite" "$root" "$mirror" "$script" \
        >"$root.log" 2>&1 || {
        tail -n 20 "$root.log" >&2
        return 1
    }
    rm "$root.log"
    debian_root_sources "$suite" >"$root/etc/apt/sources.list"
    for path in /etc/apt/apt.conf.d /etc/apt/auth.conf.d /etc/resolv.conf \
        /usr/local/share/ca-certificates; do
        [ -e "$path" ] || continue
        mkdir -p "$root$(dirname "$path")"
        cp -rL "$path" "$root$(dirname "$path")/"
    done
    # As installers write it. Without it Slurm asks a name server for this host in every command.
    printf '127.0.0.1 %s\n' localhost "$(hostname)" >"$root/etc/hosts"
    debian_root_run "$root" update-ca-certificates >/dev/null 2>&1
}

# Process 1 of the new name spaces waits for COMMAND; the kernel ends what COMMAND leaves. Without its
# traps it would ignore Ctrl-C.
debian_root_run() {
    # shellcheck disable=SC2016 # the inner shell expands it
    unshare -m -p -f --kill-child=KILL --propagation private bash -c '
        mount --rbind "$1" "$1" && cd "$1" &&
            mount -t proc proc proc && mount --rbind /dev dev && mount --rbind /sys sys &&
            mount -t tmpfs -o mode=1777 tmpfs tmp && pivot_root . mnt && cd / && umount -l /mnt || exit 125
        cd /root || exit 125
        trap "exit 130" INT
        trap "exit 143" TERM
        env -i HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
            ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
            bash -c "$2"
        exit $?' debian_root_run "$@"
}

# Nothing is mounted in it: mounts are in the name spaces of debian_root_run only.
debian_root_remove() {
    ! grep -qF " $1/" /proc/mounts && rm -rf --one-file-system "$1"
}
