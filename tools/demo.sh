#!/bin/sh
# Shows what Plectrum does, on this machine: makes a small but real container with our own encoders
# and writer, looks at it, verifies it, runs each of its layers on the CPU, and holds every result
# against the reference in double precision.
# Usage: sh tools/demo.sh     (from any folder; exit status 0 when every layer is right)
set -eu
cd "$(dirname "$0")/.."
sh tools/deps.sh
sh tools/build.sh default plectrum make_container

plectrum=build/default/tools/plectrum
container=build/demo/container
tokens=16
rm -rf build/demo
mkdir -p build/demo

say() { printf '\n=== %s\n' "$*"; }
# member NAME: the value of a member of a JSON object on one line, as plectrum prints it.
member() {
    sed -n -e "s/.*\"$1\": \"\([^\"]*\)\".*/\1/p" -e t -e "s/.*\"$1\": \([^,}]*\).*/\1/p"
}

say "Making a container"
build/default/tools/make_container "$container"

say "plectrum inspect $container"
"$plectrum" inspect "$container"

say "plectrum verify --hash --scan $container"
"$plectrum" verify --hash --scan "$container"

say "plectrum run $container --layer N --random $tokens --seed N --check"
form='%-6s %-20s %-12s %8s %8s %7s  %-10s %s\n'
printf "$form" layer programme activation experts a-token shared NMSE verdict
failed=0
for layer in 0 1 2 3; do
    row=build/demo/layer_$layer.json
    verdict=right
    "$plectrum" run "$container" --layer "$layer" --random "$tokens" --seed "$layer" --device cpu \
        --check --json >"$row" || verdict="WRONG (exit status $?)"
    [ "$verdict" = right ] || failed=1
    printf "$form" "$layer" "$(member programme <"$row")" "$(member activation <"$row")" \
        "$(member experts <"$row")" "$(member slots <"$row")" "$(member shared_experts <"$row")" \
        "$(member nmse <"$row" | awk '{ printf "%.1e", $1 }')" "$verdict"
done
printf '\non %s; NMSE is against the reference, and may be %s\n' "$(member device <"$row")" \
    "$(member tolerance <"$row" | awk '{ printf "%g", $1 }')"
exit "$failed"
