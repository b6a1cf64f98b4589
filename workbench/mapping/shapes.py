"""From what a person calls a model to its sizes, without a network and without loading it: for checks of a device map."""

import json
from difflib import get_close_matches
from functools import cache
from pathlib import Path

import yaml

from workbench.errors import ConfigError
from workbench.mapping.model_config import read
from workbench.mapping.model_shape import ModelShape

__all__ = ["ModelShape", "names", "shape"]

OURS = ("tiny", "smollm2")  # what the package makes itself; called without "shape:"
CONFIG = "config.json"
MOST_BYTES = 2**24  # a config has some kilobytes


def names() -> tuple[str, ...]:
    """Names of the built-in shapes, to be written as "shape:NAME"."""
    return tuple(_built_in())


def shape(model: str | Path) -> ModelShape:
    """The shape of ``model``: "shape:llama-7b", "tiny", "smollm2", a config.json, a folder that has one, or a hub name in the local cache.

    Nothing is fetched. Raises ConfigError where the model or its sizes can't be told.
    """
    if not isinstance(model, str | Path):
        found = f"that is a {type(model).__name__}"
        raise ConfigError(f"model {repr(model)[:60]}", found, "give shape:llama-7b, a folder with a config.json, or a name in the cache")
    name = str(model)
    if name.startswith("shape:") or name in OURS:
        return _named(name.removeprefix("shape:").strip().lower())
    path = _config_file(name) or _cached(name)
    if path is None:
        found = f"no such file, and neither a folder of that name nor the hub's local cache has its {CONFIG}"
        if name.lower() in names():
            raise ConfigError(f"model {_short(name)!r}", "no such file, but a built-in shape of that name", f"write shape:{name.lower()}")
        fix = f"give its config.json or the folder of one, or a shape: {', '.join(f'shape:{known}' for known in names()[:5])} ..."
        raise ConfigError(f"model {_short(name)!r}", found, fix)
    return read(_json(path, name), _short(name))


@cache
def _built_in() -> dict[str, ModelShape]:
    table = yaml.safe_load(Path(__file__).with_name("shapes.yaml").read_text(encoding="utf-8"))
    return {name: ModelShape(name=name, **sizes) for name, sizes in table.items()}


def _named(name: str) -> ModelShape:
    found = _built_in().get(name)
    if found is None:
        near = get_close_matches(_short(name), names(), n=1, cutoff=0.4)
        fix = f"write 'shape:{near[0]}'" if near else "give one of these, or a config.json"
        raise ConfigError(f"model {'shape:' + _short(name)!r}", f"the built-in shapes are {', '.join(names())}", fix)
    return found


def _config_file(name: str) -> Path | None:
    """The config.json that ``name`` is or holds; None where there is no such file."""
    try:
        path = Path(name).expanduser()
        path = path / CONFIG if path.is_dir() else path
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, a zero byte, no such user's home
        return None


def _cached(name: str) -> Path | None:
    """The config.json of a hub name in the local cache. Looks at files only."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, CONFIG)
    except (HFValidationError, OSError, ValueError):
        return None
    return Path(found) if isinstance(found, str) else None


def _json(path: Path, name: str) -> object:
    asked = f"model {_short(name)!r}"
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ConfigError(
                asked, f"{path.name} has {path.stat().st_size:,} bytes, too many for a config", "give the model's config.json"
            )
        data: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(asked, error.strerror or str(error), "give a file that can be read") from error
    except RecursionError as error:
        raise ConfigError(asked, f"{path.name} is nested too deeply for a config", "give the model's config.json") from error
    except ConfigError:
        raise
    except ValueError as error:  # no JSON, no text, a number of thousands of digits
        raise ConfigError(asked, f"{path.name} is no JSON: {str(error)[:100]}", "give the model's config.json") from error
    return data


def _short(text: str) -> str:
    """As an error quotes it."""
    return text if len(text) <= 80 else f"{text[:77]}..."
