#!/bin/sh
# Counts the instructions of the main loop of each mm_sync kernel (--bulk: mm_bulk) for tiles of 8
# tokens, per weight and lane: in PTX, and where nvdisasm is found (or named in NVDISASM) in SASS as well.
#   sh tools/count_loop.sh [--check] [--bulk] [ARCH]          default 90a
# --check: fails where mxfp4 takes more than 3.2 or q4_0 more than 2.4 instructions a weight.
# Columns: kernel, code, instructions in the loop, weights of a lane in it, instructions a weight, and
# of these integer (logic, shifts, permutes, adds), float, matrix, shared memory, the rest.
# The main loop is the one with an MMA (main_loop.awk).
set -eu
cd "$(dirname "$0")/.."
check=0
kernel=mm_sync
while [ $# -gt 0 ] && [ "${1#--}" != "$1" ]; do
    case $1 in
    --check) check=1 ;;
    --bulk) kernel=mm_bulk ;;
    *) echo "usage: count_loop.sh [--check] [--bulk] [ARCH]" >&2; exit 2 ;;
    esac
    shift
done
sources="device/cuda/${kernel}_*.cu"
[ "$check" = 0 ] || sources="device/cuda/${kernel}_e2m1.cu device/cuda/${kernel}_nibble.cu"
arch=${1:-90a}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvcc=${NVCC:-nvcc}
disassembler=${NVDISASM:-$(command -v nvdisasm || true)}

cat >"$work/count.awk" <<'AWK'
function kind(op) {
    if (op ~ /^(mma|HMMA)/) return "matrix"
    if (op ~ /^(ld\.shared|st\.shared|LDS|STS)/) return "shared"
    if (op ~ /^(and|or|xor|not|lop3|shl|shr|shf|prmt|add\.[su]|sub\.[su]|mad|mul\.(lo|wide)|setp|selp|cvt\.u|bfi|LOP3|SHF|PRMT|IADD|IMAD|LEA|ISETP|SEL|VIADD|UIADD|UIMAD|ULEA|ULOP3|UISETP|USEL|PLOP3|IMNMX|VIMNMX)/)
        return "integer"
    if (op ~ /^(fma|mul\.|add\.|sub\.|neg\.|cvt|FFMA|FMUL|FADD|HADD|HFMA|HMUL|F2F|I2F|FSEL)/) return "float"
    return "other"
}
function main(op) { return op ~ /^(mma|HMMA)/ }
function kernel(symbol) {
    if (symbol !~ /7(mm_sync|mm_bulk)I.*Li8E/) return ""
    sub(/.*plec_fragment_/, "", symbol)
    sub(/Li8E.*/, "", symbol)
    return symbol
}
function report(    weights) {
    weights = 8 * count["matrix"] / (name ~ /^f16/ ? 2 : 1)
    printf "%-12s %-5s %5d %4d  %5.2f  %5.2f %5.2f %5.2f %5.2f %5.2f\n", name, code, total, weights,
        total / weights, count["integer"] / weights, count["float"] / weights,
        count["matrix"] / weights, count["shared"] / weights, count["other"] / weights
}
AWK

count() {
    echo "kernel       code  instr  wts  /wt    int   float  mma   smem  other   (sm_$arch, 8 tokens)"
    for source in $sources; do
        flags="-O3 -std=c++17 -gencode arch=compute_$arch,code=sm_$arch -I."
        "$nvcc" -O3 -std=c++17 -arch="compute_$arch" -I. -ptx "$source" -o "$work/k.ptx"
        awk -v code=PTX -f tools/main_loop.awk -f "$work/count.awk" "$work/k.ptx"
        [ -n "$disassembler" ] || continue
        # shellcheck disable=SC2086
        "$nvcc" $flags -cubin "$source" -o "$work/k.cubin"
        "$disassembler" -c "$work/k.cubin" 2>/dev/null >"$work/k.sass"
        awk -v code=SASS -f tools/main_loop.awk -f "$work/count.awk" "$work/k.sass"
    done
}
count | tee "$work/table"
[ "$check" = 1 ] || exit 0
awk '$1 == "mxfp4" || $1 == "q4_0" { n++; if ($5 + 0 > ($1 == "mxfp4" ? 3.2 : 2.4)) bad = 1 }
    END { if (n < 2) bad = 1; if (bad) print "count_loop: over the limit, or not counted"; exit bad }' "$work/table"
