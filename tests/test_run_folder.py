"""What a run folder knows: the numbers of its files, which are kept, its configuration and data."""

import pytest

from stylegan.config import load_config
from stylegan.run_folder import RunFolder, images_of


def with_states(path, numbers):
    for number in numbers:
        RunFolder(path).state_file(number).touch()
    return RunFolder(path)


def numbers(run):
    return [images_of(path) for path in run.states()]


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
def test_the_newest_files_and_the_milestones_stay(tmp_path, keep, milestone_images, kept):
    for number in range(10, 91, 10):
        run = with_states(tmp_path, [number])
        run.retain_states(number, keep, milestone_images)
    assert numbers(run) == kept


def test_files_beyond_the_newest_do_not_count(tmp_path):
    run = with_states(tmp_path, [10, 20, 99])  # 99 is damaged, and the run went on from 10
    run.retain_states(20, 1)
    assert numbers(run) == [20, 99]


def test_numbers_beyond_nine_digits_keep_their_order(tmp_path):
    run = with_states(tmp_path, [999_999_999, 1_000_000_000, 4])
    assert numbers(run) == [4, 999_999_999, 1_000_000_000]


def test_only_files_with_a_number_count(tmp_path):
    run = RunFolder(tmp_path)
    for name in ("generator-best.pt", "state-1.pt.partial", "samples", "state-000000005.pt"):
        (tmp_path / name).touch()
    assert (numbers(run), run.generators(), run.grids()) == ([5], [], [])
    assert run.state_file(5) == tmp_path / "state-000000005.pt" and run.saved() == 5
    assert run.sample_file(600_999).name == "000600.png"


def test_a_run_knows_its_configuration_its_skipped_images_and_its_data(tmp_path):
    run = RunFolder(tmp_path / "run")
    assert RunFolder.at(run.path) is None and run.stored_config() is None
    config = load_config("quickstart")
    run.create(config, tmp_path / "photos", [("a.png", "the file is empty")])
    assert RunFolder.at(run.path).config() == run.stored_config() == config
    assert run.skipped_file.read_text() == "a.png\tthe file is empty\n"
    assert run.data() == tmp_path / "photos"
    run.data_file.unlink()
    assert run.data() is None  # as in runs of older versions


def test_what_is_not_a_run_is_refused_by_name(tmp_path):
    (tmp_path / "notes.txt").touch()
    for path, words in [
        ("", "holds no config.toml"),
        ("gone", "does not exist"),
        ("notes.txt", "is a file"),
    ]:
        with pytest.raises(FileNotFoundError, match=words):
            RunFolder(tmp_path / path).config()
    for path, words in [("", "is not empty and holds no config.toml"), ("notes.txt", "is a file")]:
        with pytest.raises(ValueError, match=words):
            RunFolder(tmp_path / path).stored_config()
