#!/bin/sh
# Installs what is missing, builds, and runs every test but those labelled slow.
# Usage: sh tools/test.sh     (from any folder; exit status 0 when all passed)
set -eu
cd "$(dirname "$0")/.."
sh tools/deps.sh
sh tools/build.sh default
ctest --preset default --parallel "$(getconf _NPROCESSORS_ONLN)"
