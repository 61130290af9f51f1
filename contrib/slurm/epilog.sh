#!/bin/sh
# Slurm's Epilog on a compute node: takes the job's directory of checkpoints and its ticket away. What is in the node's buffer drains by
# itself; `slurm_bb_data_out` in burst_buffer.lua waits for it. An epilog that fails takes the node out of use.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
at=${ENTRESOL_BURST_RUN:-/run/entresol-burst}/$SLURM_JOB_ID
# A program that outlived its job keeps files open: no other job sees that mount, and it ends with them.
mountpoint -q "$at" && { fusermount3 -u "$at" 2>/dev/null || umount -l "$at"; }
rm -f "$at.ticket" "$at.new"
test ! -e "$at" || rmdir "$at" || logger -t entresol "job $SLURM_JOB_ID: $at is left"
exit 0
