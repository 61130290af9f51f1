#!/bin/sh
# Tests of the command, run against another program than this tree's: against.sh PROGRAM FILE[:TEST]...
#
# FILE is a file of this folder without `.rs`, TEST the name of one of its tests. For each test a line is printed: the file, the test, what
# became of it (fails, passes, skipped, hangs) and the first line of the reason, separated by tabulators. A test fails against the program
# that has the fault which it is to find; its reason shows whether it is that fault, or an option that the program does not know.
#
# The tests are built, then the program is put in the place of this tree's, and put back at the end. Nothing else may use cargo meanwhile.
# As root each test has a process and a mount namespace of its own, so that nothing outlives it.
set -eu
seconds=${SECONDS_MAX:-120}
other=$(realpath "$1")
shift
cd "$(dirname "$0")/../../.."
files=$(printf '%s\n' "$@" | sed 's/:.*//' | sort -u)
# shellcheck disable=SC2046 # names without blanks
built=$(cargo test --workspace --locked --no-run $(printf -- '--test %s ' $files) 2>&1) || { echo "$built" >&2; exit 1; }
executable() {
    echo "$built" | sed -n "s|^ *Executable tests/$1\.rs (\(.*\))|\1|p"
}
first=$(executable "$(echo "$files" | head -n 1)")
program=$(realpath "$(dirname "$first")/../entresol")
out=$(mktemp)
cp -p "$program" "$program.kept"
trap 'mv "$program.kept" "$program"; rm -f "$out"' EXIT
trap 'exit 1' HUP INT TERM
cp "$other" "$program.other"
mv "$program.other" "$program"
alone=
if [ "$(id -u)" = 0 ]; then
    alone="unshare --pid --fork --kill-child --mount --mount-proc --propagation private"
fi
for wanted; do
    file=${wanted%%:*}
    binary=$(executable "$file")
    if [ "$file" = "$wanted" ]; then
        tests=$("$binary" --list --format terse | sed -n 's/: test$//p' | sort)
        ignored=$("$binary" --list --format terse --ignored | sed -n 's/: test$//p')
        tests=$(printf '%s\n' "$ignored" "$ignored" "$tests" | sort | uniq -u)
    else
        tests=${wanted#*:}
    fi
    for test in $tests; do
        code=0
        # shellcheck disable=SC2086 # a command and its options
        (cd crates/cli && $alone timeout -s KILL "$seconds" "$binary" --exact "$test" --include-ignored --nocapture) >"$out" 2>&1 || code=$?
        reason=$(sed -n '/ panicked at /{n;p;q}' "$out" | cut -c 1-200)
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
