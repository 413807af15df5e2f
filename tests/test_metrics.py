"""Statistics against closed forms, names, results, evaluation in training, and the command."""

import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.commands import run_fails, run_ok, stylegan
from helpers.consoles import RecordingConsole
from helpers.pictures import save_picture
from helpers.runs import json_lines, log_of
from helpers.tables import kept_tables
from helpers.tiny_generators import LABELED, loaded_of, random_generator, tiny_loaded
from helpers.tiny_training import (
    SHORT,
    differing,
    tiny_config,
    tiny_store,
    train_tiny,
    write_pictures,
)

from stylegan import load_generator
from stylegan.cli.metrics import means, metrics
from stylegan.cli.train import closing_lines
from stylegan.config import DataConfig, to_toml
from stylegan.data import Preparation, cached_store, prepare
from stylegan.files.loading import open_weights
from stylegan.files.run_folder import RunFolder
from stylegan.metrics import (
    METRICS,
    Comparison,
    Conditions,
    GeneratorSamples,
    MeasuredSource,
    Metric,
    MetricRequest,
    Result,
    Tools,
    check_sources,
    evaluate,
    feature_metrics,
    parse,
)
from stylegan.metrics.cache import FEATURES, cached, gathered_rows
from stylegan.metrics.engine import check_lines, kind_of, require, score_name
from stylegan.metrics.evaluation import evaluation_of, measurable
from stylegan.metrics.features import FeatureNetwork, as_rgb
from stylegan.metrics.measured_sources import real_baselines
from stylegan.metrics.statistics import frechet_distance, moments_of, pooled
from stylegan.projection import ProjectionRequest, SearchOptions
from stylegan.sampling.pretrained import weights_sha256
from stylegan.training import Evaluation
from stylegan.utils.caches import entries
from stylegan.utils.console import SILENT

# Statistics


def test_frechet_distance_of_commuting_gaussians_is_the_closed_form():
    """|m1 - m2|^2 + |C1^(1/2) - C2^(1/2)|^2."""
    rotation, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 20)))
    values, mean = np.linspace(0.1, 4, 20), np.linspace(-1, 1, 20)
    first, second = (rotation * v @ rotation.T for v in (values, values**2 + 1))
    roots = np.sqrt(values) - np.sqrt(values**2 + 1)
    expected = (mean**2).sum() + (roots**2).sum()
    found = frechet_distance(0 * mean, first, mean, second)
    assert found == pytest.approx(expected, rel=1e-10)


def test_frechet_distance_is_exact_for_singular_covariances():
    a, b = np.diag([4.0, 1, 0, 0]), np.diag([1.0, 0, 9, 0])
    assert frechet_distance(np.zeros(4), a, np.zeros(4), b) == pytest.approx(1 + 1 + 9, abs=1e-12)
    assert frechet_distance(np.zeros(4), a, np.ones(4), 0 * a) == pytest.approx(4 + 5, abs=1e-12)
    assert frechet_distance(np.ones(4), a, np.ones(4), a) == pytest.approx(0, abs=1e-12)


def test_moments_of_any_chunks_equals_numpy():
    rows = np.random.default_rng(0).standard_normal((50, 6)) + 1e6
    parts = [moments_of(rows[i::3], 7) for i in range(3)]
    for moments in (moments_of(rows, 7), moments_of(rows), pooled(parts)):
        mean, covariance = moments.gaussian()
        np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-14)
        np.testing.assert_allclose(covariance, np.cov(rows, rowvar=False), rtol=1e-7, atol=1e-9)


# Images, names, the cache


def test_as_rgb_repeats_gray_and_puts_transparency_on_white():
    gray = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2)
    assert as_rgb(gray)[0].tolist() == [gray[0, 0].tolist()] * 3
    pixels = torch.tensor([[10, 20, 30, 255], [10, 20, 30, 0], [100, 0, 255, 51]])
    images = pixels.to(torch.uint8).reshape(3, 4, 1, 1)
    expected = [[10, 20, 30], [255, 255, 255], [224, 204, 255]]
    assert as_rgb(images).flatten(1).tolist() == expected
    assert as_rgb(images.float()).flatten(1).tolist() == expected


def test_parse_of_metric_names_reads_the_number_of_images(monkeypatch):
    requests = [("fid", 50_000), ("kid", 5_000), ("ppl-w-end", 10_000), ("swd", 16_384)]
    assert parse("fid50k, fid ,kid5k,ppl-w-end10k,swd") == [MetricRequest(*x) for x in requests]
    names = ["fid50k", "swd16384", "eff-pr777", "ppl-z-full100k", "kid1k"]
    assert [request.name for request in parse(",".join(names))] == names
    monkeypatch.setitem(METRICS, "my_Metric", METRICS["swd"])
    assert parse("my_Metric64") == [MetricRequest("my_Metric", 64)]
    named = [score_name("fid50k", "fid"), score_name("pr5k", "recall"), score_name("is2", "is")]
    assert named == ["fid50k", "pr5k/recall", "is2"]
    assert MetricRequest("swd", 0).name == "swd0"
    assert kind_of("own-fd5k") is kind_of("50k") is None
    for name in ("", "fid50m", "fidd", "fid-50k", "fid1"):
        with pytest.raises(ValueError, match=r"there is no metric|at least 2 images"):
            parse(name)


def test_cached_computes_once_and_again_if_the_file_is_damaged(tmp_path):
    """Cut short, of another key, with a changed bit, or a plain array."""
    notes, folder = [], tmp_path / "new"
    tools = Tools(folder, console=RecordingConsole(notes))
    rows = np.arange(35, dtype=np.float32).reshape(5, 7)
    key = {"data": "a", "number": 5}
    np.testing.assert_array_equal(cached(tools, "x", key, lambda: rows), rows)
    kept = cached(tools, "x", key, lambda: pytest.fail("it is kept"))
    np.testing.assert_array_equal(kept, rows)
    (path,) = folder.iterdir()
    cached(tools, "x", key | {"data": "b"}, lambda: rows + 1)
    (other,) = {*folder.iterdir()} - {path}
    sound = path.read_bytes()
    contents = [sound[:-1], sound[:60], b"", other.read_bytes()]
    contents.append(sound[:200] + bytes([sound[200] ^ 1]) + sound[201:])
    for array in (rows + 1, rows[0], rows[:0], np.array(1.0), np.array([None])):
        np.save(tmp_path / "x.npy", array)
        contents.append((tmp_path / "x.npy").read_bytes())
    for content in contents:
        path.write_bytes(content)
        np.testing.assert_array_equal(cached(tools, "x", key, lambda: rows), rows)
        assert path.read_bytes() == sound
    assert notes == [f"{path} is damaged and made again"] * len(contents)


def test_cached_uses_arrays_without_a_hash_if_their_shape_fits(tmp_path):
    notes = []
    tools = Tools(tmp_path, console=RecordingConsole(notes))
    rows = np.ones((5, 7), np.float32)
    key = {"number": 5}
    path = tmp_path / f"x-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]}.npy"
    np.save(path, rows)
    np.testing.assert_array_equal(cached(tools, "x", key, lambda: pytest.fail("kept")), rows)
    assert notes == [f"{path} has no hash yet: its content is not checked"]
    for other in (rows[:4], rows[0], rows.astype(np.float64)):
        np.save(path, other)
        cached(tools, "x", key, lambda: rows)
        assert notes[-1] == f"{path} is damaged and made again"
        (set(tmp_path.iterdir()) - {path}).pop().unlink()


def test_cached_removes_the_least_recently_used_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr("stylegan.metrics.cache.MAX_BYTES", 1500)  # two of 400 bytes and a header
    tools = Tools(tmp_path)

    def keep(name):
        cached(tools, "eff-features", {"data": name}, lambda: np.zeros(100, np.float32))
        newest = max(entries(tmp_path, FEATURES), key=lambda array: array.path.stat().st_ctime_ns)
        times[name] = newest.path

    times = {}
    for age, name in enumerate("ab"):
        keep(name)
        os.utime(times[name], (1000 + age, 1000 + age))
    cached(tools, "eff-features", {"data": "a"}, lambda: pytest.fail("it is kept"))  # used again
    keep("c")
    assert {array.path for array in entries(tmp_path, FEATURES)} == {times["a"], times["c"]}


def test_gathered_rows_spools_rows_to_an_unnamed_file(tmp_path):
    rows = torch.randn(9, 4)
    batches = ([some, some[:, :1]] for some in rows.split(2))
    for table, width in zip(gathered_rows(batches, [4, 1], 9, tmp_path), (4, 1), strict=True):
        np.testing.assert_array_equal(table, rows[:, :width])
    assert list(tmp_path.iterdir()) == []  # it has no name, so nothing is left behind


# Results


@dataclasses.dataclass(frozen=True, eq=False)
class Counted(GeneratorSamples):
    """It notes which samples are made."""

    made: list[int] = dataclasses.field(default_factory=list)

    def sample_batch(self, indices, num):
        self.made.extend(indices)
        return super().sample_batch(indices, num)


def test_evaluate_generates_samples_once_for_all_metrics(store, tmp_path, monkeypatch):
    """FID, KID, PR and IS, and those that have the same reals in the cache."""

    def network(tools, device):
        networks.append(tools)
        weights = torch.randn(768, 12, generator=torch.Generator().manual_seed(0))
        look = lambda images: images.flatten(1).float() @ weights  # noqa: E731
        return FeatureNetwork("random", "0", 8, "none", look, logits=4, prefix="random")

    monkeypatch.setattr(feature_metrics, "inception", network)
    monkeypatch.setitem(METRICS, "pr", dataclasses.replace(METRICS["pr"], least=4))
    networks, loaded = [], tiny_loaded()
    source = Comparison.from_generator(loaded, store, Conditions(batch=8))
    samples = Counted(loaded, store=store)
    source = dataclasses.replace(source, samples=samples)
    found = list(evaluate(source, parse("fid20,kid20,pr20,is20,fid10"), Tools(tmp_path)))
    assert [result.metric for result in found] == ["fid20", "kid20", "pr20", "is20", "fid10"]
    assert samples.made == [*range(20), *range(10)]
    assert len(networks) == 1
    assert len(entries(tmp_path, FEATURES)) == 2  # of 14 reals, and of 10
    assert "reals" not in found[3].protocol


def test_evaluate_reports_a_shared_error_once(store, tmp_path):
    loaded, notes, tries = tiny_loaded(), [], []

    def broken(m):
        return m.once("pass", lambda: tries.append(1) or open(tmp_path / "none"))

    with kept_tables():
        for name in ("broken", "other"):
            METRICS[name] = Metric(broken, images=4, help="")
        tools = Tools(tmp_path, console=RecordingConsole(notes))
        found = list(
            evaluate(Comparison.from_generator(loaded, store), parse("broken,other,swd9"), tools)
        )
    assert [result.metric for result in found] == ["swd9"] and tries == [1]
    assert "No such file" in notes[0]
    assert notes[1:] == ["other4 could not be measured: the reason is that of broken4"]


def test_result_line_is_json_without_nan():
    result = Result("fid2", {"fid": float("nan")}, {"a": (1.5, float("inf")), "b": "x"})
    assert json.loads(result.line()) == {
        "metric": "fid2",
        "values": {"fid": None},
        "protocol": {"a": [1.5, None], "b": "x"},
    }


def test_weights_sha256_depends_on_the_weights_alone():
    generator, same = random_generator(), random_generator()
    assert weights_sha256(generator) == weights_sha256(same)
    with torch.no_grad():
        same.w_avg[0] += 1
    assert weights_sha256(generator) != weights_sha256(same)


@pytest.mark.parametrize("mirror", [False, True])
def test_real_baselines_split_the_reals_into_disjoint_halves(faces, mirror):
    loaded = tiny_loaded(8)
    whole = Comparison.from_generator(loaded, faces, Conditions(mirror=mirror))
    row = MeasuredSource(name="g", comparison=whole, requests=parse("swd100,ppl-w-end4"))
    other = real_baselines(row, SILENT)[1]
    half = other.comparison
    assert other.requests == [MetricRequest("swd", 90 if mirror else 45)]
    ours = torch.cat(list(half.fake_batches(45)))
    theirs = torch.cat(list(half.real_batches(46, evenly=True)))
    shown = torch.cat(list(Comparison.from_generator(loaded, faces).real_batches(91)))
    for part, rows in ((ours, shown[1::2]), (theirs, shown[::2])):
        same, flipped = ((part == r).all(dim=(1, 2, 3)) for r in (rows, rows.flip(3)))
        assert (same | flipped).all()
        assert (not same.all()) == mirror
    assert half.reals.protocol_of_reals()["images"] == 46


# Training


def test_evaluation_is_best_compares_scores_of_one_resolution():
    evaluation = Evaluation(lambda state, stage: {}, "fid5k")
    coarse, fine = ({"resolution": r, "fid5k": v} for r, v in ((8, 1.0), (16, 9.0)))
    assert evaluation.is_best([coarse])
    assert evaluation.is_best([coarse, fine])
    assert not evaluation.is_best([coarse, fine, fine])
    assert evaluation.is_best([coarse, fine, {"resolution": 16, "fid5k": 8.0}])
    assert not evaluation.is_best([coarse, {"resolution": 16}])  # could not be measured
    unknown = {"resolution": 16, "fid5k": float("nan")}
    assert not evaluation.is_best([unknown])
    assert evaluation.is_best([unknown, fine])


@pytest.mark.parametrize(
    ("every_kimg", "lower", "expected"),
    [
        (0.012, True, [12, 24, 36, 48, 60]),
        (0.05, True, [52, 60]),
        (None, False, [40, 60]),  # with every generator file
    ],
)
def test_evaluation_loses_and_repeats_none_on_resume(every_kimg, lower, expected, tmp_path):
    store, measured, states = tiny_store(tmp_path), {"once": [], "twice": []}, {}
    config = tiny_config(schedule={"total_kimg": 0.06, "tick_kimg": {4: 0.02}})
    for name, stop_at in (("once", None), ("twice", 24), ("twice", 52), ("twice", None)):

        def measure(state, stage, name=name):
            measured[name].append(state.images_seen)
            return {"x": state.generator_ema.w_avg.norm().item()}

        evaluation = Evaluation(measure, "x", lower, every_kimg)
        state = train_tiny(config, store, tmp_path / name, stop_at, evaluation=evaluation)
        states[name] = state.to_payload()
    assert measured == {"once": expected, "twice": expected}
    assert [score["images_seen"] for score in states["once"]["scores"]] == expected
    assert differing(states["once"], states["twice"]) == []
    best = (min if lower else max)(states["once"]["scores"], key=lambda score: score["x"])
    for name in measured:
        files = sorted(path.name for path in (tmp_path / name).glob("generator-*.pt"))
        assert files == ["generator-000000040.pt", "generator-000000060.pt", "generator-best.pt"]
        found = load_generator(tmp_path / name / "generator-best.pt")
        assert found.images_seen == best["images_seen"]


def test_evaluation_of_several_metrics_picks_the_best_by_the_first(tmp_path):
    store = tiny_store(tmp_path, n=100)
    for names, best_by, lower in (("pr5k,fid", "pr5k/precision", False), ("swd", "swd16384", True)):
        tools = Tools(tmp_path)
        found = evaluation_of(
            names, 2.5, RunFolder(tmp_path), config=tiny_config(), store=store, tools=tools
        )
        assert (found.best_by, found.lower_is_better, found.every_kimg) == (best_by, lower, 2.5)


def test_evaluation_continues_if_metrics_jsonl_cannot_be_written(tmp_path):
    store, out, told = tiny_store(tmp_path), tmp_path / "run", []
    config = tiny_config(schedule=SHORT)
    out.mkdir()
    measured = evaluation_of(
        "swd14", 0.004, RunFolder(out), config=config, store=store, tools=Tools(tmp_path)
    )

    def refuse(progress):
        if progress.images_seen == 4:
            (out / "metrics.jsonl").mkdir()
        if progress.images_seen == 12:
            (out / "metrics.jsonl").rmdir()

    state = train_tiny(
        config, store, out, evaluation=measured, console=RecordingConsole(told, act=refuse)
    )
    assert [score["images_seen"] for score in state.scores] == [4, 8, 12]
    assert [line for line in told if "metrics.jsonl" in line] == [
        "could not write metrics.jsonl: Is a directory; no state has been saved yet; going on"
    ]
    (line,) = json_lines(out / "metrics.jsonl")
    assert line["metric"] == "swd14" and state.scores[-1]["swd14"] in line["values"].values()


# The command


def test_metrics_help_lists_every_metric():
    (option,) = (parameter for parameter in metrics.params if parameter.name == "names")
    listed = option.help.removeprefix("Any of ").partition(";")[0]
    assert set(listed.split(", ")) == set(METRICS)


def cells(text):
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_metrics_sweep_prints_a_table_and_writes_json_lines(faces, tmp_path):
    out = tmp_path / "m.jsonl"
    pictures = faces.path.parents[1] / "faces"  # at their own size, which is the generator's
    settings = ("--data", pictures, "--metrics", "swd60", "--psi", "0,1", "--real-baseline")
    table = cells(run_ok("metrics", "faces64", *settings, "--out", out))
    lines = json_lines(out)
    assert [line["metric"] for line in lines] == ["swd60"] * 2 + ["swd45"] * 2
    none, full, against_half, half = (line["values"]["swd"] for line in lines)
    assert full < none and half < min(none, against_half)
    assert [line["protocol"]["reals"]["images"] for line in lines[2:]] == [46, 46]
    assert table[0][:3] == ["", "psi", "swd60"]
    halves = ["faces64 against half of the reals", "another half of the reals"]
    assert [row[0] for row in table[2:]] == ["faces64"] * 2 + halves
    assert [row[2].split()[0] for row in table[2:4]] == [f"{none:.4g}", f"{full:.4g}"]
    printed = run_ok("metrics", "faces64", *settings[:2], "--metrics", "swd2", "--json")
    assert json.loads(printed)["protocol"]["fakes"]["psi"] == 1


SWD = parse("swd")


def test_check_sources_refuses_centers_without_truncation():
    with pytest.raises(ValueError, match="no effect at psi 1; pass --psi"):
        check_sources(["faces64"], Conditions(), SWD, centers=16)
    check_sources(["faces64"], Conditions(psis=(1.0, 0.5)), SWD, centers=16)
    check_sources(["faces64"], Conditions(), SWD, centers="none")


@pytest.mark.parametrize("mode", ["random", "const"])
def test_metrics_draw_noise_as_in_training_unless_asked(mode, store, tmp_path):
    config, out = tiny_config(schedule=SHORT, noise_mode=mode), tmp_path / "run"
    tools = Tools(tmp_path)
    run = RunFolder(out)
    measured = evaluation_of("swd14", None, run, config=config, store=store, tools=tools)
    train_tiny(config, store, out, evaluation=measured)
    run_ok("metrics", out, "--metrics", "swd14", "--device", "cpu")
    run_ok("metrics", out, "--metrics", "swd14", "--device", "cpu", "--noise", "const")
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    noises = [line["protocol"]["fakes"]["noise"] for line in lines]
    assert noises[-2:] == [mode, "const"] and set(noises[:-2]) == {mode}


def test_check_sources_requires_mirroring_for_folders_beside_generators(tmp_path):
    save_picture(tmp_path / "samples/a.png", np.zeros((8, 8, 3), np.uint8))
    sources = [str(tmp_path / "samples"), "faces64"]
    with pytest.raises(ValueError, match=r"samples holds images.*pass --mirror or --no-mirror"):
        check_sources(sources, Conditions(), SWD, centers=None)
    check_sources(sources, Conditions(mirror=False), SWD, centers=None)
    check_sources(sources, Conditions(), parse("is"), centers=None)  # without reals
    for source in sources:
        check_sources([source], Conditions(), SWD, centers=None)


@pytest.mark.parametrize("begun", [False, True])
def test_check_sources_refuses_missing_generators_before_any_work(source, begun, tmp_path):
    later = tmp_path / "later"
    if begun:
        later.mkdir()
        (later / "config.toml").write_text(to_toml(tiny_config()))
        (later / "data.txt").write_text("photos\n")
    words = "holds neither" if begun else "there is no"
    with pytest.raises(FileNotFoundError, match=words):
        check_sources([str(source), "faces64", str(later)], Conditions(), SWD, centers=None)


def test_metrics_does_not_mix_sizes_under_one_name(source, tmp_path):
    write_pictures(tmp_path / "theirs", n=30, size=16)
    words = ["metrics", source, tmp_path / "theirs", "--data", tmp_path / "theirs"]
    words += ["--no-mirror", "--metrics", "swd8", "--resolution"]
    assert "generates 16x16, and --resolution resizes image folders only" in run_fails(*words, 8)
    assert "| psi | swd8 | swd8/swd-16 |" in run_ok(*words, 16)


def test_metrics_prints_results_although_a_later_source_fails(source, store, tmp_path):
    damaged = tmp_path / "damaged.pt"
    damaged.write_bytes(source.read_bytes()[:-99])
    found = stylegan("metrics", source, damaged, "--data", store.path, "--metrics", "swd20")
    assert found.exit_code == 1 and "damaged.pt" in found.stderr
    *_, row = cells(found.stdout)
    assert row[0] == str(source) and float(row[2].split()[0]) > 0


def test_metrics_reports_skipped_real_images_every_time(source, tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    pictures = write_pictures(tmp_path / "reals", n=20)
    (pictures / "a" / "cut.png").write_bytes((pictures / "a" / "0.png").read_bytes()[:-60])
    for _ in range(2):  # the second time the store is in the cache
        found = stylegan("metrics", source, "--data", pictures, "--metrics", "swd20")
        assert "left out: 1 of the real images: a/cut.png (" in found.stderr


def test_metrics_table_has_the_mean_over_seeds(tmp_path):
    store = tiny_store(tmp_path)
    for seed in (1, 2):
        train_tiny(
            tiny_config(seed=seed, schedule={"total_kimg": 0.06}), store, tmp_path / f"{seed}"
        )
    runs = (tmp_path / "1", tmp_path / "2")
    found = run_ok("metrics", *runs, "--data", store.path, "--metrics", "swd20", "--device", "cpu")
    *_, first, second, mean = cells(found)
    assert mean[0] == "mean of 2 runs"
    average, deviation = (float(text) for text in mean[2].split(" ± "))
    pair = [float(row[2].split()[0]) for row in (first, second)]
    assert average == pytest.approx(sum(pair) / 2, rel=1e-3)
    assert deviation == pytest.approx(abs(pair[0] - pair[1]) / 2**0.5, abs=0.08)


def row_of(run, images_seen=8, config="", data="d"):
    """A row of a table, with one score."""
    setting = config, data, images_seen
    row = MeasuredSource(
        name=run, comparison=None, requests=[], psi=1.0, run=RunFolder(run), setting=setting
    )
    row.results.append(Result("swd9", {"swd": 1.0}, {}))
    return row


@pytest.mark.parametrize(
    ("other", "averaged"),
    [
        (row_of("b"), True),
        (row_of("a", images_seen=16), False),
        (row_of("a"), False),
        (row_of("./a"), False),
        (row_of("b", images_seen=16), False),
        (row_of("b", config="psi"), False),
        (row_of("b", data="e"), False),
    ],
)
def test_means_average_runs_of_equal_config_data_and_length(other, averaged):
    assert [line[""] for line in means([row_of("a"), other])] == ["mean of 2 runs"] * averaged


def test_generator_samples_match_labels_by_name(store, tmp_path):
    config = dataclasses.replace(LABELED, label_dim=2)
    drawn = {}
    for names, right in (((), True), (("a", "b"), True), (("b", "a"), True), (("a", "c"), False)):
        loaded = loaded_of(random_generator(config), label_names=names)
        samples = GeneratorSamples(loaded, store=store)
        if right:
            drawn[names] = samples.labels(range(3))
            assert drawn[names].shape == (3, 2)
        else:
            with pytest.raises(ValueError, match=r"generator \(a, c\) are not those of the data"):
                samples.labels(range(3))
    assert torch.equal(drawn["a", "b"], drawn["b", "a"].flip(1))


def test_generator_samples_do_not_mix_label_vectors_and_classes(store, tmp_path):
    config = dataclasses.replace(LABELED, label_dim=2)
    folder = write_pictures(tmp_path / "in")
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.png"))
    rows = [f"{file},{i},1" for i, file in enumerate(files)]
    (folder / "labels.csv").write_text("\n".join(["file,a,b", *rows]))
    vectors = prepare(folder, tmp_path / "store")
    assert vectors.label_names == store.label_names == ["a", "b"]
    said = [{"trained_on": DataConfig(labels=True)}, {"label_rows": torch.eye(2)}, {}]
    for about, own in zip(said, ([store], [vectors], [store, vectors]), strict=True):
        loaded = loaded_of(random_generator(config), label_names=("a", "b"), **about)
        for data in (store, vectors):
            samples = GeneratorSamples(loaded, store=data)
            if data in own:
                assert samples.labels(range(3)).shape == (3, 2)
            else:
                with pytest.raises(
                    ValueError, match=r"classes a, b\).*vectors of a, b|vectors.*cl"
                ):
                    samples.labels(range(3))


def test_metrics_of_a_single_file_prepares_reals_as_its_run(tmp_path, monkeypatch):
    """Cropped, or not, and mirrored as in training; pictures to project likewise."""
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    pixels = np.random.default_rng(0).integers(0, 256, (14, 16, 24, 3), np.uint8)
    for i, wide in enumerate(pixels):
        save_picture(tmp_path / "wide" / f"{i}.png", wide)
    config = tiny_config(data={"crop": "stretch", "mirror": True}, schedule=SHORT)
    train_tiny(config, tmp_path / "wide", tmp_path / "run")
    generator = RunFolder(tmp_path / "run").generators()[-1]
    sent = Path(shutil.copy(generator, tmp_path / "sent.pt"))
    state = Path(shutil.copy(RunFolder(tmp_path / "run").states()[-1], tmp_path / "state.pt"))
    run_ok("export", sent, tmp_path / "sent.safetensors")
    sources = [tmp_path / "run", sent, state, tmp_path / "sent.safetensors"]
    for source in sources:
        loaded = open_weights(source).require_loaded()
        assert (loaded.crop, loaded.trained_on.mirror) == ("stretch", True)
        distance = SimpleNamespace()
        assert ProjectionRequest(loaded, distance, SearchOptions()).square == "stretch"
    words = ["--data", tmp_path / "wide", "--metrics", "swd14", "--device", "cpu"]
    run_ok("metrics", *sources, *words, "--out", tmp_path / "measured.jsonl")
    lines = json_lines(tmp_path / "measured.jsonl")
    assert len({line["values"]["swd"] for line in lines}) == 1
    assert [line["protocol"]["reals"]["mirror"] for line in lines] == [True] * 4
    run_ok("metrics", sent, *words, "--no-mirror", "--out", tmp_path / "plain.jsonl")
    assert json_lines(tmp_path / "plain.jsonl")[0]["protocol"]["reals"]["mirror"] is False


def test_real_baselines_and_intervals_need_enough_images(store, tmp_path):
    told, pictures = [], write_pictures(tmp_path / "few", n=3)
    tools = Tools(tmp_path, console=RecordingConsole(told))
    few = cached_store(pictures, Preparation(resolution=16), cache_dir=tmp_path / "cache")
    for reals, rows, expected in (
        (few, 1, ["no baseline of reals: a half of 3 real images is too few"]),
        (store, 3, []),
    ):
        told.clear()
        comparison = Comparison.from_generator(tiny_loaded(), reals)
        row = MeasuredSource(name="g", comparison=comparison, requests=parse("swd9"))
        found = [row, *real_baselines(row, tools.console)]
        assert (len(found), told) == (rows, expected)
        (result,) = found[-1].measure(tools)
        assert result.protocol["interval_95"] == {}
    (enough,) = evaluate(comparison, parse("swd10"), tools)
    assert all(low < high for low, high in enough.protocol["interval_95"].values())


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ("swd,eff-pr50", "found 50 samples and 14 real images, at least 100"),
        ("eff-pr1k", "found 1,000 samples and 14 real images, at least 100"),
        ("ls", "ls needs classifiers"),
    ],
)
def test_evaluation_of_metrics_that_cannot_be_measured_is_refused(names, fault, store, tmp_path):
    settings = {
        "config": tiny_config(data={"mirror": False}),
        "store": store,
        "tools": Tools(tmp_path),
    }
    with pytest.raises(ValueError, match=fault):
        evaluation_of(names, None, RunFolder(tmp_path), **settings)
    if names != "eff-pr1k":  # that depends on the images
        with pytest.raises(ValueError, match=fault.replace("14", "50")):
            require(measurable(names), Tools(tmp_path), torch.device("cpu"))
    assert evaluation_of("swd,is50,ppl-w-end", None, RunFolder(tmp_path), **settings)


def test_closing_lines_suggest_no_metric_that_needs_more_images(store, tmp_path, monkeypatch):
    monkeypatch.setattr("stylegan.metrics.engine.weights_path", lambda: tmp_path)
    lines = closing_lines(RunFolder(tmp_path), tiny_config(), store)
    (line,) = (line for line in lines if line.startswith("measure:"))
    assert line.endswith("--metrics eff-fd1k,swd1k")  # of 14 images, mirrored
    assert not any(line.startswith("send:") for line in lines)
    for name in ("generator-000000100.pt", "generator-000000900.pt"):
        (tmp_path / name).write_bytes(bytes(2 * 2**20))
    lines = closing_lines(RunFolder(tmp_path), tiny_config(), store)
    (line,) = (line for line in lines if line.startswith("send:"))
    assert f"{tmp_path / 'generator-000000900.pt'} (2.0 MiB): one file, which every" in line


@pytest.mark.parametrize(
    ("content", "is_results"),
    [
        ("", True),
        ('{"metric": "mine", "notes": "dear"}', True),  # one line without its end
        ('{"metric": "fid1k"}\r{"metric": "fid2k"}\r', True),
        ('{"metric": "fid1k"}\n{"met', True),  # a kill
        ('{\n  "metric": "mine"\n}', False),
        ('[{"metric": "mine"}]', False),
        ('<p>each line begins with {"metric":</p>', False),
    ],
)
def test_check_lines_accepts_only_a_file_of_results(content, is_results, tmp_path):
    path = tmp_path / "mine"
    path.write_bytes(content.encode())
    if is_results:
        check_lines(path)
        Result("fid3k", {}, {}).append_to(path)
        assert json.loads(path.read_text().splitlines()[-1])["metric"] == "fid3k"
    else:
        message = run_fails("metrics", "faces64", "--out", path)
        assert "mine exists and is of another kind; choose another name" in message
    assert path.read_bytes().startswith(content.encode())


def test_metrics_measures_a_run_during_training_and_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    out, data = tmp_path / "run", tiny_store(tmp_path).path
    monkeypatch.setattr("stylegan.cli.train.write_page", lambda out, device: None)
    toml = tmp_path / "tiny.toml"
    toml.write_text(to_toml(tiny_config(schedule={"total_kimg": 0.07})))
    options = ["--data", data, "--config", toml, "--out", out, "--no-preflight", "--device", "cpu"]
    trained = stylegan("train", *options, "--metrics", "swd4", "--metrics-every", "0.016")
    assert trained.exit_code == 0, trained.output
    assert trained.stderr.count("swd4 could not be measured: images of 4x4 are too small") == 2
    lines = json_lines(out / "metrics.jsonl")
    assert [line["protocol"]["generator"]["images_seen"] for line in lines] == [48, 64, 72]
    scores = log_of(out, "metrics")
    assert [line["images_seen"] for line in scores] == [16, 32, 48, 64, 72]
    values = [line["values"]["swd"] for line in lines]
    assert [line.get("swd4") for line in scores] == [None, None, *values]
    run_ok("metrics", out, "--metrics", "swd6")
    last = json_lines(out / "metrics.jsonl")[-1]
    assert last["metric"] == "swd6" and last["protocol"]["reals"]["mirror"] is True
    fakes = last["protocol"]["fakes"]
    assert fakes["resolution"] == 8 and 0 < fakes["alpha"] < 1  # still growing
    (out / "metrics.jsonl").unlink()
    (out / "metrics.jsonl").mkdir()
    assert "metrics.jsonl is a folder" in run_fails("metrics", out, "--metrics", "swd6")
    (out / "metrics.jsonl").rmdir()
    data.rename(tmp_path / "elsewhere")
    assert "the run's images are no longer at" in stylegan("metrics", out).stderr
    (out / "data.txt").write_text("")
    assert "pass --data" in stylegan("metrics", out, "--metrics", "swd6").stderr


def test_metrics_refuses_other_images_than_the_run_was_trained_on(tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    pictures = write_pictures(tmp_path / "pictures", n=14)
    store = cached_store(pictures, Preparation(resolution=16))
    train_tiny(tiny_config(schedule=SHORT | {"batch_size": {4: 4}}), store, tmp_path / "run")
    measure = ("metrics", tmp_path / "run", "--metrics", "swd6", "--json")
    before = json.loads(run_ok(*measure))["values"]
    write_pictures(pictures / "a", n=2, seed=5)
    why = "was trained on other images or classes than"
    assert why in run_fails(*measure)
    assert why in run_fails("figure", "neighbors", tmp_path / "run", "--out", tmp_path / "n.png")
    run_ok("report", tmp_path / "run")
    assert "was trained on other images" in (tmp_path / "run" / "report.html").read_text()
    assert json.loads(run_ok(*measure, "--data", pictures))["values"] != before
    for added in ("a/a", "a/b"):
        shutil.rmtree(pictures / added)
    assert json.loads(run_ok(*measure))["values"] == before
