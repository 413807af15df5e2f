"""What a CUDA graph does, without a GPU: operations recorded, and replayed on the same memory."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stylegan.training.rehearsal import ASKING, place, tensors


class Recorded(TorchDispatchMode):
    """Does the operations inside, and `replay`s them with what their tensors hold by then. Numbers
    and shapes stay as they were. RuntimeError if a number is read, as a capture says."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in ASKING:
            raise RuntimeError(f"operation not permitted when stream is capturing: {place()}")
        result = func(*args, **(kwargs or {}))
        returns = [r.alias_info for r in func._schema.returns]
        if not any(alias and not alias.is_write for alias in returns):  # no view: numbers are made
            new = [] if any(returns) else tensors([result])
            self.operations.append((func, args, kwargs or {}, new))
        return result

    def replay(self):
        with torch.no_grad():
            for func, args, kwargs, memory in self.operations:
                made = tensors([func(*args, **kwargs)])
                for old, new in zip(memory, made if memory else [], strict=True):
                    old.copy_(new)


def recording(device):
    """Stands for `CudaGraphs` on a CPU."""

    def capture(run):
        with Recorded() as recorded:
            output = run()
        with torch.no_grad():  # a capture computes nothing
            for _, _, _, memory in recorded.operations:
                for x in memory:
                    x.fill_(float("nan") if x.is_floating_point() else 1)
        return recorded.replay, output, None

    return capture
