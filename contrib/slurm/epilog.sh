#!/bin/sh
# Slurm's Epilog on a compute node: unmounts the directory of checkpoints that the prolog mounted. What is in the node's
# buffer drains by itself; `slurm_bb_data_out` in burst_buffer.lua waits for it.
set -u
at=${ENTRESOL_BURST_RUN:-/run/entresol-burst}/$SLURM_JOB_ID
mountpoint -q "$at" || exit 0
# A program that outlived its job keeps files open: the mount ends with them, and no later job uses it.
fusermount3 -u "$at" 2>/dev/null || umount -l "$at" || logger -t entresol "job $SLURM_JOB_ID: $at is still mounted"
rmdir "$at" 2>/dev/null
rm -f "$at.log"
exit 0
