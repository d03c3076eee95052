#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chex-env --root reads recordings of nodes. Described faults of ports, links, GPUs and the fabric manager
# are found with node and port, change no other verdict, and are never the user's. Types of nodes choose
# the expected values. Settings that contradict each other or the node are warned of.
source "$(dirname "$0")/lib.sh"
have chex-env || skip_all "chex-env is not built"

# "check verdict" of each check in the JSON of the last command.
verdicts() { sed -n '/"ranks":/q; s/^ *"name": "\(.*\)",$/\1/p; s/^ *"verdict": "\(.*\)",$/\1/p' out | paste -d' ' - -; }

# A recording of this machine.
bash "$SOURCE/share/record_node.sh" --list >list
unlike "$(grep -vE '^/(sys|proc|etc)/' list; echo end)" "/" "only files of /sys, /proc and /etc are recorded"
expect_status 0 bash "$SOURCE/share/record_node.sh" --host n7 here
expect_status 2 bash "$SOURCE/share/record_node.sh" here
unlike "$(cat here/proc/net/*)" '[0-9A-F]{8}' "a recording has no addresses"
chex-env --json >out 2>err
verdicts >live
expect_status 0 chex-env --json --root here
verdicts | grep -v ' skip$' >recorded
like "$(grep -c . recorded)" '^([6-9]|1[0-9])$' "a recording answers several checks"
is "$(grep -vxFf live recorded)" "" "a recording of this machine has the verdicts of the machine"
like "$(out)" '"host": "n7"' "the recorded name is reported"
like "$(out)" '"found": "not in the recording"' "checks that need the machine say so"
expect_status 2 chex-env --root nosuch
error_line "--root nosuch: no recording of a node" "a folder without a recording"

echo '{"zlib": "0.9"}' >zlib.json
expect_status 0 chex-env --root here --expect zlib.json

# A good node: two ports of InfiniBand, one of RoCE, one without a cable; two GPUs, two NVSwitches.
port() { # DEVICE MODEL LINK RATE
    local p=sys/class/infiniband/$1/ports/1
    printf '%s\t%s\n' "sys/class/infiniband/$1/hca_type" "$2" "$p"/link_layer "$3" "$p"/rate "$4" \
        "$p"/state "4: ACTIVE" "$p"/phys_state "5: LinkUp" "$p"/counters/symbol_error 2 "$p"/counters/link_downed 1 \
        "$p"/counters/port_rcv_errors 0 "$p"/hw_counters/out_of_sequence 7
}
tree() { # FOLDER: lines of path, tab and text
    local file text
    while IFS=$'\t' read -r file text; do
        mkdir -p "$1/${file%/*}" && printf '%s\n' "$text" >"$1/$file"
    done
}
ib=sys/class/infiniband
xid='5,1,1,-;NVRM: Xid (PCI:0000:3b:00): 13, pid=77, Graphics Exception'
{
    port mlx5_0 MT4129 InfiniBand "400 Gb/sec (4X NDR)"
    port mlx5_1 MT4129 InfiniBand "400 Gb/sec (4X NDR)"
    port mlx5_2 MT4125 Ethernet "100 Gb/sec (4X EDR)"
    port mlx5_10 MT4129 InfiniBand "10 Gb/sec (4X SDR)"
    printf '%s\t%s\n' $ib/mlx5_10/ports/1/state "1: DOWN" $ib/mlx5_10/ports/1/phys_state "2: Polling" \
        $ib/mlx5_10/ports/1/counters/link_downed 0 ./recorded 1764000000 dev/kmsg "$xid" \
        sys/class/net/eth0/operstate up sys/class/net/eth0/speed 1000 sys/class/net/lo/operstate unknown \
        sys/class/net/ib0/operstate up sys/class/net/ib0/speed 400000 proc/net/route $'eth0\t-' \
        proc/net/if_inet6 '- - - - - ib0' proc/1/comm systemd proc/2211/comm nv-fabricmanage \
        proc/sys/kernel/hostname n3 proc/sys/kernel/random/boot_id 5e5f-1 \
        proc/meminfo "MemAvailable: 500000000 kB" proc/cpuinfo "model name	: AMD EPYC 9654 96-Core Processor" \
        proc/driver/nvidia/version NVRM proc/driver/nvidia-nvswitch/devices/0 - \
        proc/driver/nvidia-nvswitch/devices/1 - \
        proc/driver/nvidia/gpus/0000:3b:00.0/information "Model: 		 NVIDIA H100 80GB HBM3"
} | tree good
echo "MemTotal: 520000000 kB" >>good/proc/meminfo
expect_status 0 chex-env --root good --record good.json --json
unlike "$(verdicts)" " (warn|fail)" "a good node has no finding"
verdicts >good.verdicts
like "$(out)" "mlx5_0:1 400 Gb/sec \(4X NDR\), mlx5_1:1 .*, mlx5_2:1 100 Gb/sec .*; not active: mlx5_10:1 DOWN\"" "ports are listed in order"
like "$(out)" "GPU 0000:3b:00 Xid 13" "an error of a program is only noted"
like "$(out)" "NCCL: mlx5_0:1 mlx5_1:1 mlx5_2:1, sockets ib0; UCX: all" "the interfaces of NCCL and UCX"
like "$(out)" "AMD EPYC 9654 96-Core Processor, NVIDIA H100 80GB HBM3" "the type of the node"
expect_status 0 chex-env --root good --expect good.json
like "$(out)" "^fit to train: " "the node passes with its own record"

# Faults: check, what is found, then files and texts. A day has passed since the record.
found=0
fault() { # CHECK REGEX FILE TEXT...
    local check=$1 regex=$2 status wrong
    shift 2
    rm -rf bad && cp -r good bad && echo 1764086400 >bad/recorded
    for ((; $#; )); do
        if [ "$2" = gone ]; then rm -r "bad/$1"; else printf '%s\n' "$2" >"bad/$1"; fi
        shift 2
    done
    chex-env --root bad --expect good.json --json >out 2>err
    status=$?
    wrong=$(verdicts | diff - good.verdicts | grep -v "^< $check fail\$" | grep '^<')
    [ "$status" = 5 ] && [ -z "$wrong" ] && grep -A8 "\"name\": \"$check\"" out | tr -d '\n' | grep -qE "$regex.*n3|n3.*$regex" &&
        grep -A6 "\"name\": \"$check\"" out | grep -q '"fault": "node"'
    ok $? "a fault is found with its node: $check, $regex" || diag "status $status $wrong $(grep -A8 "\"name\": \"$check\"" out)"
    found=$((found + 1))
}
p0=$ib/mlx5_0/ports/1 p1=$ib/mlx5_1/ports/1 p2=$ib/mlx5_2/ports/1
fault fabric-ports "mlx5_0:1 INIT.*mlx5_0:1 .*subnet manager" $p0/state "2: INIT"
fault fabric-ports "mlx5_0:1 ARMED.*mlx5_0:1 .*subnet manager" $p0/state "3: ARMED"
fault fabric-ports "lacks mlx5_1:1 400" $p1/state "1: DOWN" $p1/phys_state "2: Polling"
fault fabric-ports "lacks mlx5_1:1 400" $p1/state "1: DOWN" $p1/phys_state "3: Disabled"
fault fabric-ports "lacks mlx5_0:1 400" $p0/state "1: DOWN" $p0/phys_state "6: LinkErrorRecovery"
fault fabric-ports "lacks mlx5_0:1 400" $p0/rate "200 Gb/sec (2X NDR)"
fault fabric-ports "lacks mlx5_0:1 400" $p0/rate "100 Gb/sec (1X NDR)"
fault fabric-ports "lacks mlx5_1:1 400" $p1/rate "200 Gb/sec (4X HDR)"
fault fabric-ports "lacks mlx5_2:1 100" $p2/rate "25 Gb/sec (1X EDR)"
fault fabric-ports "lacks mlx5_2:1 100" $p2/state "1: DOWN" $p2/phys_state "2: Polling"
fault fabric-ports "lacks mlx5_1:1 400" $ib/mlx5_1 gone
fault fabric-errors "mlx5_0:1 symbol_error \+498" $p0/counters/symbol_error 500
fault fabric-errors "mlx5_1:1 link_error_recovery \+20" $p1/counters/link_error_recovery 20
fault fabric-errors "mlx5_1:1 link_downed \+19" $p1/counters/link_downed 20
fault fabric-errors "mlx5_0:1 port_rcv_errors \+11" $p0/counters/port_rcv_errors 11
fault fabric-errors "mlx5_0:1 local_link_integrity_errors \+40" $p0/counters/local_link_integrity_errors 40
fault fabric-errors "mlx5_0:1 excessive_buffer_overrun_errors \+12" $p0/counters/excessive_buffer_overrun_errors 12
fault fabric-errors "mlx5_2:1 out_of_sequence \+19993" $p2/hw_counters/out_of_sequence 20000
fault fabric-errors "mlx5_2:1 packet_seq_err \+20000" $p2/hw_counters/packet_seq_err 20000
fault fabric-errors "mlx5_2:1 local_ack_timeout_err \+12345" $p2/hw_counters/local_ack_timeout_err 12345
fault gpu-xid "GPU 0000:3b:00 Xid 79" dev/kmsg "$xid
3,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus."
fault gpu-xid "GPU 0000:5d:00 Xid 48" dev/kmsg "[ 12.5] NVRM: Xid (PCI:0000:5d:00): 48, pid=9, DBE"
fault gpu-xid "GPU 0000:3b:00 Xid 74" dev/kmsg "NVRM: Xid (PCI:0000:3b:00): 74, pid=9, NVLink"
fault gpu-xid "GPU 0000:3b:00 Xid 119" dev/kmsg "NVRM: Xid (PCI:0000:3b:00): 119, pid=9, Timeout"
fault fabric-manager "2 NVSwitches, not running" proc/2211/comm sleep
is $found 25 "25 faults are described"

# What grows slowly only warns. What was recorded, or is another boot's, does not count.
growth() { # STATUS FILE TEXT...
    local want=$1
    rm -rf bad && cp -r good bad && echo 1764864000 >bad/recorded # ten days
    shift
    for ((; $#; )); do printf '%s\n' "$2" >"bad/$1" && shift 2; done
    expect_status "$want" chex-env --root bad --expect good.json -v
}
growth 0 $p0/counters/symbol_error 42
like "$(out)" "^fabric-errors +warn +mlx5_0:1 symbol_error \+40$" "slow growth is a warning"
growth 0 $p0/counters/symbol_error 9
like "$(out)" "^fabric-errors +pass +mlx5_0:1 symbol_error \+7$" "less than one a day is no finding"
growth 0 proc/sys/kernel/random/boot_id 5e5f-2 $p0/counters/symbol_error 1
like "$(out)" "^fabric-errors +pass +mlx5_0:1 symbol_error \+1, mlx5_0:1 link_downed \+1" "after a boot, counts begin at 0"
growth 0 proc/sys/kernel/hostname n4 $p0/counters/symbol_error 99999
like "$(out)" "^fabric-errors +pass .*symbol_error 99999," "counts of another node are not compared"
growth 0 proc/2211/comm sleep proc/1/comm bash
like "$(out)" "^fabric-manager +skip +processes of the node are hidden here" "in a container the fabric manager is not judged"
echo 'NVRM: Xid (PCI:0000:3b:00): 79, pid=1, x' >good/dev/kmsg
expect_status 5 chex-env --root good --record mended.json -v
expect_status 0 chex-env --root good --expect mended.json -v
like "$(out)" "^gpu-xid +pass +none since the record" "an error that was recorded after the repair does not count again"
rm good/dev/kmsg
expect_status 0 chex-env --root good -v
like "$(out)" "^gpu-xid +skip +there is no kernel log" "without the kernel log the check is skipped"
expect_status 0 chex-env --mode health --root good -q
sed 's/400 Gb/800 Gb/' good.json >faster.json
expect_status 5 chex-env --mode health --root good --expect faster.json

growth 0 $ib/mlx5_10/ports/1/state "4: ACTIVE"
like "$(out)" "^fabric-ports +warn " "a port more than recorded does not fail"

# Types of nodes.
types() { echo "{\"node-types\": {\"Intel*\": {\"fabric-ports\": \"no\"}, \"AMD EPYC 9*$1\": {\"fabric-ports\": \"mlx5_9:1 400\"}$2}}" >types.json; }
types '*H100*'
expect_status 5 chex-env --root good --expect types.json -v
like "$(out)" "^node-type +pass .*; type AMD EPYC 9\*\*H100\*$" "the first type that matches is reported"
like "$(out)" "n3 lacks mlx5_9:1 400" "its values are expected"
types '*B200*'
expect_status 0 chex-env --root good --expect types.json
like "$(out)" "^node-type +warn .*; type $" "a node without a type is stated"
types '*B200*' ', "*": {"node-type": "a known type"}'
expect_status 5 chex-env --root good --expect types.json
like "$(out)" "expected: a known type \(from types.json\)" "a file can demand a known type"
expect_status 2 chex-env --root good --record types.json
error_line "types.json: a file of that name is there and holds no expectations" "a file with types is not overwritten"
types '*' ', "*": {"zlob": "1"}'
expect_status 2 chex-env --root good --expect types.json
error_line "types.json: 'zlob' is not a check" "the values of all types are validated"
echo '{"node-types": [], "zlib": "1"}' >types.json
expect_status 2 chex-env --root good --expect types.json
error_line 'types.json: expected only "node-types", an object of patterns' "types beside other values"

# Settings: contradictions, names that the node does not have, misspelt names. All only warn.
warns() { # CHECK REGEX VARIABLE...
    local check=$1 regex=$2
    shift 2
    expect_status 0 env "$@" chex-env --root good -v
    like "$(grep -A5 "^$check " out)" "$regex" "$*"
}
mkdir good/etc && echo "NCCL_IB_HCA = mlx5_1 # storage" >good/etc/nccl.conf
warns nccl-env "NCCL_IB_HCA is mlx5_0 in environment and mlx5_1 # storage in /etc/nccl.conf" NCCL_IB_HCA=mlx5_0
echo "NCCL_IB_HCA=mlx5_0" >my.conf
warns interfaces "NCCL: mlx5_0:1, sockets ib0" NCCL_CONF_FILE="$PWD/my.conf"
rm good/etc/nccl.conf
warns nccl-env "NCCL_SOCKET_IFNAMES is not known: is NCCL_SOCKET_IFNAME meant" NCCL_SOCKET_IFNAMES=ib0
warns nccl-env "NCCL_IB_DISABLE beside 3 active ports" NCCL_IB_DISABLE=1
warns interfaces "NCCL: mlx5_1:1, sockets ib0" NCCL_IB_HCA==mlx5_1
warns interfaces "NCCL: mlx5_0:1 mlx5_2:1, sockets ib0" NCCL_IB_HCA=^mlx5_1
warns interfaces "NCCL_IB_HCA=mlx4 matches nothing" NCCL_IB_HCA=mlx4
warns interfaces "NCCL_IB_HCA=mlx5_0:2 matches nothing" NCCL_IB_HCA=mlx5_0:2
warns interfaces "all that NCCL_IB_HCA==mlx5_10 takes is down" NCCL_IB_HCA==mlx5_10
warns interfaces "NCCL_IB_HCA=mlx5_2 takes 100 Gb/s, and there are 400 Gb/s" NCCL_IB_HCA=mlx5_2
warns interfaces "NCCL_SOCKET_IFNAME=eth0 takes 1 Gb/s, and there are 400" NCCL_SOCKET_IFNAME=eth0 NCCL_IB_DISABLE=1
warns interfaces "NCCL_SOCKET_IFNAME=bond matches nothing" NCCL_SOCKET_IFNAME=bond
warns interfaces "UCX_NET_DEVICES has mlx5_3:1, and this node has not" UCX_NET_DEVICES=mlx5_0:1,mlx5_3:1
warns ucx-env "UCX_TLS=tcp,self,sm does not use the 3 active ports" UCX_TLS=tcp,self,sm
warns ucx-env "UCX_TLS=rc lacks self and sm" UCX_TLS=rc
warns mpi-env "\^ can only be the first character" OMPI_MCA_btl=tcp,^vader
warns mpi-env "OMPI_MCA_pml=ob1 uses no UCX" OMPI_MCA_pml=ob1 UCX_TLS=all
done_testing
