"""Pictures from a trained generator: `python generate.py runs/mine --seeds 0-35`."""

import sys

from stylegan.cli import main

if __name__ == "__main__":
    main(["generate", *sys.argv[1:]], prog_name="stylegan")
