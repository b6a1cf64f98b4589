import pytest
import torch

from workbench.models import logprobs
from workbench.models.logprobs import token_logp

R, D, V = 37, 8, 23


def plain(hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor, temperature: float) -> torch.Tensor:
    logits = hidden.double() @ head.double().T / temperature
    return logits.log_softmax(-1)[torch.arange(len(target)), target]


@pytest.fixture(params=[4 * V, 4 * V * 5, 2**28], ids=["one a chunk", "five a chunk", "one chunk"])
def _chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logprobs, "CHUNK_BYTES", request.param)


@pytest.mark.usefixtures("_chunk")
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_and_gradients_are_those_of_full_logits(temperature: float) -> None:
    torch.manual_seed(1)
    hidden, head = torch.randn(R, D, requires_grad=True), torch.randn(V, D)
    target, upstream = torch.randint(0, V, (R,)), torch.randn(R)
    wanted = plain(hidden, head, target, temperature)
    wanted_grad = torch.autograd.grad((wanted * upstream).sum(), hidden)[0]
    seen = token_logp(hidden, head, target, temperature)
    seen_grad = torch.autograd.grad((seen * upstream).sum(), hidden)[0]
    torch.testing.assert_close(seen, wanted.float(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen_grad, wanted_grad, atol=1e-5, rtol=1e-5)


def test_no_token_is_no_log_probability() -> None:
    hidden = torch.randn(0, D, requires_grad=True)
    out = token_logp(hidden, torch.randn(V, D), torch.zeros(0, dtype=torch.long))
    assert out.shape == (0,)
    out.sum().backward()


def test_the_logits_of_the_batch_never_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    chunk = logprobs._chunk
    monkeypatch.setattr(logprobs, "CHUNK_BYTES", 4 * V * 10)
    monkeypatch.setattr(logprobs, "_chunk", lambda h, *rest: seen.append(len(h)) or chunk(h, *rest))
    token_logp(torch.randn(R, D), torch.randn(V, D), torch.randint(0, V, (R,)))
    assert seen == [10, 10, 10, 7]
