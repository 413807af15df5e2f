"""Files of every kind, damaged at random: they load, or are refused cleanly."""

from functools import partial

import pytest
import torch
from helpers import damage
from helpers.stored_files import KINDS, draw
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stylegan.files import checkpoint
from stylegan.training.state import NETWORKS
from stylegan.utils.text import sanitize_message


def is_read(read, path):
    """Whether `read` accepts the file. Everything but that and a clean refusal fails."""
    refusal = None
    with damage.limited():
        try:
            read(path)
        except (ValueError, OSError) as error:
            refusal = error
    if refusal is None:
        return True
    text = sanitize_message(str(refusal))
    assert path.name in text and text.isprintable() and len(text) <= 2_000, text[:300]
    cause = refusal
    while cause is not None:
        assert not isinstance(cause, MemoryError) and "allocate memory" not in str(cause), text
        cause = cause.__cause__ or cause.__context__
    return False


def use_checkpoint(path):
    """Draw; and whatever loads holds the weights that were saved, since their checksums are."""
    draw(path)
    payload, good = checkpoint.load(path), checkpoint.load(path.with_suffix(".good"))
    for network in {"weights", *NETWORKS} & payload.keys():
        for name, tensor in good[network].items():
            assert torch.equal(payload[network][name], tensor)


EDITED, ARCHIVES = damage.edited, damage.archives
CASES = {name: (kind, [EDITED], kind.read) for name, kind in KINDS.items()}
for name in ("latents", "directions", "zip"):
    CASES[name][1].append(ARCHIVES)
CASES["official pickle"][1].append(damage.pickles)
for name in ("generator", "state"):
    CASES[f"{name} with right checksums"] = KINDS[name], [ARCHIVES], draw
    CASES[name] = KINDS[name], [partial(EDITED, most=1)], use_checkpoint


@pytest.mark.parametrize(
    "examples", [20, pytest.param(400, marks=pytest.mark.slow)], ids=["few", "many"]
)
@pytest.mark.parametrize("case", CASES)
def test_readers_load_or_reject_damaged_files_in_one_line(case, examples, tmp_path, capfd):
    kind, damages, read = CASES[case]
    path, refused = tmp_path / kind.file, 0
    kind.make(path)
    good = path.read_bytes()
    path.with_suffix(".good").write_bytes(good)

    def check(data):
        path.write_bytes(data)  # the last one that failed stays in the folder
        return is_read(read, path)

    read(path)  # what is imported or compiled at first use comes first
    assert check(good)

    calm = {"deadline": None, "suppress_health_check": list(HealthCheck)}

    @settings(max_examples=examples, derandomize=True, **calm)
    @given(st.one_of([damage(good) for damage in damages]))
    def run(data):
        nonlocal refused
        refused += not check(data)

    run()
    assert refused
    assert capfd.readouterr() == ("", "")
