"""The packed trainer against the plain padded one that everybody would write first."""

import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import workbench as wb
from workbench.algos import GRPO, DrGRPO
from workbench.errors import ConfigError, Stopped
from workbench.models.actor import Actor, ActorPlan
from workbench.models.experience import Experience, shares
from workbench.models.lora import LoRA
from workbench.models.optimizer import Masters, Optimizer
from workbench.models.packing import Row
from workbench.models.passes import accumulate
from workbench.models.resolve import check_model

TEMPERATURE = 0.7


def make(path: Path, **optimizer: object) -> Actor:
    actor = Actor(ActorPlan(path, LoRA(rank=4, alpha=8), Optimizer(**{"learning_rate": 1e-2, **optimizer}), "cpu", "float32", 0))
    torch.manual_seed(3)
    for name, parameter in actor.model.named_parameters():
        if "lora_B" in name:  # they start at zero, and then A has no gradient
            torch.nn.init.normal_(parameter, std=0.1)
    return actor


def rows(count: int = 24) -> list[Row]:
    generator = torch.Generator().manual_seed(5)

    def ids(longest: int) -> tuple[int, ...]:
        length = int(torch.randint(1, longest, (1,), generator=generator))
        return tuple(torch.randint(2, 38, (length,), generator=generator).tolist())

    return [Row(ids(9), ids(14)) for _ in range(count)]


def spread(advantages: Sequence[float], batch: Sequence[Row]) -> list[torch.Tensor]:
    """One value per completion as one per token."""
    return [torch.full((len(row.response),), value) for value, row in zip(advantages, batch, strict=True)]


def padded_logp(actor: Actor, batch: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, L) log-probabilities of the responses, padded on the right, and their mask: full logits, eager attention."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    assert isinstance(actor.model, PeftModel)
    base = AutoModelForCausalLM.from_pretrained(actor.plan.model, attn_implementation="eager", dtype=torch.float32)
    for target, source in zip(base.model.layers, actor.model.get_base_model().model.layers, strict=True):
        target.self_attn.q_proj, target.self_attn.k_proj = source.self_attn.q_proj, source.self_attn.k_proj
        target.self_attn.v_proj, target.self_attn.o_proj = source.self_attn.v_proj, source.self_attn.o_proj
        target.mlp = source.mlp
    longest = max(len(r) for r in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    attend, mask = torch.zeros_like(ids), torch.zeros(len(batch), longest - 1, dtype=torch.bool)
    for b, row in enumerate(batch):
        ids[b, : len(row)] = torch.tensor(row.prompt + row.response)
        attend[b, : len(row)] = 1
        mask[b, len(row.prompt) - 1 : len(row) - 1] = True
    logits = base(input_ids=ids, attention_mask=attend).logits[:, :-1].float() / TEMPERATURE
    return logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0], mask


def test_packed_log_probabilities_are_the_padded_ones(small_model: Path) -> None:
    actor, batch = make(small_model, token_budget=40), rows()
    wanted, mask = padded_logp(actor, batch)
    seen = torch.cat(actor.score(batch, TEMPERATURE))
    torch.testing.assert_close(seen, wanted[mask].detach(), atol=1e-5, rtol=0)


@pytest.mark.parametrize("algo", [GRPO(group_size=4), GRPO(group_size=4, reduction="token"), DrGRPO(group_size=4)])
def test_packed_gradients_are_the_padded_ones_whatever_the_micro_batches(small_model: Path, algo: GRPO) -> None:
    batch = rows()
    advantages = torch.randn(len(batch), generator=torch.Generator().manual_seed(0)).tolist()
    advantages[3] = 0.0
    grads = []
    for budget in (30, 4000):
        actor = make(small_model, token_budget=budget)
        data = Experience(batch, [x.tolist() for x in actor.score(batch, TEMPERATURE)], spread(advantages, batch), None, TEMPERATURE, 16)
        share = shares(data, algo, 1)[0]
        accumulate(actor.learner, actor.lesson(share, algo, share.parts, {}), range(len(batch)), lambda: False)
        grads.append([p.grad.clone() for p in actor.masters.parameters])
    wanted, mask = padded_logp(actor, batch)
    weight_N = algo.weights(torch.tensor([len(r.response) for r in batch]), 16)
    for parameter in actor.masters.parameters:
        parameter.grad = None
    # on policy the ratio is 1, so the surrogate's gradient is that of -A·logp
    (-(weight_N * torch.tensor(advantages))[:, None] * wanted * mask).sum().backward()
    for small, large, parameter in zip(*grads, actor.masters.parameters, strict=True):
        torch.testing.assert_close(small, large, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(large, parameter.grad, atol=1e-5, rtol=1e-4)


def test_the_adapter_off_is_the_clean_base(small_model: Path) -> None:
    actor, batch = make(small_model), rows(6)
    fresh = Actor(replace(actor.plan, seed=99))  # B is zero
    off, base = actor.score(batch, 1.0, adapter=False), fresh.score(batch, 1.0)
    assert all(torch.equal(a, b) for a, b in zip(off, base, strict=True))
    assert not torch.equal(off[0], actor.score(batch, 1.0)[0])


def test_minibatches_step_as_often_and_clip_against_the_policy_at_the_start(small_model: Path) -> None:
    actor, batch = make(small_model, learning_rate=0.05), rows()
    data = Experience(batch, [x.tolist() for x in actor.score(batch, TEMPERATURE)], spread([1.0, -1.0] * 12, batch), None, TEMPERATURE, 16)
    update = actor.update(data, GRPO(group_size=4, minibatches=3), 0.05)
    assert update.optimizer_steps == 3
    assert update.summary.clip_fraction > 0  # the later ones are off policy by now
    assert update.summary.logprob_diff_max < 1e-5  # old log-probabilities are those of the start, as the engine's


def test_the_loss_of_several_minibatches_is_their_mean(small_model: Path) -> None:
    losses = []
    for parts in (1, 3):
        actor, batch = make(small_model), rows()
        data = Experience(
            batch, [x.tolist() for x in actor.score(batch, TEMPERATURE)], spread([1.0, -0.5] * 12, batch), None, TEMPERATURE, 16
        )
        losses.append(actor.update(data, GRPO(group_size=4, minibatches=parts), 1e-12).summary.loss)
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert abs(losses[0]) > 0.1


def test_an_update_raises_what_was_rewarded(small_model: Path) -> None:
    actor, batch = make(small_model), rows()
    before = actor.score(batch, TEMPERATURE)
    data = Experience(batch, [x.tolist() for x in before], spread([1.0] + [0.0] * 23, batch), None, TEMPERATURE, 16)
    update = actor.update(data, GRPO(group_size=4), 1e-2)
    assert update.tokens == len(batch[0])  # the others have no gradient, so they cost nothing
    assert actor.score(batch, TEMPERATURE)[0].sum() > before[0].sum()


def test_check_sees_the_statistics_before_anything_is_applied(small_model: Path) -> None:
    actor, batch = make(small_model), rows()
    before = {name: t.clone() for name, t in actor.adapter().items()}
    data = Experience(
        batch,
        [[x - 0.5 for x in row.tolist()] for row in actor.score(batch, TEMPERATURE)],
        spread([1.0] * 24, batch),
        None,
        TEMPERATURE,
        16,
    )

    def refuse(summary: object) -> None:
        assert summary.logprob_diff_mean == pytest.approx(0.5, abs=1e-4)
        raise LookupError("no")

    with pytest.raises(LookupError):
        actor.update(data, GRPO(group_size=4), 1e-2, check=refuse)
    assert all(torch.equal(t, before[name]) for name, t in actor.adapter().items())


def test_a_stop_between_micro_batches_applies_nothing(small_model: Path) -> None:
    actor, batch = make(small_model, token_budget=30), rows()
    before = {name: t.clone() for name, t in actor.adapter().items()}
    data = Experience(batch, [x.tolist() for x in actor.score(batch, TEMPERATURE)], spread([1.0] * 24, batch), None, TEMPERATURE, 16)
    asked = iter([False] * 3 + [True] * 100)
    with pytest.raises(Stopped):
        actor.update(data, GRPO(group_size=4), 1e-2, should_stop=lambda: next(asked))
    assert all(torch.equal(t, before[name]) for name, t in actor.adapter().items())


def test_masters_gather_gradients_and_updates_that_bfloat16_would_swallow() -> None:
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    masters = Masters([weight])
    for _ in range(3):
        (weight.float() * 0.125).sum().backward()
    assert weight.grad is None
    assert masters.parameters[0].grad.tolist() == [0.375] * 4
    with torch.no_grad():
        for _ in range(8):
            masters.parameters[0] -= 0.001  # half of what bfloat16 resolves below 1 is 0.002
            masters.write_back()
    assert weight.tolist() == [0.9921875] * 4  # 0.992, rounded


def test_the_learning_rate_warms_up_and_falls() -> None:
    optimizer = Optimizer(learning_rate=1.0, warmup_steps=4, decay=True)
    assert [optimizer.rate(step, 8) for step in (1, 2, 4, 5, 8)] == pytest.approx([0.25, 0.4375, 0.625, 0.5, 0.125])
    assert Optimizer(learning_rate=1.0).rate(7, None) == 1.0


def test_the_saved_adapter_is_read_by_peft(small_model: Path, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    actor, batch = make(small_model), rows(3)
    actor.save(tmp_path / "adapter")
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32), tmp_path / "adapter")
    row = batch[0]
    logits = model(input_ids=torch.tensor([row.prompt + row.response])).logits[0].float() / TEMPERATURE
    wanted = logits.log_softmax(-1)[torch.arange(len(row.prompt) - 1, len(row) - 1), torch.tensor(row.response)]
    torch.testing.assert_close(actor.score(batch, TEMPERATURE)[0], wanted.detach(), atol=1e-5, rtol=0)


def test_targets_that_match_nothing_name_those_that_would(small_model: Path) -> None:
    with pytest.raises(ConfigError, match=r"'quer_proj'.*down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"):
        Actor(ActorPlan(small_model, LoRA(targets=("quer_proj",)), Optimizer(), "cpu", "float32", 0))


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        check_model("./nowhere", wb.tasks.sorting())
    with pytest.raises(ConfigError, match=r"no config\.json"):
        check_model(tmp_path, wb.tasks.sorting())
    with pytest.raises(ConfigError, match="no demonstrations"):
        check_model("tiny", wb.tasks.from_list([("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f", 6)], scorer="exact"))


@pytest.mark.parametrize(
    ("make_it", "match"),
    [
        (lambda: LoRA(rank=0), "rank of|ranks? .*1 to 512"),
        (lambda: LoRA(rank=1024), "1 to 512"),
        (lambda: LoRA(alpha=0), "scaled by 0"),
        (lambda: LoRA(targets=("q_proj", "lm_head")), "head stays frozen"),
        (lambda: Optimizer(learning_rate=0), "above 0"),
        (lambda: Optimizer(token_budget=0), "at least one token"),
    ],
)
def test_values_that_cannot_work_are_refused_when_written(make_it: object, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make_it()


def test_a_full_disk_is_no_fault_of_the_adapter(small_model: Path, tmp_path: Path) -> None:
    actor = Actor(ActorPlan(small_model, LoRA(rank=64), Optimizer(), "cpu", "float32", 0))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            actor.save(tmp_path / "adapter")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
