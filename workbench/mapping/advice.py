"""Environment variables that do nothing, mislead or hurt: what ``check`` and ``doctor`` say where one is set.

Each rule has its evidence in ``docs/myths.md``, under its anchor. ``variables.txt`` holds the names that something
reads; a name that is nearly one of them is taken for a slip of the pen.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from pathlib import Path
from typing import Literal

from workbench.findings import Finding, finding

PAGE = "docs/myths.md"
USELESS: Literal["WB604"] = "WB604"
HARMFUL: Literal["WB605"] = "WB605"
LIKE = 0.85  # of difflib, names of one length: letters exchanged, as in NLLC_P2P_LEVEL
NEAR = 0.92  # of different lengths: a letter or two too many; VLLM_HOST, somebody's own, is not VLLM_HOST_IP
VENDORS = frozenset({"ASCEND", "BKCL", "CNCL", "HCCL", "HIP", "HPU", "MCCL", "MLU", "MUSA", "NPU", "RCCL", "ROCR", "XCCL", "XPU"})


@dataclass(frozen=True)
class Advice:
    """A rule for one environment variable. ``applies``: from its value. ``anchor``: of its entry in docs/myths.md."""

    variable: str
    applies: Callable[[str], bool]
    code: Literal["WB604", "WB605"]
    found: str
    fix: str
    anchor: str


def advice(environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """What to say of the variables that are set: the rules in their order, then names that are nearly known ones."""
    rules = [rule for rule in RULES if rule.variable in environment and rule.applies(environment[rule.variable].strip())]
    found = [_finding(rule, environment[rule.variable]) for rule in rules]
    return (*found, *_allocator(environment), *_slips(environment))


def anchors() -> frozenset[str]:
    """The anchors of docs/myths.md that findings of this module name."""
    return frozenset({rule.anchor for rule in RULES} | {"expandable-segments", "unread-variables"})


def _finding(rule: Advice, value: str) -> Finding:
    return finding(rule.code, "", f"{rule.variable}={value}", rule.found, f"{rule.fix} ({PAGE}#{rule.anchor})")


def _allocator(environment: Mapping[str, str]) -> Iterator[Finding]:
    """The allocator's expandable segments beside vLLM's sleep mode, which has to turn them off for its own pool."""
    new, old = environment.get("PYTORCH_ALLOC_CONF", ""), environment.get("PYTORCH_CUDA_ALLOC_CONF", "")
    if _expandable(new) and not _expandable(old):
        found = "vLLM 0.23's sleep mode looks for expandable segments in PYTORCH_CUDA_ALLOC_CONF alone, and leaves these on in its pool"
        fix = f"set PYTORCH_CUDA_ALLOC_CONF instead, which torch reads too, or leave it out ({PAGE}#expandable-segments)"
        yield finding(HARMFUL, "", f"PYTORCH_ALLOC_CONF={new}", found, fix)
    if _expandable(old) and len([option for option in old.split(",") if option.strip()]) > 1:
        found = "vLLM 0.23's sleep mode turns expandable segments off and on again, and with that resets every other option given here"
        fix = f"give expandable_segments:True alone, or the other options alone ({PAGE}#expandable-segments)"
        yield finding(HARMFUL, "", f"PYTORCH_CUDA_ALLOC_CONF={old}", found, fix)


def _expandable(options: str) -> bool:
    return "expandable_segments:True" in options


def _slips(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Names that nothing reads and that are nearly the name of something. Values are not shown: nothing is known of them."""
    for name in environment:
        meant = _meant(name)
        if meant:
            found = f"nothing reads a variable of that name; {meant} is one"
            yield finding(USELESS, "", name, found, f"rename it to {meant}, or remove it ({PAGE}#unread-variables)")


def _meant(name: str) -> str | None:
    """The known name that ``name`` is nearly, if it is none itself. Other vendors' libraries have names like NVIDIA's: not those."""
    tokens = name.split("_")
    if len(tokens) < 2 or not name.isupper() or len(name) > 100 or VENDORS & set(tokens) or name in known() or name in _ruled():
        return None
    # A slip leaves the beginning or the end as it was; to compare with all thousand names takes 50 ms.
    candidates = [one for one in known() if one[:3] == name[:3] or one[-3:] == name[-3:]]
    near = get_close_matches(name, candidates, n=3, cutoff=LIKE)
    return next((one for one in near if len(one) == len(name) or SequenceMatcher(None, one, name).ratio() >= NEAR), None)


@cache
def _ruled() -> frozenset[str]:
    return frozenset(rule.variable for rule in RULES)


@cache
def known() -> frozenset[str]:
    """Variables that NCCL, torch, CUDA, vLLM or the Hugging Face libraries read."""
    lines = Path(__file__).with_name("variables.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def _on(value: str) -> bool:
    """As torch reads a switch (``getCvarBool``)."""
    return value.lower() in ("1", "y", "yes", "t", "true")


def _off(value: str) -> bool:
    return value.lower() in ("0", "n", "no", "f", "false")


def _set(value: str) -> bool:
    return value != ""


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _unread(variable: str, instead: str, anchor: str = "unread-variables", by: str = "nothing here reads it") -> Advice:
    return Advice(variable, _set, USELESS, by, f"remove it; {instead}", anchor)


def _no_level(value: str) -> bool:
    """Neither a class of path nor a number: NCCL compares letter by letter, and drops what it does not know."""
    return value != "" and value not in PATHS and not value[0].isdecimal()


PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")  # NCCL's topoPathTypeStr, old and new
TIMEOUT = "the time-out of collectives is torch.distributed.init_process_group(timeout=...)"
NCCL_GONE = "NCCL chooses by its own model of the machine (NCCL_ALGO, NCCL_PROTO to insist)"
SHARE = "the trainer's share is torch.cuda.set_per_process_memory_fraction, the engine's its gpu_memory_utilization"
WAITS = "every wait for a collective stops the Python thread until the GPU is done, and no watchdog looks for hung collectives"
COLLECTIVES = "that is the default; collectives are asynchronous on the GPU with or without it"

RULES: tuple[Advice, ...] = (
    *(
        rule
        for variable in ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
        for rule in (
            Advice(variable, _off, USELESS, COLLECTIVES, "remove it", "nccl-blocking-wait"),
            Advice(variable, _on, HARMFUL, WAITS, "remove it", "nccl-blocking-wait"),
        )
    ),
    *(
        Advice(
            variable,
            _one_of("0"),
            HARMFUL,
            "a failed or hung collective no longer ends the process: the run stands still",
            "remove it; by default torch ends the process (3)",
            "async-error-handling",
        )
        for variable in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
    ),
    Advice(
        "TORCH_NCCL_AVOID_RECORD_STREAMS",
        _on,
        USELESS,
        "torch does so by default now, and warns of the variable",
        "remove it",
        "unread-variables",
    ),
    Advice("CUDA_LAUNCH_BLOCKING", _off, USELESS, "that is the default", "remove it", "debug-left-on"),
    Advice(
        "CUDA_LAUNCH_BLOCKING",
        _on,
        HARMFUL,
        "every kernel is waited for before the next one is launched: right for finding a fault, slow for all else",
        "remove it once the fault is found",
        "debug-left-on",
    ),
    Advice(
        "TORCH_DISTRIBUTED_DEBUG",
        lambda value: value.upper() == "DETAIL",
        HARMFUL,
        "every collective is preceded by a comparison of all ranks over Gloo",
        "remove it, or INFO, once the fault is found",
        "debug-left-on",
    ),
    Advice(
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        _on,
        HARMFUL,
        "every tensor is a cudaMalloc and a cudaFree of its own",
        "remove it; it is for memory checkers",
        "debug-left-on",
    ),
    Advice(
        "NCCL_P2P_DISABLE",
        _one_of("1"),
        HARMFUL,
        "GPUs don't read each other's memory, not over NVLink either: all goes through the host's memory",
        "remove it, unless this machine's peer access is known to hang",
        "p2p-left-off",
    ),
    Advice(
        "NCCL_P2P_LEVEL",
        _one_of("LOC", "0"),
        HARMFUL,
        "the same as NCCL_P2P_DISABLE=1: GPUs don't read each other's memory",
        "remove it, unless this machine's peer access is known to hang",
        "p2p-left-off",
    ),
    Advice(
        "NCCL_P2P_LEVEL",
        _one_of("NVL"),
        HARMFUL,
        "it switches nothing on: pairs without NVLink lose peer access, and pairs with it had it already",
        "remove it, unless peer access over PCIe is known to hang here",
        "p2p-left-off",
    ),
    Advice(
        "NCCL_P2P_LEVEL", _no_level, USELESS, f"NCCL knows {', '.join(PATHS)}, in capitals, and drops others", "remove it", "p2p-left-off"
    ),
    *(
        _unread(variable, TIMEOUT, "nccl-timeout")
        for variable in ("NCCL_TIMEOUT", "NCCL_SOCKET_TIMEOUT", "NCCL_COMM_TIMEOUT", "NCCL_ALLREDUCE_TIMEOUT", "NCCL_ALLREDUCE_TIMEOUT_MS")
    ),
    *(
        _unread(variable, NCCL_GONE, by="NCCL no longer reads it")
        for variable in ("NCCL_TREE_THRESHOLD", "NCCL_LL_THRESHOLD", "NCCL_RINGS", "NCCL_IB_CUDA_SUPPORT")
    ),
    _unread("NCCL_DYNAMIC_TREE", NCCL_GONE),
    *(_unread(variable, SHARE) for variable in ("TORCH_CUDA_MEMORY_FRACTION", "PYTORCH_CUDA_MEMORY_FRACTION")),
    *(_unread(variable, "torch.backends.cudnn.benchmark = True in code") for variable in ("CUDNN_BENCHMARK", "TORCH_CUDNN_BENCHMARK")),
    _unread("TF_FORCE_GPU_ALLOW_GROWTH", "torch takes memory as it needs it", by="only TensorFlow reads it"),
    _unread("VLLM_USE_V1", "there is one engine now", by="vLLM 0.23 and later don't read it"),
    _unread("VLLM_ATTENTION_BACKEND", "give the engine attention_backend=...", by="vLLM 0.23 and later don't read it"),
    _unread("VLLM_GPU_MEMORY_UTILIZATION", "give the engine gpu_memory_utilization=...", by="vLLM does not read it"),
    _unread("TRANSFORMERS_CACHE", "set HF_HOME or HF_HUB_CACHE", by="transformers 5 does not read it"),
    Advice(
        "HF_HUB_ENABLE_HF_TRANSFER",
        _on,
        USELESS,
        "hf_transfer is no longer used",
        "remove it; HF_XET_HIGH_PERFORMANCE=1 is the new one",
        "unread-variables",
    ),
)
