"""A whole training from Python is that of the command."""

import os
import signal
import sys

import pytest
import torch
from helpers.consoles import RecordingConsole
from helpers.tiny_training import (
    QUIET,
    SHORT,
    differing,
    tiny_config,
    train_tiny,
    write_pictures,
)

from stylegan import training
from stylegan.data import Preparation, Store, prepare
from stylegan.files.run_folder import RunFolder
from stylegan.training import Evaluation, Stopped


def switches():
    """Of the process, for precision and determinism."""
    backends = torch.backends
    return {
        "products": (backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision),
        "benchmark": backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
    }


def test_start_reports_a_broken_torchvision_before_preparing_images(store, tmp_path, monkeypatch):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('no operator torchvision::nms')")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    message = r"torchvision, which does not load \(no operator .*install torch torchvision"
    with pytest.raises(ValueError, match=message):
        train_tiny(tiny_config(schedule=SHORT), store, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("precision", "deterministic", "fails"),
    [
        ("fp32", False, True),
        ("fp32", True, False),
        ("tf32", True, True),
        ("bf16", False, False),
    ],
)
def test_start_applies_precision_and_deterministic_only_inside(
    precision, deterministic, fails, store, tmp_path
):
    before, inside = switches(), []

    def report(progress):
        inside.append(switches())
        if fails:
            raise ValueError("enough")

    config = tiny_config(precision=precision, deterministic=deterministic, schedule=SHORT)
    try:
        train_tiny(config, store, tmp_path / "run", console=RecordingConsole(act=report))
    except ValueError as error:
        assert fails and str(error) == "enough"
    products = "ieee" if precision == "fp32" else "tf32"
    workspace = ":4096:8" if deterministic else before["workspace"]
    assert inside[0] == {
        "products": (products, products),
        "benchmark": not deterministic,
        "deterministic": deterministic,
        "workspace": workspace,
    }
    assert switches() == before


def test_start_from_a_folder_or_its_store_gives_the_same_run(store, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    config, told, reported = tiny_config(schedule=SHORT), [], []
    for name, data in (("folder", store.origin), ("store", Store(store.path))):
        calls = {"console": RecordingConsole(told, act=reported.append), "preflight": True}
        state = train_tiny(config, data, tmp_path / name, **calls)
        assert state.finished and state.images_seen == 12
        assert RunFolder(tmp_path / name).data() == (data.path if name == "store" else data)
    states = [torch.load(tmp_path / name / "state-000000012.pt") for name in ("folder", "store")]
    assert differing(*states) == []
    assert told[0].startswith("preparing 14 images at 16x16")
    assert [line.partition(";")[0] for line in told[1:4]] == [
        "trying steps at every remaining resolution, to estimate time and memory",
        "14 images of pictures",
        "2 labels found but ignored",
    ]
    assert told[4].startswith("about ")
    console = RecordingConsole(told)
    train_tiny(config, Store(store.path), tmp_path / "store", console=console, init_from="faces64")
    assert "the run has begun already, so the weights of faces64 are not used" in told
    assert told[-1].startswith("continuing from")
    assert [progress.images_seen for progress in reported] == [4, 8, 12] * 2
    assert capfd.readouterr() == ("", "")


def test_start_builds_the_evaluation_from_config_and_store(store, tmp_path):
    def evaluation(config, opened):
        assert opened is store
        assert (config.precision, config.network.label_dim) == ("fp32", 2)
        return Evaluation(lambda state, stage: {"seen": state.images_seen}, best_by="seen")

    config = tiny_config(schedule=SHORT, precision="auto", data={"labels": True})
    state = train_tiny(config, store, tmp_path / "run", evaluation=evaluation)
    assert [score["seen"] for score in state.scores][-1] == state.images_seen


def test_stopped_by_a_signal_has_a_state_and_an_exit_code(store, tmp_path):
    def interrupt(progress):
        signal.raise_signal(signal.SIGTERM)

    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with pytest.raises(KeyboardInterrupt) as caught:
        training.start(
            tiny_config(schedule=SHORT),
            store,
            tmp_path,
            **QUIET,
            console=RecordingConsole(act=interrupt),
        )
    stopped = caught.value
    assert isinstance(stopped, Stopped)
    assert (stopped.signal_number, stopped.exit_code) == (signal.SIGTERM, 143)
    assert str(stopped) == "stopped after 4 images; the same command continues"
    assert [path.name for path in RunFolder(tmp_path).states()] == ["state-000000004.pt"]
    assert stopped.state.images_seen == 4
    assert handlers == [
        signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    ]


def test_progress_ends_at_its_total_if_the_last_step_goes_beyond_the_length(store, tmp_path):
    reported = []
    config = tiny_config(schedule=SHORT | {"total_kimg": 0.01})
    train_tiny(config, store, tmp_path / "run", console=RecordingConsole(act=reported.append))
    assert [(p.images_seen, p.total_images) for p in reported] == [(4, 10), (8, 10), (12, 12)]


def test_start_refuses_a_configuration_or_an_evaluation_by_name(store, tmp_path):
    with pytest.raises(ValueError, match=r"config must be a TrainConfig, .* got 'quickstart'"):
        training.start("quickstart", store, tmp_path / "run")
    with pytest.raises(ValueError, match="evaluation must be an Evaluation, got 'fid50k'"):
        training.start(tiny_config(), store, tmp_path / "run", evaluation="fid50k")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"discriminator_loss": "wgan", "augment": {"kind": "ada"}}, "augment.probability=0.2"),
        ({"network": {"styles": False}}, "-o network.constant_input=false"),
        ({"d_only_kimg": 9.0}, "d_only_kimg must be less than"),
    ],
)
def test_start_refuses_options_that_do_not_go_together(options, message, store, tmp_path):
    with pytest.raises(ValueError, match=message):
        train_tiny(tiny_config(**options), store, tmp_path / "run")
    assert not any(tmp_path.iterdir())


def test_start_of_a_run_without_a_state_refuses_other_images(store, tmp_path):
    run = tmp_path / "run"
    others = prepare(
        write_pictures(tmp_path / "others", seed=1), tmp_path / "other", Preparation(resolution=16)
    )
    train_tiny(tiny_config(schedule=SHORT), store, run)
    for state in run.glob("state-*.pt"):
        state.unlink()
    (run / "log.jsonl").unlink()  # as after a kill before the first state
    with pytest.raises(
        ValueError, match=f"images of {store.origin}, and has no state; choose another"
    ):
        train_tiny(tiny_config(schedule=SHORT), others, run)
    with torch.no_grad():  # of a notebook
        train_tiny(tiny_config(schedule=SHORT), store, run)


def test_start_with_missing_data_creates_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone"):
        training.start(tiny_config(), tmp_path / "gone", tmp_path / "run", device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_start_refuses_a_store_that_does_not_fit(store, tmp_path):
    for wrong, message in (
        ({"resolution": 32}, "has resolution 16"),
        ({"image_channels": 1}, "3 ch"),
    ):
        with pytest.raises(ValueError, match=message):
            train_tiny(tiny_config(network=wrong), store, tmp_path / "run")
    assert not any(tmp_path.iterdir())
