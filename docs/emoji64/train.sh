#!/bin/bash
# The training of emoji64, all parts (docs/emoji64.md): about five hours on two CPU cores.
#   bash docs/emoji64/train.sh emoji-64.zip runs/third/state-000050000.pt
# The second file is the last state of emoji32's training (docs/emoji32.md).
set -euo pipefail
data=$1
state=$2
number=0

part() { # KIMG PROCESSES OPTIONS...: begins with all networks of the part before
    number=$((number + 1))
    torchrun --standalone --nproc-per-node "$2" train.py --config pretrained/emoji64 --data "$data" \
        --init-from "$state" --out "runs/part$number" -o "schedule.total_kimg=$1" "${@:3}"
    state=$(ls "runs/part$number"/state-*.pt | tail -n 1)
}

rates() { echo "-o schedule.g_lr={4=$1} -o schedule.d_lr={4=$2}"; }

plain="-o augment.kind='none' -o augment.transforms=[]"
half="-o network.channel_base=256 -o schedule.initial_resolution=32"
at32="$plain $half -o schedule.stable_kimg=1000"
sixteen="-o schedule.batch_size={4=16}"
long="-o ema_half_life_kimg=8"
less="-o style_mixing=0.1"
later="$less $long $sixteen $(rates 0.003 0.004)"
color="$less -o augment.transforms=['bgc']"
bf16="$color --precision bf16"
fifth="$bf16 -o r1_gamma=0.2"

part 28.592 1 $at32
part 240.168 1 $at32
part 20 2 $at32 $long $sixteen $(rates 0.003 0.005)
part 60 2 $at32 $later
part 90 2 $at32 $later $(rates 0.006 0.004)
part 50 2 $at32 $later
part 130 2 $plain $half $later -o schedule.stable_kimg=0 -o schedule.fade_kimg=10
part 30 2 $plain $later
part 29.672 1 $plain $less $long $(rates 0.002 0.003)
part 50 1 $color
part 27.64 1 $bf16
part 30 2 $bf16 $sixteen $(rates 0.003 0.005)
part 83.112 2 $bf16
part 53.784 1 $fifth
part 53.88 1 $fifth $(rates 0.001 0.002)
part 60 1 $fifth $(rates 0.0005 0.001)
part 20 1 --precision bf16
