"""All checks together: sensible maps have no errors, patches lead on, fixing ends, and it is quick."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mapping.checks.helpers import ask, codes
from tests.mapping.checks.machines import MACHINES
from workbench.errors import ConfigError
from workbench.findings import CODES, SEVERITIES
from workbench.mapping import DeviceMap, Placement
from workbench.mapping.checks import GIVING, Question, check, weight
from workbench.mapping.shapes import shape
from workbench.survey.check import mended
from workbench.topology import GPU, Topology
from workbench.topology.presets import names

ONE_NODE = {name: Topology.preset(name) for name in names()}
ALL = {**ONE_NODE, **MACHINES, "2xdgx-a100": Topology.preset("2xdgx-a100"), "cpu": Topology.cpu(slots=4)}
SHAPES = [None, *map(shape, ("shape:qwen2.5-0.5b", "shape:llama-7b", "shape:llama-70b"))]
BOTH = "node1:0-7,node2:0-7"
RECIPES = sorted((Path(__file__).parents[3] / "recipes/maps").glob("*.yaml"))


def all_gpus(count: int) -> str:
    return f"0-{count - 1}" if count > 1 else "0"


@pytest.mark.parametrize("name", ONE_NODE)
@pytest.mark.parametrize("algo", ["ppo", "grpo"])
def test_sensible_maps_of_every_machine_get_no_error_and_no_warning(name, algo):
    count = len(ONE_NODE[name].gpus)
    first, second = all_gpus(count // 2), f"{count // 2}-{count - 1}" if count > 2 else "1"
    critic = {"critic": "share:actor"} if algo == "ppo" else {}
    for roles in ({"actor": all_gpus(count)}, {"actor": all_gpus(count) + " fsdp"}, {"actor": first, "rollout": second}):
        question = ask(ONE_NODE[name], **roles, **critic, algo=algo, model="shape:qwen2.5-1.5b", batch=256)
        assert codes(question, "error") + codes(question, "warning") == []


def presets_for(path: Path) -> list[str]:
    """Machines with the nodes and at least the GPUs that a map names."""
    devices = DeviceMap.load(path)
    named = {device for role in devices.places for device in devices.devices_of(role) if device != "cpu"}
    several = any(device.startswith("node2") for device in named)
    machines = {"2xdgx-a100": ALL["2xdgx-a100"]} if several else ONE_NODE
    return [name for name, machine in machines.items() if all(machine.find(device) for device in named)]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_templates_have_no_errors_where_their_gpus_are(path):
    assert presets_for(path)
    for name in presets_for(path):
        algo = "ppo" if DeviceMap.load(path).critic else "grpo"
        question = Question(DeviceMap.load(path), ALL[name], algo=algo, shape=shape("shape:qwen2.5-0.5b"), batch=256)
        assert codes(question, "error") == [], name


devices = st.sampled_from(
    ["cpu", "0", "1", "0-1", "2-3", "0-3", "1-2", "4-7", "0-7", "0-15", "3,0", "node1:0-3", "node2:0-7", "node1:0,node2:0", "cpu:0-1"]
)
placements = st.one_of(
    st.builds(
        lambda text, layout, tp, dp, mode, policy, backend, only: (
            {"devices": text}
            | {
                key: value
                for key, value in (("layout", layout), ("tp", tp), ("dp", dp), ("mode", mode), ("placement_policy", policy))
                if value
            }
            | ({"nccl_backend": backend} if backend else {})
            | ({"inference_only": True} if only else {})
        ),
        devices,
        st.sampled_from([None, None, "fsdp"]),
        st.sampled_from([None, None, 2, 3, 4, 8]),
        st.sampled_from([None, None, None, 2]),
        st.sampled_from([None, None, "zero_copy", "merged", "adapter", "full"]),
        st.sampled_from([None, None, "static", "hybrid"]),
        st.sampled_from([None, None, "p2p", "ring", "none"]),
        st.sampled_from([False, False, False, True]),
    ),
    st.sampled_from(["share:actor", "share:rollout", "share:critic", "http://host:80"]),
)
maps = st.fixed_dictionaries({}, optional=dict.fromkeys(("actor", "critic", "rollout", "reference", "reward"), placements))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    """Any map on any machine, with any question. Maps that the reader refuses are drawn again."""
    try:
        found = DeviceMap(**draw(maps))
    except ConfigError:
        found = DeviceMap(actor=draw(devices))
    return Question(
        found,
        draw(st.sampled_from([None, *ALL.values()])),
        algo=draw(st.sampled_from([None, "ppo", "grpo"])),
        shape=draw(st.sampled_from(SHAPES)),
        batch=draw(st.sampled_from([None, 1, 6, 64])),
        lora=draw(st.booleans()),
    )


def errors(question: Question) -> set[tuple[str, str]]:
    return {(one.code, one.role) for one in check(question) if one.severity == "error"}


@settings(max_examples=40, deadline=None)
@given(questions())
def test_any_map_is_judged_and_every_patch_leads_on(question):
    before = check(question)
    assert [SEVERITIES.index(one.severity) for one in before] == sorted(SEVERITIES.index(one.severity) for one in before)
    for finding in before:
        assert finding.code in CODES
        assert all((finding.asked, finding.found, finding.fix.text))
        if finding.fix.patch is not None:
            after = check(replace(question, devices=question.devices.apply(finding)))
            assert (finding.code, finding.role) not in {(one.code, one.role) for one in after}, finding
            assert {(one.code, one.role) for one in after if one.severity == "error"} <= errors(question), finding


@settings(max_examples=60, deadline=None)
@given(questions())
def test_fixing_ends_and_never_leaves_more(question):
    better, done = mended(question)
    after = replace(question, devices=better)
    wrong = bool(errors(question))  # then nothing is given away that the map does not name
    assert not [one for one in check(after) if one.fix.patch is not None and not (wrong and one.code in GIVING)]
    assert weight(check(after)) <= weight(check(question))
    assert errors(after) <= errors(question)
    assert bool(done) == (better != question.devices)


def test_what_is_no_question():
    with pytest.raises(ConfigError, match="batch=0: a step has at least one completion"):
        Question(DeviceMap(), batch=0)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"algo": 5}, "algo=5: that is a int"),
        ({"algo": "adam"}, "the algorithms are ppo"),
        ({"shape": 5}, "model 5: that is a int"),
        ({"shape": "qwen"}, "model 'qwen'"),
        ({"batch": "x"}, "batch='x': that is a str"),
        ({"batch": 1.5}, "batch=1.5: that is a float"),
        ({"batch": True}, "batch=True: that is a bool"),
        ({"rank": "x"}, "rank='x': that is a str"),
        ({"rank": -3}, "rank=-3: an adapter has rank 1 or more"),
        ({"host": 3}, "host=3: that is a int"),
        ({"probe": "yes"}, "probe='yes': that is a str"),
        ({"lora": 0}, "lora=0: that is a int"),
        ({"topology": 7}, "topology=7: that is a int"),
    ],
)
def test_a_question_of_the_wrong_kind(asked, words):
    with pytest.raises(ConfigError, match=words):
        Question(DeviceMap(), **asked)


@pytest.mark.parametrize("gpus", [(), (GPU(0, "knöten", "A100", 80.0), GPU(0, "zwei", "A100", 80.0))])
@pytest.mark.parametrize("actor", ["0", "0-3 tp2", "node1:0", "0,0", "cpu:3"])
def test_machines_that_no_map_can_name(gpus, actor):
    """No devices at all, or nodes whose names a map can't say: findings, no exception, and no patch that no map can read."""
    question = ask(Topology("odd", gpus), actor=actor, critic="share:actor", model="shape:llama-70b", batch=1, lora=False)
    for finding in check(question):
        if finding.fix.patch is not None:
            question.devices.apply(finding)
    mended(question)


def best_of_five(work: Callable[[], object]) -> float:
    """Seconds."""
    taken = []
    for _ in range(5):
        begin = time.process_time()
        assert work()
        taken.append(time.process_time() - begin)
    return min(taken)


@pytest.mark.parametrize(
    "roles",
    [
        {"actor": "node1:0-7,node2:0-7", "rollout": "node1:0-7,node2:0-7 tp16", "critic": "node1:0-7,node2:0-7"},
        {"actor": "node1:0-7", "rollout": "node2:0-7 tp4", "critic": "node1:0-7", "reference": "node1:0-7"},
        {"actor": "0-15 fsdp tp2", "rollout": "8-15 tp3", "critic": "share:rollout", "reference": "0"},
        {"actor": BOTH, "critic": f"{BOTH} tp16", "rollout": f"{BOTH} tp16", "reference": BOTH},
    ],
)
@pytest.mark.parametrize("machine", ["2xdgx-a100", "2xrtx4090-8"])
def test_a_full_check_on_two_nodes_of_eight_takes_less_than_50_ms(roles, machine):
    topology = Topology.preset(machine)

    def work() -> object:
        fresh = replace(topology)  # nothing is cached of it
        return check(Question(DeviceMap(**roles), fresh, algo="ppo", shape=SHAPES[-1], batch=8))

    assert best_of_five(work) < 0.05


def test_to_read_and_check_sixteen_gpus_takes_less_than_50_ms():
    gpus = [f"GPU{number}" for number in range(16)]
    cells = [["X" if a == b else "NV4" if (a < 8) == (b < 8) else "SYS" for b in range(16)] for a in range(16)]
    text = "\n".join("\t".join(row) for row in [["", *gpus], *([gpu, *row] for gpu, row in zip(gpus, cells, strict=True))])
    written = "actor: 0-15\nrollout: 0-15 tp16\ncritic: 0-15\nreference: 0-3\n"

    def work() -> object:
        machine, devices = Topology.parse(text), DeviceMap.parse(written)
        return check(Question(devices, machine, algo="ppo", shape=SHAPES[-1], batch=500))

    assert len(Topology.parse(text).cliques) == 2
    assert best_of_five(work) < 0.05


def test_a_placement_says_itself_again():
    for name in ALL:
        question = ask(ALL[name], actor="0", rollout="0")
        assert question.with_map({}).devices == question.devices
    assert Placement(devices=("0",)).to_dict() == {"devices": [0]}
