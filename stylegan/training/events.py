"""An event file of TensorBoard, written by whoever adds to it: what the disk refuses is an error
there, not in a thread of TensorBoard's own writer."""

import io
import os
import socket
import time
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from torch.utils.tensorboard import FileWriter, RecordWriter, SummaryWriter

VERSION = "brain.Event:2"


class EventFile(FileWriter):
    """A new file in `folder`. Events from the step `purge` on of older files count no more."""

    def __init__(self, folder: Path, purge: int | None = None) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self.path = folder / f"{name}.{time.monotonic_ns()}"
        self.added = io.BytesIO()
        self.size = 0  # bytes that are written for good
        self.add_event(Event(file_version=VERSION))
        if purge is not None:
            self.add_event(Event(file_version=VERSION), purge)
            self.add_event(Event(session_log=SessionLog(status=SessionLog.START)), purge)
        self.head = self.added.getvalue()

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        RecordWriter(self.added).write(event.SerializeToString())

    def write(self) -> None:
        """What was added since the last call; after an OSError it is lost."""
        data, self.added = self.added.getvalue(), io.BytesIO()
        if self.size == 0 and not data.startswith(self.head):
            data = self.head + data
        self.path.parent.mkdir(exist_ok=True)
        with open(self.path, "ab", buffering=0) as file:
            file.truncate(self.size)  # the rest of what could not be written whole
            written = file.write(data)
            while written < len(data):
                written += file.write(data[written:])
        self.size += len(data)


class EventWriter(SummaryWriter):
    """Adds summaries to an event file."""

    def __init__(self, file: EventFile) -> None:
        self.file = file
        super().__init__(str(file.path.parent))

    def _get_file_writer(self) -> EventFile:
        return self.file
