"""`tools/tables.py`: rows of the paper's tables in small, their measures, and what is judged."""

import dataclasses
import json
import math
import shutil
import subprocess
from types import SimpleNamespace

import click
import measures
import numpy as np
import pytest
import tables
import torch
from click.testing import CliRunner
from helpers import ROOT
from helpers.tiny_training import write_pictures
from scipy import stats
from torch.testing import assert_close

from stylegan.config import build_config, flatten, read_options, to_dict
from stylegan.files.loading import open_weights

DOCS = ROOT / "docs"


def options_of(row: str, rates: float = 1.0) -> dict:
    return flatten(to_dict(build_config(tables.Job(row, 0, 64.0, rates).values())))


def test_job_of_each_row_differs_from_row_f_by_the_switches_of_its_file_alone():
    base = options_of("F")
    for row, (file, *_) in tables.ROWS.items():
        assert f"-{row.lower().replace('mapping', 'style-based')}-" in f"{file}-"
        different = {name: y for name, y in options_of(row).items() if y != base[name]}
        assert read_options(f"paper/{file}") == different | {"data.mirror": True}
    assert len(tables.ROWS) == len(list((ROOT / "configs" / "paper").glob("*.toml")))


def test_job_rates_scale_both_learning_rates():
    options = options_of("B", rates=1 / 3)
    assert options["schedule.g_lr"] == {4: 0.002, 32: 0.001}
    assert options["schedule.d_lr"] == {4: 0.002, 32: 0.001667}


@pytest.mark.parametrize(
    ("seed", "rates", "name"),
    [(100, 2, "A-seed100-faster"), (100, 1, "A-seed100"), (0, 2, "A-seed0")],
)
def test_job_of_a_pilot_is_named_by_its_rates(seed, rates, name):
    assert tables.Job("A", seed, 48.0, rates).name == name


def test_sized_keeps_the_channels_at_full_resolution():
    of_base = read_options(tables.BASE)["network.channel_base"]
    assert tables.sized(tables.BASE, 64, [])["network.channel_base"] == 2 * of_base


def pilots(**curves: list[float]) -> dict[str, dict]:
    """Records of pilots; curves at 48, 64, 96 and 128 kimg, as far as they go."""
    times = ("48.0", "64.0", "96.0", "128.0")
    return {
        name.replace("_", "-"): {"curve": dict(zip(times, curve, strict=False)), "seed": 100}
        for name, curve in curves.items()
    }


@pytest.mark.parametrize(
    ("curve", "length"),
    [([9, 100, 91, 50], 64), ([9, 100, 89, 81], 96), ([9, 100, 80, 60], 128), ([9, 5, 7, 1], 64)],
)
def test_chosen_length_is_the_first_after_which_distance_hardly_falls(curve, length):
    assert tables.chosen_length(pilots(E_seed100=curve)) == length


def test_chosen_rates_are_those_of_the_better_pilot():
    known = pilots(E_seed100=[50], B_seed100=[60], A_seed100=[90])
    known |= {
        f"{row}-seed100-slower": {"curve": {"48": y}}
        for row, y in (("E", 55), ("B", 59), ("A", 91))
    }
    rates = {row: tables.chosen_rates(known, row) for row in ("A", "B", "traditional-8", "C", "F")}
    assert rates == {"A": 1.0, "B": 1 / 3, "traditional-8": 1 / 3, "C": 1.0, "F": 1.0}


def test_interval_equals_welch_and_paired_closed_forms():
    a = {0: 1.0, 1: 2.0, 2: 4.0, 3: 4.5}
    b = {0: 2.5, 1: 3.0, 2: 7.0}
    x, y = np.array([*a.values()]), np.array([*b.values()])
    parts = [x.var(ddof=1) / 4, y.var(ddof=1) / 3]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 2)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(sum(parts))
    welch = tables.interval(a, b, paired=False)
    assert_close([welch.low, welch.high], [x.mean() - y.mean() + s * half for s in (-1, 1)])
    d = x[:3] - y  # of the seeds that both have
    half = stats.t.ppf(0.975, 2) * d.std(ddof=1) / math.sqrt(3)
    paired = tables.interval(a, b, paired=True)
    assert_close([paired.low, paired.high], [d.mean() - half, d.mean() + half])
    p = 2 * stats.t.sf(abs(d.mean()) / (d.std(ddof=1) / math.sqrt(3)), 2)
    assert_close(paired.p, float(p))
    assert tables.interval({0: 1.0}, {0: 2.0}, paired=True) is None


def test_holm_adjusts_p_values():
    assert_close(tables.holm([0.04, 0.01, 0.03, 0.5]), [0.09, 0.04, 0.09, 0.5])


def measured(rng: np.random.Generator, row: str) -> dict:
    """Invented measures in which every claim holds."""
    level = {"A": 300.0, "B": 200.0}.get(row, 100.0) + rng.normal()
    rise = (5.0 if row == "F" else 30.0) + rng.normal()
    latents = {str(n): level + rise * (n - 1) / 2 for n in tables.LATENTS}
    bands = {"4": 1.0, "8": 1.0, "16": 0.1, "32": 0.1}
    jitter = 1 + 0.1 * rng.random()
    return {
        "distances": {"training": latents, "held-out": {"1": level}},
        "path lengths": {"z": 10.0 * jitter, "w": 5.0},
        "truncation": {
            "precision": {"1": 0.5, "0.5": 0.7 * jitter},
            "recall": {"1": 0.3 * jitter, "0.5": 0.1},
        },
        "noise": {
            "images": bands,
            "coarse": {"4": 0.5 * jitter, "8": 0.1, "16": 0.1, "32": 0.1},
            "fine": {"4": 0.0, "8": 0.001 * jitter, "16": 0.1, "32": 0.1},
        },
        "separability": {
            "smile": {
                "accuracy": 0.95,
                "prevalence": 0.3,
                "entropy": 0.6,
                "z": 0.5 * jitter,
                "w": 0.3,
            },
            "afro": {"accuracy": 0.95, "prevalence": 0.05, "entropy": 0.2, "z": 0.1, "w": 0.2},
        },
        "mapping moved": 0.05,
    }


def records(seeds: int) -> dict[str, dict]:
    rng = np.random.default_rng(0)
    return {
        f"{row}-seed{seed}": {
            "row": row,
            "seed": seed,
            "hours": 0.5,
            "machine": {"device": "a CPU"},
            "measured": measured(rng, row),
        }
        for seed in range(seeds)
        for row in (*tables.PRIMARY, "mapping-0")
    }


def test_claims_table_judges_only_when_all_seeds_are_there():
    assert "seen" not in tables.claims_table(tables.numbers_by_row(records(4)))
    lines = tables.claims_table(tables.numbers_by_row(records(5))).splitlines()[2:]
    assert [line.split(" | ")[0][2:] for line in lines] == ["1", "2", "2", "3", "3", "4", "4", "5"]
    assert all(line.endswith("| **seen** |") for line in lines)


def test_claims_table_reports_the_opposite_of_a_claim():
    found = records(5)
    for record in found.values():
        latents = record["measured"]["distances"]["training"]
        latents["3"] += 50.0 if record["row"] == "F" else 0.0
    first = tables.claims_table(tables.numbers_by_row(found)).splitlines()[2]
    assert first.endswith("| not seen: the opposite |")


def test_attributes_and_change_leave_out_what_cannot_be_tested():
    found = records(3)
    assert tables.attributes(found) == ["smile"]
    found["A-seed0"]["measured"]["separability"]["smile"]["prevalence"] = 0.0
    assert tables.attributes(found) == ["smile"]  # of row F alone
    assert "not testable" in tables.change(tables.numbers_by_row(found), "mapping-0")


def test_attributes_do_not_depend_on_further_rows():
    found = records(3)
    for record in found.values():
        rare = record["row"] not in tables.PRIMARY
        record["measured"]["separability"]["afro"]["prevalence"] = 0.05 if rare else 0.3
    assert tables.attributes(found) == ["smile", "afro"]


def test_carry_out_all_refuses_records_of_other_conditions(tmp_path):
    bench = SimpleNamespace(distance="eff-fd", samples=2000, about=lambda: {"training": "1533"})
    job = tables.Job("F", 0, 48.0)
    record = {"done": True, **tables.conditions(job, bench)}
    tables.write_record(tmp_path / "F-seed0.json", record)
    tables.carry_out_all([job], bench, tmp_path, tmp_path, 1)
    others = {
        "differences": (dataclasses.replace(job, kimg=64.0), bench),
        "distance": (job, SimpleNamespace(**vars(bench) | {"samples": 100})),
        "data": (job, SimpleNamespace(**vars(bench) | {"about": lambda: {"training": "3bb5"}})),
    }
    for name, (other, measuring) in others.items():
        with pytest.raises(click.ClickException, match=f"F-seed0.json has other {name}"):
            tables.carry_out_all([other], measuring, tmp_path, tmp_path, 1)


def test_tables_of_the_stored_records_are_those_of_the_page(tmp_path):
    page = tmp_path / "paper.md"
    shutil.copy(DOCS / "paper.md", page)
    shutil.copytree(DOCS / "tables", tmp_path / "tables")
    (tmp_path / "tables" / "samples.png").touch()  # which the sdist lacks
    words = ["--no-train", "--records", tmp_path / "tables", "--page", page]
    tables.main([*map(str, words)], standalone_mode=False)
    assert page.read_text() == (DOCS / "paper.md").read_text()
    page.write_text("no place")
    with pytest.raises(ValueError, match="lacks the lines"):
        tables.put_into(page, "text", tmp_path)


def test_numbers_of_a_short_run_leave_out_what_it_lacks():
    bands = ("4", "8", "16", "32")
    images = dict(zip(bands, (1.0, 0.5, 0.0, 0.0), strict=True))  # 8x8 is reached
    coarse = dict(zip(bands, (0.2, 0.1, 0.0, 0.0), strict=True))
    noise = {"images": images, "coarse": coarse, "fine": dict.fromkeys(bands, 0.0)}
    short = measured(np.random.default_rng(0), "F") | {"noise": noise}
    short["path lengths"] = {"z": 0.0, "w": 0.0, "pair": 1.0}
    numbers = tables.numbers_of(short, [])
    assert_close(numbers["coarse in coarse bands"], 0.2)
    assert numbers["coarse"] == 1 and numbers["fine of images"] == 0 and numbers["path z"] == 0
    assert not numbers.keys() & {"fine", "coarse in fine bands", "log path z"}
    found = records(1)
    found["F-seed0"]["measured"] = short
    assert "| F | 1 | 0.2 | - | 0 | - |" in tables.report(found)


def test_commit_of_a_changed_tree_is_marked_dirty(tmp_path):
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        command = ["git", *identity, "-C", str(tmp_path), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init")
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-m", "first")
    git("tag", "-a", "v1", "-m", "a tag is not named")
    commit = git("rev-parse", "HEAD")
    assert tables.commit_of(tmp_path) == commit
    (tmp_path / "file").write_text("b")
    assert tables.commit_of(tmp_path) == f"{commit}-dirty"


def test_bands_are_orthogonal_parts_of_an_image():
    images = torch.randn(2, 3, 1, 16, 16)
    parts = measures.bands(images)
    assert list(parts) == ["4", "8", "16"]
    assert_close(sum(parts.values()), images)
    assert_close(sum(part.square().sum() for part in parts.values()), images.square().sum())


def test_tables_refuses_rows_that_it_does_not_know(tmp_path):
    words = ["--data", str(tmp_path), "--rows", "E,f", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(tables.main, words)
    assert result.exit_code == 2 and "--rows f: expected some of A, B" in result.output


def test_pilot_rates_option_trains_pilots_alone(tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr(tables, "Bench", lambda *_: SimpleNamespace(prepare=lambda: None))
    monkeypatch.setattr(tables, "carry_out_all", lambda given, *_: jobs.extend(given))
    words = ["--data", "x", "--rows", "A,B", "--pilot-rates", "2", "--out", str(tmp_path)]
    tables.main(words, standalone_mode=False)
    assert {job.name: (job.kimg, job.rates) for job in jobs} == dict.fromkeys(
        ("A-seed100-faster", "B-seed100-faster"), (48, 2)
    )


@pytest.mark.slow
def test_carry_out_trains_measures_and_resumes_rows(tmp_path, monkeypatch):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measures, "LATENTS", (1, 3))
    data = write_pictures(tmp_path / "pictures", 100)
    out = tmp_path / "out"
    out.mkdir()
    bench = measures.Bench(
        data, data, out / "readers", out / "features", 8, "cpu", samples=40, distance="swd"
    )
    bench.prepare()
    options = tables.sized(tables.BASE, 8, ["network.channel_base=32", "schedule.batch_size={4=4}"])
    job = tables.Job("F", 0, 0.02, options=options | {"network.w_dim": 5, "network.z_dim": 5})
    monkeypatch.setattr(measures, "truncation", lambda file, bench: {})  # needs 100 samples
    tables.carry_out(job, bench, out, out)
    record = tables.read_records(out)["F-seed0"]
    assert len(record["curve"]) == 4
    assert record["differences"]["network.w_dim"] == 5
    assert record["data"]["training"]["images"] == 100
    assert set(record["measured"]["distances"]["training"]) == {"1", "3"}
    assert 0 < record["measured"]["path lengths"]["w"] < math.inf
    assert record["measured"]["mapping moved"] > 0
    kept = record["measured"].pop("noise")
    (out / "F-seed0.json").write_text(json.dumps(record))  # as if it had been killed
    shutil.move(out / "F-seed0.toml", tmp_path)  # nothing is trained again
    tables.carry_out(job, bench, out, out)
    again = tables.read_records(out)["F-seed0"]
    assert again["measured"]["noise"] == kept and not (out / "F-seed0.toml").exists()
    finished = tables.read_records(out)
    tables.draw(finished, out)
    tables.draw_samples(finished, out, out / "samples.png")
    assert open_weights(out / "F-seed0").require_loaded().images_seen == 1000 * record["kimg"]
    assert (out / "samples.png").exists()
