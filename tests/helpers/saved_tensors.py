"""What graphs hold to go backward, in bytes."""

import weakref

from torch.autograd.graph import saved_tensors_hooks


class Held:
    """What a graph keeps instead of a tensor; gone when the graph is."""

    def __init__(self, tensor):
        self.tensor = tensor


class Saved(saved_tensors_hooks):
    """Bytes that graphs hold to go backward, each tensor by itself; weights do not count."""

    def __init__(self, state):
        super().__init__(self.pack, lambda held: held.tensor)
        self.bytes = self.peak = 0
        self.own = {p.untyped_storage().data_ptr() for p in state.discriminator.parameters()}

    def pack(self, x):
        held = Held(x)
        if x.untyped_storage().data_ptr() not in self.own:
            self.hold(x.nbytes)
            weakref.finalize(held, self.hold, -x.nbytes)
        return held

    def __enter__(self):
        super().__enter__()
        return self

    def hold(self, size):
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
