"""The scripts of `tools/` do their work in small."""

import bundle
import diagnostics
import ladder
import oldest_versions
import pytest
from click.testing import CliRunner
from helpers.processes import printed
from helpers.runs import json_lines
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import tiny_config, write_pictures
from PIL import Image

from stylegan.cli.files import facts_of
from stylegan.config import flatten, load_config, to_dict, to_toml
from stylegan.files.checkpoint import save
from stylegan.files.loading import open_weights
from stylegan.lineage import sha256_of
from stylegan.training import TrainState

E = {"style_mixing": 0.0}
D = E | {"network.noise": False}
C = D | {"network.constant_input": False}
B = C | {
    "network.styles": False,
    "network.mapping_layers": 0,
    "network.instance_norm": False,
    "network.pixel_norm": True,
}
A = B | {
    "network.blur": False,
    "generator_loss": "wgan",
    "discriminator_loss": "wgan_gp",
    "r1_gamma": 0.0,
}


def test_a_bundled_network_has_its_discriminator_and_takes_the_place_of_the_older_one(tmp_path):
    state, out = tmp_path / "state-000000100.pt", tmp_path / "weights"
    out.mkdir()
    (out / "faces64-01234567.pt").touch()
    (out / "glyphs64-01234567.pt").touch()
    saved = TrainState.create(tiny_config())
    save(state, "state", saved.to_payload())
    CliRunner().invoke(
        bundle.main, [str(state), "faces64", "--out", str(out)], catch_exceptions=False
    )
    others, file = sorted(out.iterdir(), key=lambda path: path.stem.startswith("faces64"))
    assert others.name == "glyphs64-01234567.pt"
    assert file.name == f"faces64-{sha256_of(file)[:8]}.pt"
    assert "generator and discriminator" in facts_of(str(file))["networks"]
    weights = open_weights(file, need="discriminator")
    for name in ("generator_ema", "discriminator"):
        expected = getattr(saved, name).half().float()
        assert_same_weights(weights.networks()[name], expected)


def test_a_row_of_the_ladder_differs_from_the_base_by_its_switches_of_table_1_alone():
    base = flatten(to_dict(load_config("ablation-32")))
    differing = {
        row: {name: y for name, y in flatten(to_dict(config)).items() if y != base[name]}
        for row, config in ladder.row_configs("ablation-32", [], "abcdef").items()
    }
    assert differing == {"a": A, "b": B, "c": C, "d": D, "e": E, "f": {}}


def test_the_oldest_versions_are_all_floors_of_the_project():
    text = oldest_versions.PROJECT.read_text(encoding="utf-8")
    found = oldest_versions.oldest_versions(text)
    assert len(found) == text.count(">=") - 2  # but for Python's and that of the build
    assert oldest_versions.oldest_versions(
        '[project]\ndependencies = ["a>=1.2", "b"]\n'
        '[project.optional-dependencies]\nx = ["c[d]>=3,!=3.1", "a[x]"]\n'
    ) == {"a": "1.2", "c": "3"}


@pytest.mark.slow
def test_a_ladder_is_trained_and_measured(tmp_path):
    base = tiny_config(
        network={"resolution": 8, "w_dim": 5},
        schedule={"stable_kimg": 0.02, "fade_kimg": 0.02, "total_kimg": 0.06},
    )
    (tmp_path / "tiny.toml").write_text(to_toml(base))
    data, out = write_pictures(tmp_path / "pictures"), tmp_path / "ladder"
    command = [ladder.__file__, "--base", tmp_path / "tiny.toml", "--out", out]
    command += ["--data", data, "--metrics", "swd20", "--rows", "EF", "--device", "cpu"]
    printed(tmp_path, *command)
    (line,) = json_lines(out / "f-seed0" / "metrics.jsonl")
    assert f"| F | mixing | 1 | 0.06 | {line['values']['swd']:.4g} |" in (
        (out / "table.md").read_text()
    )
    with Image.open(out / "samples.png") as picture:
        assert picture.width == 12 * 100 + 4


@pytest.mark.slow
def test_diagnostics_trains_and_draws_its_runs(tmp_path, monkeypatch):
    tiny = ("network.resolution=8", "schedule.total_kimg=0.1", "schedule.tick_kimg={4=0.04}")
    monkeypatch.setattr(diagnostics, "SMALL", (*diagnostics.SMALL, *tiny, "log_kimg=0.02"))
    monkeypatch.setattr(diagnostics, "CASES", {"healthy": ("Healthy", ())})
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    command = [str(tmp_path / "runs"), "--out", str(tmp_path)]
    done = CliRunner().invoke(diagnostics.main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    with Image.open(tmp_path / "diagnostics-healthy.png") as picture:
        assert picture.width == 1200
