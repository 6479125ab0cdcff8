#!/bin/sh
# Runs nvcc as its arguments say. What ptxas reports of each kernel (registers, shared bytes, stack,
# spills), and the threads of a block that its launch bounds promise, are kept beside the object as
# <object>.ptxas: tools/kernel_table.sh reads them. Spills and local memory are errors of ptxas
# itself; wgmma that ptxas serialised (C7508, C7510) is one here.
object=
previous=
compiles=
for word in "$@"; do
    [ "$previous" = -o ] && object=$word
    [ "$word" = -c ] && compiles=yes
    previous=$word
done
[ -n "$object" ] && [ -n "$compiles" ] || exec "$@"
log=$object.ptxas
keep=$object.keep
rm -rf "$keep"
mkdir -p "$keep" || exit 1
"$@" --keep --keep-dir "$keep" 2>"$log"
status=$?
if grep -E 'C75(08|10)' "$log" >&2; then
    echo "nvcc: $object: ptxas serialised wgmma" >&2
    [ "$status" -ne 0 ] || status=1
fi
if [ "$status" -ne 0 ]; then
    cat "$log" >&2
    rm -f "$object"
fi
find "$keep" -name '*.ptx' -exec awk '
    /\.entry / { name = $0; sub(/.*\.entry +/, "", name); sub(/\(.*/, "", name) }
    /^\.maxntid/ { gsub(",", ""); print "threads", name, $2 * $3 * $4 }' {} + | sort -u >>"$log"
rm -rf "$keep"
exit "$status"
