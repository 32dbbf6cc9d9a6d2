#!/bin/sh
# Measures the layers of Llama 2 7B at the sizes of generate.py on a GPU, and profiles the program
# beside the theory, whose times are the measured ones. Products are timed without rests, as the
# program has none. Run files go into the folder that is the first argument, by default
# `gpuperf-runs/generate`.
set -eu
here=$(dirname "$0")
out="${1:-gpuperf-runs/generate}"
options="--dtype bf16 --counters off --budget 0.3"
gpuperf roofline linear $options --impl torch --m 8,4096,16384 --n 4096,11008 --k 4096,11008 \
    --regime sustained --out "$out"
gpuperf roofline linear $options --impl torch --m 8 --n 32000 --k 4096 --regime sustained --out "$out"
gpuperf roofline decode $options --impl sdpa --batch 8 --heads 32 --gqa 1 --kv 1056,2112 --out "$out"
measured=$(ls "$out"/*roofline*.jsonl | paste -sd, -)
gpuperf profile --theory "$here/llama2.json" --measured "$measured" --out "$out" \
    "$here/generate.py" --config "$here/llama2.json"
