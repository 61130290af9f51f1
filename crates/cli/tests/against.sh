#!/bin/sh
# Tests of the command, run against another program than this tree's: against.sh PROGRAM FILE[:TEST]... (as root).
#
# FILE is a file of this folder without `.rs`, TEST the name of one of its tests. For each test a line is printed: the file, the test, what
# became of it (fails, passes, skipped, hangs) and the first line of the reason, separated by tabulators. A test fails against the program
# that has the fault which it is to find; its reason shows whether it is that fault, or an option that the program does not know.
#
# Each test has a process and a mount namespace of its own, in which the program lies over this tree's; nothing outlives it.
set -eu
seconds=${SECONDS_MAX:-120}
other=$(realpath "$1")
shift
cd "$(dirname "$0")/../../.."
files=$(printf '%s\n' "$@" | sed 's/:.*//' | sort -u)
# shellcheck disable=SC2046,SC2086 # names without blanks
built=$(cargo test --workspace --locked --no-run $(printf -- '--test %s ' $files) 2>&1) || { echo "$built" >&2; exit 1; }
executable() {
    echo "$built" | sed -n "s|^ *Executable tests/$1\.rs (\(.*\))|\1|p" | head -n 1
}
program=$(realpath "$(dirname "$(executable "$(echo "$files" | head -n 1)")")/../entresol")
out=$(mktemp)
trap 'rm -f "$out"' EXIT
alone() {
    # shellcheck disable=SC2016 # of the inner shell
    unshare --pid --fork --kill-child --mount --mount-proc --propagation private \
        sh -c 'mount --bind "$1" "$2" && shift 2 && cd crates/cli && exec timeout -s KILL "$@"' sh "$other" "$program" "$seconds" "$@"
}
for wanted; do
    file=${wanted%%:*}
    binary=$(realpath "$(executable "$file")")
    tests=${wanted#*:}
    if [ "$file" = "$wanted" ]; then
        ignored=$("$binary" --list --format terse --ignored | sed -n 's/: test$//p')
        tests=$("$binary" --list --format terse | sed -n 's/: test$//p')
        tests=$(printf '%s\n' "$ignored" "$ignored" "$tests" | sort | uniq -u)
    fi
    for test in $tests; do
        code=0
        RUST_BACKTRACE=0 alone "$binary" --exact "$test" --include-ignored --nocapture >"$out" 2>&1 || code=$?
        reason=$(sed -n '/ panicked at /{n;p;q}' "$out" | cut -c 1-240)
        case $code in
        0)
            what=passes
            reason=$(grep -m 1 -oiE 'skipped:? .*' "$out") && what=skipped
            ;;
        124 | 137) what=hangs ;;
        *) what=fails ;;
        esac
        printf '%s\t%s\t%s\t%s\n' "$file" "$test" "$what" "$reason"
    done
done
