"""A topology from what ``nvidia-smi topo -m``, ``rocm-smi --showtopo`` or ``amd-smi topology`` printed, as people paste it.

Steps: plain lines (``page``), lines that a terminal wrapped (``wrapped``), words (``cells``), header and rows (``matrix``), CPUs and
NUMA nodes (``affinity``), names and memory (``beside``), pairs (``settled``), and the devices with their links (``nvidia``, ``rocm``).
"""

import re

from workbench.errors import ConfigError, check_kind
from workbench.topology.reading.matrix import ASKED
from workbench.topology.reading.nvidia import has_links, read_nvidia
from workbench.topology.reading.page import Page, clean
from workbench.topology.reading.rocm import has_types, is_rocm, read_rocm
from workbench.topology.reading.wrapped import rejoin
from workbench.topology.topology import Topology

MOST_CHARACTERS, MOST_LINES = 4_000_000, 50_000
MOST_LOOKED_AT = 50_000  # for the reason why a text is refused
RUN = "give the output of: nvidia-smi topo -m"

# What a text is that has no matrix: (pattern, what was found, fix). The first that matches counts.
_REASONS = (
    (r"command not found|is not recognized as|No such file or directory", "the command was not found where it ran", RUN),
    (r"NVIDIA-SMI has failed|Failed to initialize NVML|No devices were found", "nvidia-smi failed there", "see to the driver, then " + RUN),
    (r"Insufficient Permissions|permission denied", "nvidia-smi was not permitted there", "ask for the GPUs, then " + RUN),
    (r"<!doctype|<html|<body|<div", "that is a web page", "copy the text of the matrix out of it"),
    (r"NVIDIA-SMI\s+\d|Driver Version:", "that is the table of plain nvidia-smi, which has no links", RUN),
    (r"GPU\d{1,4}.{0,200}\s(?:OK|CNS|GNS|TNS|NS)\s|^[ \t]*OK[ \t]+=\s", "that says only which peers may read memory", RUN),
    (r"^[ \t]*(?:X|SYS|PIX|NV#)[ \t]+=\s", "that is the legend without the matrix", "copy the lines above it, too"),
    (r"\(UUID: GPU-", "that is the list of nvidia-smi -L, which has no links", RUN),
    (
        r'GPU\d{1,4}"? ?[,;] ?"?(?:X|NV\d|SYS|NODE|PHB|PXB|PIX|GPU1)\b.*[,;]',
        "its cells are separated by commas",
        "give what nvidia-smi topo -m printed, with blanks or tabs",
    ),
    (
        r"\bGPU\d{1,4}[ \t]+(?:X\b|NV\d)",
        "there are rows without a header, too few to name columns",
        "copy the line above them, too",
    ),
    (r"\bGPU\d+[ \t]+GPU\d", "there is a header, but no row of a GPU", "copy the lines below it, too"),
)


def parse(text: str, name: str = "parsed") -> Topology:
    """The machine of ``text``. What is cut off or contradicts itself is left out, and ``warnings`` say it; then ``complete`` is False.

    GPUs keep the numbers of the matrix. NUMA: a number, several ("0-1"), or None. Raises ConfigError with the reason where
    ``text`` is no topology, has those of two machines, more than 128 GPUs, over 50,000 lines, or over 4 million characters.
    """
    check_kind("text", text, str, "what nvidia-smi topo -m printed")
    try:
        return _parsed(text, name)
    except ConfigError as error:
        raise ConfigError(f"topology {name!r}", error.found, error.fix) from error


def _parsed(text: str, name: str) -> Topology:
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(ASKED, f"the text has {len(text):,} characters, more than {MOST_CHARACTERS:,}", "give the matrix only")
    page = clean(text)
    if (lines := page.text.strip().count("\n")) > MOST_LINES:
        raise ConfigError(ASKED, f"the text has {lines:,} lines, more than {MOST_LINES:,}", "give the matrix only")
    if is_rocm(page) and not has_links(page):
        return read_rocm(page, name)
    if has_types(page):
        raise ConfigError(ASKED, "the text has matrices of NVIDIA's and of AMD's tools", "parse each by itself")
    topology = read_nvidia(rejoin(page), name)
    if topology is None:
        raise _refusal(page)
    return topology


def _refusal(page: Page) -> ConfigError:
    if page.last < 0:
        return ConfigError(ASKED, "the text is empty", RUN)
    head = page.text.strip()[:MOST_LOOKED_AT]
    for pattern, found, fix in _REASONS:
        if re.search(pattern, head, re.I | re.M):
            return ConfigError(ASKED, found, fix)
    start = next(line.strip() for line in page.lines if line.strip())[:60]
    return ConfigError(ASKED, f"there is no matrix of GPUs in it; it begins with {start!r}", RUN)
