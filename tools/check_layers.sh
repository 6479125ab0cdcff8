#!/bin/sh
# Checks that includes flow one way through the tree, and the rules a compiler cannot see.
#   lyrw <- manifests <- host;  lyrw <- device <- host;  everything <- tools, tests
# Usage: check_layers.sh [ROOT]. Exit 1 with one line a fault.
set -u
cd "${1:-.}" || exit 2
faults=0

# may LAYER ALLOWED...: files under LAYER include only from LAYER and ALLOWED.
may() {
    layer=$1
    shift
    allowed=$(echo "$layer $*" | tr ' ' '|')
    found=$(grep -rnE '^[[:space:]]*#[[:space:]]*include "' "$layer" \
        --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' |
        grep -vE "include \"($allowed)/")
    if [ -n "$found" ]; then
        echo "$layer may include only from: $layer $*"
        echo "$found"
        faults=1
    fi
}

# never PATTERN WHERE WHY: no line under WHERE matches PATTERN.
never() {
    found=$(grep -rnE "$1" $2 --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh')
    if [ -n "$found" ]; then
        echo "$3"
        echo "$found"
        faults=1
    fi
}

may lyrw
may manifests lyrw
may device lyrw
may host lyrw manifests device

never 'include <(pthread|threads|stdatomic|jansson)' lyrw "lyrw knows no thread and no JSON"
never 'include <(jansson|fcntl|dirent)|fopen\(' device "device knows no file and no JSON"
never '(^|[^a-z_])getenv\(' "lyrw manifests device host" "no getenv outside tools"
never '(^|[^a-z_])(exit|abort)\(' "lyrw manifests device host" "no exit or abort in libraries"
never '(^|[^a-z_.>])(printf|puts|fprintf)\(' "lyrw manifests device host" "only tools print"
found=$(grep -rlE 'include <(cuda|nccl)' lyrw manifests device host tools |
    grep -v '^device/cuda/')
if [ -n "$found" ]; then
    echo "only device/cuda sees CUDA headers:"
    echo "$found"
    faults=1
fi
# Kernels' text compiles by nvcc and by the emulation: what differs stands in these headers. The CPU
# backend's own assembly is no PTX.
found=$(grep -rnE '(^|[^a-z_])(__)?asm(__)?([^a-z_]|$)|<<<|__shared__' device lyrw \
    --include='*.cu' --include='*.cuh' --include='*.h' |
    grep -vE '^device/(cuda/(ptx[a-z_]*|launch)\.cuh:|cpu/)')
if [ -n "$found" ]; then
    echo "PTX stands in device/cuda/ptx*.cuh, <<<>>> and __shared__ in launch.cuh:"
    echo "$found"
    faults=1
fi
found=$(grep -rlE '^#include <nvtx' lyrw manifests device host tools | grep -vE '^(host/nvtx|device/cuda/stream_name)\.c$')
if [ -n "$found" ]; then
    echo "only host/nvtx.c and device/cuda/stream_name.c see NVTX headers:"
    echo "$found"
    faults=1
fi
[ "$faults" -eq 0 ] && echo "layers: all includes flow one way"
exit "$faults"
