"""Official pickles: read without being executed, and told apart from everything else."""

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.official import SETTINGS, dumps, generator_variables, network_class, snapshot_objects

from stylegan.files.formats.pickles import InertType
from stylegan.interop import generator_from_official, load_official

ODD = [
    np.array([None, "a"], object),
    np.array(["a"]),
    np.zeros(2, [("a", "f4")]),
    np.zeros(1, "M8[s]"),
]
SNAPSHOT = Path(__file__).parent / "reference" / "official_snapshot.pkl"


@pytest.fixture
def official(monkeypatch):
    return network_class(monkeypatch)


def write(tmp_path, content, protocol=4):
    path = tmp_path / "network.pkl"
    data = content if isinstance(content, bytes) else dumps(content, protocol)
    path.write_bytes(data)
    return path


def call(module, name, argument=b"1"):
    """Protocol 2 instructions for `module.name(argument)`."""
    return b"\x80\x02c%s\n%s\nU%c%s\x85R." % (
        module.encode(),
        name.encode(),
        len(argument),
        argument,
    )


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("protocol", [3, 4])
def test_a_snapshot_loads_whatever_the_protocol_and_the_order_of_its_arrays(
    official, tmp_path, protocol, order
):
    g, d, ema = snapshot_objects(official)
    for part in ema.components.values():
        part.variables = [(name, np.array(value, order=order)) for name, value in part.variables]
    snapshot = load_official(write(tmp_path, (g, d, ema), protocol))
    expected = generator_from_official(generator_variables(), SETTINGS).state_dict()
    for name, tensor in snapshot.generator_ema.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0)


def test_generator_and_discriminator_share_their_configuration(official, tmp_path):
    group = {"mbstd_group_size": 2}
    snapshot = load_official(write(tmp_path, snapshot_objects(official, d_settings=group)))
    assert snapshot.generator.config == snapshot.discriminator.config
    assert snapshot.generator.config.deviation_group == 2
    assert snapshot.discriminator.config.w_dim == 5


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (0.7, 8)),
        ({"truncation_psi": 0.5, "truncation_cutoff": 4}, (0.5, 4)),
        ({"truncation_psi": None}, (1.0, None)),
        ({"truncation_cutoff": 0}, (1.0, None)),
    ],
)
def test_truncation_is_what_the_file_says_and_none_without_a_cutoff(
    official, tmp_path, settings, expected
):
    snapshot = load_official(write(tmp_path, snapshot_objects(official, settings)))
    assert (snapshot.loaded.psi, snapshot.loaded.cutoff) == expected


@pytest.mark.parametrize("odd", ODD)
def test_arrays_of_other_than_plain_numbers_are_refused(official, tmp_path, odd):
    with pytest.raises(ValueError, match="variable odd that does not hold plain numbers"):
        load_official(write(tmp_path, snapshot_objects(official, extra={"odd": odd})))


def test_an_array_that_claims_more_than_its_bytes_is_refused(official, tmp_path):
    class Claim:
        def __reduce__(self):
            function, arguments, state = np.zeros(3, np.float32).__reduce__()
            return function, arguments, (state[0], (2**40, 2**20), *state[2:])

    objects = snapshot_objects(official)
    objects[0].variables.append(("huge", Claim()))
    with pytest.raises(ValueError, match=r"huge that claims shape \(1099511627776, 1048576\)"):
        load_official(write(tmp_path, objects))


@pytest.mark.parametrize("state", [b"}U\x04argsK\x01s", b"N}U\x04argsK\x01s\x86"])
def test_a_file_cannot_change_the_classes_of_its_records(tmp_path, state):
    with pytest.raises(ValueError, match="damaged or truncated"):
        load_official(write(tmp_path, b"\x80\x02cnumpy\nndarray\n" + state + b"b0N."))
    assert InertType.args == ()


def test_a_truncated_file_is_a_clean_error_wherever_it_ends(tmp_path):
    data = SNAPSHOT.read_bytes()
    for length in (3, 10, 40, 1000, len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError, match="damaged or truncated"):
            load_official(write(tmp_path, data[:length]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a pickle of protocol 2 to 4"),
        (b"(lp0\n.", "is not a pickle of protocol 2 to 4"),
        (b"PK\x03\x04...", "torch.save writes: use load_generator"),
        ({"G": 1}, "holds dict, not three networks"),
        (call("tfutil", "Network"), "this is a Progressive GAN snapshot"),
        (call("torch_utils.persistence", "_reconstruct_persistent_obj"), "StyleGAN2-ADA"),
    ],
)
def test_a_file_of_another_kind_is_told_apart(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        load_official(write(tmp_path, content))


@pytest.mark.parametrize(
    ("builder", "program"),
    [("G_paper", ", of Progressive GAN"), ("G_main", ", of StyleGAN2"), ("G_mapping", "")],
)
def test_networks_of_other_programs_are_refused_by_their_builder(
    official, tmp_path, builder, program
):
    g, d, ema = snapshot_objects(official)
    g.build_func_name = builder
    with pytest.raises(
        ValueError, match=f"generator built by {builder} instead of G_style{program};"
    ):
        load_official(write(tmp_path, (g, d, ema)))


def test_a_snapshot_that_contradicts_its_settings_is_an_error_with_the_path(official, tmp_path):
    path = write(tmp_path, snapshot_objects(official, {"mapping_layers": 3}))
    with pytest.raises(ValueError, match=r"network.pkl: .*G_mapping/Dense2/weight is missing"):
        load_official(path)
