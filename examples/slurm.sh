#!/bin/bash
# Trains a model under Slurm, over as many jobs as that takes:   sbatch -N 2 -n 16 -c 8 slurm.sh MODEL DIR [OPTION of dtrun run...]
# The first job measures the cluster and plans; both files lie in DIR, which all hosts share. A minute before the time limit dtrun
# saves and ends, and the job goes back into the queue. So it does when Slurm starts it again after a host was lost.
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
model=$1 dir=$2
shift 2
ranks=$SLURM_NTASKS threads=${SLURM_CPUS_PER_TASK:-1}
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mkdir -p "$dir"

# The mpirun that dtrun starts learns hosts and slots from Slurm. With a Slurm that has the plugin, `srun --mpi=pmix dtrun ...` in
# place of `dtrun ...` starts the same ranks.
[ -s "$dir/cluster.json" ] || dtrun bench --ranks "$ranks" --threads "$threads" --quick -o "$dir/cluster.json"
[ -s "$dir/plan.json" ] || dtplan plan "$model" --machine "$dir/cluster.json" --mesh "x:$ranks" -o "$dir/plan.json"

dtrun run "$model" --plan "$dir/plan.json" --threads "$threads" --save "$dir/checkpoint" --save-every 10m --keep 2 --resume \
    --log-json "$dir/steps.jsonl" "$@" &
again=0
trap 'again=1; kill -TERM $!' USR1 # the time limit
trap 'kill -TERM $!' TERM          # scancel --batch --signal=TERM: dtrun saves, and the job ends
code=0
wait $! || code=$?
[ "$code" -lt 128 ] || { code=0; wait $! || code=$?; } # the first wait ended with the signal
[ "$again" -eq 0 ] || [ "$code" -ne 143 ] || exec scontrol requeue "$SLURM_JOB_ID"
exit "$code"
