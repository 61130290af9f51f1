#!/bin/bash
# In the guest: what fio has written and flushed is there after the server was killed, ten times.
cd /vmb/kill
. ./lib.sh
SLOW=$(mknull slow 256 1 mq-deadline)
FAST=$(mknull fast 32 64 none)
BOTH="--cache $FAST --backing $SLOW --identity 6f1c1f4e-3a53-4f0e-9a0a-0d4f2c3b5a10"
entresol -q format --mode write-back $BOTH
serve() {
    entresol serve ublk $BOTH --direct --policy h-arc >/tmp/served 2>&1 &
    SERVER=$!
    for _ in $(seq 500); do
        DEVICE=$(grep '^/dev/ublkb' /tmp/served)
        [ -n "$DEVICE" ] && return
        sleep 0.01
    done
    echo "VMB-FAIL: no device: $(cat /tmp/served)"
    exit 1
}
# Without the last option fio makes a plain file where a device has just gone.
FIO="fio --ioengine=libaio --direct=1 --iodepth=16 --bs=4k --verify_state_save=0 --allow_file_create=0"
for round in $(seq 10); do
    serve
    # The pattern tells rounds apart; every block of the first half is written once in each.
    PATTERN="--verify=pattern --verify_pattern=%o0x$(printf '%08x' $((round * 2654435761 % 4294967296)))"
    $FIO --filename=$DEVICE --name=write --rw=randwrite --size=32M $PATTERN --do_verify=0 --end_fsync=1 >/tmp/out 2>&1 ||
        { echo "VMB-FAIL: round $round: the write: $(tail -3 /tmp/out)"; exit 1; }
    # What goes to the other half, and is under way when the server dies, may be lost.
    $FIO --filename=$DEVICE --name=noise --rw=randwrite --offset=128M --size=64M --time_based --runtime=20 >/tmp/noise 2>&1 &
    NOISE=$!
    sleep 0.$((round % 5 + 2))
    kill -9 $SERVER
    wait $SERVER $NOISE 2>/dev/null
    serve
    $FIO --filename=$DEVICE --name=verify --rw=randread --size=32M $PATTERN --verify_only --verify_fatal=1 >/tmp/out 2>&1 ||
        { echo "VMB-FAIL: round $round"; sed 's/^/VMB-FIO /' /tmp/out /tmp/served; exit 1; }
    echo "round $round: $DEVICE, $(head -1 /tmp/served | cut -d: -f2-)"
    kill $SERVER
    wait $SERVER || { echo "VMB-FAIL: round $round: the end: $(cat /tmp/served)"; exit 1; }
done
echo "VMB-OK ten rounds"
