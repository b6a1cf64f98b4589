"""Whether the parts of a topology belong together: one name for each device, and links between devices that are there."""

from collections import Counter

from workbench.errors import ConfigError
from workbench.topology.devices import GPU, NIC, check_printable
from workbench.topology.links import Link


def check_parts(name: str, gpus: tuple[GPU, ...], links: tuple[Link, ...], nics: tuple[NIC, ...], nic_links: tuple[Link, ...]) -> None:
    """Raise ConfigError where one is of another kind, a name is there twice, or a link leads nowhere."""
    check_printable("topology: name", name)
    _check_kinds("gpus", gpus, GPU)
    _check_kinds("links", links, Link)
    _check_kinds("nics", nics, NIC)
    _check_kinds("nic_links", nic_links, Link)
    _check_ids(gpus, nics)
    ids, cards = {gpu.id for gpu in gpus}, {nic.id for nic in nics}
    _check_ends(links, ids, "GPU")
    _check_ends(nic_links, ids | cards, "GPU or network card")


def _check_kinds(field: str, parts: object, kind: type) -> None:
    example = f"a tuple of {kind.__name__}"
    if not isinstance(parts, tuple):
        raise ConfigError(f"topology: {field}", f"that is a {type(parts).__name__}", f"give {example}")
    for part in parts:
        if not isinstance(part, kind):
            raise ConfigError(f"topology: {field}", f"a {type(part).__name__} is in it", f"give {example}")


def _check_ids(gpus: tuple[GPU, ...], nics: tuple[NIC, ...]) -> None:
    """Raise ConfigError where two devices have one name."""
    count = Counter([gpu.id for gpu in gpus] + [nic.id for nic in nics])
    twice = next((id for id in count if count[id] > 1), None)
    if twice is not None:
        raise ConfigError(f"topology: device {twice!r}", "two devices have that name", "give each an index, or a node, of its own")


def _check_ends(links: tuple[Link, ...], known: set[str], title: str) -> None:
    """Raise ConfigError where a link ends at no device that is there, at its own beginning, or beside another link."""
    seen: set[tuple[str, str]] = set()
    for link in links:
        if link.a not in known or link.b not in known:
            lost = link.b if link.a in known else link.a
            raise _error(link, f"{lost[:60]!r} is no {title} of this topology", "name devices as 'local:0', and have them in it")
        if link.a == link.b:
            raise _error(link, "it leads from a device to itself", "leave it out")
        if (link.a, link.b) in seen:
            raise _error(link, "it is there already", "give one link for two devices")
        seen |= {(link.a, link.b), (link.b, link.a)}


def _error(link: Link, found: str, fix: str) -> ConfigError:
    return ConfigError(f"topology: link {link.a[:60]!r} - {link.b[:60]!r}", found, fix)
