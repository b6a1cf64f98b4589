"""``workbench doctor``: is what is installed what was tested, does the engine load, is the machine big enough?"""

from workbench.doctor.check import Check
from workbench.doctor.report import Report, examine

__all__ = ["Check", "Report", "examine"]
