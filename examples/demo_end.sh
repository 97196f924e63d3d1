#!/usr/bin/env bash
# The last screen of ./dev demo: the loss as a curve, three lines that the model writes, predicted beside measured with the
# reason where they differ by more than 10 %, and what to do next.
# Usage: demo_end.sh BIN_DIR FOLDER MODEL, where FOLDER has what dtrun wrote: run.txt, steps.jsonl, gpt.ckpt
set -eu
bin=$1 out=$2 model=$3

echo
echo "loss by step"
sed -nE 's/.*"step": ([0-9]+),.*"loss": ([-0-9.e+]+),.*/\1 \2/p' "$out/steps.jsonl" | awk '
    { step[NR] = $1; loss[NR] = $2 }
    END {
        if (NR == 0) exit 1
        rows = 8; wide = NR < 64 ? NR : 64
        for (c = 0; c < wide; c++) { # the mean of the steps of a column
            from = int(c * NR / wide) + 1; to = int((c + 1) * NR / wide); sum = 0
            for (i = from; i <= to; i++) sum += loss[i]
            mean[c] = sum / (to - from + 1)
            if (c == 0 || mean[c] < low) low = mean[c]
            if (c == 0 || mean[c] > high) high = mean[c]
        }
        span = high > low ? high - low : 1
        for (c = 0; c < wide; c++) at[c] = int((mean[c] - low) / span * (rows - 1) + 0.5)
        for (r = rows - 1; r >= 0; r--) {
            line = ""
            for (c = 0; c < wide; c++) line = line (at[c] == r ? "*" : " ")
            sub(/ +$/, "", line)
            printf "%7s |%s\n", r == rows - 1 ? sprintf("%.2f", high) : r == 0 ? sprintf("%.2f", low) : "", line
        }
        printf "%7s +", ""; for (c = 0; c < wide; c++) printf "-"
        printf "\n%8s%-*d%d\n", "", wide - length(step[NR]) + 1, step[1], step[NR]
    }'

echo
echo "what it writes after 'The ', one line each"
for seed in 1 2 3; do
    "$bin/dtrun" sample "$model" --load "$out/gpt.ckpt" --prompt 'The ' --tokens 60 --temperature 0.5 --top-k 20 --seed $seed \
        2>/dev/null | sed -n '/^--- sample 1/,/^--- sample 2/p' | grep -v '^--- sample' | tr '\n' ' ' | cut -c1-78 | sed 's/^/  /'
    echo
done | sed '/^$/d'

echo
awk '
    function seconds(v, u) { return v * (u == "s" ? 1 : u == "ms" ? 1e-3 : u == "us" ? 1e-6 : 1e-9) }
    function percent(x) { return sprintf("%+.1f %%", 100 * x) }
    /^  per step / { table = 1 }
    table && /^  (step|compute|exposed comm) +[0-9]/ {
        name = $1; i = name == "exposed" ? 3 : 2
        p[name] = seconds($i, $(i + 1)); m[name] = seconds($(i + 2), $(i + 3))
        shown[name] = $i " " $(i + 1) " predicted, " $(i + 2) " " $(i + 3) " measured"
    }
    /step time median/ { t = $0; sub(/.*median /, "", t); split(t, w, /[ ,;]+/)
        median = seconds(w[1], w[2]); fastest = seconds(w[4], w[5]); slowest = seconds(w[7], w[8]) }
    /^peak per rank/ { peak = $0 }
    END {
        if (!("step" in p) || m["step"] <= 0) exit 1
        off = p["step"] / m["step"] - 1
        printf "step: %s (%s)\n%s\n", shown["step"], percent(off), peak
        if (off > 0.1 || off < -0.1) {
            compute = p["compute"] - m["compute"]; comm = p["exposed"] - m["exposed"]
            what = compute * compute >= comm * comm ? "compute" : "exposed"
            printf "why: %s, %s\n", what == "compute" ? "compute" : "exposed communication", shown[what]
            best = p["step"] / fastest - 1
            if (slowest > 1.2 * fastest && best < 0.1 && best > -0.1)
                printf "     the fastest step is within 10 %% of the prediction: other programs took time from the others\n"
            else if (slowest > 1.5 * fastest)
                printf "     steps take from %.0f %% to %.0f %% of their median: this machine is busy or shared\n",
                    100 * fastest / median, 100 * slowest / median
            else
                printf "     steps are alike, so prices are off: bench without --quick measures finer\n"
        }
    }' "$out/run.txt"

cat <<TXT

what next
  $bin/dtplan report $model $out/gpt.plan.json --machine $out/machine.json -o out/report.html
                                          the plan as a page: timeline, memory, layouts
  $bin/dtrun run $model --plan $out/gpt.plan.json --feed text=models/data/text.txt --steps 2000 \\
      --save $out/gpt.ckpt --resume       trains on
  $bin/dtplan plan llama3_8b --machine h100_64 --mesh x:8
                                          a large model on machines that you do not have
  README.md                               a model of your own, from PyTorch or Hugging Face
TXT
