"""Where a reward service is, who reaches it there, and where its token comes from."""

import ipaddress
from urllib.parse import urlsplit

from workbench.errors import ConfigError

TOKEN_VARIABLE = "WORKBENCH_REWARD_TOKEN"


def check_url(url: str) -> None:
    """Raise ConfigError unless ``url`` is one of a service."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.query
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(f"reward service {url!r}", "that is no address of a service", "write http://host:port")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
