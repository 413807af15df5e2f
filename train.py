"""Training on a folder of images: `python train.py --data photos/ --config ffhq-256`."""

import sys

from stylegan.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]], prog_name="stylegan")
