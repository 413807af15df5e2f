"""What a request becomes: asked, remembered or chosen; and what is said of it."""

import dataclasses
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from helpers.tiny_generators import TINY, loaded_of, random_generator
from helpers.tiny_training import tiny_config, write_pictures
from PIL import Image

from stylegan import load_generator
from stylegan.config import DataConfig, bundled, load_config, parse_options, to_toml
from stylegan.data import Preparation, prepare
from stylegan.files import checkpoint
from stylegan.files.formats.native import save_loaded
from stylegan.planning import BUNDLED_DATA, TrainRequest, advice, length_lines, plan, usual_folder
from stylegan.training import TrainState
from stylegan.training.costs import Machine, StepCosts
from stylegan.training.transfer import warmup_lines
from stylegan.utils.lineage import to_toml as lineage_toml


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """50 pictures of 80x80, two of 16x16, and a note."""
    folder = tmp_path_factory.mktemp("pictures") / "photos"
    write_pictures(folder, n=50, size=80)
    write_pictures(folder / "small", n=2, size=16)
    (folder / "notes.txt").write_text("mine")
    return folder


@pytest.fixture
def pictures(photos, tmp_path):
    """A copy, which a test may change."""
    return shutil.copytree(photos, tmp_path / "photos")


HERE = Machine(torch.device("cpu"), cores=2)


def decided(data, *overrides, out="none/run", **asked):
    request = TrainRequest(out, data, options=parse_options(overrides), **asked)
    return plan(request, HERE)


def source_of(decision):
    data = decision.facts.data
    return getattr(data, "path", data)


def begin(folder, decision):
    """A run that remembers what was decided."""
    folder.mkdir()
    start = decision.facts.init_weights
    lineage = lineage_toml(start.child_lineage()) if start else ""
    (folder / "config.toml").write_text(to_toml(decision.config) + lineage)
    (folder / "data.txt").write_text(f"{source_of(decision).resolve()}\n")
    return folder


def test_plan_for_own_images_chooses_and_explains_a_resolution(pictures):
    found = decided(pictures)
    assert (found.config.network.resolution, found.config.network.channels(64)) == (64, 16)
    assert (found.config.schedule.total_kimg, found.config.data.include) == (96, ())
    first, sizes, reach, classes, ignored, *advised, options = found.lines
    assert advised == advice(52, found.config, started=False)
    assert "52 " in first and "16x16 to 80x80" in first
    assert (sizes.split()[-2:], reach.split()[-2:]) == (["32", "64"], ["50", "50"])
    assert "a, b, small" in classes and "1 .txt file" in ignored
    assert (
        "--resolution 64 --max-channels 128 --kimg 96 -o schedule.batch_size=16 "
        "-o 'r1_gamma={ 8 = 6.4, 16 = 1.6, 32 = 0.4, 64 = 0.1 }' "
        "-o 'augment.kind=\"none\"' -o ema_half_life_kimg=5;" in options
    )
    assert found.config.augment.kind == "none"
    longer = decided(pictures, "schedule.total_kimg=300").config
    assert (longer.augment.kind, longer.augment.ada_kimg) == ("ada", 150)


def test_plan_does_not_call_label_vectors_classes(tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (16, 16)).save(tmp_path / f"{name}.png")
    (tmp_path / "labels.csv").write_text("file,smile,age\na.png,0.5,30\nb.png,1,31\n")
    assert "2 numbers for --labels: smile, age" in decided(tmp_path).lines


def test_plan_counts_one_thread_as_one_core(pictures):
    planned = plan(TrainRequest("none/run", pictures), HERE, threads=1)
    assert planned.config.network.resolution == 32
    assert "not a larger resolution: 64 takes several times as long on a CPU" in planned.lines[-1]


def test_plan_refuses_a_store_that_does_not_fit(pictures, tmp_path):
    path = prepare(pictures, tmp_path / "store", Preparation(resolution=32, crop="stretch")).path
    for wrong, why in [
        ({"resolution": 64, "options": {"data.crop": "stretch"}}, "has resolution 32.* 64"),
        ({"options": {"data.crop": "center"}}, "has crop stretch.* center"),
    ]:
        with pytest.raises(ValueError, match=why):
            plan(TrainRequest("none/run", path, **wrong), HERE)


def test_plan_preview_refuses_what_train_would_refuse(pictures):
    with pytest.raises(ValueError, match=r"no image in .* is usable; left out: 52 images: .* 128"):
        decided(pictures, resolution=128, max_channels=8).preview()
    planned = decided(pictures, "schedule.batch_size={ 4 = 268435456 }")
    with pytest.raises(ValueError, match="not enough memory at resolution 64, batch 268435456"):
        planned.preview()
    more = decided(pictures, "keep_states=1000000000", resolution=8, max_channels=8)
    assert "(keep_states)" in more.preview()[-1]


def test_plan_preview_refuses_a_run_without_a_state_as_its_start_does(pictures, tmp_path):
    small = {"resolution": 8, "max_channels": 8, "kimg": 0.1, "out": tmp_path / "run"}
    begin(tmp_path / "run", decided(pictures, **small))
    other = shutil.copytree(pictures, tmp_path / "other")
    with pytest.raises(ValueError, match=r"run was begun with the images of .*photos, and has no"):
        decided(other, **small).preview()
    save_loaded(tmp_path / "start.pt", loaded_of(random_generator()))
    begin(
        tmp_path / "from",
        decided(pictures, **small | {"out": "none", "init_from": tmp_path / "start.pt"}),
    )
    with pytest.raises(ValueError, match=r"was to start from .* but has no state yet"):
        decided(pictures, **small | {"out": tmp_path / "from"}).preview()


def test_plan_from_weights_takes_tables_that_begin_where_training_does(pictures, tmp_path):
    save_loaded(tmp_path / "start.pt", loaded_of(random_generator(), resolution=16))
    start = {"init_from": tmp_path / "start.pt", "resolution": 16}
    config = decided(
        pictures, "r1_gamma={ 16 = 0.1 }", "schedule.g_lr={ 16 = 0.001 }", **start
    ).config
    assert (config.schedule.initial_resolution, config.r1_gamma_at(16)) == (16, 0.1)


@pytest.mark.parametrize("kind", ["folder", "store"])
def test_plan_preview_refuses_other_images_than_the_run(kind, tmp_path):
    """--dry-run of a run that has begun, labeled, on pictures some of which cannot be used."""
    photos = tmp_path / "photos"
    for label in "ab":
        write_pictures(photos / label, n=4, size=16)
    write_pictures(photos / "a" / "small", n=1, size=4)
    (photos / "b" / "damaged.png").write_bytes(b"not a picture")
    other = shutil.copytree(photos, tmp_path / "other")
    (other / "a").rename(other / "c")
    if kind == "store":  # larger than the run
        photos, other = (
            prepare(path, tmp_path / f"{path.name}-16", Preparation(16)).path
            for path in (photos, other)
        )
    one_step = parse_options(["schedule.batch_size=4", "data.labels=true"])
    sizes = {"resolution": 8, "max_channels": 8, "kimg": 0.004}
    begun = TrainRequest(tmp_path / "run", photos, "quickstart", options=one_step, **sizes)
    plan(begun, HERE, threads=1).train()
    longer = dataclasses.replace(begun, kimg=0.1)
    plan(longer, HERE, threads=1).preview()
    with pytest.raises(ValueError, match="was trained on other images or classes than other"):
        plan(dataclasses.replace(longer, data=other), HERE, threads=1).preview()


@pytest.mark.parametrize(
    ("crop", "how"),
    [(None, "middle square"), ("pad 5:4", "middle 5:4.* bars"), ("stretch", "squeezed")],
)
def test_plan_says_how_images_that_are_not_square_are_cropped(crop, how, tmp_path):
    for width in (32, 40):
        Image.new("RGB", (width, 32)).save(tmp_path / f"{width}.png")
    asked = {} if crop is None else {"data.crop": crop}
    _, line, *_ = plan(TrainRequest("none/run", tmp_path, options=asked), HERE).lines
    assert re.match(rf"1 not square: .*{how}", line)


def told_by(decision):
    return decision.config, decision.lines


def test_plan_with_explicit_defaults_equals_the_implicit_plan(pictures):
    assert told_by(decided(pictures)) == told_by(decided(pictures, config="auto"))
    assert decided(None, "seed=0").config == decided(None, config="quickstart").config
    assert decided(pictures, config="quickstart").config.network.resolution == 32


def test_usual_folder_is_named_after_the_configuration(pictures):
    assert usual_folder("ffhq-256", pictures) == Path("runs/ffhq-256")
    ours = bundled(BUNDLED_DATA)
    for data in (None, ours, os.path.relpath(ours)):
        assert usual_folder(None, data) == Path("runs/quickstart")
    assert usual_folder(None, pictures) == Path("runs/auto")


def test_plan_of_a_run_keeps_its_configuration(pictures, tmp_path):
    first = decided(pictures, "seed=3", kimg=20)
    run = begin(tmp_path / "run", first)
    again = decided(None, out=run)
    assert (again.config, again.lines) == (first.config, [])
    assert source_of(again) == source_of(first)
    for name in ("auto", "quickstart"):  # the second from when it chose a resolution, too
        same = decided(pictures, "seed=3", config=name, out=run)
        assert (same.config, same.lines) == (
            first.config, [f"{run} keeps the options that it was started with"]
        )  # fmt: skip
    longer = decided(None, kimg=200, out=run).config
    assert longer.schedule.total_kimg == 200
    assert longer.schedule.fade_kimg == first.config.schedule.fade_kimg
    assert decided(pictures, "seed=3", config="auto", out=run, kimg=20).config == first.config


def test_plan_of_a_run_keeps_the_channels_that_were_found(tmp_path):
    write_pictures(tmp_path / "gray", n=4, size=32)
    for path in (tmp_path / "gray").rglob("*.png"):
        Image.open(path).convert("L").save(path)
    asked = {"config": "ablation-32", "channels": "auto"}
    first = decided(tmp_path / "gray", **asked)
    assert first.config.network.image_channels == 1
    again = decided(tmp_path / "gray", out=begin(tmp_path / "run", first), **asked)
    assert again.config == first.config


def test_plan_without_data_or_run_uses_the_bundled_faces(tmp_path):
    found = decided(None, out=tmp_path / "haeds", kimg=60)
    assert source_of(found) == bundled(BUNDLED_DATA)
    assert found.lines == [f"no --data, and no run in {tmp_path / 'haeds'}: the bundled faces"]


def test_plan_says_where_the_missing_images_of_a_run_were(pictures, tmp_path):
    run = begin(tmp_path / "run", decided(pictures))
    pictures.rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError, match=r"photos, which does not exist; .* --data"):
        decided(None, out=run)
    (run / "data.txt").write_text("/elsewhere/faces-64.zip\n")  # of another installation
    assert source_of(decided(None, out=run)) == bundled(BUNDLED_DATA)
    (run / "data.txt").unlink()  # as where a kill came between
    with pytest.raises(FileNotFoundError, match=r"data\.txt does not contain the path .* --data"):
        decided(None, out=run)


@pytest.mark.parametrize(("images", "words"), [(3, "WARNING: 3 usable images"), (300, "are few")])
def test_advice_warns_of_few_images(images, words):
    text = "\n".join(advice(images, load_config("quickstart"), started=False))
    assert words in text
    assert ("weights of a similar kind" in text) == (images == 300)
    mirrored = load_config("quickstart", ["data.mirror=true"])
    assert advice(5000, mirrored, started=False) == [
        "half of them are mirrored; if that is wrong: -o data.mirror=false"
    ]


def test_plan_minutes_chooses_a_length_and_a_resolution(pictures, monkeypatch):
    """A machine with 0.3 kimg a minute at 64x64, where a minute is nothing, and four times as many
    at 32x32."""

    def kimg_within(minutes, config_of, costs):
        size = config_of(60.0).network.resolution
        return 0.0 if minutes == 1 and size > 32 else 0.3 * minutes * (64 / size) ** 2

    monkeypatch.setattr("stylegan.planning.costs_here", lambda *_: StepCosts({}, {}))
    monkeypatch.setattr("stylegan.planning.kimg_within", kimg_within)
    for minutes, resolution, kimg in ((200, 64, 60), (30, 32, 36), (1, 32, 1.2), (2, 32, 2.4)):
        found = decided(pictures, minutes=minutes)
        assert found.config.network.resolution == resolution
        assert found.config.schedule.total_kimg == pytest.approx(kimg)
        said = f"{kimg:g} kimg at {resolution}x{resolution}"
        assert any(line.startswith(f"{minutes} minute") and said in line for line in found.lines)
    assert "5.0% of the usual length" in found.lines[-2] and "about 40 min" in found.lines[-2]
    assert "not 64x64: 0.6 of the usual 96 kimg" in found.lines[-1]
    for asked in ({"resolution": 64}, {"init_from": "faces64"}):
        found = decided(pictures, minutes=30, **asked)
        assert (found.config.network.resolution, found.config.schedule.total_kimg) == (64, 9)
    assert decided(pictures, "network.resolution=64", minutes=30).config.network.resolution == 64


def slower_with_ada(config, *_):
    """Costs of steps that take longer if images are augmented."""
    slower = 1.3 if config.augment.kind == "ada" else 1.0
    return StepCosts({r: slower * 0.03 * (r / 64) ** 2 for r in (8, 16, 32, 64)}, {})


@pytest.mark.parametrize(
    ("minutes", "augmentation", "taken"),
    [
        (30, "none", 0.95),
        (115, "none", 0.73),  # longer, it would be augmented, and take too long
        *((minutes, "ada", 0.95) for minutes in (125, 135, 180, 600)),
    ],
)
@pytest.mark.parametrize("options", [(), ("schedule.fade_kimg=2",)])
def test_plan_minutes_takes_that_long_with_its_own_phases_and_augmentation(
    pictures, minutes, augmentation, taken, options, monkeypatch
):
    monkeypatch.setattr("stylegan.planning.costs_here", slower_with_ada)
    found = decided(pictures, *options, resolution=64, minutes=minutes).config
    seconds = slower_with_ada(found).seconds_left(found.schedule)
    assert seconds == pytest.approx(taken * 60 * minutes, rel=0.01)
    assert found.augment.kind == augmentation


def test_plan_from_weights_keeps_their_widths_if_they_are_asked_for(pictures):
    gray = "channels: L, as .*glyphs64.* has \\(--channels RGB for color\\)"
    assert re.search(gray, str(decided(pictures, init_from="glyphs64").lines))
    for colors in (decided(pictures, init_from="glyphs64", channels="RGB"), decided(pictures)):
        assert "channels: L" not in str(colors.lines)
    first = decided(pictures, init_from="faces64")
    widest = first.config.network.max_channels
    assert decided(pictures, init_from="faces64", max_channels=widest).config == first.config
    narrow = decided(pictures, init_from="faces64", max_channels=widest // 2).config.network
    assert narrow.max_channels == widest // 2


def test_plan_refuses_minutes_that_are_too_few_and_names_what_would_do(pictures, monkeypatch):
    costs = StepCosts({8: 0.1, 16: 0.2, 32: 0.6, 64: 3.0}, {64: 1})  # 0.1 kimg: about 3 minutes
    monkeypatch.setattr("stylegan.planning.costs_here", lambda *_: costs)
    message = r"^--minutes 2 is not enough: 0\.1 kimg at 64x64 .*--minutes (\S+) or --res.* 32$"
    with pytest.raises(ValueError, match=message) as caught:
        decided(pictures, minutes=2, resolution=64)
    enough = float(re.search(message, str(caught.value))[1])
    assert decided(pictures, minutes=enough, resolution=64).config.schedule.total_kimg >= 0.1


def test_plan_minutes_changes_the_length_of_a_run_until_it_has_states(
    pictures, tmp_path, monkeypatch
):
    monkeypatch.setattr("stylegan.planning.costs_here", lambda *_: StepCosts({}, {}))
    monkeypatch.setattr("stylegan.planning.kimg_within", lambda minutes, *_: 0.3 * minutes)
    run = begin(tmp_path / "run", decided(pictures, minutes=200))
    assert decided(None, out=run).config.schedule.total_kimg == 60
    assert decided(None, out=run, minutes=100).config.schedule.total_kimg == 30
    (run / "state-000001000.pt").touch()
    for config in (None, "auto"):
        found = decided(None, minutes=100, out=run, config=config)
        assert found.config.schedule.total_kimg == 60
        assert found.lines[-1] == f"{run} keeps its length of 60 kimg; --kimg changes it"


def test_plan_of_a_named_configuration_continues_its_run(pictures, tmp_path):
    for name, config, options in (
        ("short", "quickstart", {"kimg": 3.0}),
        ("from", "quickstart", {"init_from": "faces64", "resolution": 64}),
        ("length", "few-128", {"kimg": 3.0}),
        ("size", "few-128", {"resolution": 16}),
    ):
        first = decided(pictures, config=config, **options)
        run = begin(tmp_path / name, first)
        again = decided(pictures, out=run, config=config, **options)
        assert again.config == first.config
        (run / "state-000001000.pt").touch()
        if options.pop("kimg", None) or config == "quickstart":
            again = decided(pictures, minutes=1, out=run, config=config, **options)
            assert again.config == first.config


def test_init_from_uses_the_crop_of_its_source_by_default(pictures, tmp_path):
    """Also with a named configuration, which the same command continues; and for a store."""
    generator = load_generator("faces64")
    for crop in ("pad 5:7", "stretch"):
        source = tmp_path / f"{crop[:3]}.pt"
        save_loaded(source, generator.replace(trained_on=DataConfig(crop=crop)))
        for config in (None, "quickstart"):
            found = decided(pictures, init_from=source, config=config, kimg=2)
            assert found.config.data.crop == crop
            assert f"crop: {source} has {crop}, the run {crop} (--crop, --aspect)" in found.lines
        asked = decided(pictures, 'data.crop="center"', init_from=source)
        assert asked.config.data.crop == "center"
        said = f"crop: {source} has {crop}, the run center (--crop, --aspect)"
        assert said in asked.lines
    run = begin(tmp_path / "run", found)
    assert decided(pictures, out=run, config="quickstart", kimg=2).config == found.config
    assert (
        decided(pictures, init_from=source, config="car-512").config.data.crop == "pad"
    )  # its own
    store = prepare(pictures, tmp_path / "store", Preparation(resolution=64)).path
    assert decided(store, init_from=source).config.data.crop == "center"
    store = prepare(pictures, tmp_path / "other", Preparation(resolution=64, crop=crop)).path
    assert decided(store, init_from=source).config.data.crop == crop
    assert "crop: " not in str(decided(pictures, init_from="faces64").lines)


def test_init_from_refuses_switches_that_cannot_be_converted(pictures):
    for option in ("blur=false", "activation='relu'", "instance_norm=false"):
        name = option.partition("=")[0]
        with pytest.raises(
            ValueError, match=f"network.{name} .* -> .*the weights of faces64 would"
        ):
            decided(pictures, f"network.{option}", init_from="faces64")


def test_init_from_rgba_must_keep_the_value_of_premultiplied(pictures, tmp_path):
    source = tmp_path / "rgba.pt"
    save_loaded(source, loaded_of(random_generator(dataclasses.replace(TINY, image_channels=4))))
    options = {"init_from": source, "channels": "RGBA", "kimg": 2}
    with pytest.raises(ValueError, match=r"network.premultiplied false -> true"):
        decided(pictures, **options)
    kept = decided(pictures, "network.premultiplied=false", **options)
    assert kept.config.network.image_channels == 4 and not kept.config.network.premultiplied


def test_init_from_is_planned_for_three_processes(pictures):
    machine = Machine(torch.device("cuda"), 80 * 2**30, processes=3)
    planned = plan(TrainRequest("none/run", pictures, init_from="faces64"), machine)
    assert planned.config.schedule.num_processes == 3


def test_plan_on_several_processes_needs_a_process_group(pictures, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="process_group"):
        decided(pictures)


def test_plan_minutes_measures_steps_of_the_configuration(pictures):
    small = {"resolution": 8, "max_channels": 8, "options": {"schedule.initial_resolution": 8}}
    lengths = [
        plan(TrainRequest("none", pictures, minutes=minutes, **small), HERE, threads=1).config
        for minutes in (1, 60)  # far apart: other programs may use the cores
    ]
    short, long = (config.schedule.total_kimg for config in lengths)
    assert 0.5 < short < long


def test_plan_minutes_reuses_its_measured_costs(pictures, monkeypatch):
    planned = plan(TrainRequest("none/run", pictures, minutes=7, resolution=8), HERE, threads=1)
    monkeypatch.setattr(StepCosts, "measure", None)  # a second try would give another time
    schedule = planned.config.schedule
    assert planned.costs.seconds_left(schedule) == pytest.approx(0.95 * 7 * 60, rel=0.02)
    assert any(line.startswith("about 7 minutes on this CPU") for line in planned.preview())


def test_plan_can_be_previewed_and_trained_from_python(pictures, tmp_path):
    """What `train` does, in Python: weights to begin with are not forgotten on the way."""
    start = tmp_path / "start.pt"
    save_loaded(start, load_generator("faces64"))
    small = parse_options(["schedule.batch_size=4", "schedule.total_kimg=0.004"])  # one step
    request = TrainRequest(tmp_path / "run", pictures, resolution=8, init_from=start, options=small)
    planned = plan(request, HERE, threads=1)
    assert any(line.split()[:3] == ["0-0.004", "8", "4"] for line in planned.preview())
    assert not (tmp_path / "run").exists()
    state = planned.train()
    assert state.images_seen == 16  # a reading of the schedule lasts four steps
    assert state.lineage[-1].source == "start.pt"


def test_plan_preview_elsewhere_has_memory_but_no_times(tmp_path):
    pictures = tmp_path / "large"
    write_pictures(pictures, n=1, size=256)
    machine = Machine(torch.device("cuda"), 16 * 2**30, processes=8)
    planned = plan(TrainRequest("none/run", pictures, "ffhq-256"), machine)
    lines = planned.preview_elsewhere()
    assert "time" not in next(line for line in lines if "G rate" in line)
    assert re.fullmatch(r"memory of each GPU: about \d.* GiB, at 256x256, .*", lines[-2])
    assert "torchrun --nproc-per-node 8 -m stylegan train" in lines[-1]
    of_none = plan(TrainRequest("none/run", config="ffhq-1024"), machine).preview_elsewhere()
    assert not any("left out" in line for line in of_none)
    with pytest.raises(ValueError, match="batch"):
        machine = Machine(torch.device("cuda"), 16 * 2**30, processes=7)
        plan(TrainRequest("none/run", pictures, "ffhq-256"), machine).preview_elsewhere()


GROWS = ("schedule.initial_resolution=32", "schedule.stable_kimg=0.02")
FADES = ("schedule.initial_resolution=32", "schedule.stable_kimg=0.0")
SHORT_RUN = {"kimg": 0.6}
D_WARMUP = [  # for how many kimg the discriminator trains alone, from which weights, options
    (0, None, ()),
    (0, "faces64", ()),  # it has one
    (0, "faces64", ("network.image_channels=1",)),  # which is converted
    (1, "faces64", ("network.max_channels=16",)),  # which does not fit
    (1, "faces64", (), {"max_channels": 32}),
    (1, "faces64", (), {"max_channels": 32, "config": "faces-64"}),
    (1, "lone", ()),
    (1, "lone", ("freeze_d_from=0",), {"config": "transfer-256", "resolution": 64}),
    (0, "lone", ("d_only_kimg=0.0",)),
    (0.05, "lone", (), SHORT_RUN),  # a twelfth of the run at most
    (0.05, "lone", (), SHORT_RUN | {"config": "faces-64"}),
    (0.02, "lone", GROWS, SHORT_RUN),  # and not in a fade
    (0.02, "lone", GROWS, SHORT_RUN | {"config": "faces-64"}),
    (0, "lone", FADES, SHORT_RUN),
    (0, "lone", FADES, SHORT_RUN | {"config": "faces-64"}),
]


@pytest.mark.parametrize("row", D_WARMUP, ids=str)
def test_d_only_kimg_is_set_if_the_discriminator_does_not_fit(row, pictures):
    kimg, source, overrides, *asked = row
    if source == "lone":
        source = pictures.parent / "lone.pt"
        save_loaded(source, load_generator("faces64"))
    found = decided(pictures, *overrides, init_from=source, **dict(*asked))
    assert found.config.d_only_kimg == kimg


def test_d_only_kimg_is_reported_and_must_be_shorter_than_the_run(pictures, tmp_path):
    longer = decided(pictures, *GROWS, "d_only_kimg=0.025", **SHORT_RUN).config
    (line,) = warmup_lines(longer)
    assert "0.025 kimg" in line and "while the resolution grows" in line
    tiny = SHORT_RUN | {"resolution": 8, "max_channels": 8}
    lines = decided(pictures, "d_only_kimg=0.05", **tiny).preview()
    assert any("alone for the first 0.05 kimg" in line for line in lines)
    nothing = decided(pictures, "d_only_kimg=0.6", **tiny)
    for act in (nothing.preview, nothing.train):
        with pytest.raises(ValueError, match=r"d_only_kimg .* got 0\.6"):
            act()
    before = begin(tmp_path / "before", nothing)  # that was refused, and can be looked at
    assert decided(None, out=before).preview()


@pytest.mark.parametrize(
    ("theirs", "rows", "kimg"),
    [
        ((), None, 1),
        (("a", "x", "y"), None, 0),
        (("x", "y", "z"), None, 1),
        (("x", "a"), None, 0),
        (("a", "b", "small"), None, 0),
        (("a", "b", "small"), [[0.5, 1.0, 2.0]], 1),  # vectors
    ],
)
def test_d_only_kimg_is_set_if_no_label_is_known(theirs, rows, kimg, pictures, tmp_path):
    """The classes are a, b, small. A source of three classes without names knows as many."""
    source = tiny_config(network={"label_dim": len(theirs) or 4, "image_channels": 3})
    payload = TrainState.create(source).to_payload()
    path = tmp_path / "state-000000000.pt"
    checkpoint.save(path, "state", payload | {"label_names": list(theirs), "label_rows": rows})
    found = decided(pictures, "data.labels=true", init_from=path, resolution=16)
    assert found.config.d_only_kimg == kimg


@pytest.mark.parametrize(
    "twice",
    [
        {"resolution": 8, "options": {"network.resolution": 8}},
        {"kimg": 1, "options": {"schedule.total_kimg": 2}},
        {"max_channels": 8, "options": {"network.max_channels": 16}},
        {"channels": 1, "options": {"network.image_channels": 3}},
        {"minutes": 1, "kimg": 1},
        {"minutes": 3, "options": {"schedule.total_kimg": 3}},
    ],
)
def test_train_request_refuses_values_given_twice(twice):
    with pytest.raises(ValueError, match=r"twice|both"):
        TrainRequest("out", **twice)


def test_plan_takes_a_request_that_names_its_configuration():
    with pytest.raises(ValueError, match="must be a TrainRequest, got 'quickstart'"):
        plan("quickstart")
    with pytest.raises(ValueError, match="a name or path, got a TrainConfig"):
        TrainRequest("out", config=load_config("quickstart"))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("rgba", 4), (1, 1)])
def test_train_request_channels_are_a_mode_or_a_number(mode, channels, tmp_path):
    write_pictures(tmp_path, n=4, size=8)
    planned = plan(TrainRequest("none", tmp_path, "quickstart", resolution=8, channels=mode), HERE)
    assert planned.config.network.image_channels == channels
    assert planned.config == plan(dataclasses.replace(planned.request, channels=channels)).config
    with pytest.raises(ValueError, match="CMYK"):
        TrainRequest("none", tmp_path, channels="CMYK")


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(("kimg", "is_warned"), [(12.4, True), (23.9, True), (24, False)])
def test_length_lines_warn_below_half_of_the_usual_length(kimg, is_warned, started):
    config = tiny_config(schedule={"total_kimg": kimg})
    lines = length_lines(10, config, usual_kimg=48, started=started)
    assert (len(lines) == 2) == is_warned
    assert ("artifacts" in lines[-1]) == (is_warned and not started)
