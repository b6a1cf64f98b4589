"""From the command line's words to a topology and a map."""

import pytest

from workbench.errors import ConfigError
from workbench.survey.read import LARGEST, map_of, topology_of


def test_names_of_machines():
    assert topology_of("preset:l40s-4").name == "l40s-4"
    assert len(topology_of("cpu:3").gpus) == 3
    assert topology_of(None).gpus


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("preset:dgx-b9", "dgx"),
        ("cpu:0", "it takes 1 to 1024 slots"),
        ("cpu:99999999999999", "it takes 1 to 1024 slots"),
        ("gone.txt", "No such file or directory"),
        ("cpu:x", "No such file or directory"),
        (".", "Is a directory"),
        ("a\0b", "null byte"),
        ("/dev/zero", "it has more than 4 MiB"),
    ],
)
def test_what_names_no_topology(text, words):
    with pytest.raises(ConfigError, match=words):
        topology_of(text)


def test_a_file_too_long_for_a_matrix(tmp_path):
    (tmp_path / "long.txt").write_bytes(b"x" * (LARGEST + 1))
    with pytest.raises(ConfigError, match=r"long.txt': it has more than 4 MiB"):
        topology_of(str(tmp_path / "long.txt"))


def test_a_map_that_is_none(tmp_path):
    for name, content in (("binary.yaml", b"\x80\x81"), ("empty.yaml", b""), ("list.yaml", b"- 1\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=name):
            map_of(str(tmp_path / name))
    with pytest.raises(ConfigError, match="Is a directory"):
        map_of(str(tmp_path))
