"""What a run folder knows: the numbers of its files, which are kept, its configuration and data."""

import dataclasses
import io
import shutil

import pytest

from stylegan.config import load_config
from stylegan.files.run_folder import RunFolder, images_seen_in_name
from stylegan.metrics.image_folders import holds_images
from stylegan.utils.lineage import sha256_of
from stylegan.utils.records import append_line, read_lines, to_line


def with_states(path, numbers):
    for number in numbers:
        RunFolder(path).state_file(number).touch()
    return RunFolder(path)


def numbers(run):
    return [images_seen_in_name(path) for path in run.states()]


@pytest.mark.parametrize(
    ("keep", "milestone_images", "kept"),
    [
        (3, 0, [70, 80, 90]),
        (1, 0, [90]),
        (2, 30, [30, 60, 80, 90]),
        (2, 25, [30, 50, 80, 90]),  # the first after each multiple; 75's is among the newest
        (9, 0, [10, 20, 30, 40, 50, 60, 70, 80, 90]),
    ],
)
def test_retain_states_keeps_the_newest_and_the_milestones(tmp_path, keep, milestone_images, kept):
    for number in range(10, 91, 10):
        run = with_states(tmp_path, [number])
        run.retain_states(number, keep, milestone_images)
    assert numbers(run) == kept


def test_run_folder_stores_configuration_skipped_images_and_data(tmp_path):
    run = RunFolder(tmp_path / "run")
    assert RunFolder.of(run.path) is None and run.stored_config() is None
    config = load_config("quickstart")
    run.create(config, tmp_path / "photos", [("a.png", "the file is empty")])
    assert RunFolder.of(run.path).config() == run.stored_config() == config
    (tmp_path / "config.toml").write_text('baseURL = "https://example.org"\n')
    assert RunFolder.of(tmp_path) is None and holds_images(str(tmp_path))  # somebody else's
    assert run.skipped_file.read_text() == "a.png\tthe file is empty\n"
    assert run.data() == tmp_path / "photos"
    run.data_file.unlink()
    assert run.data() is None  # as in runs of older versions


def test_create_rewrites_config_toml_only_if_values_change(tmp_path):
    run, photos = RunFolder(tmp_path / "run"), tmp_path / "photos"
    config = load_config("quickstart")
    assert run.create(config, photos, []) == []
    written = run.config_file.read_text()
    longer = dataclasses.replace(config, seed=config.seed + 1)
    assert run.create(longer, photos, []) == []
    assert len(list(run.path.glob("*.toml"))) == 1  # of text that nobody has changed
    edited = f"# why I chose it\n{written}".replace("\n", "\r\n").encode()
    run.config_file.write_bytes(edited)
    assert run.create(config, photos, []) == []
    assert run.config_file.read_bytes() == edited
    for _ in range(2):
        run.config_file.write_bytes(edited)
        (note,) = run.create(longer, photos, [])
        (copy,) = run.path.glob("config-*.toml")
        assert str(copy) in note and copy.read_bytes() == edited and run.config() == longer


def test_run_folder_of_a_stranger_does_not_write_through_links(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("text\n")
    run = RunFolder(tmp_path / "run")
    config = load_config("quickstart")
    run.create(config, tmp_path, [])
    run.config_file.write_text(f"# $(run this)\n{run.config_file.read_text()}")
    (run.path / f"config-{sha256_of(run.config_file)[:8]}.toml").symlink_to(mine)
    with pytest.raises(ValueError, match="exists"):
        run.create(dataclasses.replace(config, seed=3), tmp_path, [])
    run.log_file.symlink_to(mine)
    with pytest.raises(OSError, match="is a link"):
        append_line(run.log_file, "{}")
    assert mine.read_text() == "text\n"


def test_create_appends_to_skipped_txt_and_removes_nothing(tmp_path):
    run = RunFolder(tmp_path / "run")
    config = load_config("quickstart")
    run.create(config, tmp_path, [("a.png", "empty")])
    with open(run.skipped_file, "a") as file:
        file.write("scan a.png again")
    expected = "a.png\tempty\nscan a.png again"
    run.create(config, tmp_path, [])
    run.create(config, tmp_path, [("a.png", "empty")])
    assert run.skipped_file.read_text() == expected
    for _ in range(2):
        run.create(config, tmp_path, [("a.png", "empty"), ("b\n.png", "gone")])
        assert run.skipped_file.read_text() == f"{expected}\n'b\\n.png'\tgone\n"


def test_locked_removes_only_our_own_partial_files(tmp_path):
    run = RunFolder(tmp_path)
    run.samples.mkdir()
    ours = [".config.toml.", ".state-000000144.pt.", ".report.html.", "samples/.000600.png."]
    left = [f"{name}0123456789abcdef.partial" for name in ours]
    mine = ["state-000000144.partial", "thesis.partial", ".notes.partial"]
    mine.append(".film.webp.0123456789abcdef.partial")  # perhaps another command writes it
    for name in [*left, *mine]:
        (tmp_path / name).touch()
    with run.locked():
        assert not any((tmp_path / name).exists() for name in left)
    assert all((tmp_path / name).exists() for name in mine)
    with pytest.raises(ValueError, match="is not empty"):
        run.stored_config()


def test_keep_locked_locks_a_new_folder_unless_another_process_trains_there(tmp_path):
    run, other = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run")
    with run.locked():
        run.keep_locked()
        shutil.rmtree(run.path)
        run.keep_locked()
        with pytest.raises(ValueError, match="another process is training in"), other.locked():
            pass
        run.path.rename(tmp_path / "mine")
        with other.locked():
            with pytest.raises(BlockingIOError, match="another run is in this folder"):
                run.keep_locked()
            other.keep_locked()
            other.config_file.touch()
        other.keep_locked()  # does nothing without a lock
        with pytest.raises(BlockingIOError):  # the other run has ended
            run.keep_locked()
        shutil.rmtree(run.path)
        (tmp_path / "mine").rename(run.path)
        run.config_file.touch()
        run.keep_locked()  # our own folder again


def test_sample_file_is_named_by_images_where_kimg_would_be_equal(tmp_path):
    run = RunFolder(tmp_path)
    names = [run.sample_file(images, tick).name for images in (3000, 3250) for tick in (0.25, 4)]
    assert names == ["000003.png", "000003.png", "000003_250.png", "000003.png"]


FIRST, TICK, SAVED = ({"event": event} for event in ("start", "progress", "saved"))


@pytest.mark.parametrize(
    ("log", "files", "lost"),
    [
        ([], [], False),
        ([FIRST, TICK], ["samples/000001.png", "generator-000001000.pt"], False),  # killed there
        ([FIRST, TICK, SAVED], [], True),
        ([FIRST, {"event": "finished"}], [], True),
        ([FIRST, TICK, SAVED], ["state-000002000.pt"], False),
    ],
)
def test_has_lost_its_states_is_true_if_saved_states_are_gone(tmp_path, log, files, lost):
    run = RunFolder(tmp_path)
    run.samples.mkdir()
    for line in log:
        append_line(run.log_file, to_line(line))
    for name in files:
        (tmp_path / name).touch()
    assert run.has_lost_its_states() == lost


def test_append_line_ends_a_partial_line_and_removes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    for content in (b"", b"{1}\n", b"{1}\n{2", b'{"mine": 1}', b"1\r2\r"):
        path.write_bytes(content)
        append_line(path, "{3}")
        end = b"" if content in (b"", b"{1}\n") else b"\n"
        assert path.read_bytes() == content + end + b"{3}\n"
    path.write_bytes(b'{"event": "start"}\n{"eve')  # a kill
    append_line(path, to_line({"event": "resume"}))
    events, bad = read_lines(path, "event")
    assert [event["event"] for event in events] == ["start", "resume"] and bad == 1

    class File(io.FileIO):
        """A file to which another process adds a line as soon as it has been read."""

        def read(self, size=-1):
            content = super().read(size)
            with open(path, "ab") as other:
                other.write(b"{4}\n")
            return content

    for content in (b"", b"{1}\n"):
        path.write_bytes(content)
        with monkeypatch.context() as racing:
            racing.setattr("builtins.open", lambda path, mode: File(path, mode.replace("b", "")))
            append_line(path, "{5}")
        assert path.read_bytes() == content + b"{4}\n{5}\n"
