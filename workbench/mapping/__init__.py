"""Which role runs on which devices."""

from workbench.mapping.device_map import DeviceMap
from workbench.mapping.placement import Placement
from workbench.mapping.templates import template

__all__ = ["DeviceMap", "Placement", "template"]
