"""Training steps of other programs, as contenders of `iteration.py` and `quality.py`.

None of them is part of this repository. `--others FOLDER` has a clone of each of

    https://github.com/genforce/genforce                          genforce
    https://github.com/rosinality/style-based-gan-pytorch         rosinality
    https://github.com/huangzh13/StyleGAN.pytorch                 huangzh13

under the name on the right. Each runs its own step at a fixed resolution, with its own losses
(logistic with R1, in every step), optimizers, style mixing and average; at the official widths,
unless the settings have `widths`. Changed is only what keeps it from running on a CPU with today's
PyTorch.
"""

import math
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contest import Settings, Trial
from torch import Tensor, nn

# what autocast converts to, by precision; not of the package, which may be that of a revision
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def device_of(settings: dict[str, Any]) -> str:
    """Where the program runs."""
    return str(settings.get("device", "cpu"))


def reals_of(settings: Settings) -> Callable[[], Tensor]:
    """What gives the next batch: of the images of `data`, an array; without it, always the same."""
    batch = settings["batch"]
    size = settings["resolution"]
    random = torch.Generator()
    random.manual_seed(settings.get("seed", 0))
    if not settings.get("data"):
        same = torch.rand((batch, 3, size, size), generator=random) * 2 - 1
        return same.to(device_of(settings)).clone
    images = torch.from_numpy(np.load(settings["data"]))
    waiting: list[int] = []

    def following() -> Tensor:
        if len(waiting) < batch:
            waiting[:] = torch.randperm(len(images), generator=random).tolist()
        return images[[waiting.pop() for _ in range(batch)]] / 127.5 - 1

    return following


def prepare(settings: Settings) -> Path:
    """Makes the program importable, and `cuda`, which it calls unasked, mean the device."""
    folder = Path(settings["other"])
    device = device_of(settings)
    sys.path.insert(0, str(folder))

    def moved(module: Any, *args: Any, **kwargs: Any) -> Any:
        return module.to(device)

    for kind in (Tensor, nn.Module):
        kind.cuda = moved  # type: ignore[assignment,method-assign]
    return folder


class Absent(types.ModuleType):
    """A module that a step does not need: every name of it is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def leave_out(*names: str) -> None:
    sys.modules.update({name: Absent(name) for name in names})


def genforce(settings: Settings) -> Trial:
    """`StyleGANRunner.train_step` of runners/stylegan_runner.py, with its demo's options."""
    prepare(settings)
    leave_out("torchvision.models.utils", "bs4", "cv2", "lmdb")
    build_model = import_module("models").build_model
    runners = import_module("runners")
    runner = object.__new__(runners.StyleGANRunner)  # without its folders, logs and processes
    networks = {}
    size = {"resolution": settings["resolution"]}
    if "widths" in settings:  # its base is per pixel of the width, the official one per half of it
        size |= {"fmaps_base": 2 * settings["widths"][0], "fmaps_max": settings["widths"][1]}
    for name in ("generator", "discriminator", "generator_smooth"):
        networks[name] = build_model("stylegan", name.split("_")[0], **size).cuda()
    networks["generator_smooth"].load_state_dict(networks["generator"].state_dict())
    rates = settings.get("rates", (1e-3, 1e-3))
    optimizers = {
        name: torch.optim.Adam(networks[name].parameters(), rate, betas=(0.0, 0.99))
        for name, rate in zip(("generator", "discriminator"), rates, strict=True)
    }
    vars(runner).update(
        models=networks,
        optimizers=optimizers,
        _config=types.SimpleNamespace(get=lambda name, default: default),
        _world_size=1,
        _iter=0,
        batch_size=settings["batch"],
        lod=0,
        g_smooth_img=10_000,
        z_space_dim=512,
        running_stats=import_module("runners.running_stats").RunningStats(),
        G_kwargs_train={"randomize_noise": True},  # mixing and average are its defaults
        D_kwargs_train={},
    )
    runner.running_stats.add("Gs_beta", log_format=".4f", log_strategy="CURRENT")
    r1 = {"r1_gamma": settings.get("r1", 10.0)}
    runner.loss = import_module("runners.losses").LogisticGANLoss(runner, r1)
    reals = reals_of(settings)
    average = networks["generator_smooth"].eval()
    return Trial(
        lambda: runner.train_step({"image": reals()}),
        device_of(settings),
        sample=lambda z: average(z, randomize_noise=True)["image"],
    )


def huangzh13(settings: Settings) -> Trial:
    """`StyleGAN.optimize_discriminator` and `optimize_generator` of models/GAN.py."""
    prepare(settings)
    leave_out("data")
    widths = dict(zip(("fmap_base", "fmap_max"), settings.get("widths", ()), strict=False))
    g_adam, d_adam = (
        dict(learning_rate=rate, beta_1=0.0, beta_2=0.99, eps=1e-8)
        for rate in settings.get("rates", (0.003, 0.003))
    )
    gan = import_module("models.GAN").StyleGAN(
        "linear",
        settings["resolution"],
        3,
        512,
        dict(latent_size=512, truncation_psi=-1.0, style_mixing_prob=0.9, **widths),
        dict(use_wscale=True, blur_filter=[1, 2, 1], **widths),
        g_adam,
        d_adam,
        loss="logistic",
        use_ema=True,
        device=torch.device(device_of(settings)),
    )
    depth = gan.depth - 1
    reals = reals_of(settings)

    def once() -> None:
        images = reals()
        z = torch.randn(len(images), 512).to(images.device)
        gan.optimize_discriminator(z, images, depth, 1.0)
        gan.optimize_generator(z, images, depth, 1.0)

    average = gan.gen_shadow.eval()
    return Trial(once, device_of(settings), sample=lambda z: average(z, depth, 1.0))


def rosinality(settings: Settings) -> Trial:
    """The loop of train.py, one iteration for each call; it has no function for a step."""
    folder = prepare(settings)
    leave_out("dataset")
    source = (folder / "train.py").read_text()
    source = source.replace("device='cuda'", f"device={device_of(settings)!r}")
    source = re.sub(r"add_\(1 - decay, (.*)\)", r"add_(\1, alpha=1 - decay)", source)
    program: dict[str, Any] = {"__name__": "train"}
    exec(compile(source, str(folder / "train.py"), "exec"), program)
    turns = Turns()
    reals = reals_of(settings)
    size = settings["resolution"]
    program |= {"tqdm": lambda _: turns, "sample_data": lambda *_: Repeated(reals)}
    program |= {"code_size": 512, "n_critic": 1}
    generator = nn.DataParallel(program["StyledGenerator"](512)).cuda()
    discriminator = nn.DataParallel(program["Discriminator"](from_rgb_activate=True)).cuda()
    program["generator"] = generator
    program["discriminator"] = discriminator
    program["g_running"] = program["StyledGenerator"](512).cuda().train(False)
    adam = torch.optim.Adam
    inner: Any = generator.module
    program["g_optimizer"] = adam(inner.generator.parameters(), 1e-3, betas=(0.0, 0.99))
    mapping = {"params": inner.style.parameters(), "lr": 1e-5, "mult": 0.01}
    program["g_optimizer"].add_param_group(mapping)
    program["d_optimizer"] = adam(discriminator.parameters(), 1e-3, betas=(0.0, 0.99))
    args = types.SimpleNamespace(
        init_size=size,
        max_size=size,
        batch={},
        batch_default=settings["batch"],
        lr={},
        phase=math.inf,
        ckpt=None,
        loss="r1",
        mixing=True,
        gen_sample={},
    )
    train: Callable[..., None] = program["train"]
    threading.Thread(target=train, args=(args, None, generator, discriminator), daemon=True).start()
    average = program["g_running"]
    step = int(math.log2(size)) - 2
    return Trial(turns.once, device_of(settings), sample=lambda z: average(z, step=step, alpha=1))


PROGRAMS: dict[str, Callable[[Settings], Trial]] = {
    "genforce": genforce,
    "rosinality": rosinality,
    "huangzh13": huangzh13,
}


def cloned(folder: Path) -> dict[str, str]:
    """Name -> folder of the clones that are there."""
    return {name: str(folder / name) for name in PROGRAMS if (folder / name).is_dir()}


def step(settings: Settings) -> Trial:
    """A training step of the program that the folder `other` is named after."""
    autocast = autocast_of(settings)

    def around(turns: Turns) -> torch.autocast:
        return autocast

    Turns.around = around  # type: ignore[assignment]
    trial = program_of(settings)
    trial.once = autocast(trial.once)
    return trial


def generation(settings: Settings) -> Trial:
    """Images of the average generator of that program."""
    sample = program_of(settings).sample
    assert sample is not None
    device = device_of(settings)
    z = torch.randn(settings["batch"], 512).to(device)
    return Trial(torch.inference_mode()(autocast_of(settings)(lambda: sample(z))), device)


def program_of(settings: Settings) -> Trial:
    return PROGRAMS[Path(settings["other"]).name](settings)


def autocast_of(settings: Settings) -> torch.autocast:
    """What computes in the precision of the settings: all of a step, as these programs do not say
    what must stay float32."""
    dtype = HALF.get(settings["precision"])
    return torch.autocast(device_of(settings).split(":")[0], dtype, enabled=dtype is not None)


class Repeated:
    """An endless loader."""

    def __init__(self, reals: Callable[[], Tensor]) -> None:
        self.reals = reals

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield self.reals()


class Turns:
    """The progress bar of a loop that waits for its turn before each iteration."""

    around: Callable[[], AbstractContextManager[Any]] = nullcontext  # in the thread of the loop

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.done = threading.Semaphore(0)

    def __iter__(self) -> Iterator[int]:
        while True:
            self.go.acquire()
            with self.around():
                yield 1  # not 0, nor 99: an iteration without samples and files
            self.done.release()

    def set_description(self, text: str) -> None:
        pass

    def once(self) -> None:
        self.go.release()
        self.done.acquire()
