"""The meta device in the place of Apple's GPU, which has no float64."""

import torch
from torch.utils._pytree import tree_leaves

from helpers.meta_device import ATEN, MetaTracker

INDEXING = {ATEN.index, ATEN.index_put_}  # with indices of the CPU, too
WIDE = torch.float64, torch.complex128


class WithoutFloat64(MetaTracker):
    """Sees every operation inside; TypeError, as of MPS, where one makes float64 on the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        with self:  # what consists of other operations comes whole if made in inference mode
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        if func.overloadpacket in INDEXING:
            result = func(*args, **kwargs)
        else:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        if any(x.is_meta and x.dtype in WIDE for x in made):
            raise TypeError(f"{func}: the device has no float64")
        return result
