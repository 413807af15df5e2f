"""Where a run's curves and pictures are shown, beside its own files."""

import hashlib
import importlib
import math
import os
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor, nn

from stylegan.config import TrainConfig, flatten, to_dict
from stylegan.messages import readable, reason_of
from stylegan.networks import Generator
from stylegan.run_folder import RunFolder

if TYPE_CHECKING:
    from PIL.Image import Image

Kind = Literal["tensorboard", "wandb", "mlflow", "none"]
PROJECT = "stylegan"  # unless WANDB_PROJECT or MLFLOW_EXPERIMENT_NAME say another
MOST_TEXT = 500  # characters of an option's value


class Tracker:
    """Shows nothing anywhere; base of those that do. What one cannot write is told once, and lost,
    and training goes on."""

    name: ClassVar[str] = "nobody"
    faults: ClassVar[type[Exception]] = Exception  # of a library and its servers

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell, self.refused = tell, False

    def begin(self) -> None:
        """Before the first events. ValueError if there is nothing to write to."""

    def attempt(self, write: Callable[[], object]) -> None:
        try:
            write()
            self.refused = False
        except self.faults as error:
            if not self.refused:
                reason = reason_of(error) if isinstance(error, OSError) else readable(error)
                self.tell(f"could not write {self.name}'s events: {reason}; going on, and "
                          "trying again")  # fmt: skip
            self.refused = True

    def scalars(self, scalars: Mapping[str, float], images_seen: int) -> None:
        """Numbers by their names."""

    def picture(self, name: str, image: Tensor, images_seen: int) -> None:
        """`image` is uint8 (C, H, W)."""

    def histograms(self, name: str, network: nn.Module, images_seen: int) -> None:
        """Distributions of weights and of the last gradients; of TensorBoard only."""

    def graph(self, generator: Generator) -> None:
        """The generator's graph; of TensorBoard only."""

    def end(self, event: str) -> None:
        """After the last events of this part of a run: finished, stopped or failed."""


class Wandb(Tracker):
    """Weights & Biases, as its environment variables say; WANDB_MODE=offline needs no account."""

    name = "wandb"

    def __init__(self, folder: RunFolder, config: TrainConfig, tell: Callable[[str], None]) -> None:
        super().__init__(tell)
        self.folder, self.config = folder, config
        self.wandb: Any = package_of("wandb")

    def begin(self) -> None:
        try:
            self.run = self.wandb.init(
                dir=str(self.folder.path),
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=self.folder.path.resolve().name,
                id=identity(self.folder),
                resume="allow",
                config=to_dict(self.config),
                settings=self.wandb.Settings(console="off"),
            )
            self.run.define_metric("*", step_metric="images_seen")
        except self.wandb.Error as error:
            raise ValueError(
                f"wandb did not begin: {readable(error)}; WANDB_MODE=offline needs no account"
            ) from error

    def scalars(self, scalars: Mapping[str, float], images_seen: int) -> None:
        self.attempt(lambda: self.run.log({**scalars, "images_seen": images_seen}))

    def picture(self, name: str, image: Tensor, images_seen: int) -> None:
        def write() -> None:  # the image goes through a file, which a full disk may refuse
            shown = {name: self.wandb.Image(as_image(image)), "images_seen": images_seen}
            self.run.log(shown)

        self.attempt(write)

    def end(self, event: str) -> None:
        self.attempt(lambda: self.run.finish(exit_code=int(event == "failed")))


class MLflow(Tracker):
    """MLflow, where MLFLOW_TRACKING_URI or its own default says."""

    name = "MLflow"

    def __init__(self, folder: RunFolder, config: TrainConfig, tell: Callable[[str], None]) -> None:
        super().__init__(tell)
        self.folder, self.config = folder, config
        self.mlflow: Any = package_of("mlflow")

    def begin(self) -> None:
        """The run with this folder's mark, or a new one."""
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        mark = identity(self.folder)
        try:
            self.client = self.mlflow.MlflowClient()
            known = self.client.get_experiment_by_name(experiment)
            group = known.experiment_id if known else self.client.create_experiment(experiment)
            if found := self.client.search_runs([group], f"tags.stylegan_run = '{mark}'"):
                self.run = found[0].info.run_id
                self.client.update_run(self.run, status="RUNNING")
                return
            tags, name = {"stylegan_run": mark}, self.folder.path.resolve().name
            self.run = self.client.create_run(group, tags=tags, run_name=name).info.run_id
            options = {k: str(v)[:MOST_TEXT] for k, v in flatten(to_dict(self.config)).items()}
            entities = [self.mlflow.entities.Param(k, v) for k, v in options.items()]
            self.client.log_batch(self.run, params=entities)
        except Exception as error:  # of the library, of a server, or of the way there
            raise ValueError(f"mlflow did not begin: {readable(error, 400)}") from error

    def scalars(self, scalars: Mapping[str, float], images_seen: int) -> None:
        now, metric = int(1000 * time.time()), self.mlflow.entities.Metric
        finite = {name: value for name, value in scalars.items() if math.isfinite(value)}
        values = [metric(name, value, now, images_seen) for name, value in finite.items()]
        self.attempt(lambda: self.client.log_batch(self.run, values))

    def picture(self, name: str, image: Tensor, images_seen: int) -> None:
        file = f"{name}/{images_seen:09d}.png"
        self.attempt(lambda: self.client.log_image(self.run, as_image(image), file))

    def end(self, event: str) -> None:
        status = {"finished": "FINISHED", "failed": "FAILED"}.get(event, "KILLED")
        self.attempt(lambda: self.client.set_terminated(self.run, status))


def package_of(kind: Kind) -> ModuleType | None:
    """What has to be installed for it. ValueError if it is not."""
    if kind not in ("wandb", "mlflow"):
        return None
    try:
        return importlib.import_module(kind)
    except ImportError:
        raise ValueError(
            f"tracking with {kind} needs its package; pip install 'stylegan[{kind}]'"
        ) from None


def identity(folder: RunFolder) -> str:
    """The same for every part of a run: of the first line of its log, which has its time."""
    with open(folder.log_file, "rb") as file:
        return hashlib.sha256(file.readline()).hexdigest()[:16]


def as_image(image: Tensor) -> "Image":
    from stylegan.sampling import picture

    return picture(image.permute(1, 2, 0).cpu().numpy())


def tracker(
    kind: Kind,
    folder: RunFolder,
    config: TrainConfig,
    tell: Callable[[str], None],
    *,
    start: int = 0,
) -> Tracker:
    """The one of that kind; ValueError if its package is not there. `start` is the images seen:
    what TensorBoard's files hold beyond was never saved."""
    if kind == "tensorboard":
        from stylegan.training.tensorboard import TensorBoard

        return TensorBoard(folder.tensorboard, tell, start=start)
    if kind == "none":
        return Tracker(tell)
    return {"wandb": Wandb, "mlflow": MLflow}[kind](folder, config, tell)
