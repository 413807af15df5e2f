"""Every source of a generator, and what is said about everything else."""

import hashlib
import pickle
import shutil
import socket
import threading
from http.client import HTTPException
from pathlib import Path

import pytest
import torch
from tiny_generators import TINY, assert_same_weights, named_by_hash, random_generator

import stylegan
from stylegan.config import TrainConfig
from stylegan.files import checkpoint, download
from stylegan.files.download import hash_prefix
from stylegan.files.formats.own import save_discriminator
from stylegan.files.loading import load_generator, load_source, save_generator
from stylegan.interop import load_official
from stylegan.networks import Discriminator, Generator, NetworkConfig
from stylegan.schedule import Position, ScheduleConfig
from stylegan.training import TrainState

ABSENT = object()
HOST = "https://host.invalid"
SNAPSHOT = Path(__file__).parent / "reference" / "official_snapshot.pkl"


def training_state(images_seen=0):
    """Tiny, with an average that differs from the generator, in the schedule 8, 16 of 1 kimg."""
    schedule = ScheduleConfig(resolution=16, stable_kimg=1, fade_kimg=1, total_kimg=4)
    state = TrainState.create(TrainConfig(network=TINY, schedule=schedule))
    state.generator_ema.load_state_dict(random_generator(seed=9).state_dict())
    state.position = Position(images_seen, images_seen)
    return state


def save_state(path, images_seen=0, **extra):
    state = training_state(images_seen)
    checkpoint.save(path, "state", {**state.to_payload(), **extra})
    return state


# Our files


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_generator_comes_back_bit_for_bit_in_eval_mode_without_code(tmp_path, dtype):
    generator, path = random_generator().to(dtype).train(), tmp_path / "mine.pt"
    save_generator(path, generator)
    before = torch.get_rng_state()
    back = load_generator(path)
    assert torch.equal(before, torch.get_rng_state())
    assert_same_weights(generator, back)
    assert (back.config, back.w_avg.dtype, back.training) == (TINY, dtype, False)
    assert all(p.requires_grad for p in back.parameters())
    assert stylegan.load_generator(str(path)).config == TINY
    assert torch.load(path, weights_only=True)["kind"] == "generator"


def test_what_a_file_tells_comes_back(tmp_path):
    path = tmp_path / "mine.pt"
    about = {
        "images_seen": 1200,
        "resolution": 8,
        "alpha": 0.25,
        "psi": 0.5,
        "cutoff": None,
        "label_names": ("cat", "dog"),
        "active_rectangle": [2, 14, 0, 16],
    }
    config = NetworkConfig(resolution=16, z_dim=4, label_dim=2, max_channels=4)
    save_generator(path, Generator(config), **about)
    loaded = load_source(path)
    assert {name: getattr(loaded, name) for name in about} == about
    assert loaded.origin == f"generator file {path}"


def test_without_more_a_file_is_of_a_finished_network_with_the_official_truncation(tmp_path):
    save_generator(tmp_path / "mine.pt", random_generator())
    loaded = load_source(tmp_path / "mine.pt")
    assert (loaded.resolution, loaded.alpha, loaded.images_seen) == (16, 1.0, None)
    assert (loaded.psi, loaded.cutoff, loaded.label_names) == (0.7, 8, ())


@pytest.mark.parametrize(
    ("images_seen", "resolution", "alpha"), [(0, 8, 1.0), (1500, 16, 0.5), (3000, 16, 1.0)]
)
def test_a_state_gives_its_average_generator_at_the_stage_it_was_saved_in(
    tmp_path, images_seen, resolution, alpha
):
    path = tmp_path / "state-000001500.pt"
    state = save_state(path, images_seen, label_names=[], active_rectangle=[2, 14, 0, 16])
    loaded = load_source(path)
    assert_same_weights(loaded.generator, state.generator_ema)
    assert (loaded.resolution, loaded.images_seen) == (resolution, images_seen)
    assert loaded.alpha == pytest.approx(alpha, abs=1e-3)
    assert (loaded.label_names, loaded.active_rectangle) == ((), [2, 14, 0, 16])
    assert not loaded.generator.training


# Run folders


def test_a_run_gives_its_newest_generator_by_number(tmp_path):
    for seed, number in enumerate(("000000900", "000001000", "1001", "000000999")):
        save_generator(tmp_path / f"generator-{number}.pt", random_generator(seed=seed))
    save_state(tmp_path / "state-000002000.pt")
    loaded = load_source(tmp_path)
    assert_same_weights(loaded.generator, random_generator(seed=2))
    assert loaded.origin.endswith("generator-1001.pt")


def test_a_run_without_generators_gives_its_newest_state_that_can_be_read(tmp_path):
    save_state(tmp_path / "state-000000100.pt", 100)
    save_state(tmp_path / "state-000000200.pt", 200)
    newest = tmp_path / "state-000000300.pt"
    newest.write_bytes((tmp_path / "state-000000200.pt").read_bytes()[:1000])
    loaded = load_source(str(tmp_path))
    assert loaded.images_seen == 200
    assert f"not used: {newest}" in loaded.origin


def test_a_run_of_damaged_states_is_an_error_that_names_the_newest(tmp_path):
    for number in (1, 2):
        (tmp_path / f"state-{number}.pt").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match=r"state-2\.pt is not a checkpoint"):
        load_source(tmp_path)


def test_a_folder_that_is_no_run_is_an_error_that_says_what_is_accepted(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither generator-\*\.pt nor.*bundled name"):
        load_source(tmp_path)


# Official files


def test_an_official_snapshot_of_any_name_gives_its_average_generator_and_truncation(tmp_path):
    loaded = load_source(shutil.copy(SNAPSHOT, tmp_path / "renamed.pt"))
    official = load_official(SNAPSHOT)
    assert_same_weights(loaded.generator, official.generator_ema)
    assert (loaded.psi, loaded.cutoff) == (official.psi, official.cutoff)
    assert (loaded.resolution, loaded.images_seen) == (32, None)
    assert not loaded.generator.training


# What is no generator


def test_a_missing_file_is_an_error_that_says_what_is_accepted(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"no .*gone\.pt; accepted are a run folder, .*\.pkl"
    ):
        load_source(tmp_path / "gone.pt")


def test_a_discriminator_file_says_that_it_is_one(tmp_path):
    path = tmp_path / "critic.pt"
    save_discriminator(path, Discriminator(TINY))
    with pytest.raises(ValueError, match=r"critic\.pt is a discriminator file; pictures need"):
        load_source(path)


def test_a_file_with_code_is_refused_without_advice_to_run_it(tmp_path):
    path = tmp_path / "model.pt"
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(ValueError, match="it was refused") as error:
        load_source(path)
    assert "weights_only" not in str(error.value)


@pytest.mark.parametrize("name", ["what.pt", "what.pkl"])
@pytest.mark.parametrize("content", [b"", b"words", b"PK\x03\x04", b"\x80\x02.", pickle.dumps([1])])
def test_damaged_and_foreign_files_are_errors_that_name_the_file(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=name):
        load_source(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resolution": ABSENT}, "cannot be used: 'resolution' is missing"),
        ({"weights": ABSENT}, "damaged: .*field 'weights'"),
        ({"kind": ABSENT}, "damaged: its kind is None"),
        ({"version": ABSENT}, "damaged: its version is None"),
        ({"weights": {}}, "w_avg: missing"),
        ({"config": {"resolution": 8}}, "the weights do not fit the network"),
        ({"config": {"resolution": 12}}, "resolution 12 is not a power of two"),
        ({"config": {"resolutoin": 8}}, "resolutoin"),
        ({"alpha": None, "version": 2}, "version 2; this program reads up to 1"),
        ({"version": "1"}, "its version is '1', not a whole number"),
        ({"version": None}, "its version is None, not a whole number"),
        ({"kind": None}, "its kind is None, not one of state, generator, discriminator"),
        ({"kind": "critic"}, "its kind is 'critic', not one of"),
        ({"kind": ["state"]}, r"its kind is \['state'\], not one of"),
        ({"kind": "state"}, "damaged: weights must .* not NoneType .field 'generator'"),
        ({"weights": None}, "weights must be tensors by name, not NoneType .field 'weights'"),
        ({"weights": [torch.zeros(1)]}, "weights must be tensors by name, not list"),
        ({"weights": {"w_avg": 3.0}}, "weights must be tensors by name; 'w_avg': float"),
        ({"weights": {"w_avg": torch.zeros(8), "x": 1}}, "weights must be tensors by name; 'x'"),
        ({"weights": {0: torch.zeros(8)}}, "weights must be tensors by name; 0: Tensor"),
    ],
)
def test_a_file_whose_parts_do_not_fit_is_an_error_that_names_both(tmp_path, change, message):
    path = tmp_path / "mine.pt"
    save_generator(path, random_generator())
    payload = torch.load(path, weights_only=True) | change
    torch.save({name: value for name, value in payload.items() if value is not ABSENT}, path)
    with pytest.raises(ValueError, match=rf"mine\.pt.*{message}"):
        load_source(path)


def test_a_state_whose_weights_are_no_tensors_is_an_error_that_names_the_network(tmp_path):
    path = tmp_path / "state-000000100.pt"
    save_state(path, 100, generator_ema={"w_avg": "words"})
    with pytest.raises(ValueError, match=r"'w_avg': str .field 'generator_ema'"):
        load_source(path)


@pytest.mark.parametrize("resolution", [0, 12, 32])
def test_a_generator_is_not_saved_with_a_resolution_that_it_cannot_make(tmp_path, resolution):
    with pytest.raises(ValueError, match=f"resolution {resolution} is not a power of two"):
        save_generator(tmp_path / "mine.pt", random_generator(), resolution=resolution)
    assert not list(tmp_path.iterdir())


# Bundled names


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    """A weights folder with a tiny `emoji32`."""
    monkeypatch.setattr(download, "WEIGHTS", tmp_path)
    save_generator(tmp_path / "new.pt", random_generator())
    return named_by_hash(tmp_path / "new.pt", "emoji32")


def test_a_bundled_name_comes_before_a_path(bundled, tmp_path, monkeypatch):
    (tmp_path / "emoji32").mkdir()
    monkeypatch.chdir(tmp_path)
    assert_same_weights(load_generator("emoji32"), random_generator())
    with pytest.raises(FileNotFoundError, match="the folder emoji32 holds neither"):
        load_generator("./emoji32")


def test_a_changed_or_missing_bundled_file_is_an_error(bundled):
    bundled.write_bytes(bundled.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="is damaged: its SHA-256 begins with"):
        load_generator("emoji32")
    bundled.unlink()
    with pytest.raises(FileNotFoundError, match=r"0 files emoji32-<hash>\.pt are in "):
        load_generator("emoji32")


# Addresses


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://host/a.pt", "is not an https address"),
        ("ftp://host/a.pt", "is not an https address"),
        ("file:///etc/passwd", "is not an https address"),
        ("https://host/", "does not name a file"),
        (f"{HOST}/generator-000600000.pt", r"does not specify the SHA-256 .*add #sha256="),
        (f"{HOST}/karras2019stylegan-ffhq-1024x1024.pkl", "does not specify the SHA-256"),
        (f"{HOST}/a.pt#sha256=0123", "not in #sha256=<8 to 64 hexadecimal digits>"),
        (f"{HOST}/a.pt#0123456789", "not in #sha256="),
        (f"{HOST}:x/a-0123abcd.pt", "is not an address: Port could not be cast"),
        ("https://[/a-0123abcd.pt", "is not an address: Invalid IPv6"),
        (f"{HOST}/my file-0123abcd.pt", "has a blank or another character that needs a %"),
        (f"{HOST}/a\n-0123abcd.pt", "has a blank or another character that needs a %"),
    ],
)
def test_an_address_is_of_https_and_specifies_the_hash_of_a_file(hub_cache, url, message):
    with pytest.raises(ValueError, match=message):
        load_source(url)
    assert not hub_cache.exists()


@pytest.mark.parametrize(
    ("name", "digits"),
    [
        ("emoji32-0123abcd.pt", "0123abcd"),
        ("stylegan_ffhq256-0123abcd4567.pkl", "0123abcd4567"),
        ("karras2019stylegan-ffhq-1024x1024.pkl", None),
        ("generator-000600000.pt", None),
        ("state-000600000.pt", None),
        ("mine-cafe.pt", None),
    ],
)
def test_the_hash_in_a_file_name_is_not_mistaken_for_a_number(name, digits):
    assert hash_prefix(name) == digits


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path / "hub" / "checkpoints"


def test_a_file_that_was_downloaded_before_needs_no_network(hub_cache):
    hub_cache.mkdir(parents=True)
    save_generator(hub_cache / "new.pt", random_generator())
    path = named_by_hash(hub_cache / "new.pt", "faces")
    assert_same_weights(load_generator(f"https://host.invalid/{path.name}"), random_generator())
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="is damaged"):
        load_generator(f"https://host.invalid/{path.name}")


def test_files_of_one_name_from_two_addresses_are_kept_apart(hub_cache):
    urls = []
    for seed, run in enumerate("ab"):
        name = f"{run}.pt"
        save_generator(hub_cache.parent.parent / name, random_generator(seed=seed))
        content = (hub_cache.parent.parent / name).read_bytes()
        digits = hashlib.sha256(content).hexdigest()
        (hub_cache / digits).mkdir(parents=True)
        (hub_cache / digits / "generator-000600000.pt").write_bytes(content)
        urls.append(f"https://host.invalid/{run}/generator-000600000.pt#sha256={digits}")
    for seed, url in enumerate(urls):
        assert_same_weights(load_generator(url), random_generator(seed=seed))


def test_a_hash_after_the_address_counts_more_than_one_in_the_name(hub_cache):
    (hub_cache / "89abcdef").mkdir(parents=True)
    save_generator(hub_cache / "89abcdef" / "x-0123abcd.pt", random_generator())
    with pytest.raises(ValueError, match=r"is damaged: its SHA-256 begins with .*, not 89abcdef"):
        load_generator("https://host.invalid/x-0123abcd.pt#sha256=89abcdef")


def test_without_a_network_the_message_says_where_to_put_the_file(hub_cache):
    with pytest.raises(OSError, match=r"could not be downloaded.*put the file at .*x-0123abcd\.pt"):
        load_generator("https://127.0.0.1:9/x-0123abcd.pt")
    assert not hub_cache.exists()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "timed out"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n1234", "timed out"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b"1" * 9000, "larger than"),
        (b"words\r\n\r\n", "words"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\n1234", "the SHA-256 of what came"),
    ],
)
def test_a_server_that_does_not_answer_well_leaves_nothing(tmp_path, monkeypatch, answer, message):
    monkeypatch.setattr(download, "TIMEOUT", 0.3)
    monkeypatch.setattr(download, "LARGEST", 8192)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            kept.append(server.accept()[0])  # as nobody closes it, the client waits
            kept[0].sendall(answer)

        kept = []
        threading.Thread(target=serve, daemon=True).start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a.pt"
        with pytest.raises((OSError, HTTPException, ValueError), match=message):
            download.download(address, tmp_path / "a.pt", "0123abcd")
        assert list(tmp_path.iterdir()) == []
        kept[0].close()


def test_an_address_whose_host_has_no_name_is_an_error_of_one_line(hub_cache):
    with pytest.raises(OSError, match="could not be downloaded"):
        load_source("https://a..b/x-0123abcd.pt")
