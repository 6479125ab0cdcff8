#!/bin/sh
# Checks that every source is as clang-format 14 would write it. Other versions of clang-format
# differ in small ways, so with another one, or none, the check is skipped and says so.
# Usage: sh tools/check_format.sh [ROOT]
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2
version=$(clang-format --version 2>/dev/null | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
if [ "$version" != 14 ]; then
    echo "format: skipped, clang-format 14 is not there (found: ${version:-none})"
    exit 0
fi
find lyrw manifests device host tools tests -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' \
    -o -name '*.cuh' | sort | xargs clang-format --dry-run --Werror || exit 1
echo "format: all sources are as clang-format writes them"
