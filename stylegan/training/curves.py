"""The event file of TensorBoard."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.summary.writer.record_writer import RecordWriter
from torch import Tensor
from torch.utils.tensorboard.summary import image, scalar


class Curves:
    """Numbers and pictures for TensorBoard. PyTorch's writer writes from a thread, by name: errors
    of the disk end in a traceback, and a folder that was renamed is made anew. Here the caller gets
    the error, and the file stays the one that was opened."""

    def __init__(self, folder: Path, *, began: int) -> None:
        """What an earlier process wrote beyond the image where this one `began` is void."""
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        self.file = open(folder / name, "xb")  # noqa: SIM115  # until `close`
        self.records = RecordWriter(self.file)
        step = began + 1
        self.write(Event(step=step, file_version="brain.Event:2"))
        self.write(Event(step=step, session_log=SessionLog(status=SessionLog.START)))

    def write(self, event: Event) -> None:
        event.wall_time = time.time()
        self.records.write(event.SerializeToString())

    def add(self, values: Mapping[str, float | Tensor], images_seen: int) -> None:
        """Numbers, and pictures uint8 (C, H, W)."""
        for name, value in values.items():
            is_picture = isinstance(value, Tensor) and value.ndim == 3
            summary = image(name, value, dataformats="CHW") if is_picture else scalar(name, value)
            self.write(Event(step=images_seen, summary=summary))
        self.file.flush()  # here the disk refuses what it cannot take

    def close(self) -> None:
        with suppress(OSError):  # what it refused once must not fail the run at its end
            self.file.close()
