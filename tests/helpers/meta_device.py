"""The meta device in the place of a GPU: what a step waits for, and what it makes elsewhere."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ATEN = torch.ops.aten
READS = {ATEN._local_scalar_dense, ATEN.equal, ATEN.nonzero, ATEN.masked_select}
COPIES = {ATEN._to_copy, ATEN.copy_}
WIDE = torch.float64, torch.complex128  # which Apple's GPUs have not


class MetaTracker(TorchDispatchMode):
    """Sees every operation inside. A number that is read is 1; RuntimeError, as on a GPU, for an
    operation whose tensors are on two devices."""

    def __init__(self):
        super().__init__()
        self.copies = 0
        self.waits, self.strangers, self.wide = [], [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, packet = kwargs or {}, func.overloadpacket
        given = [x for x in tree_leaves([args, kwargs]) if isinstance(x, torch.Tensor)]
        here = [x for x in given if x.is_meta]
        if packet in COPIES:
            source = args[1] if packet is ATEN.copy_ else args[0]
            target = args[0].device if packet is ATEN.copy_ else kwargs.get("device", source.device)
            to_meta = torch.device(target).type == "meta"
            if source.is_meta and not to_meta:
                self.waits.append(str(func))
                return torch.ones(source.shape, dtype=kwargs.get("dtype") or source.dtype)
            self.copies += to_meta and not source.is_meta
        elif here and any(x.ndim for x in given if not x.is_meta):
            raise RuntimeError(f"{func} of tensors on two devices")
        elif here and packet in READS:
            self.waits.append(str(func))
            return True if packet is ATEN.equal or here[0].dtype == torch.bool else 1.0
        result = func(*args, **kwargs)
        made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        self.wide += [str(func) for x in made if x.is_meta and x.dtype in WIDE]
        if packet not in COPIES:
            self.strangers += [str(func) for x in made if not here and not x.is_meta and x.numel()]
        return result
