#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything about the CUDA engine that needs a GPU, in some minutes. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
all_sections="about build ptxas tests kernels steps train sanitizer stages torch"

usage() {
    cat <<END
usage: tests/gpu/run.sh [OPTION...]
Builds the CUDA engine alone (tests/gpu/CMakeLists.txt) for this machine's GPU and runs, each with a
time limit of its own:
  about      device, driver, versions
  build      chexnet-cuda.so, the tests and the measurements; nothing where no source has changed
  ptxas      spills, stack frames, register budgets
  tests      every kernel against the CPU reference
  kernels    time of every kernel against its floor of bytes and FLOP
  steps      images a second of the whole step of the last stage: every batch and size; inference
  train      a short training against the CPU engine
  sanitizer  compute-sanitizer's tools on small shapes
  stages     the other stages' step, and a short training of theirs: cuDNN plans for minutes
  torch      PyTorch in turn with the engine, where python3 has it
Prints one table last, also when it is ended by a signal, and leaves results.json (one object a line:
what was measured, and each verdict), table.txt and logs.txt. A section that fails does not stop the
others; what needs a device is skipped, with words, where there is none. Without cuDNN or NCCL's
header the engine is built without them. Where /tmp is small, temporary files go into the build folder.
A program that runs past its limit, or says nothing for long, is ended; cuda-gdb, where it is there,
writes into logs.txt which kernel it was in.
  --sections A,B     only these (all: ${all_sections// /,})
  --out DIR          results (\$OUT, else build/gpu-results)
  --build DIR        build folder (build/gpu); without the section build, what bin/ and lib/ there hold
  --architectures L  targets such as 90, with the product's code (this GPU's own; without a GPU 90)
  --jobs N           compilers at a time ($(nproc))
  --seconds N        the whole must end by then (540); sections that would not begin are skipped
  --batches L        16,64,256        --sizes L   224,320
  --stages L         s0,s1,s4         --model M   densenet121
  --torch-modes L    eager,channels_last,graph,compile,reduce-overhead,max-autotune
  --rounds N         turns of engine and PyTorch at each shape (3)
In calls of ten minutes, one after the other:
  tests/gpu/run.sh                                            as far as steps, train and sanitizer
  tests/gpu/run.sh --sections about,build,torch               PyTorch compiles for minutes
  tests/gpu/run.sh --sections about,build,stages,sanitizer    the rest
The build may be made elsewhere (--sections build --architectures 90) and copied there.
Exit status: 0 all good, 1 something failed, 2 usage, 77 nothing failed, something was skipped.
END
}

die_usage() {
    echo "tests/gpu/run.sh: $*; try --help" >&2
    exit 2
}

sections=$all_sections out=${OUT:-$root/build/gpu-results} build=$root/build/gpu architectures=''
jobs=$(nproc) seconds=540 batches=16,64,256 sizes=224,320 stages=s0,s1,s4 model=densenet121
modes=eager,channels_last,graph,compile,reduce-overhead,max-autotune rounds=3
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        usage
        exit 0
        ;;
    --sections | --out | --build | --architectures | --jobs | --seconds | --batches | --sizes | \
        --stages | --model | --torch-modes | --rounds)
        [ $# -gt 1 ] || die_usage "$1 needs a value"
        case $1 in
        --sections) sections=${2//,/ } ;;
        --torch-modes) modes=$2 ;;
        *) printf -v "${1#--}" %s "$2" ;;
        esac
        shift
        ;;
    *) die_usage "unknown argument '$1'" ;;
    esac
    shift
done
for section in $sections; do
    [[ " $all_sections " = *" $section "* ]] || die_usage "unknown section '$section'"
done
for name in jobs seconds rounds; do
    [[ ${!name} =~ ^[1-9][0-9]*$ ]] || die_usage "--$name '${!name}': expected a number"
done
[[ $batches,$sizes =~ ^[0-9]+(,[0-9]+)*$ ]] || die_usage "--batches and --sizes: expected numbers"
IFS=, read -ra batches <<<"$batches"
IFS=, read -ra sizes <<<"$sizes"
IFS=, read -ra stages <<<"$stages"
IFS=, read -ra modes <<<"$modes"

began=$SECONDS
mkdir -p "$out" "$build" || exit 1
out=$(cd "$out" && pwd) build=$(cd "$build" && pwd)
json=$out/results.json rows=$out/table.txt logs=$out/logs.txt
: >"$json"
: >"$rows"
: >"$logs"
LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
# Compilers, nvcc's and PyTorch's, fill it.
if [ "$(df --output=avail -k "${TMPDIR:-/tmp}" | tail -n 1)" -lt 4000000 ]; then
    mkdir -p "$build/tmp" && export TMPDIR=$build/tmp
fi
export CHEX_LIBDIR=$build/lib CHEX_CACHE_DIR=$build/cache
failed=0 skipped=0 running='' peer_pid=''
exec {never}<> <(:) # nothing to read here, ever: a sleep without a process

left() { echo $((seconds - (SECONDS - began))); }
row() { printf '%s\n' "$*" >>"$rows"; }

# quoted TEXT: a string of JSON; what is no printable ASCII becomes '?'.
quoted() {
    local LC_ALL=C text=$1 backslash=\\
    text=${text//[^ -~]/?}
    text=${text//"$backslash"/"$backslash$backslash"}
    printf '"%s"' "${text//\"/"$backslash"\"}"
}

# verdict NAME STATUS SECONDS [TEXT]: a row of the table and a record for one step.
verdict() {
    local word
    case $2 in
    0) word=passed ;;
    77)
        word=skipped
        skipped=$((skipped + 1))
        ;;
    124 | 137)
        word="FAILED (ran past its limit)"
        failed=$((failed + 1))
        ;;
    *)
        word=FAILED
        failed=$((failed + 1))
        ;;
    esac
    row "$1|$word|$3 s${4:+|$4}"
    printf '{"schema": 1, "kind": "verdict", "name": %s, "verdict": "%s", "status": %d, "seconds": %d, "text": %s}\n' \
        "$(quoted "$1")" "${word%% *}" "$2" "$3" "$(quoted "${4-}")" >>"$json"
    printf '%-40s %s (%s s)%s\n' "$1" "$word" "$3" "${4:+: $4}"
}

# name_kernels PID: where the programs of timeout's child are, as cuda-gdb sees it.
debugger=$(command -v cuda-gdb || ls /usr/local/cuda*/bin/cuda-gdb 2>/dev/null | head -n 1)
name_kernels() {
    local pid children
    read -ra children 2>/dev/null </proc/"$1"/task/"$1"/children
    for pid in "${children[@]}"; do
        echo "==== what process $pid was in when it was ended"
        [ -n "$debugger" ] && timeout -k 2 15 "$debugger" --nx --batch -p "$pid" \
            -ex "info cuda kernels" -ex bt </dev/null 2>&1
    done
}

# end PID: a child; timeout's kill their own in five seconds. What the driver never lets go is left
# behind.
end() {
    local since=$SECONDS
    kill "$1" 2>/dev/null
    while [ $((SECONDS - since)) -lt 8 ]; do
        kill -0 "$1" 2>/dev/null || return
        read -r -t 0.2 -u "$never"
    done
    kill -KILL "$1" 2>/dev/null
}

# supervise SECONDS STALL LOG COMMAND...: timeout's status, 124 too where the log has not grown for
# STALL seconds.
supervise() {
    local limit=$1 stall=$2 log=$3 pid start=$SECONDS last=$SECONDS size=0 now
    shift 3
    rm -f "$log" # what was never let go may still write to it
    # A line at a time: what was said before the end is what tells where it was.
    timeout -k 5 $((limit + 30)) stdbuf -oL "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    running=$pid
    while kill -0 "$pid" 2>/dev/null; do
        if ! read -r -t 0.2 -u "$never"; then
            now=$(stat -c %s "$log" 2>/dev/null || echo 0)
            [ "$now" = "$size" ] || last=$SECONDS
            size=$now
        fi
        if [ $((SECONDS - start)) -ge "$limit" ] || [ $((SECONDS - last)) -ge "$stall" ]; then
            name_kernels "$pid" >>"$log"
            end "$pid"
            running=''
            return 124
        fi
    done
    running=''
    wait "$pid"
}

# attempt LIMIT[/STALL] NAME COMMAND...: runs the command for LIMIT seconds at most (and never past the
# end of the whole), keeps its output, takes its rows into the table, returns its status.
attempt() {
    local limit=${1%/*} stall=${1#*/} name=$2 log=$out/one.log status start=$SECONDS text='' rest
    shift 2
    rest=$(left)
    if [ "$rest" -lt 5 ]; then
        verdict "$name" 77 0 "no time is left"
        return 77
    fi
    supervise $((limit < rest ? limit : rest)) "$stall" "$log" "$@"
    status=$?
    {
        echo "==== $name: $* (exit $status)"
        cat "$log"
    } >>"$logs"
    sed -n 's/^= //p' "$log" >>"$rows"
    case $status in
    0) ;;
    77) text=$(grep -m 1 -iE '^skipped|SKIP' "$log" | cut -c 1-160) ;;
    124 | 137)
        text=$(grep -E '^# now: ' "$log" | tail -n 1 | cut -c 1-160)
        [ -n "$text" ] || text="last said: $(sed '/^====/,$d' "$log" | tail -n 1 | cut -c 1-140)"
        sed -n '/^====/,$p' "$log" | grep -vE '^warning|^$' | head -n 12
        ;;
    *)
        text=$(grep -m 1 -E 'FAILED|^not ok|Bail out|rror' "$log" | cut -c 1-160)
        [[ $text != "CMake Error"* ]] || # says where; what is below it, indented
            text=$(sed -n '/^CMake Error/,/^[A-Z-]*$/s/^  //p' "$log" | tr '\n' ' ' | cut -c 1-200)
        [ "$status" = 3 ] || text+=$(sed -n 's/^# now: / at /p' "$log" | tail -n 1 | cut -c 1-80)
        tail -n 15 "$log"
        ;;
    esac
    verdict "$name" "$status" $((SECONDS - start)) "$text"
    return "$status"
}

# skip NAME TEXT
skip() { verdict "$1" 77 0 "$2"; }

# ---- what the sections need ----
nvidia_smi=$(command -v nvidia-smi || ls /usr/local/nvidia/bin/nvidia-smi 2>/dev/null)
# It may hang with the driver, and where it fails it says so on its standard output.
device=$([ -n "$nvidia_smi" ] && timeout 20 "$nvidia_smi" \
    --query-gpu=name,compute_cap,driver_version,memory.total --format=csv,noheader -i 0 2>/dev/null) || device=''
capability=$(cut -d, -f 2 <<<"$device" | tr -dc 0-9)
# What the device cannot run is not tried; without nvidia-smi the programs themselves find out.
no_device=''
if [ -z "$device" ] && [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ]; then
    no_device="no NVIDIA device or driver here"
fi

# device_section NAME: whether a section that needs a device and the build can go on.
device_section() {
    if [ -n "$no_device" ]; then
        skip "$1" "$no_device"
        return 1
    fi
    if [ ! -d "$build/bin" ]; then
        skip "$1" "nothing has been built"
        return 1
    fi
    find_libraries
}

# A build from elsewhere may look for cuDNN and cuBLAS where they are not: Python's packages have them.
find_libraries() {
    local program=$build/bin/bench-kernels folder
    ldd "$program" 2>/dev/null | grep -q 'not found' || return 0
    for folder in $(python3 -c 'import glob, nvidia
for p in nvidia.__path__:
    print(*glob.glob(p + "/*/lib"))' 2>/dev/null); do
        LD_LIBRARY_PATH+=${LD_LIBRARY_PATH:+:}$folder
    done
    export LD_LIBRARY_PATH
}

# Python's packages by their records: to import PyTorch takes a cold machine a minute.
python_packages() {
    timeout 30 python3 -c 'from importlib import metadata
for name in "torch", "torchvision", "triton", "nvidia-cudnn-cu13", "nvidia-cudnn-cu12":
    try:
        print(name, metadata.version(name), end="  ")
    except metadata.PackageNotFoundError:
        pass' 2>/dev/null
}

section_about() {
    local commit packages date
    date=$(date -u +%Y-%m-%dT%H:%MZ)
    commit=$(git -C "$root" log -1 --format=%h 2>/dev/null || echo none)
    packages=$(python_packages)
    row "device|${device:-none found by nvidia-smi}|$date"
    row "host|$(uname -sr), $(nproc) cores|commit $commit"
    row "python|$(python3 --version 2>/dev/null || echo none)|${packages:-no PyTorch}"
    {
        echo "==== about"
        [ -n "$nvidia_smi" ] && timeout 20 "$nvidia_smi"
        lscpu
        df -h "$build" "${TMPDIR:-/tmp}"
    } >>"$logs" 2>/dev/null
    printf '{"schema": 1, "kind": "about", "date": "%s", "device": %s, "host": %s, "commit": "%s", "python": %s}\n' \
        "$date" "$(quoted "$device")" "$(quoted "$(uname -sr)")" "$commit" "$(quoted "$packages")" >>"$json"
}

# What the build is made of: a copy of the tree may give every file a new time.
sources_sum() {
    {
        echo "$architectures"
        cd "$root" && find CMakeLists.txt cmake libcore tests -type f -not -name '*.o' -print0 |
            LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum
}

section_build() {
    local generator=(-G "Unix Makefiles") on=(-k) status sum
    if command -v ninja >/dev/null; then
        generator=(-G Ninja)
        on=(-k 0)
    fi
    [ -n "$architectures" ] || architectures=${capability:-90}
    sum=$(sources_sum)
    if [ "$(cat "$build/sources.sum" 2>/dev/null)" = "$sum" ]; then
        row "build|as it was"
        return
    fi
    rm -f "$build/sources.sum"
    attempt 60 configure cmake "${generator[@]}" -S "$root/tests/gpu" -B "$build" \
        -DCHEX_CUDA_ARCHITECTURES="$architectures" || return
    attempt 300 build cmake --build "$build" -j "$jobs"
    status=$?
    # One program that does not build takes none of the others with it.
    if [ "$status" = 0 ]; then
        echo "$sum" >"$build/sources.sum"
    else
        attempt 200 "build what can be" cmake --build "$build" -j "$jobs" -- "${on[@]}"
    fi
    row "build|$(sed -n 's/^-- *\(CUDA\|CUDNN\|NCCL\|cuBLASLt\): */\1 /p' "$logs" | tr '\n' '|')"
}

section_ptxas() {
    if [ -z "$(find "$build" -name '*.ptxas' -print -quit)" ]; then
        skip ptxas "no records of nvcc in $build"
        return
    fi
    attempt 20 ptxas bash "$root/tests/gpu/ptxas.sh" "$build"
}

section_tests() {
    device_section tests || return
    local program
    for program in "$build"/bin/gpu-*; do
        [ -x "$program" ] && attempt 90/60 "test ${program##*/gpu-}" "$program"
    done
}

# Small shapes: the tools slow kernels down a hundredfold. In the third step graphs are launched.
section_sanitizer() {
    device_section sanitizer || return
    local tool sanitizer program
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
    if [ -z "$sanitizer" ]; then
        skip sanitizer "no compute-sanitizer here"
        return
    fi
    for tool in memcheck racecheck initcheck synccheck; do
        attempt 70 "$tool of steps" "$sanitizer" --tool "$tool" --error-exitcode 1 \
            "$build/bin/bench-train" --engines cuda:s4@bf16 --batch 2 --size 32 --steps 3
    done
    for program in conv_1x1 conv_3x3 stem norm; do
        attempt 60 "racecheck of $program" "$sanitizer" --tool racecheck --error-exitcode 1 \
            "$build/bin/gpu-$program"
    done
    attempt 40 "memcheck of s0" "$sanitizer" --tool memcheck --error-exitcode 1 \
        "$build/bin/bench-train" --engines cuda:s0@fp32 --batch 2 --size 32 --steps 1
}

# kernels NAME SECONDS OPTION...: bench-kernels; after an operation that ends the program or hangs it
# goes on with the next one. A cold machine reads cuBLASLt and cuDNN, a gigabyte, without a word.
kernels() {
    local name=$1 until=$((SECONDS + $2)) from=0 again='' status rest
    shift 2
    for _ in 1 2 3 4 5 6; do
        rest=$((until - SECONDS))
        [ "$rest" -gt 5 ] || return
        attempt $((rest + 10))/40 "$name$again" "$build/bin/bench-kernels" --model "$model" \
            --size "${sizes[0]}" --json "$json" "$@" --seconds "$rest" --from "$from"
        status=$?
        [[ $status = 0 || $status = 3 || $status = 77 ]] && return
        from=$(sed -n 's/^# now: op \([0-9]*\) .*/\1/p' "$out/one.log" | tail -n 1)
        [ -n "$from" ] || return
        from=$((from + 1)) again=", from operation $from on"
    done
}

# cuDNN plans for a second an operation: it is sampled.
section_kernels() {
    device_section kernels || return
    local largest=${batches[-1]}
    kernels "kernels: own" 60 --batch "$largest" --ways 1x1,3x3,stem,other
    kernels "kernels: cuDNN" 60 --batch "$largest" --ways dnn --every 9
    kernels "kernels: fp32" 15 --batch 16 --type fp32 --ways plain --every 9 --reps 3
}

# step ENGINE BATCH SIZE SECONDS
step() {
    attempt "$4" "step $1, batch $2, $3 px" "$build/bin/bench-step" --model "$model" --engine "$1" \
        --batch "$2" --size "$3" --seconds 2 --steps 200 --json "$json"
}

# bf16 at every shape, the largest batch first: what time is left for is what matters least.
section_steps() {
    device_section steps || return
    local batch size i
    for size in "${sizes[@]}"; do
        for ((i = ${#batches[@]} - 1; i >= 0; i--)); do
            step "cuda:${stages[-1]}@bf16" "${batches[i]}" "$size" 60
        done
    done
    step "cuda:${stages[-1]}@fp16" "${batches[-1]}" "${sizes[0]}" 60
    attempt 30 "inference" "$build/bin/bench-step" --model "$model" --engine "cuda:${stages[-1]}@bf16" \
        --batch "${batches[-1]}" --size "${sizes[0]}" --seconds 2 --steps 200 --infer 1 --json "$json"
    step cuda:s0@fp32 "${batches[0]}" "${sizes[0]}" 30
}

# short_training NAME LIMIT ENGINES: against the CPU engine.
short_training() {
    attempt "$2" "$1" "$build/bin/bench-train" --model "$model" --engines "cpu@fp32,$3" --json "$json"
}

section_train() {
    device_section train || return
    short_training "short training" 90 "cuda:s0@fp32,cuda:${stages[-1]}@bf16,cuda:${stages[-1]}@fp16"
}

# Stage s1 plans hundreds of graphs when it is first met: that may take two minutes.
section_stages() {
    device_section stages || return
    local i
    for ((i = ${#stages[@]} - 2; i >= 0; i--)); do
        [ "${stages[i]}" != s0 ] || continue
        step "cuda:${stages[i]}@bf16" "${batches[-1]}" "${sizes[0]}" 150
        short_training "short training, ${stages[i]}" 150 "cuda:${stages[i]}@bf16"
    done
}

# PyTorch beside us, as the coprocess `peer`: torch_gpu.py --serve.
peer_start() {
    coproc peer { exec python3 "$root/tests/peers/torch_gpu.py" --serve --model "$model" 2>>"$logs"; }
    # shellcheck disable=SC2154 # coproc sets it
    peer_pid=$peer_PID
}
peer_stop() {
    end "$peer_pid"
    kill -0 "$peer_pid" 2>/dev/null || wait "$peer_pid" 2>/dev/null
    peer_pid=''
}

# ask MODE BATCH SIZE: one measurement; its record goes into the results. A mode that takes too long
# (compilers may) is given up, for all shapes.
ask() {
    local answer rate limit begin
    limit=$(left)
    limit=$((limit > 300 ? 270 : limit - 8))
    [ "$limit" -gt 5 ] && [[ " $given_up " != *" $1 "* ]] || return
    # Where it has ended of itself bash has forgotten its pipes.
    if [ -z "${peer[1]-}" ]; then
        echo "torch: python3 ended; begun again" | tee -a "$logs"
        peer_start
    fi
    begin=$SECONDS
    if ! echo "$*" >&"${peer[1]}" || ! read -r -t "$limit" -u "${peer[0]}" answer; then
        row "torch $*|no answer, given up after $((SECONDS - begin)) s"
        echo "torch $*: no answer, given up after $((SECONDS - begin)) s"
        given_up+=" $1"
        peer_stop
        peer_start
        return
    fi
    printf '%s\n' "$answer" >>"$json"
    rate=$(sed -n 's/.*"images_per_s": \([0-9.]*\).*/\1/p' <<<"$answer")
    if [ -n "$rate" ]; then
        row "torch $*|$(printf %.0f "$rate") images/s"
    else
        answer=${answer##*\"error\": \"}
        row "torch $*|${answer:0:160}"
    fi
    printf '%-40s %s\n' "torch $*" "${rate:-no rate}"
}

# turns BATCH SIZE MODE...: the engine, then each mode of PyTorch, and again; from the second round
# on nothing is built or compiled any more.
turns() {
    local batch=$1 size=$2 mode round
    shift 2
    for ((round = 0; round < rounds; round++)); do
        [ "$(left)" -gt 20 ] || return
        step "cuda:${stages[-1]}@bf16" "$batch" "$size" 40
        for mode; do
            ask "$mode" "$batch" "$size"
        done
    done
}

# The largest batch at the first size is the one that counts: it comes first, and it alone pays for
# the longest compilations, when all else is done.
section_torch() {
    device_section torch || return
    if ! timeout 120 python3 -c 'import torch, torchvision, sys; sys.exit(not torch.cuda.is_available())' 2>>"$logs"; then
        skip torch "python3 has no PyTorch with CUDA and torchvision"
        return
    fi
    trap '' PIPE # it may end between two turns
    local given_up='' start=$SECONDS batch size mode quick=() long=()
    for mode in "${modes[@]}"; do
        if [[ $mode = max-autotune ]]; then long+=("$mode"); else quick+=("$mode"); fi
    done
    peer_start
    turns "${batches[-1]}" "${sizes[0]}" "${quick[@]}"
    for size in "${sizes[@]}"; do
        for batch in "${batches[@]}"; do
            [ "$batch $size" = "${batches[-1]} ${sizes[0]}" ] || turns "$batch" "$size" "${quick[@]}"
        done
    done
    [ ${#long[@]} = 0 ] || turns "${batches[-1]}" "${sizes[0]}" "${long[@]}"
    peer_stop
    verdict torch 0 $((SECONDS - start)) "${given_up:+given up:$given_up}"
}

# The table, however this ends. Cells are parted by "|"; the first two columns stand under one another.
finish() {
    local status=$?
    trap - EXIT
    [ -z "$running" ] || kill "$running" 2>/dev/null
    [ -z "$peer_pid" ] || kill "$peer_pid" 2>/dev/null
    rm -f "$out/one.log"
    echo "== results"
    awk -F'|' '{ printf "%-40s", $1; for (i = 2; i <= NF; i++) printf "  %-22s", $i; print "" }' "$rows" |
        sed 's/ *$//' >"$rows.laid"
    mv "$rows.laid" "$rows"
    cat "$rows"
    echo "$failed failed, $skipped skipped, $((SECONDS - began)) s"
    [ "$status" = 0 ] || exit "$status"
    [ "$failed" = 0 ] || exit 1
    [ "$skipped" = 0 ] || exit 77
    exit 0
}
trap finish EXIT
trap 'row "all|ended by a signal" && exit 124' TERM INT HUP

for section in $sections; do
    echo "== $section"
    "section_$section"
done
exit 0
