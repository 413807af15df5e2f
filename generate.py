"""Pictures from a trained generator: `python generate.py runs/mine --seeds 0-35`."""

from stylegan.cli.generate import generate

if __name__ == "__main__":
    generate()
