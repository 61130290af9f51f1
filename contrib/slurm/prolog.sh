#!/bin/sh
# Slurm's Prolog on a compute node: makes an empty directory for the job, on which entresol-burst-mount.sh mounts the
# directory of its checkpoints. Where the burst buffer has a key, it also makes the ticket of the job's user, beside that
# directory: the mount covers it. A prolog that fails takes the node out of use: this one never does.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
settings=${ENTRESOL_BURST_SETTINGS:-/etc/entresol/burst.env}
test ! -r "$settings" || . "$settings"
at=${ENTRESOL_BURST_RUN:-/run/entresol-burst}/$SLURM_JOB_ID
mkdir -p "$at" && chown "$SLURM_JOB_UID" "$at" || { logger -t entresol "job $SLURM_JOB_ID has no $at"; exit 0; }
test -n "${ENTRESOL_BURST_KEY:-}" || exit 0
group=${SLURM_JOB_GID:-$(id -g "$SLURM_JOB_UID")}
umask 077
"${PROGRAM:-/usr/bin/entresol}" burst ticket --key "$ENTRESOL_BURST_KEY" --job "$SLURM_JOB_ID" --user "$SLURM_JOB_UID" \
	--group "$group" >"$at.new" && chmod 400 "$at.new" && chown "$SLURM_JOB_UID:$group" "$at.new" &&
	mv -f "$at.new" "$at.ticket" || logger -t entresol "job $SLURM_JOB_ID has no $at.ticket"
# Where root alone may make folders on the parallel file system, no other user has made the job's before.
folder=$PFS/job-$SLURM_JOB_ID
! mkdir -m 700 "$folder" 2>/dev/null || chown -h "$SLURM_JOB_UID:$group" "$folder" 2>/dev/null || rmdir "$folder"
exit 0
