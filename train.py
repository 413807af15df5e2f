"""Training on a folder of images: `python train.py --data photos/ --config ffhq-256`."""

from stylegan.cli.train import train

if __name__ == "__main__":
    train()
