#!/bin/sh
# Counts the instructions of the main loop of each mm_wg kernel, tiles of 97 to 128 tokens, a warp and
# wgmma: in PTX, and where nvdisasm is found (or named in NVDISASM) in SASS as well.
#   sh tools/count_wgmma.sh [--check]
# --check: fails where mxfp4, nvfp4, q8_0 or q4_0 take more than 80 PTX instructions.
# Columns: kernel, code, instructions in the loop, wgmmas in it, instructions a wgmma, and of these f32,
# pairs of 16-bit floats, integer (logic, shifts, permutes, adds), shared memory, copies and
# synchronisation, the rest. Two warps of an SM's quarter share a tensor core that takes 64 clocks for a
# wgmma of 128 tokens, in which the quarter issues 64 instructions, integer ones at half that rate.
# A loop is the code from a label to the last branch back to it; the main loop is the shortest that
# holds such a wgmma. Code that a forward branch can skip counts.
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
function wide(op) { return op ~ /^wgmma\.mma_async.*n128k16/ || op ~ /^HGMMA\.64x128x16/ }
function finish(    i, a, b, best, n, total) {
    if (name == "") return
    best = 0
    for (i = 1; i <= n_lines; i++)
        if (back[i]) {
            a = back[i]
            n = 0
            for (b = a; b <= i; b++) if (wide(ops[b])) n++
            if (n > 0 && (!best || i - a < best_size)) { best = i; best_size = i - a; first = a }
        }
    if (!best) return
    split("", count)
    total = 0
    for (b = first; b <= best; b++) if (ops[b] != "") { count[kind(ops[b])]++; total++ }
    n = count["matrix"]
    printf "%-12s %-5s %5d %4d  %6.1f  %6.1f %6.1f %6.1f %6.1f %6.1f %6.1f\n", name, code, total, n,
        total / n, count["float"] / n, count["pairs"] / n, count["integer"] / n, count["shared"] / n,
        count["copies"] / n, count["other"] / n
}
function begin(symbol) {
    finish()
    name = ""
    n_lines = 0
    split("", ops); split("", back); split("", label)
    if (symbol !~ /5mm_wgI/) return
    name = symbol
    sub(/.*plec_fragment_/, "", name)
    sub(/Li128E.*/, "", name)
}
/^\.text\./ && code == "SASS" { begin($0); next }
/\.entry / && code == "PTX" { begin($0); next }
name == "" { next }
{
    line = $0
    gsub(/\/\*[^*]*\*\//, "", line)
    sub(/^[ \t{]+/, "", line)
    sub(/^\.reg \.pred p; setp[^;]*; /, "", line)
    if (line ~ /^(\$L|\.L_x?)[^ :]*:/) {
        n_lines++
        sub(/:.*/, "", line)
        label[line] = n_lines
        next
    }
    target = ""
    if (match(line, /(\$L[A-Za-z0-9_]+|\.L_x?[A-Za-z0-9_]+)/)) target = substr(line, RSTART, RLENGTH)
    sub(/^@!?[%A-Z0-9a-z]+[ \t]+/, "", line)
    if (line !~ /^[A-Za-z]/) next
    op = line
    sub(/[ \t;].*/, "", op)
    if (code == "SASS" && op == "NOP") next
    n_lines++
    ops[n_lines] = op
    if (op ~ /^(bra|BRA)/ && target in label) back[n_lines] = label[target]
}
END { finish() }
AWK

count() {
    echo "kernel       code  instr wgmma /wgmma    f32  pairs    int   smem   sync  other   (sm_90a, 128 tokens)"
    for source in $sources; do
        "$nvcc" -O3 -std=c++17 -arch=compute_90a -I. -ptx "$source" -o "$work/k.ptx"
        awk -v code=PTX -f "$work/count.awk" "$work/k.ptx"
        [ -n "$disassembler" ] || continue
        "$nvcc" -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -I. -cubin "$source" -o "$work/k.cubin"
        "$disassembler" -c "$work/k.cubin" 2>/dev/null >"$work/k.sass"
        awk -v code=SASS -f "$work/count.awk" "$work/k.sass"
    done
}
count | tee "$work/table"
[ "$check" = 1 ] || exit 0
awk '$2 == "PTX" && $1 ~ /^(mxfp4|nvfp4|q8_0|q4_0)$/ { n++; if ($5 + 0 > 80) bad = 1 }
    END { if (n < 4) bad = 1; if (bad) print "count_wgmma: over the limit, or not counted"; exit bad }' "$work/table"
