#!/bin/bash
# What a hit costs through the doors: the examples fuse_speed and nbd_speed of crates/frontends, then fio on a mount with
# a cache whose pages are all in memory. Everything runs on one processor (CPU=N, by default the last), because on a
# virtual machine waking a thread on another costs more than a request; CPU=all lets it run where it will.
#
#   run.sh [SECONDS [ROUNDS]]     of each contender; by default 1 and 5
#
# BEFORE=PROGRAM names another `entresol`, which takes turns with target/release/entresol under fio.
set -eu
cd "$(dirname "$0")/../../.."
SECONDS_EACH=${1:-1} ROUNDS=${2:-5} CPU=${CPU:-$(($(nproc) - 1))}
PIN=(taskset -c "$CPU")
[ "$CPU" != all ] || PIN=()

"${PIN[@]}" target/release/examples/fuse_speed "$SECONDS_EACH" "$ROUNDS"
echo
"${PIN[@]}" target/release/examples/nbd_speed "$SECONDS_EACH" "$ROUNDS"

if ! command -v fio >/dev/null || ! [ -x target/release/entresol ]; then
    echo "no fio, or no target/release/entresol: no figures of a mount under fio"
    exit 0
fi

# One server, one file of 16 MiB in 32 MiB of memory; p50 in microseconds and processor time of a read, fio's and the
# server's.
SCRATCH=$(mktemp -d)
SERVER=
finish() {
    [ -z "$SERVER" ] || { kill "$SERVER" && wait "$SERVER"; } 2>/dev/null || true
    rm -rf "$SCRATCH"
}
trap finish EXIT
ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }
under_fio() {
    local program=$1 name=$2 dir=$SCRATCH/$2
    mkdir -p "$dir/backing" "$dir/mount"
    [ -e "$dir/cache" ] || "$program" -q format --mode write-back --cache "$dir/cache" --backing "$dir/backing" --size 256MiB
    "${PIN[@]}" "$program" -q mount --cache "$dir/cache" --policy face-gsc --dram 32MiB "$dir/backing" "$dir/mount" &
    SERVER=$!
    for _ in $(seq 100); do mountpoint -q "$dir/mount" && break; sleep 0.1; done
    [ -e "$dir/mount/file" ] || dd if=/dev/zero of="$dir/mount/file" bs=1M count=16 status=none
    dd if="$dir/mount/file" of=/dev/null bs=1M status=none
    local before after json
    before=$(ticks $SERVER)
    json=$("${PIN[@]}" fio --name=hit --filename="$dir/mount/file" --readonly --rw=randread --bs=4k --ioengine=psync --direct=1 \
        --size=16M --time_based --runtime="$SECONDS_EACH" --output-format=json --eta=never)
    after=$(ticks $SERVER)
    echo "$json" | awk -v name="$name" -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" '
        { gsub(/[",]/, "") }
        $1 == "total_ios" && !reads { reads = $3 }
        $1 == "50.000000" && !p50 { p50 = $3 / 1000 }
        $1 == "job_runtime" && !ms { ms = $3 }
        $1 == "usr_cpu" || $1 == "sys_cpu" { if (!(($1) in seen)) { seen[$1] = 1; cpu += $3 } }
        END { printf "%-8s p50 %6.2f us, CPU %6.2f us a read, %7.0f reads/s\n", name, p50,
              (cpu / 100 * ms * 1000 + ticks * 1000000 / hz) / reads, reads * 1000 / ms }'
    kill "$SERVER"
    wait "$SERVER" || true
    SERVER=
}
echo
echo "fio, psync, 4-KiB reads at random offsets of a mounted file in memory (face-gsc, --dram 32MiB)"
for _ in $(seq "$ROUNDS"); do
    [ -z "${BEFORE:-}" ] || under_fio "$BEFORE" before
    under_fio target/release/entresol now
done
