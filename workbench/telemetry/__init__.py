"""What a run tells of itself while it trains: signs that it goes wrong, as findings. Pure: steps in, records out."""

from workbench.telemetry.health import RULES, Watcher
from workbench.telemetry.limits import Limits
from workbench.telemetry.load_lookout import LoadLookout
from workbench.telemetry.lookout import Lookout

__all__ = ["RULES", "Limits", "LoadLookout", "Lookout", "Watcher"]
