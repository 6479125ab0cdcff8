# Reads PTX or SASS (code=PTX, code=SASS) of kernels and finds the main loop of each that is asked for.
# A loop is the code from a label to the last branch back to it; the main loop is the shortest that
# holds an instruction that main(op) tells. Code that a forward branch can skip counts.
# For awk -f this -f a file with the functions
#   kernel(symbol)  its name, or "" for a kernel that is not asked for
#   main(op)        whether an instruction is one that the main loop is known by
#   kind(op)        what it is counted as
#   report()        prints name and code with total, the loop's instructions, and count[kind]
function finish(    i, a, b, best, n) {
    if (name == "") return
    best = 0
    for (i = 1; i <= n_lines; i++)
        if (back[i]) {
            a = back[i]
            n = 0
            for (b = a; b <= i; b++) if (main(ops[b])) n++
            if (n > 0 && (!best || i - a < best_size)) { best = i; best_size = i - a; first = a }
        }
    if (!best) return
    split("", count)
    total = 0
    for (b = first; b <= best; b++) if (ops[b] != "") { count[kind(ops[b])]++; total++ }
    report()
}
function begin(symbol) {
    finish()
    n_lines = 0
    split("", ops); split("", back); split("", label)
    name = kernel(symbol)
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
