#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The variant amx of the cpu engine on an emulated processor with tiles. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=options.sh
. "$root/tests/options.sh"
build=${CHEX_TEST_BUILD:-$root/build/release}
bochs='' kernel='' work='' pid='' count=0 failed=0

usage() {
    cat <<END
usage: tests/amx.sh --bochs PROGRAM [--kernel VMLINUZ]
Boots Linux in the PC emulator Bochs and runs the op tests of tiles and the commands there: on a
model without AMX, on one with AMX under a system that refuses tiles, and on that with tiles. Some
minutes; nothing of it says how fast a real processor would be. (On one with AMX tests/run.sh is
enough: the op tests take the instructions where they can.)
  --bochs PROGRAM   Bochs 3.1, or its source since the option cpuid_freq (July 2026), mended as
                    below, configured with --enable-x86-64 --enable-avx --enable-evex --enable-amx
                    --enable-all-optimizations --with-nogui, built with -O2 -fno-strict-aliasing.
                    Its ROMs are looked for in \$BXSHARE, then in share/bochs beside bin.
  --kernel VMLINUZ  Linux 6.1 or newer for x86-64 (the newest of /boot), with what the console on
                    a serial line needs built in: Debian's linux-image-cloud-amd64 boots fastest
Needs busybox (static), xorriso, and isolinux.bin and ldlinux.c32 in \$CHEX_ISOLINUX or where
Debian's isolinux and syslinux-common have them; and the commands and tests of
\$CHEX_TEST_BUILD ($build).
Exit status: 0 passed, 1 failed, 77 something is missing.

What the source of Bochs of 22 August 2026 lacks, by Intel's manual:
  IA32_XFD and IA32_XFD_ERR (CPUID.0DH.1:EAX[4], CPUID.0DH.18:ECX[2], #NM by instructions of tiles
  while IA32_XFD[18] is set): without them Linux gives tiles to no process;
  XSAVE and STTILECFG exchange the tiles' bytes a row and rows; of TILEDATA XSAVE and XRSTOR take
  8 rows of 16; XINUSE[18] is true where no tile is in use and false elsewhere;
  VCVTNE2PS2BF16 takes the upper half of its result from after the end of its first source;
  with flush to zero, differences of fp32 from 2^-126 to below 2^-125 become zero, too.
END
}

skip() {
    echo "skipped: $*"
    exit $((failed ? 1 : 77))
}

# find_file FILE FOLDER...: the first that is there.
find_file() {
    local file=$1 folder
    shift
    for folder in "$@"; do
        [ -n "$folder" ] && [ -r "$folder/$file" ] && echo "$folder/$file" && return
    done
    return 1
}

prerequisites() {
    local tool share
    command -v "$bochs" >/dev/null || skip "no $bochs"
    bochs=$(command -v "$bochs")
    [ -n "$kernel" ] || kernel=$(find /boot -name 'vmlinuz-*' 2>/dev/null | sort -V | tail -n 1)
    [ -r "$kernel" ] || skip "no kernel: name one by --kernel"
    for tool in busybox xorrisofs; do
        command -v $tool >/dev/null || skip "no $tool"
    done
    ldd "$(command -v busybox)" >/dev/null 2>&1 && skip "busybox is not static"
    share=$(dirname "$bochs")/../share/bochs
    bios=$(find_file BIOS-bochs-latest "${BXSHARE:-}" "$share") || skip "no BIOS: set BXSHARE"
    vga=$(find_file VGABIOS-lgpl-latest.bin "${BXSHARE:-}" "$share") ||
        skip "no VGA BIOS: set BXSHARE"
    isolinux=$(find_file isolinux.bin "${CHEX_ISOLINUX:-}" /usr/lib/ISOLINUX) ||
        skip "no isolinux.bin: set CHEX_ISOLINUX"
    ldlinux=$(find_file ldlinux.c32 "${CHEX_ISOLINUX:-}" /usr/lib/syslinux/modules/bios) ||
        skip "no ldlinux.c32: set CHEX_ISOLINUX"
    [ -x "$build/bin/chex-train" ] && [ -x "$build/tests/op-amx_tiles" ] ||
        skip "no commands and tests in $build: build first"
}

# What runs in the emulated machine: the tests that the kernel's command line names.
guest() {
    cat <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /dev/shm
mount -t tmpfs shm /dev/shm
ip link set lo up
exec </dev/null >/dev/ttyS0 2>&1
echo "== flags $(grep -m 1 -o 'amx_[a-z0-9]*' /proc/cpuinfo | tr '\n' ' ')"

# run NAME COMMAND...: what it prints comes when it has ended.
run() {
    name=$1
    shift
    "$@" >/tmp/out 2>&1
    rc=$?
    cat /tmp/out
    echo "== ended $name $rc"
}

bench() {
    chex-train --bench 1 --image-size 32 --batch-size 1 "$@"
}

PATH=/bin:/t
run engines chex-env
if grep -q tests=tiles /proc/cmdline; then
    run tiles op-amx_tiles
    run pairs op-pairs_cpu
    run instructions op-conv_amx instructions
    run train bench --engine cpu --threads 2
else
    run tiles op-amx_tiles
    run train bench --engine cpu:amx
fi
echo "== end"
sleep 3 # until the line has taken all
poweroff -f
END
}

# Programs with the libraries that they need.
put_programs() {
    local program library
    for program in "$@"; do
        cp "$program" "$work/root/t/"
        while read -r library; do
            mkdir -p "$work/root$(dirname "$library")"
            cp -Lu "$library" "$work/root$library"
        done < <(ldd "$program" | grep -o '/[^ ]*')
    done
}

initial_ram_disk() {
    mkdir -p "$work/root"/{bin,dev,proc,sys,t,tmp} "$work/image"
    guest >"$work/root/init"
    chmod +x "$work/root/init"
    cp "$(command -v busybox)" "$work/root/bin/busybox"
    put_programs "$build"/bin/chex-{env,train} \
        "$build"/tests/op-{amx_tiles,pairs_cpu,conv_amx}
    (cd "$work/root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/image/initrd"
    cp "$kernel" "$work/image/vmlinuz"
    cp "$isolinux" "$ldlinux" "$work/image/"
}

# The models leave out what enables fast strings, so Linux keeps fsrm but not erms, which its
# memmove does not expect.
disk() {
    cat >"$work/image/isolinux.cfg" <<END
default linux
label linux
 kernel vmlinuz
 append initrd=initrd console=ttyS0,115200 quiet mitigations=off $*
END
    xorrisofs -quiet -o "$work/disk.iso" -b isolinux.bin -c boot.cat -no-emul-boot \
        -boot-load-size 4 -boot-info-table "$work/image" 2>/dev/null
}

configuration() {
    cat <<END
display_library: nogui
cpu: model=$1, count=1, ips=100000000, cpuid_freq=ips, reset_on_triple_fault=0
memory: guest=2048, host=2048
romimage: file=$bios
vgaromimage: file=$vga
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$work/disk.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$work/serial
clock: sync=none
log: $work/log
panic: action=fatal
END
}

# boot MODEL OPTION...: what the machine writes stays in $work/said. At most half an hour.
boot() {
    local model=$1 end=$((SECONDS + 1800))
    shift
    disk "$@"
    configuration "$model" >"$work/bochsrc"
    rm -f "$work/serial"
    "$bochs" -q -f "$work/bochsrc" </dev/null >"$work/bochs.out" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ $SECONDS -lt $end ] &&
        ! grep -qs 'Kernel panic' "$work/serial"; do
        sleep 1
    done
    kill $pid 2>/dev/null
    wait $pid 2>/dev/null
    pid=''
    touch "$work/serial"
    tr -d '\r' <"$work/serial" >"$work/said"
    grep -q '^== end$' "$work/said" && return
    grep -q 'cpu directive malformed' "$work/bochs.out" &&
        skip "this Bochs is too old or has no $model, see --help"
    grep -q fpu__init_cpu_xstate "$work/said" &&
        skip "this Bochs has no IA32_XFD, see --help; Linux does not start on its $model"
    tail -n 20 "$work/said" "$work/bochs.out"
    echo "FAILED: $model did not get to the end"
    exit 1
}

# passed NAME STATUS PATTERN TEXT: NAME ended so, a line matches, and no check failed.
passed() {
    local said
    said=$(awk -v end="== ended $1 " '
        index($0, end) == 1 { print held $0; exit }
        /^== / { held = ""; next }
        { held = held $0 "\n" }' "$work/said")
    count=$((count + 1))
    if [[ $said == *"== ended $1 $2" ]] && grep -Eq -- "$3" <<<"$said" &&
        ! grep -q '^not ok' <<<"$said"; then
        echo "ok $count - $4 ($(grep -c '^ok' <<<"$said") checks)"
    else
        echo "# ${said//$'\n'/$'\n'# }"
        echo "not ok $count - $4"
        failed=1
    fi
}

read_options "bochs kernel" "$@"
no_words
[ -n "$bochs" ] || usage_error "--bochs is missing"
prerequisites
work=$(mktemp -d)
trap '[ -z "$pid" ] || kill "$pid"; rm -rf "$work"' EXIT
initial_ram_disk

boot corei7_skylake_x clearcpuid=fsrm
passed tiles 0 '^# skipped: .*has no AMX-BF16' "no AMX: the test of tiles knows"
passed train 4 "cpu:amx: this machine's processor has no AMX-BF16" "no AMX: refused"
passed engines 0 '^engines .* cpu: avx512' "no AMX: another variant is taken"

boot sapphire_rapids clearcpuid=fsrm,amx_tile
grep -q '^== flags.*amx_bf16' "$work/said" || skip "this Bochs was configured without AMX"
passed tiles 0 '^# skipped: .*the system refuses' "AMX without Linux's consent: the test knows"
passed train 4 'cpu:amx: the system refuses tile registers' "AMX without consent: refused"
passed engines 0 '^engines .* cpu: avx512' "AMX without consent: another variant is taken"

boot sapphire_rapids clearcpuid=fsrm tests=tiles
grep -q '^== flags.*amx_tile' "$work/said" ||
    skip "Linux finds no tiles on this Bochs's sapphire_rapids, see --help"
passed engines 0 '^engines .* cpu: amx' "AMX: taken unasked"
passed tiles 0 '^ok .*amx: the bits of the emulation' "instructions, threads and signals"
passed pairs 0 '^ok .* amx gemm' "kernels on integers"
passed instructions 0 "^ok .*cpu:amx .*give the emulation's bits" "networks have the emulation's bits"
passed train 0 'bf16, engine cpu \(amx\), 2 threads' "chex-train takes amx and bf16 unasked"
echo "1..$count"
exit $failed
