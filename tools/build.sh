#!/bin/sh
# Configures and builds one preset, with all processors and with Ninja where it is there.
# Usage: sh tools/build.sh [PRESET [TARGET...]]     (default: preset `default`, everything)
set -eu
cd "$(dirname "$0")/.."
preset=${1:-default}
[ $# -gt 0 ] && shift

# A build folder keeps the generator it began with.
generator=
if [ ! -f "build/$preset/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then
    generator="-G Ninja"
fi
# shellcheck disable=SC2086 # two words or none
cmake --preset "$preset" $generator
[ $# -gt 0 ] && set -- --target "$@"
cmake --build "build/$preset" --parallel "$(getconf _NPROCESSORS_ONLN)" "$@"
