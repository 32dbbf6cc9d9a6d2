#!/bin/sh
# Measures linear layers of 8192 x 8192 for 1 to 4096 tokens, in each format of the weights, on a GPU.
# The run file goes into the folder that is the first argument, by default `gpuperf-runs`; give it to
# `gpuperf theory inference --measured`.
set -eu
gpuperf compare linear --sizes 8192 --m 1:4096 --dtype bf16 \
    --weights unquantized,fp8,int8,int8-dynamic,int4 \
    --processes 1 --counters off --budget 0.3 --out "${1:-gpuperf-runs}"
