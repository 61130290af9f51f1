#!/bin/bash
# Entresol beside bcache, dm-cache and dm-writecache in the kernel of the peers' bench, which boots without hardware
# virtualisation and simulates its disks in virtual time. The bench itself is not part of this repository: PEERS names it.
#
#   run.sh build                      builds that kernel and its root (once; about 6 minutes of CPU)
#   run.sh steady DOOR POLICY [ARGS]  steady state, zipf, cache of 10 %, seeds $SEEDS;  DOOR is nbd or ublk
#   run.sh locality DOOR POLICY ...   the same with 64 KiB of locality, a shorter run
#   run.sh peers                      none, bcache, dm-cache and dm-writecache, steady state and locality
#   run.sh tpcb POLICY [ARGS]         PostgreSQL under pgbench's own load, behind ublk; POLICY `peers`: the others, or VARIANTS
#   run.sh bulk POLICY [ARGS]         skewed updates right after a bulk load, the same way
#   run.sh crash POLICY [ARGS]        SIGKILL of the whole machine in mid-write, behind ublk
#   run.sh kill                       ten times SIGKILL of the server alone; fio verifies what was flushed
#
# ARGS are further options of `entresol serve`, FORMAT those of `entresol format` (FORMAT="--layout slots"). Tables go to standard output, everything else to $VMW.
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
PEERS=${PEERS:-$HERE/../../../../shared/peers}
export VMW=${VMW:-$HOME/.cache/vmbench} MEM=3G
ENTRESOL=${ENTRESOL:-$HERE/../../../target/release/entresol}
SEEDS=${SEEDS:-1 2 3}
# The simulated disks have no serial number.
UUID=6f1c1f4e-3a53-4f0e-9a0a-0d4f2c3b5a10
[ -d "$PEERS" ] || { echo "$PEERS is not there: PEERS=DIRECTORY names the peers' bench" >&2; exit 2; }

# A copy, in which fio does not draw its progress and a cache that is opened again is not formatted.
scripts() {
    COPY=${COPY:-$VMW/entresol-scripts}
    rm -rf "$COPY"
    cp -r "$PEERS" "$COPY"
    sed -i 's/--output-format=json"/--output-format=json --eta=never"/' "$COPY/guest_bench.sh"
    # To wait without a process: one that sleeps takes the machine's only processor from the server for 17 ms.
    sed -i -e 's#^ ublk)# ublk) [ -p /tmp/never ] || mkfifo /tmp/never;#' \
        -e 's#seq 100); do \[ -b /dev/ublkb0 \] && break; sleep 0.1#seq 2000); do [ -b /dev/ublkb0 ] \&\& break; read -rt 0.005 <>/tmp/never#' \
        "$COPY/peer.sh"
    # Building an index, PostgreSQL waits for its parallel workers in a loop, for ever where time passes only when nobody works.
    sed -i 's/"jit=off"/"jit=off" "max_parallel_maintenance_workers=0"/' "$COPY/guest_pg.sh"
    # Kept when the machine is gone.
    sed -i 's#/tmp/cand.log#/vmb/cand.log#' "$COPY/peer.sh"
    sed -i "s/echo \"PEER=\$P PHASE=\\(load\\|recover\\)\\(.*\\)\" >/printf '%s\\\\n' \"PEER=\$P PHASE=\\1\\2\" \"CAND_CMD='\$CAND_CMD'\" >/" \
        "$COPY/crash.sh"
    install -m755 "$ENTRESOL" "$VMW/root/usr/local/bin/entresol"
}

# The server's command line, run by the guest with SLOW and FAST set; with KEEP_META there is a cache to keep. What an earlier run's disks
# had is lost with them, and --force says so: the guest's root still has the record of the cache.
candidate() {
    local door=$1 policy=$2
    shift 2
    local both="--cache \$FAST --backing \$SLOW --identity $UUID"
    local where=
    [ "$door" = nbd ] && where="--socket /tmp/cand.sock"
    echo "[ \"\${KEEP_META:-}\" = 1 ] || entresol -q format --force --mode write-back $both ${FORMAT:-};" \
        "exec entresol serve $door $both --direct --policy $policy $* $where"
}

bench() { # PEERS
    RES=$VMW/root/vmb/res-$1 PEERS="$2" PCTS=10 SEEDS="$SEEDS" TMO=1800 "$COPY/run.sh"
}

case ${1:-} in
build) "$PEERS/build.sh" ;;
peers)
    scripts
    TRN=S NW=400000 NM=300000 bench peers "none bcache-wb dmcache-wb writecache"
    TRN=c CL=16 bench peers "none bcache-wb dmcache-wb writecache"
    ;;
steady | locality)
    what=$1 door=$2 policy=$3
    shift 3
    scripts
    CAND_CMD=$(candidate "$door" "$policy" "$@")
    export CAND_CMD
    tag=$(echo "$door-$policy-$*${FORMAT:-}" | tr -c 'a-zA-Z0-9-' _)
    if [ "$what" = steady ]; then
        TRN=S NW=400000 NM=300000 bench "$tag" "$door"
    else
        TRN=c CL=16 bench "$tag" "$door"
    fi
    ;;
tpcb | bulk)
    what=$1 policy=$2
    shift 2
    scripts
    [ "$what" = bulk ] && export PGF="-f /vmb/zipf.sql" WTX="-t 4000" MTX="-t 1500" PCT=25
    if [ "$policy" = peers ]; then
        PEERS="${VARIANTS:-none bcache-wb dmcache-wb writecache}" "$COPY/pg.sh"
    else
        CAND_CMD=$(candidate ublk "$policy" "$@")
        export CAND_CMD
        PEERS=ublk "$COPY/pg.sh"
    fi
    ;;
crash)
    policy=$2
    shift 2
    scripts
    CAND_CMD=$(candidate ublk "$policy" "$@")
    export CAND_CMD
    "$COPY/crash.sh" ublk 40
    ;;
kill)
    scripts
    mkdir -p "$VMW/root/vmb/kill"
    cp "$COPY/lib.sh" "$HERE/guest_kill.sh" "$VMW/root/vmb/kill/"
    TT=real MEM=1G timeout 300 "$COPY/uml.sh" /vmb/kill/guest_kill.sh >"$VMW/kill.txt" || true
    grep -a '^VMB-\|^round' "$VMW/kill.txt"
    grep -qa '^VMB-OK' "$VMW/kill.txt"
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
