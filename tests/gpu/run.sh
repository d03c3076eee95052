#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything about the CUDA engine that needs a GPU, in some minutes. --help says more.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=../options.sh
. "$root/tests/options.sh"
all_sections="about build smoke shapes graphs s5 kernels tests headline train torch steps"
all_sections+=" profile ptxas sanitizer stages dnn long"

usage() {
    cat <<END
usage: tests/gpu/run.sh [OPTION...]
Builds the CUDA engine alone (tests/gpu/CMakeLists.txt) for this machine's GPU and runs, each with a
time limit of its own:
  about      device, driver, versions
  build      chexnet-cuda.so, the tests and the measurements; nothing where no source has changed
  smoke      the device, and the step that counts: s4 at the largest batch
  shapes     losses of s4 against s0 at 224 px and 128 images: no figure counts unless they agree
  graphs     12 steps of the CPU engine, s0 and s4; s4 without graphs, which must lose no bit
  s5         what s5 assumes of capability 9.0; its losses against the CPU engine, and against s0 at
             224 px; its step
  kernels    time of every kernel against its floor of bytes and FLOP
  tests      every kernel against the CPU reference
  headline   the step that counts, in turn with PyTorch: wall clock and device times; inference
  train      a short training against the CPU engine
  torch      PyTorch in turn with the engine, every mode but the long ones, where python3 has it
  steps      images a second of the whole step of the last stage: every batch and size, and switches
  profile    NVIDIA's ncu on one launch or two of every kernel that takes long
  ptxas      spills, stack frames, register budgets
  sanitizer  compute-sanitizer's tools on small shapes
  stages     the other stages' step, short trainings and cuDNN's kernels: cuDNN plans for minutes
  dnn        the tests of cuDNN's graphs, and cuDNN's description of this device for tests/data/gpu
  long       PyTorch's modes that compile for minutes: max-autotune, reduce-overhead
Engine and PyTorch upload the same bytes: 8-bit images, made fp32 on the GPU. Leaves results.json (one
object a line: what was measured, and each verdict), table.txt and logs.txt. All three grow line by
line, so a run that is cut off keeps what it has; a later run appends to them. A section that fails
does not stop the others; what needs a device is skipped, with words, where there is none, and stage s5
on other capabilities than 9.0. A build that is cut off keeps what it has compiled. Without
cuDNN or NCCL's header the engine is built without them. Where /tmp is small, temporary files go into
the build folder. A program that runs past its limit, or says nothing for long, is ended; cuda-gdb,
where it is there, writes into logs.txt which kernel it was in. Clocks and settings of the GPU are left
as they are.
  --part N           the sections of the first, second or third ten minutes (doc/gpu-day.md)
  --sections A,B     only these (all: ${all_sections// /,})
  --prebuilt DIR     build nothing: DIR has bin/ and lib/ (tests/gpu/pack.sh makes it)
  --out DIR          results (\$OUT, else build/gpu-results)
  --build DIR        build folder (build/gpu); without the section build, what bin/ and lib/ there hold
  --architectures L  targets such as 90, with the product's code (this GPU's own; without a GPU 90)
  --jobs N           compilers at a time ($(nproc))
  --seconds N        the whole must end by then (540), a build too; later sections are skipped
  --batches L        16,64,256        --sizes L   224,320
  --stages L         s0,s1,s4         --model M   densenet121
  --torch-modes L    eager,channels_last,graph,compile,reduce-overhead,max-autotune
  --rounds N         turns of engine and PyTorch at each shape (3)
  --rehearse         the smallest shapes and few steps: every section runs on an emulated device
                     (tests/gpu/rehearse.sh). The figures say nothing
Exit status: 0 all good, 1 something failed, 2 usage, 77 nothing failed, something was skipped.
END
}

# The sections of each ten minutes; what was built or is there is not built again.
parts=('' "about build smoke shapes graphs s5 kernels tests headline train" "about build torch steps"
    "about build profile ptxas sanitizer stages dnn long")

sections=$all_sections out=${OUT:-$root/build/gpu-results} build=$root/build/gpu architectures=''
jobs=$(nproc) seconds=540 batches=16,64,256 sizes=224,320 stages=s0,s1,s4 model=densenet121
torch_modes=eager,channels_last,graph,compile,reduce-overhead,max-autotune rounds=3 part='' prebuilt=''
rehearse=''
read_options "sections out build architectures jobs# seconds# batches sizes stages model torch-modes
    rounds# part prebuilt rehearse+" "$@"
no_words
sections=${sections//,/ }
if [ -n "$part" ]; then
    [[ $part = [123] ]] || usage_error "--part '$part': expected 1, 2 or 3"
    sections=${parts[part]}
fi
for section in $sections; do
    [[ " $all_sections " = *" $section "* ]] || usage_error "unknown section '$section'"
done
if [ -n "$prebuilt" ]; then
    [ -d "$prebuilt/bin" ] || usage_error "--prebuilt '$prebuilt': no folder bin there"
    build=$prebuilt
fi
# On an emulated device a step takes seconds. In the third step graphs are launched.
train_options=() step_options=(--seconds 2 --steps 200) kernel_options=() smoke_steps=12 profile_steps=4 patience=1
if [ -n "$rehearse" ]; then
    batches=1,2 sizes=32 rounds=1 smoke_steps=4 profile_steps=1 patience=4
    train_options=(--batch 2 --size 64 --steps 2)
    step_options=(--warm-up 1 --steps 1)
    kernel_options=(--batch 1 --every 60 --reps 1 --memory-gib 0.1)
fi
[[ $batches,$sizes =~ ^[0-9]+(,[0-9]+)*$ ]] || usage_error "--batches and --sizes: expected numbers"
IFS=, read -ra batches <<<"$batches"
IFS=, read -ra sizes <<<"$sizes"
IFS=, read -ra stages <<<"$stages"
IFS=, read -ra modes <<<"$torch_modes"
last_stage=${stages[-1]} largest=${batches[-1]} size=${sizes[0]}

began=$SECONDS
mkdir -p "$out" "$build" || exit 1
out=$(cd "$out" && pwd) build=$(cd "$build" && pwd)
json=$out/results.json table=$out/table.txt logs=$out/logs.txt
touch "$json" "$table" "$logs" || exit 1
rows_before=$(wc -l <"$table")
LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
# What compilers, nvcc's and PyTorch's, write, and plans of cuDNN. A prebuilt tree may be read-only.
scratch=${TMPDIR:-/tmp}
if [ -z "$prebuilt" ]; then
    scratch=$build
    if [ "$(df --output=avail -k "${TMPDIR:-/tmp}" | tail -n 1)" -lt 4000000 ]; then
        mkdir -p "$build/tmp" && export TMPDIR=$build/tmp
    fi
fi
export CHEX_LIBDIR=$build/lib CHEX_CACHE_DIR=$scratch/cache
failed=0 skipped=0 running='' peer_pid='' deadline=$((SECONDS + seconds))
exec {never}<> <(:) # nothing to read here, ever: a sleep without a process

left() { echo $((deadline - SECONDS)); }

# row CELL|CELL|...: a line of the table; the first two columns are under one another.
row() {
    local cells=() line
    IFS='|' read -ra cells <<<"$*"
    printf -v line '%-40s' "${cells[0]}"
    [ ${#cells[@]} -lt 2 ] || printf -v line '%s  %-22s' "$line" "${cells[@]:1:1}"
    [ ${#cells[@]} -lt 3 ] || printf -v line '%s  %s' "$line" "$(printf '%-22s  ' "${cells[@]:2}")"
    printf '%s\n' "${line%"${line##*[! ]}"}" >>"$table"
}

# rows: lines of standard input, as row takes them.
rows() {
    local line
    while IFS= read -r line; do row "$line"; done
}

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
        if [ -n "${slow-}" ]; then # what a slow tool has not finished says nothing bad
            word="not finished"
            skipped=$((skipped + 1))
        else
            word="FAILED (ran past its limit)"
            failed=$((failed + 1))
        fi
        ;;
    *)
        word=FAILED
        failed=$((failed + 1))
        ;;
    esac
    row "$1|$word|$3 s${4:+|$4}"
    printf '{"schema": 1, "kind": "verdict", "name": %s, "verdict": "%s", "status": %d, "seconds": %d, "text": %s}\n' \
        "$(quoted "$1")" "${word% (*}" "$2" "$3" "$(quoted "${4-}")" >>"$json"
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
    local limit=$((${1%/*} * patience)) stall=$((${1#*/} * patience)) name=$2 log=$out/one.log status start=$SECONDS text='' rest
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
    sed -n 's/^= //p' "$log" | rows
    grep -m 2 '^warn: ' "$log" | sed "s/^warn: /$name|warned|/" | rows
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
        cd "$root" && find CMakeLists.txt cmake libcore tests/gpu tests/gpu-dnn tests/*.h tests/op \
            -type f \( -name '*.[ch]' -o -name '*.cu*' -o -name 'CMake*' -o -name '*.cmake' -o -name '*.inc.h' \) \
            -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    } | sha256sum
}

# A prebuilt tree is what its sums say, and has code for this device.
check_prebuilt() {
    local targets bad
    targets=$(sed -n 's/^targets //p' "$build/ABOUT" 2>/dev/null)
    if [ -f "$build/SHA256SUMS" ]; then
        if ! bad=$(cd "$build" && sha256sum --quiet -c SHA256SUMS 2>&1); then
            verdict prebuilt 1 0 "$(head -n 1 <<<"$bad")"
            return
        fi
    fi
    if [ -n "$capability" ] && [ -n "$targets" ] && [[ ",$targets," != *",$capability,"* ]]; then
        row "prebuilt|for $targets, this device is $capability|the driver compiles PTX of 8.0"
    fi
    if [ -f "$build/ABOUT" ]; then
        row "build|prebuilt|$(tr '\n' '|' <"$build/ABOUT")"
    else
        row "build|prebuilt|no record of its origin"
    fi
}

section_build() {
    local generator=(-G "Unix Makefiles") on=(-k) fresh=() status sum
    if [ -n "$prebuilt" ]; then
        check_prebuilt
        return
    fi
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
    # A folder that was copied here, or whose tree was.
    if [ -f "$build/CMakeCache.txt" ] && ! { grep -qxF "CMAKE_CACHEFILE_DIR:INTERNAL=$build" \
        "$build/CMakeCache.txt" && grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root/tests/gpu" \
        "$build/CMakeCache.txt"; }; then
        fresh=(--fresh)
    fi
    attempt 60 configure cmake "${fresh[@]}" "${generator[@]}" -S "$root/tests/gpu" -B "$build" \
        -DCMAKE_BUILD_TYPE=Release -DCHEX_CUDA_ARCHITECTURES="${architectures//,/;}" || return
    # One program that does not build takes none of the others with it. A later run continues.
    attempt "$seconds" build cmake --build "$build" -j "$jobs" -- "${on[@]}"
    status=$?
    [ "$status" != 0 ] || echo "$sum" >"$build/sources.sum"
    row "build|$(sed -n 's/^-- *\(CUDA\|CUDNN\|NCCL\|cuBLASLt\): */\1 /p' "$logs" | tail -n 4 | tr '\n' '|')"
}

# losses FILE ENGINE: what bench-train recorded of an engine.
losses() {
    sed -n "s/.*\"kind\": \"train\", \"engine\": \"$2\".*\"loss\": //p" "$1" | tail -n 1
}

# takes_s5 NAME: whether the device runs the kernels of stage s5; else NAME is skipped in words.
takes_s5() {
    [ "$capability" != 90 ] || return 0
    skip "$1" "the kernels of s5 are for capability 9.0 only, this device's is ${capability:-not known}"
    return 1
}

graphs_agree() {
    local with without
    with=$(losses "$1" "$2")
    without=$(losses "$1.single" "$2")
    if [ -z "$with" ] || [ -z "$without" ]; then
        skip "graphs: with and without" "losses of $2 are missing"
    elif [ "$with" = "$without" ]; then
        verdict "graphs: with and without" 0 0 "every loss is equal with and without graphs, dependent launches and second stream"
    else
        verdict "graphs: with and without" 1 0 "losses with graphs ${with:0:60}, without ${without:0:60}"
    fi
}

# The fact that is wanted most comes first.
section_smoke() {
    device_section smoke || return
    attempt 20 "smoke: device" "$build/bin/gpu-device"
    step "cuda:$last_stage@bf16" "$largest" "$size" 60
}

# real_shapes NAME ENGINE: an error that needs many tiles shows in no smaller test.
real_shapes() {
    local shape=(--batch 128 --size 224 --steps 4)
    [ -z "$rehearse" ] || shape=("${train_options[@]:0:4}" --steps 1)
    attempt 90 "$1 at 128 images of 224 px" "$build/bin/bench-train" --model "$model" \
        --engines "cuda:s0@fp32,$2" "${shape[@]}" --json "$json"
}

section_shapes() {
    device_section shapes || return
    real_shapes "shapes: losses" "cuda:$last_stage@bf16"
}

# short_steps NAME LIMIT ENGINES RESULTS: some steps against the CPU engine.
short_steps() {
    attempt "$2" "$1" "$build/bin/bench-train" --engines "cpu@fp32,$3" --model "$model" \
        --steps "$smoke_steps" "${train_options[@]:0:4}" --json "$4"
}

section_graphs() {
    device_section graphs || return
    local engine=cuda:$last_stage@bf16 own=$out/smoke.json
    : >"$own"
    short_steps "graphs: $smoke_steps steps" 40 "cuda:s0@fp32,$engine" "$own"
    if [ $? = 1 ]; then # which operation a failed launch belongs to
        CHEX_CUDA_GRAPHS=sync short_steps "graphs: after each operation" 20 "$engine" /dev/null
    fi
    cat "$own" >>"$json"
    CHEX_CUDA_GRAPHS=0 CHEX_CUDA_DEPENDENT=0 CHEX_CUDA_SIDE=0 \
        short_steps "graphs: without" 30 "$engine" "$own.single" && graphs_agree "$own" "$engine"
    rm -f "$own" "$own.single"
}

section_s5() {
    device_section s5 || return
    takes_s5 s5 || return
    attempt 40 "s5: what it assumes" "$build/bin/bench-assumptions"
    short_steps "s5: $smoke_steps steps" 40 cuda:s5@bf16 "$json"
    real_shapes "s5: losses" cuda:s5@bf16
    step cuda:s5@bf16 "$largest" "$size" 60
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
        [[ $program = */gpu-dnn_* ]] || [ ! -x "$program" ] || attempt 90/60 "test ${program##*/gpu-}" "$program"
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
    local slow=yes
    for tool in memcheck racecheck initcheck synccheck; do
        attempt 70 "$tool of steps" "$sanitizer" --tool "$tool" --error-exitcode 1 \
            "$build/bin/bench-train" --engines cuda:s4@bf16 --batch 2 --size 32 --steps 3
    done
    for program in conv_1x1 conv_3x3 stem norm; do
        attempt 60 "racecheck of $program" "$sanitizer" --tool racecheck --error-exitcode 1 \
            "$build/bin/gpu-$program"
    done
    if takes_s5 "sanitizer: s5"; then
        for tool in memcheck racecheck; do
            attempt 70 "$tool of s5" "$sanitizer" --tool "$tool" --error-exitcode 1 \
                "$build/bin/bench-train" --engines cuda:s5@bf16 --batch 2 --size 32 --steps 3
        done
        for program in conv_1x1_sm90 conv_1x1_backward_sm90 conv_3x3_sm90; do
            attempt 60 "racecheck of $program" "$sanitizer" --tool racecheck --error-exitcode 1 \
                "$build/bin/gpu-$program"
        done
    fi
    attempt 40 "memcheck of s0" "$sanitizer" --tool memcheck --error-exitcode 1 \
        "$build/bin/bench-train" --engines cuda:s0@fp32 --batch 2 --size 32 --steps 1
}

# kernels NAME SECONDS OPTION...: bench-kernels; after an operation that ends the program or hangs it
# goes on with the next one. A cold machine reads cuBLASLt and cuDNN, a gigabyte, without a word.
kernels() {
    local name=$1 until=$((SECONDS + $2 * patience)) from=0 again='' status rest
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

section_kernels() {
    device_section kernels || return
    kernels "kernels: own" 60 "${kernel_options[@]}" --batch "$largest" --ways 1x1,3x3,stem,other
    ! takes_s5 "kernels: s5" || kernels "kernels: s5" 40 "${kernel_options[@]}" --batch "$largest" \
        --ways 1x1-wgmma,1x1-cluster,3x3-wgmma
    kernels "kernels: fp32" 15 "${kernel_options[@]}" --batch 16 --type fp32 --ways plain --every 9 --reps 3
}

# step ENGINE BATCH SIZE SECONDS [OPTION...]
step() {
    local name="step $1, batch $2, $3 px${switch:+, $switch}" limit=$4 set
    read -ra set <<<"${switch-}"
    local options=(--model "$model" --engine "$1" --batch "$2" --size "$3" "${step_options[@]}")
    shift 4
    attempt "$limit" "$name${1:+, ${1#--} $2}" env "${set[@]}" "$build/bin/bench-step" "${options[@]}" \
        --json "$json" "$@"
}

# bf16 at every shape, the largest batch first: what time is left for is what matters least.
section_steps() {
    device_section steps || return
    local size i switch=
    for size in "${sizes[@]}"; do
        for ((i = ${#batches[@]} - 1; i >= 0; i--)); do
            step "cuda:$last_stage@bf16" "${batches[i]}" "$size" 60
        done
    done
    for switch in CHEX_CUDA_DEPENDENT=0 CHEX_CUDA_SIDE=0 CHEX_CUDA_MEASURE=5 \
        "CHEX_CUDA_DEPENDENT=0 CHEX_CUDA_SIDE=0"; do
        step "cuda:$last_stage@bf16" "$largest" "${sizes[0]}" 60 # what it gains, beside the first
        [[ $switch = *" "* ]] || step "cuda:$last_stage@bf16" "${batches[0]}" "${sizes[0]}" 60
    done
    switch=
    step "cuda:$last_stage@fp16" "$largest" "${sizes[0]}" 60
    step "cuda:$last_stage@bf16" "$largest" "${sizes[0]}" 60 --input pixels
    step cuda:s0@fp32 "${batches[0]}" "${sizes[0]}" 30
}

# short_training NAME LIMIT ENGINES: against the CPU engine.
short_training() {
    attempt "$2" "$1" "$build/bin/bench-train" --model "$model" --engines "cpu@fp32,$3" \
        "${train_options[@]}" --json "$json"
}

section_train() {
    device_section train || return
    short_training "short training" 90 "cuda:s0@fp32,cuda:$last_stage@bf16,cuda:$last_stage@fp16"
}

# Stage s1 plans hundreds of graphs when it is first met: that may take two minutes.
section_stages() {
    device_section stages || return
    local i
    for ((i = ${#stages[@]} - 2; i >= 0; i--)); do
        [ "${stages[i]}" != s0 ] || continue
        step "cuda:${stages[i]}@bf16" "$largest" "$size" 150
        short_training "short training, ${stages[i]}" 150 "cuda:${stages[i]}@bf16"
    done
    # For a second an operation: it is sampled.
    kernels "kernels: cuDNN" 60 "${kernel_options[@]}" --batch "$largest" --ways dnn --every 9
    ! takes_s5 "short training, s5" || short_training "short training, s5" 90 cuda:s5@bf16
}

# cuDNN plans on a cold disk for up to 90 s without a word.
section_dnn() {
    device_section dnn || return
    local program found='' record=(CHEX_TEST_RECORD="$out/cudnn-device.json")
    [ -z "$rehearse" ] || record=() # the emulated library describes no device
    for program in "$build"/bin/gpu-dnn_*; do
        [ -x "$program" ] || continue
        found=yes
        attempt 200/150 "test ${program##*/gpu-}" env "${record[@]}" "$program"
    done
    [ -n "$found" ] || skip dnn "built without cuDNN"
}

# ---- profile ----

# profiled FILE: of ncu's CSV (page details) a row for each launch: what bounds it.
profiled() {
    awk -F'","' '
        /^"ID"/ { for (i = 1; i <= NF; i++) { name = $i; gsub(/"/, "", name); at[name] = i }; next }
        !/^"[0-9]+"/ || !at["Metric Value"] { next }
        {
            id = $1; sub(/^"/, "", id)
            value = $at["Metric Value"]; gsub(/[",]/, "", value)
            metric = $at["Metric Name"]
            if (!(id in kernel)) { order[++count] = id; kernel[id] = $at["Kernel Name"]; grid[id] = $at["Grid Size"] }
            if (metric == "Duration") { time[id] = value; unit[id] = $at["Metric Unit"] }
            if (metric == "DRAM Throughput" && $at["Metric Unit"] == "%") dram[id] = value
            if (metric == "L2 Cache Throughput") l2[id] = value
            if (metric ~ /^Compute \(SM\) Throughput/) sm[id] = value
            if (metric == "Achieved Occupancy") warps[id] = value
            if (metric == "Registers Per Thread") registers[id] = value
        }
        END {
            for (i = 1; i <= count; i++) {
                id = order[i]
                name = kernel[id]; sub(/\(.*/, "", name); sub(/^void /, "", name)
                printf "profile %s|grid %s|%s %s|DRAM %s %%|L2 %s %%|SM %s %%|occupancy %s %%|%s registers\n",
                    substr(name, 1, 60), grid[id], time[id], unit[id], dram[id], l2[id], sm[id], warps[id], registers[id]
            }
        }' "$1"
}

# The kernels that take long, by their names in the source; a middle batch, since ncu replays a launch
# with all memory that it writes saved and restored.
profile_kernels="conv1x1_gemm_kernel conv1x1_fused_kernel conv3_product conv3_weight stem_forward
    stem_backward maxpool_backward avgpool_forward head_pool update_elements
    gpu_add_parts_kernel augment_kernel"
profile_kernels_s5="conv1x1_wgmma_kernel conv1x1_cluster_kernel conv3_wgmma conv3_weight_wgmma"
section_profile() {
    device_section profile || return
    local ncu kernel stage of_s5='' slow=yes batch=${batches[$((${#batches[@]} / 2))]} metrics=() name
    ncu=$(command -v ncu || ls /usr/local/cuda*/bin/ncu /opt/nvidia/nsight-compute/*/ncu 2>/dev/null | head -n 1)
    if [ -z "$ncu" ]; then
        skip profile "no ncu here"
        return
    fi
    for name in SpeedOfLight MemoryWorkloadAnalysis LaunchStats Occupancy WarpStateStats; do
        metrics+=(--section "$name")
    done
    ! takes_s5 "profile: s5" || of_s5=$profile_kernels_s5
    for kernel in $profile_kernels $of_s5; do
        stage=$last_stage
        [[ " $of_s5 " != *" $kernel "* ]] || stage=s5
        attempt 45 "profile $kernel" env CHEX_CUDA_GRAPHS=0 "$ncu" --clock-control none --csv \
            --page details "${metrics[@]}" --kernel-name "$kernel" --launch-skip 2 \
            --launch-count 4 "$build/bin/bench-step" --model "$model" \
            --engine "cuda:$stage@bf16" --batch "$batch" --size "$size" --warm-up 0 \
            --steps "$profile_steps" || continue
        profiled "$out/one.log" >"$out/one.rows"
        rows <"$out/one.rows"
        while IFS= read -r name; do
            printf '{"schema": 1, "kind": "profile", "batch": %d, "size_px": %d, "text": %s}\n' "$batch" \
                "$size" "$(quoted "$name")" >>"$json"
        done <"$out/one.rows"
        rm -f "$out/one.rows"
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
        row "torch $*|$(printf %.0f "$rate") images/s|$(sed -n 's/.*"step_ms": \([0-9.]*\).*/\1/p' <<<"$answer" |
            cut -c 1-6) ms a step|$(sed -n 's/.*"device_ms": \([0-9.]*\).*/\1/p' <<<"$answer" |
                cut -c 1-6) ms of it on the device"
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

# torch_here NAME: whether python3 has PyTorch with CUDA.
torch_here() {
    timeout 120 python3 -c 'import torch, torchvision, sys; sys.exit(not torch.cuda.is_available())' 2>>"$logs" &&
        return
    skip "$1" "python3 has no PyTorch with CUDA and torchvision"
    return 1
}

# The step that counts beside PyTorch's best: what tests/gpu/run.sh is for. Inference needs no PyTorch.
section_headline() {
    device_section headline || return
    local given_up='' start=$SECONDS mode fast=()
    step "cuda:$last_stage@bf16" "$largest" "$size" 60 --infer 1
    ! takes_s5 "headline: s5" || step "cuda:s5@bf16" "$largest" "$size" 60 --infer 1
    if ! torch_here "headline: PyTorch"; then
        step "cuda:$last_stage@bf16" "$largest" "$size" 60
        return
    fi
    trap '' PIPE # it may end between two turns
    for mode in "${modes[@]}"; do
        [[ $mode != channels_last && $mode != graph && $mode != compile ]] || fast+=("$mode")
    done
    peer_start
    turns "$largest" "$size" "${fast[@]}"
    peer_stop
    verdict headline 0 $((SECONDS - start)) "${given_up:+given up:$given_up}"
}

# is_long MODE: PyTorch compiles for minutes.
is_long() { [[ $1 = max-autotune || $1 = reduce-overhead ]]; }

# The largest batch at the first size is the one that counts: it comes first.
section_torch() {
    device_section torch || return
    torch_here torch || return
    trap '' PIPE # it may end between two turns
    local given_up='' start=$SECONDS batch px mode quick=()
    for mode in "${modes[@]}"; do is_long "$mode" || quick+=("$mode"); done
    peer_start
    turns "$largest" "$size" "${quick[@]}"
    for px in "${sizes[@]}"; do
        for batch in "${batches[@]}"; do
            [ "$batch $px" = "$largest $size" ] || turns "$batch" "$px" "${quick[@]}"
        done
    done
    peer_stop
    verdict torch 0 $((SECONDS - start)) "${given_up:+given up:$given_up}"
}

section_long() {
    device_section long || return
    torch_here long || return
    trap '' PIPE
    local given_up='' start=$SECONDS mode long=()
    for mode in "${modes[@]}"; do ! is_long "$mode" || long+=("$mode"); done
    peer_start
    [ ${#long[@]} = 0 ] || turns "$largest" "$size" "${long[@]}"
    peer_stop
    verdict long 0 $((SECONDS - start)) "${given_up:+given up:$given_up}"
}

# This run's part of the table, however it ends.
finish() {
    local status=$?
    trap - EXIT
    [ -z "$running" ] || kill "$running" 2>/dev/null
    [ -z "$peer_pid" ] || kill "$peer_pid" 2>/dev/null
    rm -f "$out"/one.log "$out"/one.rows "$out"/smoke.json "$out"/smoke.json.single
    echo "== results"
    tail -n +$((rows_before + 1)) "$table"
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
