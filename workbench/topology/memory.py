"""A GPU's memory by its name, where nobody measured it (a pasted list of names)."""

import re

# GiB that NVML reports, for names that don't say it. Sources: vendors' data sheets; 16 to 48 GB cards keep a little for themselves.
_NAMED = (
    (r"H200", 140.4),
    (r"B200|GB200", 179.0),
    (r"B300|GB300", 268.0),
    (r"MI300X", 192.0),
    (r"H20\b", 95.6),
    (r"H100|H800", 79.6),
    (r"L40S?\b|6000 Ada", 45.0),
    (r"A6000|A40\b", 45.0),
    (r"5090", 31.8),
    (r"4090|3090|A5000", 24.0),
    (r"A30\b", 24.0),
    (r"L4\b|A10\b|A10G", 22.5),
    (r"A4000", 16.0),
    (r"T4\b", 15.0),
    (r"2080 Ti", 11.0),
    (r"K80", 11.9),
)


def memory_of(name: str | None) -> float | None:
    """GiB of a GPU: what its name says ("A100-SXM4-80GB"), else what its kind has; None where that is not one size or not known."""
    if not name:
        return None
    said = re.search(r"(\d{1,3}) ?GB\b", name)
    if said:
        return float(said[1])
    return next((size for pattern, size in _NAMED if re.search(pattern, name)), None)
