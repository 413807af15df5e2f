"""The process's switches for precision, determinism and threads."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from stylegan.config import TrainConfig


@contextmanager
def backend_flags(config: TrainConfig) -> Iterator[None]:
    """Kernels of the precision and determinism that `config` asks for, inside.

    Full float32 unless it is tf32, which is cuDNN's default. The number of threads may change
    inside; afterwards it is as before, too.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    flags = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    threads = torch.get_num_threads()
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    tf32 = config.precision == "tf32"
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = tf32, tf32, not config.deterministic
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = flags
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_num_threads(threads)
        if workspace is None:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
