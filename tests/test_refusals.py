"""What every command refuses: in one line that helps, before any work, and nothing is changed."""

import dataclasses
import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.commands import run_fails, run_ok
from helpers.pictures import save_picture
from helpers.reference import SNAPSHOT
from helpers.runs import contents
from helpers.tiny_generators import LABELED, random_generator
from helpers.tiny_training import SHORT, tiny_config, write_pictures

from stylegan import load_generator
from stylegan.cli import COMMANDS
from stylegan.config import to_toml
from stylegan.data import prepare
from stylegan.directions import default_path, find_directions, save_directions
from stylegan.files import checkpoint
from stylegan.files.formats.native import save_generator, save_safetensors
from stylegan.networks import Discriminator
from stylegan.utils import filesystem

TRAIN = "train --config tiny.toml --out run --device cpu"
NOTES = "is not empty and holds no config.toml, so it is not a run"
MISTAKES = [  # words, what the line says, the exit code
    ("trian", "No such command 'trian'. Did you mean 'train'?", 2),
    ("align there.webp out", "Missing option '--landmarks'", 2),
    ("blend a b --out c.pt", "or --share alone", 2),
    ("blend g.pt new.pt --share 1 --out c.npz", "must end in .pt", 1),
    ("cache --clear gone", "gone is not in ", 1),
    ("check . --aspect 3", "crop must be center, pad", 1),
    ("configs ffhq25", "did you mean ffhq-256?", 1),
    ("configs auto", "`stylegan train --data IMAGES --dry-run`", 1),
    ("convert gone.pt a.pt", "gone.pt; accepted are", 1),
    ("convert official.pkl a.pt --discriminator a.pt", "both be written", 1),
    ("directions find g.pt", "with directions pca and sefa; pass --overwrite", 1),
    ("directions find classes.pt --figure d.png", "a class is needed, as in --class ant", 1),
    ("directions learn new.pt a b", "there is no folder or file a with examples", 1),
    ("explore g.pt --directions d.npz --edit pca:1", "leave out --directions", 2),
    ("explore g.pt --export page", "npm install onnxruntime-web", 1),
    ("export g.pt a.txt", "must end in .safetensors, .onnx, .pt2", 1),
    ("figure grid gone.pt --out a", "it must end in .png, .webp, .jpg", 1),
    ("figure mixing g.pt --layers 4-6", "16x16 must be within 0-5", 1),
    ("figure timelapse faces64", "faces64 is not a folder", 1),
    ("figure classes classes.pt --classes=dog", "there is no class 'dog'", 1),
    ("figure neighbors g.pt", "pass --data", 1),
    ("figure neighbors g.pt --out there.webp", "there.webp exists; pass --overwrite", 1),
    ("generate faces64 --seeds a", "is neither a seed nor a range", 2),
    ("generate faces64 --batch 0", "0 is not in the range 1<=x<=", 2),
    ("generate faces64 --psi nan", "nan is not a finite number", 2),
    ("generate faces64 --device xpu", "is not a device; try cpu, cuda", 1),
    ("generate gone.pt --out g.pt/deeper", "g.pt is a file; choose another folder", 1),
    ("generate a.ONNX", "is an exported program, which cannot be read back", 1),
    ("generate g.pt --out ''", "the name is empty", 2),  # for Python the current folder
    ("generate g.pt --latents ''", "the name is empty", 2),
    ("generate somebody/cats", "hf download somebody/cats --local-dir cats", 1),
    ("generate pipe.pt", "neither a file nor a folder", 1),
    ("generate critic.pt", "critic.pt holds no generator", 1),
    ("generate runs/mine", f"{os.sep}runs/mine; accepted are a run folder", 1),
    ("generate ./flatt", f"{os.sep}flatt (did you mean flat?); ", 1),
    ("generate g.pt --edit svm:s=2", "stylegan directions learn g.pt with/ without/ --name s", 1),
    ("generate g.pt --edit pca:9", "there is no direction pca:9; there are 1 to 3", 1),
    ("info gone", "accepted are a run folder", 1),
    ("generate .", "neither generator-*.pt nor state-*.pt", 1),
    ("metrics faces64 --metrics fidd", "no metric 'fidd'; known: fid, kid, pr, is", 1),
    ("metrics faces64 --resolution 8", "a generator has its own", 1),
    ("metrics g.pt flat --data pictures --psi 1,0.7", "apply to generators only", 1),
    ("metrics ''", "the name is empty", 2),
    ("metrics g.pt --metrics ''", "there is no metric ''", 1),
    ("metrics empty --metrics swd", "is empty", 1),
    ("metrics there.webp --metrics swd", "there.webp is a single image", 1),
    ("prepare pictures notes", "notes is not empty", 1),
    ("prepare pictures text.pt", "text.pt is a file", 1),
    ("prepare notes store", "no images under notes: found 1 .txt file", 1),
    ("prepare store again", "store is a prepared store; train on it as it is", 1),
    ("project g.pt flat/0.png pictures/a/0.png", "would both be written to", 1),
    ("project g.pt flat/0.png --class cat", "has no labels", 1),
    ("project g.pt there.webp --locality 1", "require --tune", 2),
    ("project g.pt there.webp --out new.pt/deep", "new.pt is a file; choose another", 1),
    ("report notes", "notes holds no config.toml", 1),
    ("report nowhere", "nowhere does not exist", 1),
    ("report text.pt", "text.pt is a file", 1),
    ("report begun --data nowhere", "nowhere", 1),
    ("train --batch-gpu 4 -o batch_gpu=8", "batch_gpu is given by -o and by", 2),
    ("train --data pictures --plan-gpus 8", "--plan-gpus requires --dry-run", 2),
    ("train --data pictures --plan-gpus 8 --dry-run", "add --device cuda", 2),
    ("train --data ''", "the name is empty", 2),
    ("train --out ''", "the name is empty", 2),
    ("train --metrics '' --config quickstart", "there is no metric ''", 1),
    ("train --out runs/mine", "to start one, add --data IMAGES, or --config quick", 1),
    ("train --out begum", f"{os.sep}begum (did you mean begun?); to resume", 1),
    (f"{TRAIN} --data picture", f"{os.sep}picture (did you mean pictures?); ", 1),
    (f"{TRAIN} --data pictures -o schedule.total_kimgs=1", "did you mean schedule.total_kimg?", 1),
    (f"{TRAIN} --data pictures --metrics-every 1", "--metrics-every requires --metrics", 1),
    (f"{TRAIN} --data pictures --device cuda:99", "device cuda:99 does not exist", 1),
    (f"{TRAIN} --data notes", "no images under notes: found 1 .txt file", 1),
    (f"{TRAIN} --data flat --labels", "labels were asked for, but the images of ", 1),
    (f"{TRAIN} --data damaged --strict", "a/broken.png (", 1),
    (f"{TRAIN} --data damaged --strict --dry-run", "a/broken.png (", 1),
    (f"{TRAIN} --data pictures --metrics nonsense --dry-run", "nonsense", 1),
    (f"{TRAIN} --data pictures --out notes", f"notes {NOTES}", 1),
    (f"{TRAIN} --data pictures --out text.pt", "text.pt is a file", 1),
    (f"{TRAIN} --data pictures --init-from critic.pt", "critic.pt holds no generator", 1),
    (f"{TRAIN} --data pictures --init-from text.pt", "text.pt is not a checkpoint", 1),
    (f"{TRAIN} --data pictures --init-from g.pt", "g.pt fits the networks of this run", 1),
    ("video walk gone.pt --out there.webp", "there.webp exists; pass --overwrite", 1),
    ("video walk classes.pt --space z", "a class is needed, as in --class ant", 1),
    ("video walk g.pt --seeds 1", "1 seed for 1 walk: each requires", 1),
    ("video walk g.pt --grid 100x100", "100x100 is not a grid like 3x2", 2),
    ("video edit g.pt", "pass --edit", 2),
    ("video edit g.pt --edit pca:1=2 --edit pca:1=2", "an --edit is given twice", 2),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Generators, one with directions and one with classes; pictures, good and bad; a
    configuration; and what should be taken for none of these."""
    folder = tmp_path_factory.mktemp("mistakes")
    generator = random_generator()
    save_generator(folder / "new.pt", generator)
    save_generator(folder / "g.pt", generator)
    directions = find_directions(generator, count=3, samples=99)
    save_directions(default_path(folder / "g.pt"), directions, generator)
    names = ["ant", "bee", "cat"]
    save_generator(folder / "classes.pt", random_generator(LABELED), label_names=names)
    network = Discriminator(tiny_config().network)
    payload = {"config": dataclasses.asdict(network.config), "weights": network.state_dict()}
    checkpoint.save(folder / "critic.pt", "discriminator", payload)
    (folder / "tiny.toml").write_text(to_toml(tiny_config(schedule=SHORT)))
    for name in ("empty", "notes", "flat", "begun"):
        (folder / name).mkdir()
    shutil.copy(folder / "g.pt", folder / "begun" / "generator-000000004.pt")
    shutil.copy(folder / "tiny.toml", folder / "begun" / "config.toml")
    (folder / "notes" / "a.txt").write_text("mine")
    (folder / "text.pt").write_text("no weights")
    for name in ("there.webp", "a.ONNX"):
        (folder / name).touch()
    for path in write_pictures(folder / "pictures").glob("*/*.png"):
        shutil.copy(path, folder / "flat")
    prepare(folder / "pictures", folder / "store")
    write_pictures(folder / "damaged")
    (folder / "damaged" / "a" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    os.mkfifo(folder / "pipe.pt")
    shutil.copy(SNAPSHOT, folder / "official.pkl")
    return folder


@pytest.mark.parametrize(("words", "message", "exit_code"), MISTAKES)
def test_commands_refuse_a_mistake_in_one_line_and_change_nothing(
    folder, tmp_path, monkeypatch, words, message, exit_code
):
    monkeypatch.setenv("STYLEGAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(folder)
    before = contents(folder)
    line = run_fails(*shlex.split(words), exit_code=exit_code)
    assert message in line and line.isprintable()
    assert contents(folder) == before


ORIGINALS = [  # words, of which the file is written over what it is made of
    ("align in in --landmarks points.csv --size 32", "in/a.png"),
    ("align in/a.png in --landmarks points.csv --size 32", "in/a.png"),
    ("blend g.pt new.pt --share 1 --out new.pt", "new.pt"),
    ("convert g.pt g.pt", "g.pt"),
    ("blend run g.pt --share 1 --out run/generator-000000001.pt", "run/generator-000000001.pt"),
    ("directions find official.npz --out official.npz", "official.npz"),
    ("directions learn g.pt with.npz without.npz --out without.npz", "without.npz"),
    ("export shared/model.safetensors shared", "shared/model.safetensors"),
    ("export shared shared", "shared/model.safetensors"),
    ("project tuned/tuned.pt in/a.png --out tuned --tune", "tuned/tuned.pt"),
    ("project tuned/tuned.pt in/a.png --out tuned", "tuned/tuned.pt"),
    ("project g.pt old/target/target.png --out old", "old/target/target.png"),
]


def originals(folder):
    """Generators, pictures and latents in this folder."""
    for name in ("g.pt", "new.pt", "run/generator-000000001.pt", "tuned/tuned.pt"):
        (folder / name).parent.mkdir(exist_ok=True)
        save_generator(folder / name, random_generator())
    shutil.copy(SNAPSHOT, folder / "official.pkl")
    (folder / "run" / "config.toml").write_text(to_toml(tiny_config()))
    (folder / "shared").mkdir()
    loaded = load_generator(folder / "g.pt")
    save_safetensors(folder / "shared" / "model.safetensors", loaded)
    for name in ("in/a.png", "old/target/target.png"):
        save_picture(folder / name, np.full((32, 32, 3), 99, np.uint8))
    (folder / "points.csv").write_text("a.png,10,10,20,10,15,15,11,20,19,20\n")
    for name in ("official", "with", "without"):
        np.savez(folder / f"{name}.npz", w=np.zeros((2, 8), np.float32))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return originals(tmp_path_factory.mktemp("originals"))


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """The current folder, with them."""
    monkeypatch.chdir(shutil.copytree(made, tmp_path / "here"))


@pytest.mark.parametrize(("words", "original"), ORIGINALS)
def test_commands_never_overwrite_their_source(here, words, original):
    before = contents(Path())
    line = run_fails(*words.split(), "--overwrite")
    assert line == f"Error: {original} is the source; choose another name to write"
    assert contents(Path()) == before


WRITERS = [  # words, and a file that the command writes
    ("align in out --landmarks points.csv --size 32", "out/a.png"),
    ("blend g.pt new.pt --share 1 --out b.pt", "b.pt"),
    ("convert g.pt c.pt", "c.pt"),
    ("convert official.pkl c.pt --discriminator d.pt", "c.pt"),
    ("convert official.pkl c.pt --discriminator d.pt", "d.pt"),
    ("directions find g.pt --samples 99 --count 2 --figure d.png", "d-pca.png"),
    ("export g.pt e.safetensors", "e.safetensors"),
    ("export g.pt e.pt2", "e.pt2"),
    ("export g.pt hub --license mit", "hub/README.md"),
    ("figure grid g.pt --seeds 0,1 --out g.png", "g.png"),
    ("generate g.pt --seeds 1 --out out", "out/seed0001.png"),
    ("video walk g.pt --seeds 0,1 --seconds 0.1 --out w.gif", "w.gif"),
]
REPORT = ("report run --out page.html", "page.html")  # which may replace a page of its own


@pytest.mark.parametrize(("words", "out"), [*WRITERS, REPORT])
def test_commands_keep_an_existing_file_without_overwrite(here, words, out):
    Path(out).parent.mkdir(exist_ok=True)
    Path(out).write_text("theirs")
    before = contents(Path())
    assert f"{out} exists; pass --overwrite" in run_fails(*words.split())
    assert contents(Path()) == before
    run_ok(*words.split(), "--overwrite")
    assert Path(out).read_bytes() != b"theirs"


@pytest.mark.parametrize(("words", "out"), WRITERS)
def test_commands_keep_a_file_that_another_process_writes_meanwhile(here, monkeypatch, words, out):
    def writing(descriptor):
        Path(out).parent.mkdir(exist_ok=True)
        Path(out).write_text("theirs")
        wait_for_disk(descriptor)

    wait_for_disk = filesystem.wait_for_disk  # the last that is done before a file gets its name
    monkeypatch.setattr(filesystem, "wait_for_disk", writing)
    assert f"{out} exists; pass --overwrite" in run_fails(*words.split())
    assert Path(out).read_text() == "theirs"


def test_mistakes_cover_every_command():
    assert {words.split()[0] for words, _, _ in MISTAKES} == {"trian", *COMMANDS}
