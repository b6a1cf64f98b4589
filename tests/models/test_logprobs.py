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


@pytest.mark.usefixtures("_chunk")
def test_a_head_that_is_trained_has_the_gradient_of_full_logits() -> None:
    torch.manual_seed(2)
    hidden, head = torch.randn(R, D, requires_grad=True), torch.randn(V, D, requires_grad=True)
    target, upstream = torch.randint(0, V, (R,)), torch.randn(R)
    wanted = plain(hidden, head, target, 0.6)
    seen = token_logp(hidden, head, target, 0.6)
    torch.testing.assert_close(seen, wanted.float(), atol=1e-5, rtol=1e-5)
    both = [torch.autograd.grad((logp * upstream).sum(), (hidden, head)) for logp in (seen, wanted)]
    for mine, right in zip(*both, strict=True):
        torch.testing.assert_close(mine, right, atol=2e-5, rtol=1e-5)


def test_a_trained_heads_gradient_is_added_up_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 chunks of the same token: in bfloat16 a sum stops growing at 256 times what is added."""
    monkeypatch.setattr(logprobs, "CHUNK_BYTES", 1)
    head = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    logp = token_logp(torch.ones(512, 1, dtype=torch.bfloat16), head, torch.zeros(512, dtype=torch.long))
    logp.sum().backward()
    assert head.grad.tolist() == [[256.0], [-256.0]]  # each token adds 1 - softmax = 0.5


def test_no_token_is_no_log_probability() -> None:
    hidden = torch.randn(0, D, requires_grad=True)
    out = token_logp(hidden, torch.randn(V, D), torch.zeros(0, dtype=torch.long))
    assert out.shape == (0,)
    out.sum().backward()
    head = torch.randn(V, D, requires_grad=True)
    token_logp(hidden, head, torch.zeros(0, dtype=torch.long)).sum().backward()
    assert not head.grad.any()


def test_the_logits_of_the_batch_never_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    chunk = logprobs._chunk
    monkeypatch.setattr(logprobs, "CHUNK_BYTES", 4 * V * 10)
    monkeypatch.setattr(logprobs, "_chunk", lambda h, *rest: seen.append(len(h)) or chunk(h, *rest))
    token_logp(torch.randn(R, D), torch.randn(V, D), torch.randint(0, V, (R,)))
    assert seen == [10, 10, 10, 7]
