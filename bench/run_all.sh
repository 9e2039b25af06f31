#!/bin/bash
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
#
# Everything in docs/performance.md that needs a quiet machine, but bench/serve, in one run on one host:
#
#   bench/run_all.sh BIN OUT "2 16"     BIN: folder with rivulet-engine-bench and the others; OUT: where the
#                                       results go; thread counts, each pinned to as many cores
#
# The peers need PyTorch, transformers and NumPy under python3; without them only our own numbers are written. CPU only.
set -u
bin=$1 out=$2 counts=$3
model=${MODEL_130M:-/tmp/mamba2-130m}
export CUDA_VISIBLE_DEVICES= PYTHONUNBUFFERED=1 TRANSFORMERS_OFFLINE=1 HF_HUB_DISABLE_PROGRESS_BARS=1
mkdir -p "$out"
cd "$(dirname "$0")/.."

# The first N logical processors, each on a core of its own where there are enough.
cores() { lscpu -p=CPU,CORE | grep -v '^#' | sort -t, -k2,2n -k1,1n | awk -F, '{print seen[$2]++ "," $1}' | sort -t, -k1,1n -k2,2n |
  head -n "$1" | cut -d, -f2 | paste -sd,; }
step() {  # step SECONDS NAME COMMAND...: its output on the screen and in OUT/NAME.txt
  local limit=$1 name=$2 start=$SECONDS
  shift 2
  echo "== $name"
  timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || echo "   exit $?"
  cat "$out/$name.txt"
  echo "   took $((SECONDS - start)) s"
}

{ lscpu | grep -E 'Model name|^CPU\(s\)|Thread|L2|L3|MHz|NUMA node0'; lscpu | grep -oE 'amx_[a-z0-9]+|avx512_bf16' | sort -u; uname -r; date -u; uptime; } | tee "$out/machine.txt"
[ -f "$model/model.safetensors" ] || python3 tests/parity/make_random_mamba2.py "$model"
for n in $counts; do
  pin="taskset -c $(cores "$n")"
  step 60 "tales_$n" $pin "$bin/rivulet-engine-bench" --model models/tales --threads "$n" --tokens 512 --json "$out/tales_$n.json"
  for dtype in bf16 fp32; do
    step 90 "mamba2_${dtype}_$n" $pin "$bin/rivulet-engine-bench" --model "$model" --dtype $dtype --threads "$n" --tokens 48 --prefill 1024 --json "$out/mamba2_${dtype}_$n.json"
  done
  step 150 "peer_$n" $pin python3 bench/peer_transformers.py "$model" --threads "$n" --tokens 24 --prefill 512 --chunk-sizes 32 --json "$out/peer_$n.json"
  step 90 "linear_$n" $pin python3 bench/linear_against_libraries.py --rate "$bin/rivulet-linear-rate" --threads "$n" --seconds 0.2 --json "$out/linear_$n.json"
done
step 30 read_order taskset -c "$(cores 1)" "$bin/rivulet-read-order"
step 150 contexts "$bin/rivulet-engine-bench" --model models/tales --threads "$n" --streams '' --prefill 0 --tokens 4096 --prefill-step 1024 --contexts 1000,10000,100000,1000000 --json "$out/contexts_$n.json"
step 1200 mixers "$bin/rivulet-context-bench" --threads "$n" --json "$out/mixers_$n.json"
