#!/bin/sh
# Shows what Plectrum does, on this machine: makes a small but real container with our own encoders
# and writer, verifies it, runs each of its layers with experts streamed through a device budget that
# holds a third of them, holds every result against the reference in double precision, plans and
# times decode and prefill, and draws what happened when.
# Usage: sh tools/demo.sh     (from any folder; exit status 0 when every layer is right)
set -eu
cd "$(dirname "$0")/.."
sh tools/deps.sh
sh tools/build.sh default plectrum make_container

plectrum=build/default/tools/plectrum
out=build/demo
container=$out/container
tokens=16
# Of 29.4 MiB of experts: a third on the device, and as much again on the way to it. Files are read
# past the page cache, which would hold a container of this size.
budgets='--device-budget 10MiB --pinned-budget 12MiB --io-cache direct'
rm -rf "$out"
mkdir -p "$out"

say() { printf '\n=== %s\n' "$*"; }
# member NAME: the value of the first member of that name in JSON on one line, as plectrum prints it.
member() {
    grep -o "\"$1\": \(\"[^\"]*\"\|[^,}]*\)" | head -n 1 | sed -e 's/^[^:]*: //' -e 's/"//g'
}
# quietly COMMAND...: what it says on stderr only when it fails.
quietly() {
    "$@" 2>"$out/said" || { status=$?; cat "$out/said" >&2; return $status; }
}

say "A container: four layers that differ in format, router and programme"
build/default/tools/make_container "$container"
"$plectrum" verify --hash --scan "$container"

# What is streamed is not what is mapped: the check is of bytes that went all the way.
say "plectrum run --layer N --device-budget 2MiB --check: each layer, its experts streamed"
form='%-6s %-18s %-12s %7s %7s %7s %9s  %-9s %s\n'
# shellcheck disable=SC2059
printf "$form" layer programme activation experts a-token shared from-file NMSE verdict
failed=0
for layer in 0 1 2 3; do
    row=$out/layer_$layer.json
    verdict=right
    quietly "$plectrum" run "$container" --layer "$layer" --random "$tokens" --seed "$layer" \
        --device-budget 2MiB --io-cache direct --check --json >"$row" ||
        verdict="WRONG (exit status $?)"
    [ "$verdict" = right ] || failed=1
    # shellcheck disable=SC2059
    printf "$form" "$layer" "$(member programme <"$row")" "$(member activation <"$row")" \
        "$(member experts <"$row")" "$(member slots <"$row")" \
        "$(member shared_experts <"$row")" "$(member disk_misses <"$row")" \
        "$(member nmse <"$row" | awk '{ printf "%.1e", $1 }')" "$verdict"
done
printf 'on %s; NMSE is against the reference, and may be %s\n' "$(member device <"$row")" \
    "$(member tolerance <"$row" | awk '{ printf "%g", $1 }')"

# shellcheck disable=SC2086
"$plectrum" plan "$container" $budgets --tokens 256 --json >"$out/plan.json"
extent=$(member advised_extent_width <"$out/plan.json")
say "plectrum plan: extents of $extent advised; disk $(member disk_gb_s <"$out/plan.json" |
    awk '{ printf "%.2f", $1 }') GB/s, link $(member link_gb_s <"$out/plan.json" |
    awk '{ printf "%.2f", $1 }') GB/s, memory $(member memory_gb_s <"$out/plan.json" |
    awk '{ printf "%.2f", $1 }') GB/s, measured"

say "plectrum bench $budgets --extent $extent"
# shellcheck disable=SC2086
"$plectrum" bench "$container" $budgets --extent "$extent" --decode 1,8 --prefill 256 \
    --steps 20 --plot "$out/timeline.svg" --trace "$out/trace.json" --csv "$out/bench.csv"
printf '\nOpen %s in a browser, %s in https://ui.perfetto.dev\n' "$out/timeline.svg" \
    "$out/trace.json"
exit "$failed"
