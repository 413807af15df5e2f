#!/bin/sh
# Makes the pictures of the pages again:  sh docs/figures/make.sh HELD_OUT [RUN]
# HELD_OUT is a folder of `datasets/people.py --first 20000`. Without RUN, a run folder that has kept
# files of every resolution, the pictures of a training stay.
set -eu
held_out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
source=faces64
run=${2:-}

stylegan() {
    "${PYTHON:-python}" -m stylegan "$@" --overwrite
}

to=docs/figures
stylegan figure grid $source --seeds 0-23 --columns 8 --out $to/grid.webp
stylegan figure mixing $source --seeds 0-2 --seeds-b 10-14 --out $to/mixing.webp
stylegan figure truncation $source --seeds 0-3 --out $to/truncation.webp
stylegan figure noise-detail $source --seeds 0-2 --out $to/noise-detail.webp
stylegan figure noise-components $source --seeds 0-2 --out $to/noise-components.webp

stylegan video walk $source --seeds 0-8 --grid 3x1 --seconds 3 --fps 8 --scale 3 --out $to/walk.webp
stylegan video walk $source --space z --seeds 1,8,16,24 --seconds 5 --fps 10 --scale 4 --out $to/walk-z.webp
stylegan video mixing $source --seeds 0 --seeds-b 10-12 --seconds 4 --fps 8 --scale 4 --out $to/mixing-morph.webp
stylegan video truncation $source --seeds 1,2,5 --seconds 3 --fps 8 --scale 3 --out $to/truncation-morph.webp

stylegan figure grid $source --seeds 0-63 --columns 16 --out docs/faces64/samples-psi-0.7.webp
stylegan figure neighbors $source --nearest 3 --data datasets/faces-64.zip \
    --out docs/faces64/neighbours.webp

to=docs/editing
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
stylegan directions find $source --count 5 --out "$work/found.npz" --figure $to/directions.webp --seed 14
for centers in none 16; do
    stylegan figure grid $source --seeds 0-11 --columns 6 --psi 0.5 --centers $centers --out $to/centers-$centers.webp
done

to=docs/projection
set -- "$held_out"/02000[0-7].png
stylegan project $source "$@" --steps 500 --starts 2 --out "$work/w"
stylegan project $source "$@" --steps 500 --starts 2 --space w+ --tune --out "$work/w+"
"${PYTHON:-python}" - "$work" "$to/people.webp" <<'END'
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from stylegan import figures

work, out = map(Path, sys.argv[1:])
rows = (("w", "target"), ("w", "projection"), ("w+", "projection"), ("w+", "tuned"))
files = [file for space, name in rows for file in sorted((work / space).glob(f"*/{name}.png"))]
figures.grid([np.asarray(Image.open(file)) for file in files], columns=8).save(out, lossless=True)
END

if [ -n "$run" ]; then
    stylegan figure timelapse "$run" --seeds 0-2 --moments 8 --out $to/timelapse.webp
    stylegan video timelapse "$run" --seeds 0-3 --seconds 4 --fps 5 --scale 2 --out $to/training.webp
fi
