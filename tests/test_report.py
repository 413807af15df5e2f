"""The page about a run: what it tells, what it draws, and what no file can make it do."""

import base64
import dataclasses
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import refused, told
from PIL import Image
from tiny_training import SHORT, run, tiny_config, tiny_store

import stylegan.report
from stylegan import sampling
from stylegan.config import to_toml
from stylegan.files.loading import load_generator, load_run
from stylegan.messages import duration
from stylegan.networks import Generator, NetworkConfig
from stylegan.report import Captioned, Drawings, truncation_sweep, write_report
from stylegan.report.charts import (
    BOTTOM,
    COLUMNS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    Band,
    Series,
    chart,
)
from stylegan.report.curves import best_of, by_metric, scores
from stylegan.report.history import moment, number, read_run
from stylegan.report.markup import escaped, picture, tag
from stylegan.report.sections import GRIDS, evenly
from stylegan.run_folder import RunFolder

SCHEDULE = {**SHORT, "batch_size": {4: 4}}
HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(1)>\"' & \ud800"
ALONE = {"img", "meta"}  # elements without an end
ALLOWED = ALONE | set(
    re.findall(
        r"\w+",
        "html head title style body header main section nav footer h1 h2 p a b i dl dt dd div span "
        "figure figcaption svg g defs clippath path rect use text table tr th td details "
        "summary pre code",
    )
)


class Page(HTMLParser):
    """The elements of a page, which must be balanced, and its text."""

    def __init__(self, path):
        super().__init__()
        self.open, self.found, self.text = [], [], ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

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
        policy = self.all("meta")[1]["content"]
        assert policy.startswith("default-src 'none'")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tiny_store(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, store):
    """A run that was stopped once and has finished."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    config = tiny_config(schedule=SCHEDULE)
    run(config, store, folder, stop_at=8)
    run(config, store, folder)
    return folder


@pytest.fixture
def folder(tmp_path, trained):
    return shutil.copytree(trained, tmp_path / "mine")


@pytest.fixture
def begun(tmp_path):
    """A run of which there is only its configuration."""
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.toml").write_text(to_toml(tiny_config()), encoding="utf-8")
    return tmp_path / "begun"


def measured(images, resolution=16, metric="fid50k", psi=1.0, **values):
    fakes = {"resolution": resolution, "alpha": 1.0, "psi": psi, "seed": 0}
    generator = {"sha256": f"{images}", "images_seen": images}
    protocol = {"generator": generator, "fakes": fakes, "versions": {"torch": "2.11"}}
    return json.dumps({"metric": metric, "values": values, "protocol": protocol}) + "\n"


def log(folder, *events):
    lines = [json.dumps({"event": name, "time": t, **rest}) for name, t, rest in events]
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


# The page


def test_a_run_of_three_processes_has_a_report(folder):
    path = RunFolder(folder).config_file  # whose default batches would not fit the groups
    path.write_text(path.read_text().replace("num_processes = 1", "num_processes = 3"))
    assert "num_processes" in Page(write_report(folder)).text


def test_yardsticks_are_told_apart_from_the_generator(folder):
    mark = json.loads(measured(None, fid=1.0))
    mark["protocol"]["generator"] = {"origin": "half of them", "sha256": None}
    (folder / "metrics.jsonl").write_text(
        measured(12, fid=9.5) + json.dumps(mark) + "\n", encoding="utf-8"
    )
    found = read_run(folder)
    assert scores(found) == [("Best fid50k", "9.5")]
    assert [result.yardstick for result in found.measurements] == [None, "half of them"]
    page = Page(write_report(folder))
    assert "half of them1" in page.text
    assert page.text.count("half of them") == 1


def test_numbers_of_different_networks_share_no_line(folder):
    lines = [json.loads(measured(images, fid=fid)) for images, fid in ((4, 1.0), (8, 30.0))]
    for line, network in zip(lines, ("one", "other"), strict=True):
        line["protocol"]["sha256"] = network
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    text = Page(write_report(folder)).text
    assert "network one" in text
    assert "network other" in text


def test_the_page_tells_everything_and_fetches_nothing(folder):
    (folder / "metrics.jsonl").write_text(
        measured(4, fid=30.0) + measured(8, fid=11.5) + measured(12, fid=12.25)
    )
    sweep = truncation_sweep(load_run(folder), seeds=range(2))
    shown = Captioned(Image.new("RGB", (40, 30)), "the caption")
    assert write_report(folder, Drawings(sweep, shown)) == folder / "report.html"
    page = Page(folder / "report.html")
    page.check_alone()
    for text in (
        "mine",
        "Finished",
        "Images seen",
        "fid50k",
        "12.25",
        "11.5",
        f"torch {torch.__version__}",
    ):
        assert text in page.text
    for title in ("Logits", "Loss of the generator", "Samples over time", "ψ = -0.5", "seed 1"):
        assert title in page.text
    assert "the caption" in page.text
    assert "r1_gamma" in page.text and "images seen" in page.text
    assert not list(folder.glob("*.partial"))


@pytest.mark.parametrize("kind", ["none", "ada"])
def test_overfitting_has_a_chart_with_the_target_that_p_follows(folder, kind):
    augment = {"kind": kind} | ({"target": 0.5} if kind == "ada" else {})
    (folder / "config.toml").write_text(to_toml(tiny_config(augment=augment)), encoding="utf-8")
    values = {"d/real_signs": 0.9, "augment/probability": 0.25, "d/real_logits": 2}
    log(
        folder,
        *(("progress", float(i), {"images_seen": 4 * i} | values) for i in range(1, 4)),
        ("overfitted", 4.0, {"images_seen": 12, "reason": "it looks overfitted at image 12"}),
    )
    write_report(folder)
    labels = [
        attributes.get("aria-label") for attributes in Page(folder / "report.html").all("svg")
    ]
    augmented = ", p of the augmentation" if kind == "ada" else ""
    assert f"Overfitting: r_t{augmented}" in labels
    assert "Logits: real logits" in labels
    drawn = "target of r_t: 0.5" in (folder / "report.html").read_text(encoding="utf-8")
    assert drawn == (kind == "ada")


def test_levels_are_dashed_lines_within_the_chart():
    drawn = chart("t", [Series("n", [(0, 0.1), (1, 0.2)])], x_name="x", levels={"target": 5.0})
    (y,) = [float(found) for found in re.findall(r"M 52 ([\d.]+) L 538 \1\"[^>]*dasharray", drawn)]
    assert TOP <= y < BOTTOM
    assert ">target<" in drawn


def test_the_style_names_no_other_file():
    style = (Path(stylegan.report.__file__).parent / "style.css").read_text(encoding="utf-8")
    assert not re.search(r"url\(|@import|http", style)


def test_what_files_say_is_text_and_never_markup(tmp_path, trained):
    name = '<b onclick="alert(1)">&amp;'
    folder = shutil.copytree(trained, tmp_path / name)
    log(
        folder,
        ("start", 1.0, {"images_seen": 0, "device": HOSTILE, "versions": {HOSTILE: HOSTILE}}),
        ("progress", 2.0, {"images_seen": 40, f"d/{HOSTILE}": 1.0, f"{HOSTILE}/x": 2.0}),
        ("progress", 3.0, {"images_seen": 80, f"d/{HOSTILE}": 2.0, f"speed/{HOSTILE}": 1}),
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


def test_text_is_escaped_once_and_markup_not_again():
    assert escaped(escaped("a<b>'\"&")) == "a&lt;b&gt;&#x27;&quot;&amp;"
    assert tag("p", "<", tag("b", "x"), class_='"') == '<p class="&quot;">&lt;<b>x</b></p>'
    assert escaped("\ud800") == "?"


def test_a_run_that_has_just_begun_has_a_page(begun):
    write_report(begun)
    page = Page(begun / "report.html")
    page.check_alone()
    for text in ("Not begun", "0 of 160", "has not written samples", "Nothing was measured"):
        assert text in page.text


def test_a_damaged_sample_is_told_and_the_others_are_shown(folder):
    (folder / "reals.png").write_bytes(b"no picture")
    write_report(folder)
    page = Page(folder / "report.html")
    assert "reals.png cannot be shown" in page.text
    assert len(page.all("img")) >= 2


def test_missing_and_foreign_folders_are_refused(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.txt").touch()
    with pytest.raises(FileNotFoundError, match=r"photos holds no config\.toml"):
        write_report(tmp_path / "photos")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is a file"):
        write_report(tmp_path / "photos" / "a.txt")
    assert [path.name for path in tmp_path.rglob("*")] == ["photos", "a.txt"]


def test_only_a_report_of_ours_is_replaced(begun, tmp_path):
    ours, theirs = tmp_path / "ours.html", tmp_path / "theirs.html"
    theirs.write_text("<p>mine</p>")
    for _ in range(2):
        assert write_report(begun, out=ours) == ours
    with pytest.raises(ValueError, match=r"theirs\.html exists and is not a report"):
        write_report(begun, out=theirs)
    assert theirs.read_text() == "<p>mine</p>"
    with pytest.raises(ValueError, match="is a folder"):
        write_report(begun, out=tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_report(begun, out=tmp_path / "no" / "report.html")


# What a run tells


def test_a_line_cut_short_by_a_kill_is_left_out_and_told(begun):
    log(begun, ("start", 1.0, {"images_seen": 0}), ("progress", 5.0, {"images_seen": 40}))
    with open(begun / "log.jsonl", "a") as file:
        file.write('{"event": "progress", "time": 6.0, "images_s')
    history = read_run(begun)
    assert history.images_seen == 40
    assert history.unreadable == {"log.jsonl": 1, "metrics.jsonl": 0}
    write_report(begun)
    assert "1 unreadable line of log.jsonl" in Page(begun / "report.html").text


def test_what_a_resume_has_undone_is_not_shown(begun):
    log(
        begun,
        ("start", 100.0, {"images_seen": 0}),
        *(("progress", 100.0 + n, {"images_seen": n, "g/x": 1.0}) for n in (10, 20, 30)),
        ("resume", 1000.0, {"images_seen": 20}),
        ("progress", 1060.0, {"images_seen": 30, "g/x": 2.0}),
    )
    history = read_run(begun)
    assert [(e["images_seen"], e["g/x"]) for e in history.progress()] == [(10, 1), (20, 1), (30, 2)]
    assert [session.seconds for session in history.sessions()] == [30, 60]
    assert [session.images for session in history.sessions()] == [(0, 30), (20, 30)]


def test_only_finite_numbers_are_numbers():
    assert number(3) == 3.0 and number(-0.5) == -0.5
    odd = (True, "1", None, [1], float("nan"), float("inf"), 10**400)
    assert [number(value) for value in odd] == [None] * len(odd)


def test_times_are_readable():
    assert [duration(s) for s in (45, 306, 12_000, 180_000)] == [
        "45s",
        "5m 06s",
        "3h 20m",
        "2d 02h",
    ]
    assert moment(0) == "1970-01-01 00:00 UTC"
    assert moment(1e300) == "an unknown time"


def test_at_most_twelve_grids_evenly_over_time_with_the_first_and_the_last():
    samples = [(kimg, Path(f"{kimg}.png")) for kimg in range(10, 2000, 10)]
    chosen = [kimg for kimg, _ in evenly(samples)]
    assert len(chosen) == GRIDS and chosen[0] == 10 and chosen[-1] == 1990
    assert max(np.diff(chosen)) - min(np.diff(chosen)) <= 10
    assert evenly(samples[:5]) == samples[:5]


def test_the_best_is_sought_at_the_resolution_of_the_last(begun):
    (begun / "metrics.jsonl").write_text(
        measured(10, resolution=8, fid=1.0)
        + measured(20, fid=9.0)
        + measured(30, fid=7.0)
        + measured(40, fid=8.0)
        + measured(30, metric="pr1k", precision=0.5)
        + measured(40, metric="pr1k", precision=0.75)
    )
    found = by_metric(read_run(begun))
    assert best_of(found["fid50k"], "fid").values == {"fid": 7.0}
    assert best_of(found["pr1k"], "precision").values == {"precision": 0.75}


def test_metrics_at_several_psi_get_a_chart_and_settings_are_told_apart(begun):
    lines = [measured(40, psi=psi, fid=10 * psi) for psi in (1.0, 0.5, 0.7)]
    (begun / "metrics.jsonl").write_text("".join(lines))
    write_report(begun)
    text = Page(begun / "report.html").text
    assert "fid50k against truncation" in text
    assert "0.5 psi\nfid 5" in text
    assert "psi 0.7" in text
    assert "0.04 kimg" not in text  # one time is no line
    (begun / "metrics.jsonl").write_text(measured(20, fid=11.0, early=1.0) + "".join(lines))
    write_report(begun)
    text = Page(begun / "report.html").text
    assert "0.04 kimg (thousands of real images)\nfid (psi 1.0) 10" in text
    assert "early (psi 1.0) 1" in text
    assert "fid (psi 0.7)" not in text  # one psi of many is no line over time
    assert "Best fid50k10" in text  # of those without truncation


# Charts


def texts_of(drawn):
    return re.findall(r">([^<]+)</text>", drawn)


def lines_of(drawn):
    """The ends of the stretches of the first line: x and y of each."""
    (path,) = re.findall(r'<path d="([^"]*)"[^>]*style="fill: none; stroke: var\(--c0\)', drawn)
    stretches = [re.findall(r"([\d.]+) ([\d.]+)", part) for part in path.split("M")[1:]]
    return [[(float(x), float(y)) for x, y in stretch] for stretch in stretches]


@pytest.mark.parametrize(
    ("values", "log", "ticks"),
    [
        ((0, 10), False, "0 2 4 6 8 10"),
        ((-0.3, 0.3), False, "-0.4 -0.2 0 0.2 0.4"),
        ((0, 25e6), False, "0 5M 10M 15M 20M 25M"),
        ((30, 34), False, "30 31 32 33 34"),
        ((7, 7), False, "2 4 6 8 10 12"),
        ((0.5, 60), True, "0.5 1 2 5 10 20 50"),
        ((1, 1e6), True, "1 100 10,000 1M"),
    ],
)
def test_ticks_are_round_numbers(values, log, ticks):
    drawn = chart("title", [Series("name", list(enumerate(values)))], x_name="x", log=log)
    _, _, y_ticks = " ".join(texts_of(drawn)).partition(" x ")
    assert y_ticks == ticks


def test_a_line_goes_through_its_points_and_ends_at_gaps_and_breaks():
    points = [(0, 0.0), (1, 5.0), (2, 10.0), (3, None), (4, 0.0), (5, 10.0), (6, 10.0), (7, 0.0)]
    drawn = chart("title", [Series("name", points)], x_name="x", breaks=[5])
    first, second, third = lines_of(drawn)
    middle = (LEFT + (RIGHT - LEFT) / 7, (TOP + BOTTOM) / 2)
    assert first[:2] == [(LEFT, BOTTOM), pytest.approx(middle)] and first[2][1] == TOP
    assert (len(first), len(second), len(third)) == (3, 2, 2)
    assert "3 x\nname none" in drawn and "1 x\nname 5" in drawn


def test_many_points_are_averaged_and_their_range_is_kept():
    points = [(x, float(x % 2)) for x in range(COLUMNS * 10)]
    drawn = chart("title", [Series("name", points)], x_name="x")
    (line,) = lines_of(drawn)
    assert line[-1][0] - line[0][0] == RIGHT - LEFT
    np.testing.assert_allclose([y for _, y in line], (TOP + BOTTOM) / 2, atol=1)
    assert "fill: var(--c0); fill-opacity: 0.2" in drawn
    area = max(re.findall(r'<path id="m\w+" d="([^"]*)z"', drawn), key=len)
    ys = {float(y) for y in re.findall(r"[-\d.]+ ([-\d.]+)", area)}
    assert {y % HEIGHT for y in ys} == {TOP, BOTTOM}
    assert drawn.count("<title>") == COLUMNS


def test_a_chart_without_numbers_is_empty_and_one_of_one_point_a_dot():
    assert chart("title", [Series("name", [(1, None)])], x_name="x") == ""
    drawn = chart("title", [Series("name", [(1, 0.0)])], x_name="x")
    assert drawn.count('style="fill: var(--c0)') == 1
    isolated = [(x, 1.0 if x == 50 else None) for x in range(100)]
    assert chart("title", [Series("name", isolated)], x_name="x").count("fill: var(--c0)") == 1


@pytest.mark.parametrize(
    ("values", "logarithmic"),
    [([1, 1000], True), ([1, 5], False), ([0, 1000], False), ([-1, 90], False)],
)
def test_a_logarithmic_axis_needs_positive_values_far_apart(values, logarithmic):
    points = [(i, float(value)) for i, value in enumerate(values)]
    drawn = chart("title", [Series("name", points)], x_name="x", log=True)
    assert ("logarithmic" in drawn) == logarithmic


def test_bands_are_named_where_there_is_room_and_shaded_while_they_fade():
    bands = [Band(0, 0, 50, "8"), Band(50, 60, 99, "16"), Band(99, 100, 100, "32")]
    drawn = chart("t", [Series("n", [(0, 1.0), (100, 2.0)])], x_name="x", bands=bands)
    assert drawn.count("fill: var(--ink)") == 2
    assert ">16</text>" in drawn and ">32</text>" not in drawn


def test_charts_have_the_colours_of_the_page_and_the_same_bytes_each_time(folder):
    points = [(x, float(x)) for x in range(5)]
    series = [Series("a", points), Series("b", points[:2])]
    drawn = chart("t", series, x_name="x", bands=[Band(0, 2, 4, "8")])
    style = (Path(stylegan.report.__file__).parent / "style.css").read_text(encoding="utf-8")
    used = set(re.findall(r"var\((--\w+)\)", drawn))
    assert used == {"--ink", "--soft", "--rule", "--c0", "--c1"}
    assert all(style.count(f"{name}:") == 2 for name in used)  # light and dark
    assert "font-family" not in drawn and "<style" not in drawn and "metadata" not in drawn
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first


# Pictures


def test_a_small_picture_is_lossless_and_a_large_one_nearly():
    for side, worst in ((32, 0), (512, 40)):
        ramp = np.linspace(0, 255, side * side * 3).reshape(side, side, 3).astype(np.uint8)
        data = picture(Image.fromarray(ramp), "alt").split("base64,")[1].split('"')[0]
        shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))
        assert np.abs(shown.astype(int) - ramp).max() <= worst


def test_the_sweep_is_of_the_seeds_at_each_psi(trained):
    loaded = load_run(trained)
    sweep = truncation_sweep(loaded, seeds=[3, 9], psis=(1.0, 0.0))
    wanted = next(sampling.generate(loaded.generator, [3, 9], psi=1.0, cutoff=loaded.cutoff))
    assert [name for name, _ in sweep.rows] == ["seed 3", "seed 9"]
    for (_, (full, _)), pixels in zip(sweep.rows, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(full), pixels)
    averages = [np.asarray(cells[1]) for _, cells in sweep.rows]
    np.testing.assert_array_equal(*averages)


def test_the_sweep_shows_what_has_grown_with_labels_and_without_padding(trained):
    config = NetworkConfig(resolution=16, max_channels=4, z_dim=4, w_dim=4, label_dim=2)
    torch.manual_seed(0)
    loaded = dataclasses.replace(
        load_run(trained),
        generator=Generator(config).eval(),
        resolution=8,
        alpha=0.5,
        label_names=("cat", "dog"),
        active_rectangle=(2, 14, 0, 16),
    )
    sweep = truncation_sweep(loaded, seeds=range(3), psis=(1.0,))
    assert [name for name, _ in sweep.rows] == ["seed 0, cat", "seed 1, dog", "seed 2, cat"]
    assert {cells[0].size for _, cells in sweep.rows} == {(8, 6)}


def test_large_pictures_of_the_sweep_are_reduced(trained):
    loaded = dataclasses.replace(load_run(trained), generator=load_generator("emoji32"))
    sweep = truncation_sweep(dataclasses.replace(loaded, resolution=32), [0], (1.0,))
    assert sweep.rows[0][1][0].size == (32, 32)


# The command


def test_the_command_draws_everything(folder, store, monkeypatch, tmp_path):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    out = tmp_path / "page.html"
    told("report", folder, "--data", store.path, "--out", out, "--device", "cpu")
    page = Page(out)
    page.check_alone()
    assert "nearest to each among 14" in page.text
    assert page.all("img")[-1]["class"] == "paper"
    assert not (folder / "report.html").exists()


def test_without_its_images_the_page_says_so(folder, tmp_path):
    (folder / "data.txt").write_text(f"{tmp_path / 'gone'}\n")
    told("report", folder, "--device", "cpu")
    assert "training images are gone" in Page(folder / "report.html").text


def test_a_run_without_a_generator_and_one_with_a_damaged_one_have_pages(begun):
    told("report", begun)
    assert "has not saved a generator yet" in Page(begun / "report.html").text
    (begun / "generator-000000040.pt").write_bytes(b"no checkpoint")
    told("report", begun)
    assert "No generator of the run can be read" in Page(begun / "report.html").text


def test_mistakes_are_one_line(tmp_path, folder):
    for arguments in ([tmp_path / "nowhere"], [folder, "--data", tmp_path / "nowhere"]):
        assert "nowhere" in refused("report", *arguments, "--device", "cpu")
    assert not (folder / "report.html").exists()
