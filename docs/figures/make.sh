#!/bin/sh
# Makes the pictures of docs/figures.md again:  sh docs/figures/make.sh [SOURCE [RUN]]
# Without RUN, a run folder that has kept files of every resolution, those of its training stay.
set -eu
cd "$(dirname "$0")/../.."
source=${1:-emoji32}
run=${2:-}

stylegan() {
    "${PYTHON:-python}" -m stylegan "$@" --overwrite
}

to=docs/figures
stylegan figure grid "$source" --seeds 0-23 --columns 8 --out $to/grid.webp
stylegan figure mixing "$source" --seeds 0-2 --columns 10-14 --out $to/mixing.webp
stylegan figure truncation "$source" --seeds 0-3 --out $to/truncation.webp
stylegan figure noise-detail "$source" --seeds 0-2 --out $to/noise-detail.webp
stylegan figure noise-components "$source" --seeds 0-2 --out $to/noise-components.webp

stylegan video walk "$source" --seeds 0-8 --grid 3x1 --seconds 3 --fps 8 --scale 3 --out $to/walk.webp
stylegan video walk "$source" --space z --seeds 1,8,16,24 --seconds 5 --fps 10 --scale 4 --out $to/walk-z.webp
stylegan video mixing "$source" --seeds 0 --columns 10-12 --seconds 4 --fps 8 --scale 4 --out $to/mixing-morph.webp
stylegan video truncation "$source" --seeds 1,2,5 --seconds 3 --fps 8 --scale 3 --out $to/truncation-morph.webp

if [ -n "$run" ]; then
    stylegan figure timelapse "$run" --seeds 0-2 --moments 8 --out $to/timelapse.webp
    stylegan video timelapse "$run" --seeds 0-3 --seconds 4 --fps 5 --scale 2 --out $to/training.webp
fi
