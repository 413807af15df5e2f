"""The scripts of `tools/` do their work in small."""

import bundle
import diagnostics
import oldest_versions
import pytest
from click.testing import CliRunner
from helpers.tiny_generators import assert_same_weights
from helpers.tiny_training import tiny_config
from PIL import Image

from stylegan.cli.files import facts_of
from stylegan.files.checkpoint import save
from stylegan.files.loading import open_weights
from stylegan.training import TrainState
from stylegan.utils.lineage import sha256_of


def test_bundle_keeps_the_discriminator_and_replaces_the_older_file(tmp_path):
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


def test_oldest_versions_are_the_lower_bounds_of_the_project():
    text = oldest_versions.PROJECT.read_text(encoding="utf-8")
    found = oldest_versions.oldest_versions(text)
    # but that of Python, those of the build, and one that two extras have
    assert len(found) == text.count(">=") - 4
    assert oldest_versions.oldest_versions(
        '[project]\ndependencies = ["a>=1.2", "b"]\n'
        '[project.optional-dependencies]\nx = ["c[d]>=3,!=3.1", "a[x]"]\n'
    ) == {"a": "1.2", "c": "3"}


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
