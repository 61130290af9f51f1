#!/bin/sh
# Slurm's Prolog on a compute node: mounts the directory of checkpoints of a job that asks for it by
# `#SBATCH --comment=entresol:FILES`, at /run/entresol-burst/JOB. FILES is the number of files of a checkpoint. JOB is
# Slurm's number, under which the checkpoints are kept. The node's buffer is a service, entresol-burst-serve.service.
# A prolog that fails takes the node out of use, so a job without its directory starts, and its program finds it empty.
set -u
. "${ENTRESOL_BURST_SETTINGS:-/etc/entresol/burst.env}"
case "${SLURM_JOB_COMMENT:-}" in
entresol:[1-9]*) files=${SLURM_JOB_COMMENT#entresol:} ;;
*) exit 0 ;;
esac
at=${ENTRESOL_BURST_RUN:-/run/entresol-burst}/$SLURM_JOB_ID
mkdir -p "$at" && chown "$SLURM_JOB_UID" "$at" || exit 0
setsid "${PROGRAM:-/usr/bin/entresol}" burst mount --coordinator "$COORDINATOR" --pfs "$PFS" --node "$NODE" \
	--job "$SLURM_JOB_ID" --files "$files" "$at" >"$at.log" 2>&1 </dev/null &
tries=100
until mountpoint -q "$at" || [ "$tries" = 0 ] || ! kill -0 $! 2>/dev/null; do
	tries=$((tries - 1))
	sleep 0.1
done
mountpoint -q "$at" || logger -t entresol "no directory of checkpoints for job $SLURM_JOB_ID: $(cat "$at.log")"
exit 0
