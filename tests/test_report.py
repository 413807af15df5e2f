"""The page about a run: what it tells, what it draws, and what no file can make it do."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from helpers.commands import run_fails, run_ok
from helpers.tiny_generators import random_generator
from helpers.tiny_training import SHORT, tiny_config, tiny_store, train_tiny
from PIL import Image

from stylegan import figures, load_generator
from stylegan.cli.train import write_page
from stylegan.config import to_toml
from stylegan.files.formats.native import save_generator
from stylegan.files.run_folder import RunFolder
from stylegan.metrics import Tools
from stylegan.report import Captioned, Drawings, drawings_of, truncation_sweep, write_report
from stylegan.report.curves import POINTS, averaged, best_of, by_metric
from stylegan.report.history import read_run
from stylegan.report.page import reduced
from stylegan.utils.filesystem import ALLOW_OVERWRITE

SCHEDULE = {**SHORT, "batch_size": {4: 4}}
HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\"' & \ud800"
ALONE = {"img", "meta"}  # elements without an end
NAMES = """html head title style body section nav footer h1 h2 p a span dl dt dd div figure
figcaption table tr th td details summary pre"""
ALLOWED = ALONE | set(re.findall(r"\w+", NAMES))


class Page(HTMLParser):
    """The elements of a page, which must be balanced, and its text; that of charts, too."""

    def __init__(self, path):
        super().__init__()
        self.open, self.found, self.text = [], [], ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []
        self.charts = [svg(image["src"]) for image in self.all("img") if image["alt"] == "chart"]

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]

    def check_alone(self):
        """Nothing runs, nothing is fetched."""
        assert {name for name, _ in self.found} <= ALLOWED
        names = {name for _, attributes in self.found for name in attributes}
        assert not {name for name in names if name.startswith("on")}
        assert all(image["src"].startswith("data:image/") for image in self.all("img"))
        assert all(link["href"].startswith("#part") for link in self.all("a"))
        assert self.all("meta")[1]["content"].startswith("default-src 'none'")


def svg(source):
    return base64.b64decode(source.removeprefix("data:image/svg+xml;base64,")).decode()


def texts(drawn):
    return re.findall(r">([^<]+)</text>", drawn)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, store):
    """A run that was stopped once and has finished."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    config = tiny_config(schedule=SCHEDULE)
    train_tiny(config, store, folder, stop_at=8)
    train_tiny(config, store, folder)
    return folder


@pytest.fixture
def folder(tmp_path, trained):
    return shutil.copytree(trained, tmp_path / "mine")


@pytest.fixture
def begun(tmp_path):
    """A run of which there is only its configuration."""
    (tmp_path / "begun").mkdir()
    text = to_toml(tiny_config())
    (tmp_path / "begun" / "config.toml").write_text(text, encoding="utf-16")  # of PowerShell
    return tmp_path / "begun"


def measured(images, resolution=16, metric="fid50k", psi=1.0, network="one", **values):
    fakes = {"resolution": resolution, "alpha": 1.0, "psi": psi, "seed": 0}
    generator = {"sha256": f"{images}", "images_seen": images}
    protocol = {"generator": generator, "fakes": fakes, "sha256": network}
    return json.dumps({"metric": metric, "values": values, "protocol": protocol}) + "\n"


def log(folder, *events):
    lines = [json.dumps({"event": name, "time": t, **rest}) for name, t, rest in events]
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


# The page


def test_write_report_shows_everything_and_loads_nothing(folder):
    path = RunFolder(folder).config_file  # default batches of three would not fit the groups
    path.write_text(path.read_text().replace("num_processes = 1", "num_processes = 3"))
    half = json.loads(measured(None, fid=1.0))
    half["protocol"]["generator"] = {"origin": "half of them", "sha256": None}
    (folder / "metrics.jsonl").write_text(
        measured(4, fid=30.0) + measured(8, fid=11.5) + measured(12, fid=12.25) + json.dumps(half)
    )
    shown = Captioned(Image.new("RGB", (40, 30)), "the caption")
    sweep = truncation_sweep(load_generator(folder), seeds=range(2))
    assert write_report(folder, Drawings(sweep, shown)) == folder / "report.html"
    page = Page(folder / "report.html")
    page.check_alone()
    for text in ("mine", "Finished", "fid50k", "11.5", "12.25", "half of them", "num_processes"):
        assert text in page.text
    assert "the caption" in page.text and "psi on" in page.text
    titles = [text for drawn in page.charts for text in texts(drawn)]
    for title in ("fid50k: Frechet Inception distance", "Logits", "Loss of the generator"):
        assert title in titles
    first = (folder / "report.html").read_bytes()
    assert write_report(folder, Drawings(sweep, shown)).read_bytes() == first
    assert not list(folder.glob("*.partial"))


def test_write_report_escapes_text_from_files(tmp_path, trained):
    name = '<b onclick="alert(1)">&amp;'
    folder = shutil.copytree(trained, tmp_path / name)
    log(
        folder,
        ("start", 1.0, {"images_seen": 0, "device": HOSTILE, "versions": {HOSTILE: HOSTILE}}),
        ("progress", 2.0, {"images_seen": 40, f"d/{HOSTILE}": 1.0, f"{HOSTILE}/x": 2.0}),
        ("progress", 3.0, {"images_seen": 80, f"d/{HOSTILE}": 2.0, f"{HOSTILE}/x": 1}),
        ("failed", 4.0, {"images_seen": 80, "reason": HOSTILE}),
    )
    line = json.loads(measured(80, **{HOSTILE: 1.0}))
    line["metric"], line["protocol"]["fakes"]["noise"] = HOSTILE, HOSTILE
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    options = {"data": {"include": [HOSTILE.replace("\ud800", "")]}}
    (folder / "config.toml").write_text(to_toml(tiny_config(**options)), encoding="utf-8")
    write_report(folder, Drawings(HOSTILE, Captioned(Image.new("L", (4, 4)), HOSTILE)))
    page = Page(folder / "report.html")
    page.check_alone()
    assert name in page.text
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert page.charts and not any("<script" in drawn for drawn in page.charts)


def test_write_report_works_before_the_first_step(begun):
    text = Page(write_report(begun)).text
    assert "Not started" in text and "0 of 160" in text
    assert "No metric of this program was measured" in text


def test_write_report_replaces_only_unchanged_pages(begun, tmp_path):
    ours, theirs = tmp_path / "ours.html", tmp_path / "theirs.html"
    for name in ("first", "second"):
        assert write_report(begun, Drawings(name), out=ours) == ours
        assert name in ours.read_text()
    page = ours.read_text()
    edits = ["", "<p>mine</p>", page.replace("second", "my notes"), f"{page}my notes", page[:-1]]
    for edited in edits:
        theirs.write_text(edited)
        with pytest.raises(ValueError, match=r"theirs\.html exists; pass --overwrite"):
            write_report(begun, out=theirs)
        assert theirs.read_text() == edited
    assert write_report(begun, out=theirs, outputs=ALLOW_OVERWRITE) == theirs
    assert "my notes" not in theirs.read_text()
    assert write_report(begun, out=tmp_path / "new" / "report.html").is_file()


# What a run tells


def test_read_run_skips_and_reports_a_truncated_log_line(begun):
    log(begun, ("start", 1.0, {"images_seen": 0}), ("progress", 5.0, {"images_seen": 40}))
    with open(begun / "log.jsonl", "a") as file:
        file.write('{"event": "progress", "time": 6.0, "images_s')
    history = read_run(begun)
    assert history.images_seen == 40
    assert history.unreadable == {"log.jsonl": 1, "metrics.jsonl": 0}
    assert "1 unreadable line of log.jsonl" in Page(write_report(begun)).text


def test_read_run_drops_progress_that_a_resume_has_undone(begun):
    log(
        begun,
        ("start", 100.0, {"images_seen": 0}),
        *(("progress", 100.0 + n, {"images_seen": n, "g/x": 1.0}) for n in (10, 20, 30)),
        ("resume", 1000.0, {"images_seen": 20}),
        ("progress", 1060.0, {"images_seen": 30, "g/x": 2.0}),
    )
    history = read_run(begun)
    losses = [(seen, event["g/x"]) for seen, event in history.progress()]
    assert losses == [(10, 1), (20, 1), (30, 2)]
    assert [session.seconds for session in history.sessions()] == [30, 60]
    images = [session.span("images_seen") for session in history.sessions()]
    assert images == [(0, 30), (20, 30)]


def test_best_of_compares_scores_at_the_last_resolution(begun):
    lines = [measured(10, resolution=8, fid=1.0)]
    lines += [measured(images, fid=fid) for images, fid in ((20, 9.0), (30, 7.0), (40, 8.0))]
    lines += [measured(30 + i, metric="pr1k", precision=(i + 2) / 4) for i in range(2)]
    (begun / "metrics.jsonl").write_text("".join(lines))
    found = by_metric(read_run(begun))
    assert best_of(found["fid50k"], "fid").values == {"fid": 7.0}
    assert best_of(found["pr1k"], "precision").values == {"precision": 0.75}


def test_write_report_plots_only_comparable_scores_together(begun):
    lines = [measured(40, psi=psi, fid=10 * psi) for psi in (1.0, 0.5, 0.7)]
    (begun / "metrics.jsonl").write_text(measured(20, fid=11.0) + "".join(lines))
    page = Page(write_report(begun))
    (over_time,) = page.charts
    assert "fid50k: Frechet Inception distance" in texts(over_time)
    assert all(f"psi {psi}" in page.text for psi in (1.0, 0.5, 0.7))
    (begun / "metrics.jsonl").write_text(measured(20, fid=11.0) + measured(40, fid=9, network="b"))
    page = Page(write_report(begun))
    assert page.charts == []  # one point is no line
    assert "network one" in page.text and "network b" in page.text


# Charts


def test_averaged_reduces_many_points_and_keeps_gaps():
    x, mean = averaged([(x, float(x % 2)) for x in range(POINTS * 10)])
    assert len(x) == POINTS and set(mean) == {0.5}
    np.testing.assert_array_equal(averaged([(0, 1.0), (1, None), (2, 3.0)])[1], [1, np.nan, 3])


# The command


def test_report_with_data_draws_neighbors_and_writes_to_out(folder, store, monkeypatch, tmp_path):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "page.html"
    run_ok("report", folder, "--data", store.path, "--out", out, "--device", "cpu")
    page = Page(out)
    page.check_alone()
    assert "nearest of 14 training images" in page.text
    assert not (folder / "report.html").exists()


def test_report_and_train_keep_an_edited_page_without_overwrite(begun, capsys):
    page = begun / "report.html"
    run_ok("report", begun)
    page.write_text(edited := page.read_text().replace("<h1>", "<h1>my notes: "))
    assert f"{page} exists; pass --overwrite" in run_fails("report", begun)
    save_generator(begun / "generator-000000040.pt", random_generator())
    write_page(begun, torch.device("cpu"))
    assert f"{begun} could not be written: {page} exists" in capsys.readouterr().out
    assert page.read_text() == edited
    run_ok("report", begun, "--overwrite")
    assert "my notes" not in page.read_text()


def test_report_says_what_cannot_be_drawn(folder, begun, tmp_path):
    (folder / "data.txt").write_text(f"{tmp_path / 'gone'}\n")
    run_ok("report", folder, "--device", "cpu")
    assert "training images were not found" in Page(folder / "report.html").text
    run_ok("report", begun)
    assert "has not saved a generator yet" in Page(begun / "report.html").text
    (begun / "generator-000000040.pt").write_bytes(b"no checkpoint")
    run_ok("report", begun)
    assert "No generator of the run can be read" in Page(begun / "report.html").text


def test_images_of_a_run_are_never_run_as_postscript(tmp_path, monkeypatch):
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("is run"))
    path = tmp_path / "000001.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    assert "000001.png cannot be shown: " in reduced(path, 64, "")
    with pytest.raises(ValueError, match=r"000001\.png"):
        figures.timelapse_of_samples([(1, path)], [0], columns=1, rows=1)


def test_drawings_of_one_training_image_show_it(tmp_path, monkeypatch):
    monkeypatch.setattr("stylegan.metrics.neighbors.weights_path", lambda: None)
    (tmp_path / "run").mkdir()
    save_generator(tmp_path / "run" / "generator-000000008.pt", random_generator())
    (tmp_path / "run" / "config.toml").write_text(to_toml(tiny_config()))
    store = tiny_store(tmp_path, n=1)
    found = drawings_of(tmp_path / "run", Tools(tmp_path), data=store.path)
    assert "the nearest of 1 training images" in found.neighbors.caption
