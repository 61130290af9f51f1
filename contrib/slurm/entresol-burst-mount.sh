#!/bin/sh
# Mounts the directory of a job's checkpoints on each of its nodes, from the job's script:
#
#     srun --overlap --ntasks-per-node=1 entresol-burst-mount.sh FILES &
#
# FILES is the number of files of a checkpoint. The directory is /run/entresol-burst/$SLURM_JOB_ID, which the prolog made.
# ENTRESOL_BURST_JOB, from burst_buffer.lua, is the number of the checkpoints; Slurm's own number without it.
# A burst buffer with a key asks for a ticket: that of ENTRESOL_BURST_TICKET, or the one that the prolog made for this job.
set -eu
. "${ENTRESOL_BURST_SETTINGS:-/etc/entresol/burst.env}"
at=${ENTRESOL_BURST_RUN:-/run/entresol-burst}/$SLURM_JOB_ID
test ! -e "$at.ticket" || export ENTRESOL_BURST_TICKET="${ENTRESOL_BURST_TICKET:-$at.ticket}"
exec "${PROGRAM:-/usr/bin/entresol}" burst mount --coordinator "$COORDINATOR" --pfs "$PFS" --node "$NODE" \
	--job "${ENTRESOL_BURST_JOB:-$SLURM_JOB_ID}" --files "$1" "$at"
