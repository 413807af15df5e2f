"""Damaged files, and what came in their place: each is refused in one line that names it."""

import io
import math

import numpy as np
import pytest
import torch
from helpers.damage import Runs
from helpers.stored_files import ABSENT, KINDS, changed, generator, state

from stylegan import load_generator
from stylegan.files.loading import open_weights

HUGE = 10**400  # no float


def objects():
    """An array of what prints a word where it is unpickled."""
    file = io.BytesIO()
    np.save(file, np.array([Runs()], object), allow_pickle=True)
    return file.getvalue()


DAMAGES = {  # what is left of the content, and what the line says at least
    "empty": (lambda content: b"", "empty"),
    "cut": (lambda content: content[: len(content) // 2], ""),
    "cut at its end": (lambda content: content[: len(content) * 9 // 10], ""),
    "a pointer": (lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS"),
    "a web page": (lambda _: b"\n<!DOCTYPE html>\n<title>Sign in</title>", "web page"),
    "text": (lambda _: b"no such file\n", ""),
    "objects": (lambda _: objects(), ""),
}


@pytest.fixture(scope="module", params=KINDS)
def good(request, tmp_path_factory):
    """The path of a good file, what it holds, and how it is read, which works."""
    kind = KINDS[request.param]
    path = tmp_path_factory.mktemp("good") / kind.file
    kind.make(path)
    kind.read(path)
    return path, path.read_bytes(), kind.read


@pytest.mark.parametrize("damage", DAMAGES)
def test_readers_reject_damaged_files_in_one_line(good, damage, capfd):
    path, content, read = good
    change, words = DAMAGES[damage]
    path.write_bytes(change(content))
    with pytest.raises(ValueError, match=path.name) as refusal:
        read(path)
    message = str(refusal.value)
    assert "\n" not in message and "executed" not in capfd.readouterr().out
    if path.parent.name == "store":
        assert "is damaged" in message and "prepare" in message
    elif read is not KINDS["plain direction"].read:
        assert words in message


WRONG = [  # the kind of file, the place of a value, the value, and what the line says of it
    ("state", "config", ABSENT, "config"),
    ("state", "config/network/z_dim", 6.0, "z_dim"),
    ("state", "config/schedule/batch_size", 5, "batch"),
    ("state", "images_seen", HUGE, "images_seen"),
    ("state", "schedule_images", -HUGE, "schedule_images"),
    ("state", "generator/w_avg", torch.zeros(3), "w_avg"),
    ("state", "lineage", {"source": "x"}, "lineage"),
    ("state", "active_rectangle", [0, HUGE, 0, HUGE], "rectangle"),
    ("state", "config/data/crop", "round", "crop"),
    ("generator", "kind", "state", "network"),
    ("generator", "version", 2, "version 2"),
    ("generator", "config/z_dim", "8", "z_dim"),
    ("generator", "config/equalized", 1, "equalized"),
    ("generator", "config", {"resolution": 8}, "do not fit"),
    ("generator", "config", {"resolutoin": 8}, "resolutoin"),
    ("generator", "resolution", HUGE, "resolution"),
    ("generator", "resolution", None, "resolution"),
    ("generator", "resolution", ABSENT, "resolution"),
    ("generator", "alpha", math.nan, "alpha"),
    ("generator", "psi", HUGE, "psi"),
    ("generator", "psi", "much", "psi"),
    ("generator", "cutoff", HUGE, "cutoff"),
    ("generator", "cutoff", "all", "cutoff"),
    ("generator", "cutoff", 1.5, "cutoff"),
    ("generator", "images_seen", "many", "images_seen"),
    ("generator", "label_names", {"a": 0}, "label_names"),
    ("generator", "label_names", ["a"] * 9, "label_names must be 0 names, got 9"),
    ("generator", "centers", torch.zeros(2, 3), "centers"),
    ("generator", "centers", [[0.0] * 1000] * 20_000, "centers must be rows of numbers"),
    ("generator", "active_rectangle", [8, 8, 0, 16], "active_rectangle.*centered"),
    ("generator", "active_rectangle", [0, 16, 8, 8], "active_rectangle.*centered"),
    ("generator", "active_rectangle", [2, 14, 0, 12], "active_rectangle.*centered"),
    ("generator", "lineage", "faces64", "lineage"),
    ("generator", "trained_on", True, "trained_on"),
    ("generator", "trained_on", {"crop": "round"}, "crop"),
    ("generator", "trained_on", {"mirror": 1}, "mirror"),
    ("generator", "trained_on", {"mirrored": True}, "mirrored"),
    ("generator", "weights", {}, "w_avg"),
    ("generator", "weights/w_avg", torch.zeros(8, dtype=torch.complex64), "w_avg"),
]


@pytest.mark.parametrize(("kind", "place", "value", "words"), WRONG)
def test_open_weights_rejects_wrong_values_and_opens_the_older_file(
    tmp_path, kind, place, value, words
):
    older, newer = (tmp_path / f"{kind}-{number:09}.pt" for number in (4, 8))
    write = {"state": state, "generator": generator}[kind]
    write(older)
    write(newer)
    torch.save(changed(torch.load(newer, weights_only=True), place, value), newer)
    needs = ("pictures", "training", "discriminator") if kind == "state" else ("pictures",)
    for need in needs:
        with pytest.raises(ValueError, match=rf"{newer.name}.*{words}") as refusal:
            open_weights(newer, need=need)
        assert len(str(refusal.value)) < 1000
        weights = open_weights(tmp_path, need=need)
        assert weights.file == older
        assert weights.skipped_files == (str(refusal.value),)
    assert f"not used: {newer}" in load_generator(tmp_path).origin
