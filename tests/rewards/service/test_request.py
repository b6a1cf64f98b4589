"""When a question to a service is asked again."""

import threading
import time

import httpx
import pytest

from workbench.rewards.service.request import Again, Patience, exchange, persistently


def test_pauses_grow_and_have_an_end():
    patience = Patience(10, 0.5)
    for tried, most in [(1, 0.5), (2, 1.0), (3, 2.0), (9, 10.0)]:
        assert most / 2 <= patience.pause(tried) <= most


@pytest.mark.parametrize(
    ("header", "seconds"),
    [({}, 0.0), ({"Retry-After": "3"}, 3.0), ({"Retry-After": "600"}, 10.0), ({"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}, 0.0)],
)
def test_what_retry_after_says(header, seconds):
    transport = httpx.MockTransport(lambda request: httpx.Response(503, headers=header, json={"detail": "full"}))
    with httpx.Client(base_url="http://x", transport=transport) as client, pytest.raises(Again, match="status 503: full") as caught:
        exchange(client, "POST", "/score", b"{}")
    assert caught.value.after_s == seconds


def test_no_try_comes_before_it_was_asked_to():
    began, tries = time.monotonic(), []

    def ask():
        tries.append(time.monotonic() - began)
        if len(tries) == 1:
            raise Again("full", 0.3)
        return "well"

    assert persistently("http://x", ask, Patience(1, 0.001), threading.Event()) == ("well", 2)
    assert tries[1] >= 0.3
