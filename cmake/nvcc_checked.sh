#!/bin/sh
# Runs nvcc as its arguments say. What ptxas reports of each kernel (registers, shared bytes, stack,
# spills) is kept beside the object as <object>.ptxas: tools/kernel_table.sh reads it. Spills and
# local memory are errors of ptxas itself; wgmma that ptxas serialised (C7508, C7510) is one here.
object=
previous=
for word in "$@"; do
    [ "$previous" = -o ] && object=$word
    previous=$word
done
log=${object:-/tmp/nvcc_checked.$$}.ptxas
"$@" 2>"$log"
status=$?
if grep -E 'C75(08|10)' "$log" >&2; then
    echo "nvcc: $object: ptxas serialised wgmma" >&2
    [ "$status" -ne 0 ] || status=1
fi
[ "$status" -eq 0 ] || cat "$log" >&2
[ "$status" -eq 0 ] || [ -z "$object" ] || rm -f "$object"
exit "$status"
