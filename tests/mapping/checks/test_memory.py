"""The lower bound, against numbers by hand.

Llama-7B: P = 6,738,415,616 parameters; 2 P = 12.5513 GiB. An adapter of rank 16 on all linear layers: in each of 32 layers
16 x (4 x (4096 + 4096) + 3 x (4096 + 11008)) parameters, A = 39,976,960; 16 A = 0.5957 GiB. 16 P = 100.4102 GiB. The head has
32,000 x 4096 parameters: 2 of them are 0.2441 GiB.
"""

import pytest

from tests.mapping.checks.helpers import ask, codes, only
from workbench.mapping.checks.memory import held
from workbench.mapping.shapes import shape

LLAMA = "shape:llama-7b"
WEIGHTS, ADAPTER, FULL, HEAD = 12.5513, 0.5957, 100.4102, 0.2441


def total(question, device="local:0"):
    return sum(held(question, device).values())


def test_the_numbers_by_hand():
    assert shape(LLAMA).parameters == 6_738_415_616
    assert shape(LLAMA).lora_parameters(16) == 39_976_960
    assert pytest.approx(WEIGHTS, abs=1e-4) == 2 * 6_738_415_616 / 2**30
    assert pytest.approx(ADAPTER, abs=1e-4) == 16 * 39_976_960 / 2**30
    assert pytest.approx(FULL, abs=1e-4) == 16 * 6_738_415_616 / 2**30
    assert pytest.approx(HEAD, abs=1e-4) == 2 * 32_000 * 4096 / 2**30


@pytest.mark.parametrize(
    ("roles", "lora", "gib"),
    [
        ({"actor": "0", "rollout": "1"}, True, WEIGHTS + ADAPTER),
        ({"actor": "0-3 fsdp", "rollout": "4-7"}, True, (WEIGHTS + ADAPTER) / 4),
        ({"actor": "0-3 tp2", "rollout": "4-7"}, True, (WEIGHTS + ADAPTER) / 2),
        ({"actor": "0-7"}, True, WEIGHTS + ADAPTER + WEIGHTS),  # merged: the engine's own copy
        ({"actor": "0-7", "rollout": {"devices": [*range(8)], "mode": "zero_copy"}}, True, WEIGHTS + ADAPTER),
        ({"actor": "0-7 fsdp", "rollout": "0-7 tp8"}, True, (WEIGHTS + ADAPTER + WEIGHTS) / 8),
        ({"actor": "0", "rollout": "1", "critic": "share:actor"}, True, WEIGHTS + 2 * ADAPTER),
        ({"actor": "0", "rollout": "1", "critic": "0"}, True, WEIGHTS + ADAPTER + WEIGHTS - HEAD + ADAPTER),
        ({"actor": "0", "rollout": "1", "reference": "0"}, True, WEIGHTS + ADAPTER + WEIGHTS),
        ({"actor": "0-1 fsdp", "rollout": "2", "reference": "0-1 fsdp"}, True, (WEIGHTS + ADAPTER + WEIGHTS) / 2),
        ({"actor": "0", "rollout": "1"}, False, FULL + WEIGHTS),  # the reference is a frozen copy
        ({"actor": "0-3 fsdp", "rollout": "4-7"}, False, (FULL + WEIGHTS) / 4),
        ({"actor": "0-3 fsdp", "rollout": "4-7", "reference": "4-7"}, False, FULL / 4),
        ({"actor": "0-7 fsdp", "rollout": "0-7"}, False, (FULL + WEIGHTS) / 8 + WEIGHTS),
    ],
)
def test_what_the_first_gpu_holds(roles, lora, gib):
    assert total(ask("hgx-h100", **roles, model=LLAMA, lora=lora)) == pytest.approx(gib, abs=1e-3)


@pytest.mark.parametrize(
    ("roles", "lora", "gib"),
    [
        ({"actor": "0", "rollout": "1"}, True, WEIGHTS),
        ({"actor": "0", "rollout": "1-2 tp2"}, True, WEIGHTS / 2),
        ({"actor": "0", "rollout": "1", "reference": "1"}, True, 2 * WEIGHTS),
    ],
)
def test_what_the_second_gpu_holds(roles, lora, gib):
    assert total(ask("hgx-h100", **roles, model=LLAMA, lora=lora), "local:1") == pytest.approx(gib, abs=1e-3)


def test_the_examples_of_the_page():
    assert total(ask("dgx1-v100", actor="0-7", model=LLAMA)) == pytest.approx(13.1, abs=0.06)
    assert total(ask("dgx1-v100", actor="0-7", model=LLAMA, lora=False)) == pytest.approx(125.5, abs=0.06)
    assert total(ask("dgx1-v100", actor="0-7 fsdp", rollout="0-7", model=LLAMA, lora=False)) == pytest.approx(26.7, abs=0.06)


def test_auto_shares_one_base_where_memory_is_tight():
    tight, roomy = ask("dgx1-v100", actor="0-7", model=LLAMA), ask("hgx-h100", actor="0-7", model=LLAMA)
    assert (tight.resolved["rollout"].mode, roomy.resolved["rollout"].mode) == ("zero_copy", "merged")
    assert codes(tight) == codes(roomy) == []


def test_too_large_names_the_parts_and_what_shards_it():
    found = only(ask("dgx1-v100", actor="0-7", model=LLAMA, lora=False), "WB501")
    assert found.asked.startswith("llama-7b on local:0-7")
    parts = "(actor weights 12.6, actor optimizer 87.9, reference weights 12.6, rollout weights 12.6)"
    has = "have 32.0 GiB each, of which 30.4 can be used"
    assert found.found == f"local:0-7 would hold 125.5 GiB each before the first activation {parts}, and {has}"
    assert found.fix.text == "shard the actor: layout fsdp"


@pytest.mark.parametrize(
    ("machine", "roles", "text"),
    [
        (
            "dgx1-v100",
            {"actor": "0-3", "rollout": "4-7", "reference": "0-3", "critic": "0-3", "algo": "ppo"},
            "write reference: share:actor",
        ),
        ("rtx3090-2-bridge", {"actor": "0-1", "rollout": {"devices": [0, 1], "mode": "merged"}}, "mode zero_copy"),
    ],
)
def test_the_least_change_comes_first(machine, roles, text):
    assert text in only(ask(machine, **roles, model=LLAMA), "WB501").fix.text


def test_several_changes_at_once():
    question = ask("dgx-a100", actor="0-7", rollout="0-7", model="shape:llama-70b")
    found = only(question, "WB501")
    assert "shard the actor: layout fsdp" in found.fix.text
    assert "split the engine: tp" in found.fix.text
    assert "WB501" not in [one.code for one in question.devices.apply(found).check(question.topology, shape=question.shape)]


def test_idle_gpus_are_used_last():
    question = ask("dgx-a100", actor="0-3", model="shape:llama-70b", lora=False)
    assert "give the actor and the rollout 0-7" not in only(ask("dgx-a100", actor="0-3", model="shape:llama-70b"), "WB501").fix.text
    assert only(question, "WB501").fix.patch is None  # 16 bytes of 69 G parameters are 1028 GiB
    narrow = ask("l40s-4", actor="0-1", model="shape:llama-34b")  # 62.9 GiB: shards of 31.4 twice are too much for 45
    found = only(narrow, "WB501")
    assert found.fix.text == "give the actor and the rollout 0-3; shard the actor: layout fsdp; split the engine: tp 4"
    assert (str(narrow.devices.apply(found).actor), str(narrow.devices.apply(found).rollout)) == ("0-3 fsdp", "0-3 tp4")


def test_gpus_of_somebody_else_are_not_taken():
    found = only(ask("dgx-a100", actor="0", model="shape:llama-70b"), "WB501")
    assert (found.fix.text.partition(";")[0], found.fix.patch) == ("give the actor and the rollout 0-7", None)


def test_what_no_change_helps():
    found = only(ask("rtx3090-2-bridge", actor="0-1", model="shape:llama-70b"), "WB501")
    assert (found.fix.patch, "use more GPUs, a smaller model, or a quantized base" in found.fix.text) == (None, True)
    assert "use more GPUs, LoRA, or" in only(ask("rtx3090-2-bridge", actor="0-1", model=LLAMA, lora=False), "WB501").fix.text


def test_memory_that_is_not_known_is_not_judged():
    assert codes(ask("cpu:4", actor="0-3", model="shape:llama-70b", lora=False)) == []


def test_of_the_memory_what_can_be_used_is_told():
    """Llama-13B: 13,015,864,320 parameters are 24.2 GiB in bf16, and fill a GPU of 24 GiB, of which 95 % are 22.8."""
    found = only(ask("rtx4090-8", actor="0", rollout="1", model="shape:llama-13b"), "WB501")
    assert found.found.startswith("local:0 would hold 25.")
    assert found.found.endswith("and has 24.0 GiB, of which 22.8 can be used")
