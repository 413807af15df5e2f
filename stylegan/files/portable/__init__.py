"""Generators in files that others read: safetensors, and NumPy's `.npz` with official names.

Both hold what a generator file holds, its payload. Nothing in them is ever executed. They are read
and written with torch and NumPy alone.
"""

from stylegan.files.portable.fields import OURS, Payload, about, from_json, to_json
from stylegan.files.portable.npz import is_npz, load_npz, npz_arrays, save_npz
from stylegan.files.portable.safetensors import is_safetensors, load_safetensors, save_safetensors

__all__ = [
    "ONE_WAY",
    "OURS",
    "READERS",
    "SHARED",
    "Payload",
    "about",
    "from_json",
    "npz_arrays",
    "save_npz",
    "save_safetensors",
    "to_json",
]

READERS = ((is_safetensors, load_safetensors), (is_npz, load_npz))
ONE_WAY = (".onnx", ".pt2")  # endings of what is written to be run, not read
SHARED = "model.safetensors"  # the weights in a folder of the Hugging Face Hub
