#!/bin/sh
# Checks and measures Plectrum on a machine with an NVIDIA GPU, without a network, in nine minutes:
#   what the emulation says of a GPU (contract), the CUDA backend's tests, every fixture by
#   `plectrum run --device cuda --check`, a few of them under compute-sanitizer, the speed of the
#   device's memory and of a large product, and what routed layers cost beside that, here and by
#   what else the machine has: cuBLAS, torch (in the python3 of the PATH).
#
# Usage: gpu_check.sh [--out DIR] [--binaries DIR] [--seconds N] [--emulated]
#        gpu_check.sh --pack DIR [--architectures LIST]
#   --out DIR       where each step's output goes (default ./gpu_check.out)
#   --binaries DIR  the programs: a packed folder, or a build folder. Without it those beside this
#                   script, those of build/cuda, or a build made first, whose time is not counted
#   --seconds N     time for all of it (540); the budgets of steps shrink with it
#   --emulated      the emulated programs of build/default and small shapes: tries the script
#   --pack DIR      builds and makes DIR, which runs on a machine that has a driver and no more;
#                   --architectures 90a-real, say, instead of all
# A step that fails or takes longer than its budget does not stop the rest.
# Exit status: 0 all held; 1 a step failed or could not run; 2 usage; 77 there is no GPU.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=gpu_check.out
binaries='' pack='' architectures='' emulated=''
total=540

usage() {
    sed -n '/^# Usage/,/^# Exit/s/^# \{0,1\}//p' "$here/gpu_check.sh" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --emulated) emulated=yes ;;
    --out | --binaries | --seconds | --pack | --architectures)
        [ $# -gt 1 ] || usage
        case $1 in
        --out) out=$2 ;;
        --binaries) binaries=$2 ;;
        --seconds) total=$2 ;;
        --pack) pack=$2 ;;
        --architectures) architectures=$2 ;;
        esac
        shift
        ;;
    *) usage ;;
    esac
    shift
done
case $total in '' | *[!0-9]*) usage ;; esac

tests="device arrival experts graph library plan route runner mm_fma mm_bulk mm_sync mm_wg"
slow_tests="mm_fma_slow mm_bulk_slow mm_sync_slow mm_wg_slow"
peers="cublas_grouped cublas_loop torch_grouped_mm"

# --- building and packing ---------------------------------------------------------------------------

# build FOLDER PRESET OPTIONS...: what the script needs for a GPU.
build() {
    folder=$1
    preset=$2
    shift 2
    if [ ! -f "$folder/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then
        set -- "$@" -G Ninja
    fi
    cmake --preset "$preset" -B "$folder" "$@" &&
        cmake --build "$folder" --parallel "$(getconf _NPROCESSORS_ONLN)" --target gpu_check
}

# Shared libraries of a program that not every distribution has under this name.
foreign_libraries() {
    ldd "$1" | awk '$2 == "=>" && $1 !~ /^(libc|libm|libdl|librt|libpthread)\.so/ { print $3 }'
}

make_pack() {
    mkdir -p "$pack" && pack=$(cd "$pack" && pwd) && cd "$here/.." || exit 1
    set -- -DPLEC_STATIC=ON
    [ -z "$architectures" ] || set -- "$@" "-DPLEC_CUDA_ARCHITECTURES=$architectures"
    build build/pack cuda "$@" || exit 1
    for name in plectrum gpu_contract gpu_ceilings cuda_run_gpu_test bench_matrix \
        $(for test in $tests $slow_tests; do echo "cuda_${test}_gpu_test"; done); do
        path=$(find build/pack/tests build/pack/tools -maxdepth 1 -type f -name "$name")
        cp "$path" "$pack/$name" && strip -g "$pack/$name" || exit 1
        for library in $(foreign_libraries "$pack/$name"); do
            [ "${library%/*}" = "$pack" ] || cp -L "$library" "$pack/" || exit 1
        done
    done
    rm -rf "$pack/data"
    cp -R tests/data "$pack/data" && cp tools/gpu_check.sh tools/peers/torch_grouped.py "$pack/" ||
        exit 1
    echo "packed: $pack, $(du -sh "$pack" | cut -f 1); of a machine it needs"
    for path in "$pack"/*; do
        # shellcheck disable=SC2046
        case $path in *.sh | *.py | */data) ;; *) ldd "$path" 2>/dev/null ;; esac
    done | awk '{ print "  " $1 }' | grep -v linux-vdso | sort | uniq -c
    exit 0
}
[ -z "$pack" ] || make_pack

# --- which programs -----------------------------------------------------------------------------------

suffix=gpu_test
contract=gpu_contract ceilings=gpu_ceilings run_test=cuda_run_gpu_test
matrix=bench_matrix tool=plectrum
if [ -n "$emulated" ]; then
    suffix='test'
    contract=gpu_contract_emu ceilings=gpu_ceilings_emu run_test=emu_run_test
    matrix=bench_matrix_emu tool=plectrum_emu
    [ -n "$binaries" ] || binaries=$here/../build/default
elif [ -z "$binaries" ]; then
    binaries=$here
    [ -x "$here/$contract" ] || binaries=$here/../build/cuda
    if [ ! -x "$binaries/$contract" ] && [ ! -x "$binaries/tests/$contract" ]; then
        binaries=$here/../build/gpu_check
        (cd "$here/.." && build build/gpu_check default) || exit 1
    fi
fi
[ -d "$binaries" ] || { echo "gpu_check: no folder $binaries" >&2; exit 2; }
binaries=$(cd "$binaries" && pwd)

# The path of a program, in a packed folder or a build folder.
program() {
    for path in "$binaries/$1" "$binaries/tests/$1" "$binaries/tools/$1"; do
        [ -f "$path" ] && break
    done
    echo "$path"
}

PLEC_TOOL=$(program $tool)
export PLEC_TOOL
if [ -d "$binaries/data" ]; then
    PLEC_TEST_DATA=$binaries/data
    export PLEC_TEST_DATA
fi

# --- steps --------------------------------------------------------------------------------------------

mkdir -p "$out" || exit 2
rm -f "$out"/*.log
started=$(date +%s)
status=0
reserve=$((total * 210 / 540)) # for the matrix, the peers among it
peer_time=$((total * 25 / 540)) # for each of them

left() { echo $((total - ($(date +%s) - started))); }

# said NAME STATUS LIMIT: the verdict on a step that ran.
said() {
    case $2 in
    0) echo "ok       $1, $(($(date +%s) - step_started)) s" ;;
    77) echo "skipped  $1: $(tail -n 1 "$out/$1.log")" ;;
    124 | 137) echo "FAILED   $1: not done in its $3 s" ;;
    *) echo "FAILED   $1: exit status $2, the end of $out/$1.log:" ;;
    esac
    case $2 in
    0 | 77) ;;
    *)
        status=1
        tail -n 15 "$out/$1.log" | sed 's/^/    /'
        ;;
    esac
}

# step NAME SECONDS COMMAND...: runs it within its budget and what time is left.
step() {
    name=$1
    limit=$(($2 * total / 540))
    shift 2
    most=$(($(left) - reserve))
    [ "$limit" -ge 1 ] || limit=1
    [ "$limit" -le "$most" ] || limit=$most
    if [ "$limit" -lt 1 ]; then
        echo "FAILED   $name: left out, no time"
        status=1
        return
    fi
    step_started=$(date +%s)
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    said "$name" $? "$limit"
}

# measure NAME SECONDS COMMAND...: the same of time not reserved, its lines shown as they come.
measure() {
    name=$1
    limit=$2
    shift 2
    step_started=$(date +%s)
    {
        timeout -k 5 "$limit" "$@"
        echo $? >"$out/$name.status"
    } 2>&1 | tee "$out/$name.log"
    verdict=$(cat "$out/$name.status")
    said "$name" "$verdict" "$limit"
    rm -f "$out/$name.status"
}

# The first cuBLAS in the places where there may be one that the loader does not know.
find_cublas() {
    for path in "$binaries"/libcublas.so.1[0-9] /usr/local/cuda*/lib64/libcublas.so.1[0-9] \
        /usr/lib/python3*/site-packages/nvidia/*/lib/libcublas.so.1[0-9] \
        /usr/local/lib/python3*/*-packages/nvidia/*/lib/libcublas.so.1[0-9]; do
        [ -f "$path" ] && echo "$path" && return
    done
}

device=$("$(program $ceilings)" --probe 2>&1)
case $? in
0) echo "$device" ;;
77)
    echo "gpu_check: $device"
    exit 77
    ;;
*)
    echo "FAILED   gpu_ceilings --probe: $device"
    status=1
    ;;
esac

# (a) the contract, and the ceilings, which the matrix needs
step contract 30 "$(program $contract)"
if [ -n "$emulated" ]; then
    measure ceilings 30 "$(program $ceilings)" --mib 16 --cublas none
else
    cublas=$(find_cublas)
    measure ceilings $((30 * total / 540 + 1)) "$(program $ceilings)" ${cublas:+--cublas "$cublas"}
fi

# (b) the backend's tests and the fixtures
for test in $tests; do
    filter='*'
    if [ -n "$emulated" ]; then
        filter='-' # none
        case $test in
        device) filter='Cuda.*' ;;
        arrival) filter='*/q4_k' ;;
        experts) filter='*/f32:*/q4_0' ;;
        graph) filter='*/0' ;;
        library) filter='Rung.*' ;;
        runner) filter='*Streamed*' ;;
        plan) filter='Plan.IsEmpty*' ;;
        route) filter='*Lowest*:*Ties*' ;;
        mm_fma | mm_bulk | mm_sync) filter='*WithoutAGate*' ;;
        mm_wg) filter='*LongRows*/mxfp4' ;;
        esac
    fi
    step "cuda_$test" 60 "$(program "cuda_${test}_$suffix")" --gtest_filter="$filter"
done
filter='*'
[ -z "$emulated" ] || filter='*Tezw:*KernelForEveryFormat'
step run_fixtures 60 "$(program $run_test)" --gtest_filter="$filter"

sanitizer=
for path in "$binaries/compute-sanitizer" "$(command -v compute-sanitizer)" \
    /usr/local/cuda/bin/compute-sanitizer; do
    [ -x "$path" ] && sanitizer=$path && break
done
if [ -n "$emulated" ]; then
    echo "left out sanitizer: not for emulated programs, which have a checker of their own"
elif [ -z "$sanitizer" ]; then
    echo "skipped  sanitizer: no compute-sanitizer here"
else
    memcheck="$sanitizer --tool memcheck --report-api-errors no --error-exitcode 9"
    # shellcheck disable=SC2086 # words of a command
    {
        step memcheck_contract 30 $memcheck "$(program $contract)"
        step memcheck_experts 45 $memcheck "$(program cuda_experts_$suffix)" \
            --gtest_filter='*HighestRung/*'
        step racecheck_plan 30 "$sanitizer" --tool racecheck --error-exitcode 9 \
            "$(program cuda_plan_$suffix)" --gtest_filter='Plan.*Shards:Plan.*Duplicates'
    }
fi

# every kernel over the list of shapes, in what time is left
for test in $slow_tests; do
    [ -n "$emulated" ] || step "cuda_$test" 60 "$(program "cuda_${test}_$suffix")"
done

# (c) (d) what layers cost, beside the ceilings
gbs=$(sed -n 's/^gbs //p' "$out/ceilings.log")
tflops=$(sed -n 's/^tflops //p' "$out/ceilings.log")

# run_matrix NAME KEEP ARGUMENTS...: rows until the time is up, less what is to be kept of it.
run_matrix() {
    name=$1
    time=$(($(left) - 10 - $2))
    shift 2
    [ "$time" -ge 5 ] || { echo "left out $name: no time"; return; }
    measure "$name" "$((time + 8))" "$(program $matrix)" --device cuda ${gbs:+--gbs "$gbs"} \
        ${tflops:+--tflops "$tflops"} --limit "$time" "$@"
}

# absent PEER WHY: names a peer that the machine has not.
absent() {
    echo "absent   $1: $2"
    absentees="$absentees $1"
}

# run_peer PEER COMMAND...: rows of a peer; one that is not there says so and exits 77.
run_peer() {
    name=peer_$1
    shift
    time=$(($(left) - 10))
    [ "$time" -lt "$peer_time" ] || time=$peer_time
    [ "$time" -ge 5 ] || { echo "left out $name: no time"; return; }
    measure "$name" "$((time + 8))" "$@" ${gbs:+--gbs "$gbs"} ${tflops:+--tflops "$tflops"} \
        --limit "$time"
    case $verdict in 77) absent "${name#peer_}" "$(tail -n 1 "$out/$name.log")" ;; esac
}

# run_cublas PEER ARGUMENTS...
run_cublas() {
    why=$(sed -n 's/^no cuBLAS: //p' "$out/ceilings.log")
    if [ -n "$why" ] && [ -z "$emulated" ]; then
        absent "$1" "$why"
        return
    fi
    peer=$1
    shift
    run_peer "$peer" "$(program $matrix)" --device cuda --rung "$peer" \
        ${cublas:+--cublas "$cublas"} "$@"
}

torch_peer=$here/peers/torch_grouped.py
[ -f "$torch_peer" ] || torch_peer=$here/torch_grouped.py
run_torch() {
    if ! command -v python3 >/dev/null 2>&1; then
        absent torch_grouped_mm "no python3"
        return
    fi
    "$(program $matrix)" --shapes >"$out/shapes" 2>/dev/null
    # shellcheck disable=SC2016 # the inner shell's
    run_peer torch_grouped_mm sh -c 'shapes=$1; shift; exec python3 "$@" <"$shapes"' sh \
        "$out/shapes" "$torch_peer"
}

absentees=''
if [ -n "$emulated" ]; then
    cublas=$(program libcublas_standin.so)
    small="--shrink 100 --batch 0.001 --memory-mib 64 --tokens 1"
    # shellcheck disable=SC2086 # words of a command
    {
        run_matrix matrix 0 $small --models llama-4-scout --formats q8_0,mxfp4
        run_cublas cublas_grouped $small --models llama-4-scout --formats mxfp4
        run_cublas cublas_loop $small --models llama-4-scout --formats mxfp4
    }
    run_torch
else
    # (e) stands in the middle: a time that runs out leaves other formats and models out.
    run_matrix matrix $((3 * peer_time))
    run_cublas cublas_grouped --formats bf16,mxfp4
    run_cublas cublas_loop --formats bf16,mxfp4
    run_torch
    others=f16,q4_0,q6_k,nvfp4,mxfp8,fp4_larql,gguf_q4_1,gguf_q5_0,gguf_q5_1,gguf_q5_k,gguf_q2_k
    run_matrix matrix_formats 0 --models qwen3-30b-a3b --tokens 1,64 \
        --formats "$others,gguf_q3_k,gguf_iq4_nl,gguf_iq4_xs"
    run_matrix matrix_models 0 --formats mxfp4,q4_k --tokens 1,8,64,512 \
        --models gpt-oss-20b,kimi-k2,olmoe-1b-7b,granite-3-3b-a800m,llama-4-scout,kimi-k3
fi

# --- the table ----------------------------------------------------------------------------------------

# A row for each of ours, and beside it the microseconds of each peer in the same cell.
# shellcheck disable=SC2016 # $4 and its like are awk's
is_row='NF >= 9 && $4 ~ /^[0-9]+$/ && $9 ~ /^[0-9.]+$/'
cat "$out"/matrix*.log 2>/dev/null >"$out/ours"
cat "$out"/peer_*.log 2>/dev/null >"$out/theirs"
# shellcheck disable=SC2016
rows=$(awk -v peers="$peers" -v absentees="$absentees" '
    BEGIN {
        n = split(peers, names, " ")
        split(absentees, gone, " ")
        for (i in gone) none[gone[i]] = "absent"
    }
    '"$is_row"' && FILENAME ~ /theirs$/ {
        us[$1, $2, $4, $3] = $6 (/WRONG/ ? "!" : "")
        next
    }
    '"$is_row"' {
        printf "%-20s %-9s %-14s %6s %11s %9s %7s", $1, $2, $3, $4, $6, $7, $9
        for (i = 1; i <= n; i++) {
            cell = us[$1, $2, $4, names[i]]
            if (cell == "") cell = none[names[i]] == "" ? "-" : none[names[i]]
            printf " %16s", cell
        }
        print (/WRONG/ ? "  WRONG OUTPUT" : "")
    }' "$out/theirs" "$out/ours")
rm -f "$out/ours" "$out/theirs" "$out/shapes"
if [ -z "$rows" ]; then
    echo "FAILED   table: nothing was measured"
    status=1
fi
verdict="all steps held"
[ "$status" -eq 0 ] || verdict="FAILED, see above"
{
    echo "gpu_check: $verdict; $(($(date +%s) - started)) s; ${device#device }; memory ${gbs:-?} GB/s," \
        "bf16 ${tflops:-not measured} TFLOP/s"
    [ -z "$absentees" ] || echo "absent:$absentees"
    printf '%-20s %-9s %-14s %6s %11s %9s %7s' model format kernel tokens us GB/s floor
    # shellcheck disable=SC2086 # words
    printf ' %16s' $peers
    printf '\n'
    [ -z "$rows" ] || echo "$rows"
} | tee "$out/table.txt"
exit "$status"
