#!/bin/bash
#SBATCH --job-name=tiny
#SBATCH --comment=weft:/shared/runs/tiny
#SBATCH --nodes=1
#SBATCH --mincpus=2
#SBATCH --mem=644M
#SBATCH --dependency=afterok:1,singleton
#SBATCH --chdir=/shared/runs/tiny
#SBATCH --output=/shared/runs/tiny/logs/slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=USR2@49

if [ ! -x /opt/weft/bin/weft ]; then
  echo "weft: host $(hostname): "/opt/weft/bin/weft" is not there; install weft at the same path on each node, or name its folder by cluster.remote_path" >&2
  exit 2
fi

# A notice to this shell goes on to weft: INT ends the job, the others save and requeue it.
# bash runs a trap between commands alone, so weft runs beside it.
export WEFT_SLURM_BATCH="$SLURM_JOB_ID"
trap 'kill -INT "$weft"' INT
trap 'kill -TERM "$weft"' TERM
trap 'kill -USR2 "$weft"' USR1 USR2
/opt/weft/bin/weft run /shared/runs/tiny/submitted.yaml &
weft=$!
while kill -0 "$weft" 2>/dev/null; do wait "$weft"; done
wait "$weft"
status=$?

# 75: to be run again. Whoever of the site and this script does it, it is one of them.
if [ "$status" -eq 75 ]; then
  site=no
  for codes in $(scontrol show config | sed -n 's/^RequeueExit *= *//p' | tr ',' ' '); do
    { [ "${codes%-*}" -le 75 ] && [ "${codes#*-}" -ge 75 ]; } 2>/dev/null && site=yes
  done
  [ "$site" = yes ] || scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
