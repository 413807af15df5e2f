"""`python -m stylegan` is the command `stylegan`."""

from stylegan.cli import main

main(prog_name="stylegan")
