# What slices of the crash suite add up to: one line for each layout and kind of life.
/Tally/ {
    match($0, /(Log|Slots): [0-9]+\.\.[0-9]+: Tally/)
    split(substr($0, RSTART, RLENGTH), part, /[:. ]+/)
    first = int(part[2] / 1000000)
    kind = part[1] ", " (first == 3 ? "queries over tables" : first == 4 ? "syncs that fail" : "all kinds")
    lives[kind] += part[3] - part[2]
    text = substr($0, RSTART + RLENGTH)
    while (match(text, /[a-z_]+: [0-9]+/)) {
        split(substr(text, RSTART, RLENGTH), field, ": ")
        sum[kind, field[1]] += field[2]
        if (!(field[1] in named)) { named[field[1]] = 1; names[++n] = field[1] }
        text = substr(text, RSTART + RLENGTH)
    }
}
/nothing, clean copy/ {
    match($0, /(Log|Slots), [A-Za-z]+, [A-Za-z]+:/)
    kind = substr($0, RSTART, RLENGTH - 1)
    match($0, /\[[0-9, ]+\]/)
    split(substr($0, RSTART + 1, RLENGTH - 2), outcome, ", ")
    for (i = 1; i <= 4; i++) rot[kind, i] += outcome[i]
    rotted[kind] = 1
}
END {
    for (kind in rotted)
        if (kind ~ /Bit/ && rot[kind, 4] * 50 > rot[kind, 1] + rot[kind, 2] + rot[kind, 3] + rot[kind, 4]) {
            printf "%s: more than one of fifty caches is refused for one bit\n", kind
            failed = 1
        }
    for (kind in lives) {
        printf "%s: %d lives", kind, lives[kind] | "sort"
        for (i = 1; i <= n; i++) printf ", %s %d", names[i], sum[kind, names[i]] | "sort"
        print "" | "sort"
    }
    for (kind in rotted)
        printf "%s: nothing, clean copy, page lost, refused: %d, %d, %d, %d\n", kind, rot[kind, 1], rot[kind, 2], rot[kind, 3], rot[kind, 4] | "sort"
    close("sort")
    exit failed
}
