"""`stylegan configs`."""

import re
import tomllib

import pytest
from helpers.commands import run_ok

from stylegan.cli.configs import AT_START, header, meanings
from stylegan.config import (
    config_names,
    flatten,
    load_config,
    option_names,
    read_options,
)


def test_configs_command_lists_each_configuration_in_one_line():
    lines = run_ok("configs").splitlines()
    assert max(map(len, lines)) <= 80
    for name in config_names():
        config = load_config(name)
        line = next(line for line in lines if line.split()[:1] == [name])
        for label in ("Data", "For"):
            (text,) = re.findall(rf"^# {label}: (.+)$", header(name), re.MULTILINE)
            assert text in line
        size, length = config.network.resolution, config.schedule.total_kimg
        assert line.split()[1:3] == [str(size), f"{length:,g}"]


def test_configs_command_explains_every_option():
    found = meanings()
    assert list(found) == option_names()
    assert not [name for name, text in found.items() if len(text) < 10]
    in_units = [text for name, text in found.items() if name.endswith(("_kimg", "_minutes"))]
    assert in_units and all(text.endswith(("[kimg]", "[minutes]")) for text in in_units)


@pytest.mark.parametrize("name", ["quickstart", "paper/table1-a-baseline", "ffhq-256"])
def test_configs_command_prints_a_complete_loadable_file(name, tmp_path):
    text = run_ok("configs", name)
    fixed = option_names()
    for option in AT_START - read_options(name).keys():
        fixed.remove(option)
        assert re.search(rf"^# follows: {option.rpartition('.')[2]} = ", text, re.MULTILINE)
    assert list(flatten(tomllib.loads(text))) == fixed
    (tmp_path / "mine.toml").write_text(text)
    for processes in (1, 8):
        mine = load_config(str(tmp_path / "mine.toml"), (), processes)
        assert mine == load_config(name, (), processes)
    lines = text.splitlines()
    comments = [
        line for line in lines if line.startswith("#") and not line.startswith("# follows: ")
    ]
    assert all(len(line) <= 80 for line in comments)
    (found,) = (i for i, line in enumerate(lines) if line.startswith("ema_half_life_kimg"))
    assert lines[found - 1] == "# half-life of the average generator [kimg]; default 10.0"
