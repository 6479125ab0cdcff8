#!/bin/sh
# Installs what building and testing need, where it is missing; says nothing where nothing is.
# This is the one list of packages: Debian 12 and Ubuntu 24.04, by apt.
#
# Usage: sh tools/deps.sh [--ci]
#   --ci   also what .ci/run needs: clang with its runtime (fuzzers), clang-format, ninja
#
# Installs as root or through sudo; where it may do neither it prints the one line to run and
# exits 1. No CUDA toolkit is installed or needed.
set -u

have() { command -v "$1" >/dev/null 2>&1; }
library() { have pkg-config && pkg-config --exists "$1"; }
cmake_is_new_enough() {
    have cmake && cmake --version | awk '/^cmake version/ {
        split($3, v, "."); exit !(v[1] > 3 || (v[1] == 3 && v[2] >= 25)) }'
}
# The runtime library of clang's fuzzers, by whatever package of whatever version it came.
fuzzers_link() {
    have clang &&
        echo 'int LLVMFuzzerTestOneInput(const void *d, unsigned long n) { return d && n > 9; }' |
        clang -x c -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null
}
installed() {
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null | cut -c1-2)" = ii ]
}

missing=
# need PACKAGE PROBE...: the package is missing when it is not installed and the probe, which finds
# the same thing installed by other means, fails too.
need() {
    package=$1
    shift
    "$@" || installed "$package" || missing="$missing $package"
}

need gcc have cc
need g++ have c++
need make have make
need cmake cmake_is_new_enough
need pkg-config have pkg-config
need libjansson-dev library 'jansson >= 2.13'
need libssl-dev library libcrypto
need liburing-dev library 'liburing >= 2.2'
need libhwloc-dev library 'hwloc >= 2.0'
need libgtest-dev library gtest
need sqlite3 have sqlite3
if [ "${1:-}" = --ci ]; then
    need clang have clang
    need libclang-rt-dev fuzzers_link
    need clang-format have clang-format
    need ninja-build have ninja
fi

[ -z "$missing" ] && exit 0

line="apt-get install -y --no-install-recommends$missing"
if ! have apt-get; then
    echo "Missing, by the names Debian has for them:$missing" >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif have sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
else
    echo "Missing packages. Run this as root, then try again:" >&2
    echo "  apt-get update && $line" >&2
    exit 1
fi

echo "Installing:$missing"
# Word splitting is meant: as_root may be nothing, line is a command.
# shellcheck disable=SC2086
$as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
    $as_root env DEBIAN_FRONTEND=noninteractive $line -qq -o Dpkg::Use-Pty=0 >/dev/null || {
    echo "The installation failed. The line was:" >&2
    echo "  apt-get update && $line" >&2
    exit 1
}
