"""``workbench reshard`` as a user types it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from workbench.cli import main
from workbench.errors import ConfigError
from workbench.survey.reshard import listed, plan, read_bytes


def typed(*options: str):
    return CliRunner().invoke(main, ["reshard", *options])


def test_as_json_it_is_this_and_nothing_else():
    result = typed("--train", "1,8,2", "--generate", "1,2", "--bytes", "14e9", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "hybrid": {"moved": 5_250_000_000, "peak": 7_000_000_000, "redundant": 0},
        "full_gather": {"moved": 13_125_000_000, "peak": 14_000_000_000, "redundant": 875_000_000},
        "vanilla": {"moved": 12_250_000_000, "peak": 14_000_000_000, "redundant": 1_750_000_000},
        "micro_dp": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
        "generate_tp": [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]],
    }


def test_a_fraction_of_a_byte_is_not_rounded_away():
    found = json.loads(typed("--train", "1,3,1", "--generate", "1,1", "--bytes", "10", "--json").stdout)
    assert found["hybrid"] == {"moved": pytest.approx(20 / 3), "peak": 10, "redundant": 0}


def test_for_people_a_table_the_groups_and_a_drawing():
    shown = typed("--train", "1,4,2", "--generate", "1,2", "--bytes", "14GB").stdout.splitlines()
    assert shown[0] == "14 GB of weights on 8 GPUs: training 1-4-2 (p-t-d), generation 1-2-2-2 (p_g-t_g-d_g-d)"
    assert shown[3].split()[-6:] == ["3.5", "GB", "7", "GB", "0", "B"]
    assert shown[7:9] == ["micro-DP groups       [0,1] [2,3] [4,5] [6,7]", "generation TP groups  [0,2] [1,3] [4,6] [5,7]"]
    assert shown[12] == f"   0  {'█' * 12}{'░' * 12}{'·' * 24}  1"
    assert len(shown) == 12 + 8


@pytest.mark.parametrize("grid", [("1,8,2", "1,2"), ("8,8,8", "1,4"), ("64,1,1", "1,1"), ("1,64,1", "1,1"), ("4,16,1024", "2,8")])
def test_nothing_is_wider_than_100_columns(grid):
    shown = typed("--train", grid[0], "--generate", grid[1], "--bytes", "1234567890123").stdout
    assert max(map(len, shown.splitlines())) <= 100


def test_a_model_in_place_of_its_bytes():
    found = json.loads(typed("--train", "1,4,1", "--generate", "1,1", "--model", "shape:qwen2.5-7b", "--json").stdout)
    assert found["hybrid"]["peak"] == 2 * 7_615_616_512


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("14e9", 14 * 10**9),
        ("14000000000", 14 * 10**9),
        ("14GB", 14 * 10**9),
        (" 14 gb ", 14 * 10**9),
        ("13.0GiB", 13 * 2**30),
        ("13.1GiB", 14066017894),  # 14066017894.4
        (".5kB", 500),
        ("1.5e+3b", 1500),
        ("1EB", 10**18),
    ],
)
def test_bytes_as_people_write_them(text, count):
    assert read_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GB", "14GX", "-1", "nan", "inf", "1e999", "1_000", "0", "0.2", "2EB", "١٤", "1e-3", "14 G B"])
def test_what_is_no_number_of_bytes(text):
    with pytest.raises(ConfigError, match=r"fix: write 14e9, 14GB or 13\.0GiB"):
        read_bytes(text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--train", "1,8,2", "--generate", "1,3", "--bytes", "14e9"],
            "training tensor size 8 is no multiple of 3\n  fix: give one of 1, 2, 4, 8",
        ),
        (["--train", "2,8,2", "--generate", "4,1", "--bytes", "14e9"], "training pipeline size 2 is no multiple of 4"),
        (["--train", "1,0,2", "--generate", "1,1", "--bytes", "14e9"], "t is 0"),
        (["--train", "9999,9999,2", "--generate", "1,1", "--bytes", "14e9"], "at most 65,536 ranks"),
        (
            ["--train", "1,8", "--generate", "1,1", "--bytes", "14e9"],
            "--train 1,8: that is not P,T,D, 3 whole numbers\n  fix: write --train 1,8,2",
        ),
        (["--train", "1,8,2", "--generate", "1,1,1", "--bytes", "14e9"], "that is not PG,TG, 2 whole numbers"),
        (["--train", "1,8,-2", "--generate", "1,1", "--bytes", "14e9"], "that is not P,T,D"),
        (["--train", "1,8,2", "--generate", "1,1", "--bytes", "much"], "--bytes much: that is no number of bytes"),
        (["--train", "1,8,2", "--generate", "1,1"], "neither --bytes nor --model was given"),
        (["--train", "1,8,2", "--generate", "1,1", "--bytes", "1", "--model", "tiny"], "--bytes and --model were both given"),
        (["--train", "1,8,2", "--generate", "1,1", "--model", "shape:gpt-9"], "the built-in shapes are"),
        (["--generate", "1,1", "--bytes", "1"], "Missing option '--train'"),
    ],
)
def test_what_can_not_be_is_exit_code_2_and_says_why(options, words):
    for more in ([], ["--json"]):
        result = typed(*options, *more)
        assert (result.exit_code, result.stdout) == (2, "")
        assert words in result.stderr


def test_many_groups_in_one_line():
    assert listed(((0, 1), (2, 3))) == "[0,1] [2,3]"
    assert listed(tuple((rank,) for rank in range(100)), width=30) == "[0] [1] [2] [3] [4] and 95 more"
    assert listed((tuple(range(64)), tuple(range(64, 128)))) == "2 of 64 ranks"


def test_nothing_heavy_is_loaded():
    code = "import sys; from workbench.survey.reshard import plan; str(plan('1,8,2', '1,2', '14e9', None)); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "vllm", "ray"} & set(loaded)


def test_the_installed_command():
    workbench = str(Path(sys.executable).parent / "workbench")
    done = subprocess.run(
        [workbench, "reshard", "--train", "1,8,2", "--generate", "1,5", "--bytes", "14e9"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: generation groups of 1 stages x 5 tensor shards")
    assert plan("1,4,2", "1,2", "8", None).report.micro_dp == ((0, 1), (2, 3), (4, 5), (6, 7))
