#!/bin/sh
# Slurm's Prolog on a compute node: makes an empty directory for the job, on which entresol-burst-mount.sh mounts the
# directory of its checkpoints. A prolog that fails takes the node out of use: this one never does.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
at=${ENTRESOL_BURST_RUN:-/run/entresol-burst}/$SLURM_JOB_ID
mkdir -p "$at" && chown "$SLURM_JOB_UID" "$at" && exit 0
logger -t entresol "job $SLURM_JOB_ID has no $at"
exit 0
