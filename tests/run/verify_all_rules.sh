#!/usr/bin/env bash
# dtrun verify of the digits MLP as shipped on real MPI ranks under EVERY legal rule set of a mesh. What is legal is asked of
# `dtplan show`; each legal set must then verify at 2e-5. Usage: verify_all_rules.sh BIN_DIR MESH LEAST_LEGAL, e.g. build/dev/bin x:2,y:2 9
set -u
bin=$1 mesh=${2//,/;} least=$3
export OMP_NUM_THREADS=1 ASAN_OPTIONS=detect_leaks=0
root=()
[ "$(id -u)" -eq 0 ] && root=(--allow-run-as-root)
places=("")
for pair in ${mesh//;/ }; do places+=("${pair%%:*}"); done
model=models/mlp_digits.json legal=0 failed=0
for b in "${places[@]}"; do for p in "${places[@]}"; do for h in "${places[@]}"; do for c in "${places[@]}"; do
    rules=${b:+batch:$b;}${p:+pixels:$p;}${h:+hidden:$h;}${c:+classes:$c}
    "$bin/dtplan" show $model --mesh "$mesh" --rules "$rules" --stage plan >/dev/null 2>&1 || continue
    legal=$((legal + 1))
    "$bin/dtrun" verify $model --mesh "$mesh" --rules "$rules" --threads 1 --comm mpi "${root[@]}" >/dev/null || {
        echo "FAIL: '$rules' on '$mesh'"
        failed=$((failed + 1))
    }
done; done; done; done
echo "mesh '$mesh': $legal legal rule sets verified on MPI ranks, $failed failed"
[ $legal -ge "$least" ] && [ $failed -eq 0 ]
