"""The engine on a real vLLM: sampling, stopping, windows, base and adapter, and the CPU's LoRA kernels."""

import sys
import time
from pathlib import Path

import pytest
import torch

from workbench.errors import ConfigError, EngineError, Stopped
from workbench.rollout import inner
from workbench.rollout.config import VLLM, Sampling
from workbench.rollout.engine import Engine, EnginePlan, Request
from workbench.runtime.worker import Worker

PROMPT = (20, 26, 29, 31, 12, 7, 4, 13)


@pytest.fixture
def engine(worker: Worker) -> Engine:
    return worker.engine


def test_completions_come_in_the_order_of_the_requests_with_a_log_probability_a_token(engine: Engine) -> None:
    prompts = [PROMPT[:n] for n in (2, 8, 5)]
    alone = [engine.generate([Request(p)], temperature=0.0, max_tokens=6)[0].ids for p in prompts]
    together = engine.generate([Request(p) for p in prompts], temperature=0.0, max_tokens=6)
    assert [c.ids for c in together] == alone
    assert all(len(c.logp) == len(c.ids) and all(x <= 0 for x in c.logp) for c in together)


def test_a_seed_is_one_completion_and_seeds_differ(engine: Engine) -> None:
    def draw() -> list[tuple[int, ...]]:
        return [c.ids for c in engine.generate([Request(PROMPT, seed) for seed in (1, 2, 3, 4)], temperature=1.0, max_tokens=12)]

    first = draw()
    assert draw() == first
    assert len(set(first)) > 1


def test_log_probabilities_are_those_after_the_temperature(engine: Engine) -> None:
    cold = engine.generate([Request(PROMPT, 5)] * 2, temperature=0.05, max_tokens=4)[0]
    assert max(cold.logp) > -0.7  # at 0.05 the choice is nearly certain, at 1 it is not
    assert min(engine.score((*PROMPT, *cold.ids), len(PROMPT))) < min(cold.logp)


def test_scoring_agrees_with_sampling(engine: Engine) -> None:
    drawn = engine.generate([Request(PROMPT, 5)], temperature=1.0, max_tokens=8)[0]
    assert engine.score((*PROMPT, *drawn.ids), len(PROMPT)) == pytest.approx(drawn.logp, abs=1e-4)


def test_a_stop_takes_effect_between_two_tokens_and_leaves_a_clean_engine(engine: Engine) -> None:
    began, asked = time.monotonic(), 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    with pytest.raises(Stopped):
        engine.generate([Request(PROMPT, seed) for seed in range(64)], temperature=1.0, max_tokens=240, should_stop=stop)
    assert time.monotonic() - began < 1
    assert not engine._llm.llm_engine.has_unfinished_requests()
    assert len(engine.generate([Request(PROMPT, 1)] * 3, temperature=1.0, max_tokens=4)) == 3


def test_an_interrupt_within_a_step_leaves_a_clean_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the forward pass and the drawing of the tokens: the moment at which vLLM refuses another step."""

    def interrupted(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    executor = engine._llm.llm_engine.model_executor
    with monkeypatch.context() as patch:
        patch.setattr(executor, "sample_tokens", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.generate([Request(PROMPT)] * 3, temperature=1.0, max_tokens=8)
    assert [len(c.ids) for c in engine.generate([Request(PROMPT)] * 3, temperature=1.0, max_tokens=1)] == [1, 1, 1]


def test_cached_prefixes_cannot_be_dropped_from_under_a_request(engine: Engine) -> None:
    """A cache that stays would be used with other weights."""

    looks = 0

    def between_two_tokens() -> bool:
        nonlocal looks
        looks += 1
        if looks == 4:
            with pytest.raises(EngineError, match=r"requests hold some\n.*between two calls"):
                engine.forget_prefixes()
        return False

    engine.generate([Request(PROMPT, 1)], temperature=1.0, max_tokens=8, should_stop=between_two_tokens)
    engine.forget_prefixes()
    assert looks >= 4


def test_completions_are_told_of_as_they_end(engine: Engine) -> None:
    told: dict[int, str] = {}
    completions = engine.generate([Request(PROMPT)] * 6, temperature=1.0, max_tokens=12, done=lambda row, c: told.update({row: c.text}))
    assert told == {row: completion.text for row, completion in enumerate(completions)}


def test_requests_that_find_no_place_wait(engine: Engine) -> None:
    engine.generate([Request(PROMPT)] * 8, temperature=1.0, max_tokens=4)
    few = engine.queued
    assert 0 < few.running_mean <= 8
    assert (few.waiting_mean, few.preempted) == (0, 0)
    engine.generate([Request(PROMPT)] * 160, temperature=1.0, max_tokens=16)  # 64 are decoded at a time
    many = engine.queued
    assert 8 < many.running_mean <= 64
    assert 0 < many.waiting_mean < 96
    assert many.preempted == 0


def test_a_stop_takes_effect_while_very_many_are_asked_for(engine: Engine) -> None:
    with pytest.raises(Stopped):
        engine.generate([Request(PROMPT, 1)] * 1000, temperature=1.0, max_tokens=4, should_stop=lambda: True)
    assert engine._llm.llm_engine.get_num_unfinished_requests() == 0


def test_a_prompt_that_leaves_no_room_in_the_window_is_refused(engine: Engine) -> None:
    with pytest.raises(ConfigError, match=r"request 1: a prompt of 250 tokens and up to 10 more: .* holds 256 .*\n.*window=260"):
        engine.generate([Request(PROMPT), Request(PROMPT[:1] * 250)], temperature=1.0, max_tokens=10)


def test_a_second_engine_in_one_process_is_refused(engine: Engine, small_model: Path) -> None:
    with pytest.raises(EngineError, match=r"this process has one already.*\n.*close"):
        Engine(EnginePlan(small_model, None, 4, "cpu", "float32", 0, VLLM()))


def test_starting_the_engine_left_the_process_as_it_was(engine: Engine) -> None:
    assert torch.is_grad_enabled()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert torch.get_num_threads() == 1  # vLLM makes this a no-op
    torch.set_num_threads(threads)
    assert inner.os.environ.get("TORCHINDUCTOR_COMPILE_THREADS") is None
    assert "_distributed_excepthook" not in sys.excepthook.__qualname__  # torch's puts [rank0] before every line of a traceback


def test_a_batch_that_mixes_base_and_adapter_is_right(engine: Engine, worker: Worker) -> None:
    """vLLM's own CPU kernels apply the adapter to the base's rows, silently."""
    from vllm import SamplingParams

    tensors = {n: torch.randn_like(t) if "lora_B" in n else t for n, t in worker.actor.adapter().items()}
    kept, version = worker.actor.adapter(), engine.version
    engine.push(tensors, worker.actor.adapter_config(), 1000)
    try:
        base, adapted = (engine.generate([Request(PROMPT)], temperature=0.0, max_tokens=8, adapter=on)[0].ids for on in (False, True))
        assert base != adapted
        llm, params = engine._llm.llm_engine, SamplingParams(temperature=0.0, max_tokens=8)
        for name, lora in (("m0", None), ("m1", engine._adapter_request()), ("m2", None)):
            llm.add_request(name, {"prompt_token_ids": list(PROMPT)}, params, lora_request=lora)
        out = {}
        while llm.has_unfinished_requests():
            out |= {o.request_id: tuple(o.outputs[0].token_ids) for o in llm.step()}
        assert (out["m0"], out["m1"], out["m2"]) == (base, adapted, base)
    finally:
        engine.push(kept, worker.actor.adapter_config(), version)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: VLLM(memory_share=1.5), "between 0 and 1"),
        (lambda: VLLM(extra={"max_num_seqs": 3}), r"set by the workbench.*\n.*max_sequences"),
        (lambda: VLLM(extra={"swap_spce": 3}).check_extra({"swap_space"}), r"did you mean 'swap_space'"),
        (lambda: VLLM(kv_cache_gib=0), "more than 0 GiB"),
        (lambda: Sampling(temperature=0), "no policy gradient"),
        (lambda: Sampling(prompts=0), "at least one prompt"),
        (lambda: Sampling(max_tokens=0), "at least one token"),
    ],
)
def test_values_that_cannot_work_are_refused_when_written(make: object, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make()
