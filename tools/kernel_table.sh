#!/bin/sh
# Writes docs/kernels.md on stdout: what each CUDA kernel takes of each architecture, from
# what ptxas said when they were built (cmake/nvcc_checked.sh) and what plec_kernel_shared says of
# dynamic shared memory. Exit 1 when a kernel does not fit an architecture: 99, 163 or 227 KB of
# shared memory a block, 64 K registers.
# Usage: kernel_table.sh BUILD_DIR (of `cmake --preset cuda`, with the target plec_kernel_shared)
set -u
build=${1:?usage: kernel_table.sh BUILD_DIR}
shared=$build/tools/plec_kernel_shared
[ -x "$shared" ] || { echo "kernel_table.sh: no $shared: build it" >&2; exit 2; }
logs=$(find "$build" -path '*plec_cuda.dir*' -name '*.ptxas' | sort)
[ -n "$logs" ] || { echo "kernel_table.sh: no .ptxas under $build" >&2; exit 2; }

# Lines "kernel arch registers static_shared threads", names as in C++ without their arguments.
facts() {
    # shellcheck disable=SC2086
    cat $logs | awk '
        /Compiling entry function/ { split($0, part, "\047"); name = part[2]; arch = part[4] }
        /Used [0-9]+ registers/ {
            shared = 0; registers = 0
            for (i = 1; i <= NF; i++) {
                if ($i == "registers,") registers = $(i - 1)
                if ($i ~ /^smem/) shared = $(i - 2)
            }
            key = name " " arch
            used[key] = registers " " shared
        }
        $1 == "threads" { threads[$2] = $3 }
        END { for (key in used) { split(key, k, " ")
                                  print k[1], k[2], used[key], threads[k[1]] } }' |
        c++filt -p | sed -E 's/unsigned int/uint/g; s/\(int\)//g; s/([<, ])plec_(plain|fragment|fma)_/\1/g;
            s/, /,/g; s/\([a-z ]+\)//g' | sort
}

cat <<'HEAD'
# What kernels take

Made by `tools/kernel_table.sh BUILD_DIR` from a build of the preset `cuda`; not edited by hand. Each cell: registers a thread / blocks
that an SM holds at once (by threads, registers, shared memory, and its limit of blocks). Shared memory is what ptxas says, and what a
launch adds at most; a block may have 163 KB of it on sm_80, 227 KB on sm_90a and sm_100a, 99 KB on sm_89 and sm_120a. A kernel that does
not fit, spills, or uses local memory fails the script, or the build before it.

HEAD
"$shared" >"${TMPDIR:-/tmp}/kernel_table.$$" || exit 2
facts | awk -v dynamic_file="${TMPDIR:-/tmp}/kernel_table.$$" '
    function least(a, b) { return a < b ? a : b }
    BEGIN {
        while ((getline line < dynamic_file) > 0) { split(line, f, " ")
            dynamic[f[1]] = f[2]; least_arch[f[1]] = f[3] + 0; most_arch[f[1]] = f[4] + 0
        }
        split("sm_80 sm_89 sm_90a sm_100a sm_120a", archs, " ")
        limit["sm_80"] = 163; limit["sm_89"] = 99; limit["sm_90a"] = 227
        limit["sm_100a"] = 227; limit["sm_120a"] = 99
        warps["sm_80"] = 64; warps["sm_89"] = 48; warps["sm_90a"] = 64
        warps["sm_100a"] = 64; warps["sm_120a"] = 48
        blocks["sm_80"] = 32; blocks["sm_89"] = 24; blocks["sm_90a"] = 32
        blocks["sm_100a"] = 32; blocks["sm_120a"] = 24
    }
    # Blocks an SM holds: by threads, registers (in units of 256 a warp), shared memory and number.
    function resident(arch, registers, bytes, n_threads,    n_warps, by_registers, by_shared) {
        n_warps = int((n_threads + 31) / 32)
        by_registers = int(65536 / (n_warps * int((registers * 32 + 255) / 256) * 256))
        by_shared = int((limit[arch] + 1) * 1024 / (bytes + 1024))
        return least(least(int(warps[arch] / n_warps), by_registers), least(by_shared, blocks[arch]))
    }
    {
        kernel = $1; arch = $2
        number = substr(arch, 4) + 0
        if (number < least_arch[kernel] || (most_arch[kernel] && number > most_arch[kernel])) next
        bytes = $4 + dynamic[kernel]
        if (!(kernel in seen)) { seen[kernel] = 1; order[++n] = kernel }
        threads[kernel] = $5; fixed[kernel] = $4
        r = resident(arch, $3, bytes, $5)
        cell[kernel, arch] = $3 " / " r
        if (bytes > limit[arch] * 1024 || r < 1) {
            print "kernel_table.sh: " kernel " does not fit " arch ": " bytes " bytes, " $3 \
                " registers" > "/dev/stderr"
            bad = 1
        }
    }
    END {
        printf "| kernel | threads | shared, bytes | dynamic, at most |"
        for (a = 1; a <= 5; a++) printf " %s |", archs[a]
        printf "\n|---|---|---|---|---|---|---|---|---|\n"
        for (i = 1; i <= n; i++) {
            k = order[i]
            printf "| `%s` | %s | %s | %s |", k, threads[k], fixed[k], dynamic[k] + 0
            for (a = 1; a <= 5; a++)
                printf " %s |", (k, archs[a]) in cell ? cell[k, archs[a]] : "-"
            printf "\n"
        }
        exit bad
    }'
status=$?
rm -f "${TMPDIR:-/tmp}/kernel_table.$$"
exit "$status"
