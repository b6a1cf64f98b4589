"""Addresses of services: which are none, and which only this machine reaches."""

import pytest

from workbench.errors import ConfigError
from workbench.rewards import Service
from workbench.rewards.wire.address import is_loopback


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x", "http://", "http://x:99999", "http://x:port", "http://x?y=1"])
def test_addresses(url):
    with pytest.raises(ConfigError, match=r"that is no address of a service\n  fix: write http://host:port"):
        Service(url)


def test_loopback():
    assert [is_loopback(host) for host in ("localhost", "127.0.0.9", "::1", "0.0.0.0", "::", "10.0.0.1", "gpu-node")] == [True] * 3 + [
        False
    ] * 4
