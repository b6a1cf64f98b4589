"""Environment variables that do nothing or hurt, as checks of the doctor."""

from collections.abc import Mapping

from workbench.doctor.check import Check
from workbench.mapping.advice import advice


def environment(variables: Mapping[str, str]) -> list[Check]:
    """One check for each setting that has something to be said of: what hurts is a warning, what does nothing is ok. Mostly none."""
    return [
        Check(
            "environment",
            "warning" if found.severity == "warning" else "ok",
            f"{found.asked}: {found.found}",
            found.fix.text,
        )
        for found in advice(variables)
    ]
