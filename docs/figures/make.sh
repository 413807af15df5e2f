#!/bin/sh
# Makes the pictures of the pages again:  sh docs/figures/make.sh FACES [RUN]
# FACES is the folder of `datasets/faces.py`. Without RUN, the run folder of a quickstart, the pictures
# of a training stay. Those of blending, alignment, exploring and of three quickstarts are not made.
set -eu
faces=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
source=faces64
run=${2:-}

stylegan() {
    "${PYTHON:-python}" -m stylegan "$@" --overwrite
}

sheet() { # COLUMNS OUT PICTURES...
    "${PYTHON:-python}" - "$@" <<'END'
import sys

import numpy as np
from PIL import Image

from stylegan import figures

columns, out, *files = sys.argv[1:]
pictures = [np.asarray(Image.open(file)) for file in files]
figures.grid(pictures, columns=int(columns)).save(out, lossless=True)
END
}

to=docs/figures
stylegan figure grid $source --seeds 0-23 --columns 8 --out $to/grid.webp
stylegan figure mixing $source --seeds 24,41,62 --seeds-b 10,38,55,54,20 --out $to/mixing.webp
stylegan figure truncation $source --seeds 24,41,32,54 --out $to/truncation.webp
stylegan figure noise-detail $source --seeds 0,7,41 --out $to/noise-detail.webp
stylegan figure noise-components $source --seeds 0,7,41 --out $to/noise-components.webp

stylegan video walk $source --seeds 24,41,62,10,7,55,38,46,54 --grid 3x1 --seconds 3 --fps 8 --scale 3 --out $to/walk.webp
stylegan video walk $source --space z --seeds 24,41,7,55 --seconds 5 --fps 10 --scale 4 --out $to/walk-z.webp
stylegan video mixing $source --seeds 24 --seeds-b 41,7,55 --seconds 4 --fps 8 --scale 4 --out $to/mixing-morph.webp
stylegan video truncation $source --seeds 24,41,7 --seconds 3 --fps 8 --scale 3 --out $to/truncation-morph.webp

stylegan figure grid $source --seeds 0-63 --columns 16 --out docs/faces64/samples-psi-0.7.webp
stylegan figure grid $source --seeds 0-63 --columns 16 --psi 1 --out docs/faces64/samples-psi-1.webp
stylegan figure neighbors $source --nearest 3 --data datasets/faces-64.zip \
    --out docs/faces64/neighbors.webp

set -- "$faces"/training/0000[0-5]?.png "$faces"/training/00006[0-3].png
sheet 16 docs/faces64/data.webp "$@"

to=docs/editing
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
stylegan directions find $source --count 5 --out "$work/found.npz" --figure $to/directions.webp --seed 46
for centers in none 16; do
    stylegan figure grid $source --seeds 0-11 --columns 6 --psi 0.5 --centers $centers --out $to/centers-$centers.webp
done

"${PYTHON:-python}" tools/attributes.py "$faces/training" $source --out "$work/attributes" \
    --sort smile --sort glasses --sort beard --sort old --sort "turned right" > "$work/attributes.md"
cat "$work/attributes.md"
for name in smile glasses beard old turned-right; do
    sorted=$work/attributes/$name
    stylegan directions learn $source "$sorted/yes" "$sorted/no" --name $name --samples 2000 \
        --out "$work/learned.npz" --figure $to/$name.webp --seed 46 --psi 0.7
done

to=docs/projection
set -- "$faces"/held-out/01200[0-7].png
stylegan project $source "$@" --steps 200 --out "$work/w"
stylegan project $source "$@" --steps 200 --space w+ --tune --tune-steps 100 --out "$work/w+"
set -- "$work"/w/*/target.png "$work"/w/*/projection.png
set -- "$@" "$work"/w+/*/projection.png "$work"/w+/*/tuned.png
sheet 8 $to/faces.webp "$@"

to=docs/figures
if [ -n "$run" ]; then
    stylegan figure timelapse "$run" --seeds 0-2 --snapshots 8 --out $to/timelapse.webp
    stylegan video timelapse "$run" --seeds 0-3 --seconds 4 --fps 5 --scale 2 --out $to/training.webp
fi
