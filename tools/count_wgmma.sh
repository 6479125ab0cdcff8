#!/bin/sh
# Counts the instructions of the main loop of each mm_wg kernel, tiles of 97 to 128 tokens, a warp and
# wgmma: in PTX, and where nvdisasm is found (or named in NVDISASM) in SASS as well.
#   sh tools/count_wgmma.sh [--check]
# --check: fails where mxfp4, nvfp4, q8_0 or q4_0 take more than 80 PTX instructions.
# Columns: kernel, code, instructions in the loop, wgmmas in it, instructions a wgmma, and of these f32,
# pairs of 16-bit floats, integer (logic, shifts, permutes, adds), shared memory, copies and
# synchronisation, the rest. Two warps of an SM's quarter share a tensor core that takes 64 clocks for a
# wgmma of 128 tokens, in which the quarter issues 64 instructions, integer ones at half that rate.
# The main loop is the one with such a wgmma (main_loop.awk).
set -eu
cd "$(dirname "$0")/.."
check=0
sources="device/cuda/mm_wg_*.cu"
if [ "${1:-}" = --check ]; then
    check=1
    sources="device/cuda/mm_wg_e2m1.cu device/cuda/mm_wg_nibble.cu device/cuda/mm_wg_eight.cu"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nvcc=${NVCC:-nvcc}
disassembler=${NVDISASM:-$(command -v nvdisasm || true)}

cat >"$work/count.awk" <<'AWK'
function kind(op) {
    if (op ~ /^(wgmma\.mma|HGMMA)/) return "matrix"
    if (op ~ /^(ld\.shared|st\.shared|LDS|STS)/) return "shared"
    if (op ~ /^(cp\.async|mbarrier|fence|wgmma|LDGSTS|LDGDEPBAR|DEPBAR|SYNCS|FENCE|WARPGROUP|BAR|MEMBAR)/)
        return "copies"
    if (op ~ /bf16x2|^(HADD2|HFMA2|HMUL2)/) return "pairs"
    if (op ~ /^(fma|mul\.f|mul\.rn\.f|add\.f|add\.rn\.f|sub\.f|sub\.rn\.f|neg\.f|cvt\.f|FFMA|FMUL|FADD|F2F|FSEL)/)
        return "float"
    if (op ~ /^(and|or|xor|not|lop3|shl|shr|shf|prmt|add\.[su]|sub\.[su]|mad|mul\.(lo|wide)|setp|selp|cvt\.u|bfi|LOP3|SHF|PRMT|IADD|IMAD|LEA|ISETP|SEL|VIADD|UIADD|UIMAD|ULEA|ULOP3|USHF|UISETP|USEL|PLOP3|IMNMX|VIMNMX)/)
        return "integer"
    return "other"
}
function main(op) { return op ~ /^wgmma\.mma_async.*n128k16/ || op ~ /^HGMMA\.64x128x16/ }
function kernel(symbol) {
    if (symbol ~ /mm_wg_bf16/) return "bf16"
    if (symbol !~ /5mm_wgI/) return ""
    sub(/.*plec_fragment_/, "", symbol)
    sub(/Li128E.*/, "", symbol)
    return symbol
}
function report(    n) {
    n = count["matrix"]
    printf "%-12s %-5s %5d %4d  %6.1f  %6.1f %6.1f %6.1f %6.1f %6.1f %6.1f\n", name, code, total, n,
        total / n, count["float"] / n, count["pairs"] / n, count["integer"] / n, count["shared"] / n,
        count["copies"] / n, count["other"] / n
}
AWK

count() {
    echo "kernel       code  instr wgmma /wgmma    f32  pairs    int   smem   sync  other   (sm_90a, 128 tokens)"
    for source in $sources; do
        "$nvcc" -O3 -std=c++17 -arch=compute_90a -I. -ptx "$source" -o "$work/k.ptx"
        awk -v code=PTX -f tools/main_loop.awk -f "$work/count.awk" "$work/k.ptx"
        [ -n "$disassembler" ] || continue
        "$nvcc" -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -I. -cubin "$source" -o "$work/k.cubin"
        "$disassembler" -c "$work/k.cubin" 2>/dev/null >"$work/k.sass"
        awk -v code=SASS -f tools/main_loop.awk -f "$work/count.awk" "$work/k.sass"
    done
}
count | tee "$work/table"
[ "$check" = 1 ] || exit 0
awk '$2 == "PTX" && $1 ~ /^(mxfp4|nvfp4|q8_0|q4_0)$/ { n++; if ($5 + 0 > 80) bad = 1 }
    END { if (n < 4) bad = 1; if (bad) print "count_wgmma: over the limit, or not counted"; exit bad }' "$work/table"
