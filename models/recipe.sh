#!/bin/bash
# Copyright 2026 The Rivulet Authors. SPDX-License-Identifier: Apache-2.0
# From a text to tales, as it was made:  models/recipe.sh TEXT WORK OUT      (20 minutes on one H200)
# Four teachers at once, text written by the two that are HLA, then the student. The --minutes are the limits
# of the run that made tales; with them removed every step count is reached and the result should be better.
set -euo pipefail
text=$(realpath "$1"); work=$(realpath -m "$2"); out=$(realpath -m "$3")
cd "$(dirname "$0")"
[ -e "$work/stream.npz" ] || python3 data.py --text "$text" --out "$work"

teacher() {  # NAME MIXER DROPOUT WEIGHT_DECAY MUON_LR SEED
  python3 train.py --data "$work" --config configs/teacher.json --set "model_type=\"$2\"" --out "$work/$1" \
    --dropout "$3" --weight-decay "$4" --muon-lr "$5" --seed "$6" --steps 2600 --minutes 7.4 \
    --long-share 0.1 --eval-every 650
}
write() {  # TEACHER SEED
  python3 synthesize.py --data "$work" --teacher "$work/$1/model.pt" --out "$work/$1.npy" --rounds 8 --seed "$2"
}
jobs=()
{ teacher a1 hla 0.3 0.5 0.03 31; write a1 5; } & jobs+=($!)
{ teacher a2 hla 0.35 0.6 0.02 32; write a2 6; } & jobs+=($!)
teacher a3 softmax 0.3 0.5 0.03 33 & jobs+=($!)
teacher a4 softmax 0.35 0.6 0.02 34 & jobs+=($!)
for job in "${jobs[@]}"; do wait "$job"; done

teachers=("$work"/a{1,2,3,4}/model.pt)
python3 ensemble.py --data "$work" --teachers "${teachers[@]}"
python3 train.py --data "$work" --config configs/tales.json --out "$work/student" --teachers "${teachers[@]}" \
  --teacher-share 0.9 --written "$work"/a{1,2}.npy --written-share 0.4 --long-share 0.1 --entry-share 0.12 \
  --dropout 0.02 --weight-decay 0.15 --muon-lr 0.03 --steps 6000 --minutes 7.3 --eval-every 300 --seed 7
python3 export.py --model "$work/student/model.pt" --data "$work" --out "$out"
python3 export.py --measure "$out" --data "$work"
