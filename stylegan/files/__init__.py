"""Run folders, and files of weights in every format."""
