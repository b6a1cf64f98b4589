"""All contact with NVML (nvidia-ml-py): one guarded question, whose answer is a value or the reason why there is none.

NVML refuses single values on many machines (utilization on MIG and WSL, memory on GB10, affinity in control groups), so no
question of it may end a program. It never initialises CUDA.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# nvmlReturn_t and the enumerations of nvml.h, fixed by NVML's ABI. Numbers of our own, since nvidia-ml-py 13.615 holds a tuple
# in NVML_P2P_CAPS_INDEX_READ.
INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, LIBRARY_NOT_FOUND = 2, 3, 6, 12
ABSENT = (INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND)  # how NVML says of a port or a slice that there is none
MAX_NVLINKS = 36
REMOTE_GPU, REMOTE_SWITCH = 0, 2
P2P_READ, P2P_WRITE, P2P_NVLINK = 0, 1, 2
P2P_OK, P2P_UNKNOWN = 0, 6


@dataclass(frozen=True)
class Missing:
    """A value that could not be had. ``reason``: "n/a: MIG", "n/a: Not Supported". ``code``: NVML's, 0 where it was not NVML."""

    reason: str
    code: int = 0


@dataclass(frozen=True)
class NVML:
    """NVML while it is open. ``library``: the module pynvml, or one with its names. Holds no state: threads may share it."""

    library: Any

    def ask(self, function: str, *args: Any) -> Any:
        """What ``function`` of the library returns for ``args``, or Missing. Never raises."""
        call = getattr(self.library, function, None)
        if call is None:
            return Missing(f"n/a: this nvidia-ml-py has no {function}")
        try:
            return call(*args)
        except self.library.NVMLError as error:
            return Missing(f"n/a: {self._reason(error, function, args)}", error.value)
        except (UnicodeDecodeError, OSError) as error:  # names that are no UTF-8 (seen on WSL); a library that can't be loaded
            return Missing(f"n/a: {error}")

    def _reason(self, error: Any, function: str, args: tuple[Any, ...]) -> str:
        # Anything but a handle would end the process inside NVML: numbers and texts are no handles.
        has_handle = function.startswith("nvmlDevice") and args and not isinstance(args[0], int | str | bytes)
        if error.value == NOT_SUPPORTED and has_handle and function != "nvmlDeviceIsMigDeviceHandle":
            mig = self.ask("nvmlDeviceIsMigDeviceHandle", args[0])
            if not isinstance(mig, Missing) and int(getattr(mig, "value", mig)):  # a c_uint in 13.615
                return "MIG"
        return str(error)


@contextmanager
def opened(library: Any = None) -> Iterator[NVML | Missing]:
    """NVML, open for the length of the block; Missing where there is no driver. Blocks may nest and run side by side: NVML counts them."""
    if library is None:
        import pynvml

        library = pynvml
    nvml = NVML(library)
    started = nvml.ask("nvmlInit")
    if isinstance(started, Missing):
        yield started
        return
    try:
        yield nvml
    finally:
        nvml.ask("nvmlShutdown")


@dataclass
class Inquiry:
    """Questions about one machine, and what stayed without an answer."""

    nvml: NVML
    _gaps: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def ask(self, what: str, about: str, function: str, *args: Any, fine: tuple[int, ...] = ()) -> Any:
        """The answer, or None; then ``what`` of ``about`` is noted with the reason, unless NVML's code is one of ``fine``."""
        answer = self.nvml.ask(function, *args)
        if not isinstance(answer, Missing):
            return answer
        if answer.code not in fine:
            self.note(what, about, answer.reason)
        return None

    def note(self, what: str, about: str, reason: str) -> None:
        """Remember that ``what`` of ``about`` is not known."""
        devices = self._gaps.setdefault((what, reason), [])
        if about not in devices:
            devices.append(about)

    def lacks(self, what: str) -> bool:
        """Whether ``what`` of any device stayed without an answer."""
        return any(name == what for name, _ in self._gaps)

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each value and reason: "memory of GPU 0, GPU 1: n/a: Not Supported"."""
        return tuple(f"{what} of {', '.join(devices)}: {reason}" for (what, reason), devices in self._gaps.items())
