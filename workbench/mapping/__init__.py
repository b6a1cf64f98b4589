"""Which role runs on which devices, and whether that is wise on this machine."""

from workbench.mapping.device_map import DeviceMap
from workbench.mapping.placement import Placement
from workbench.mapping.templates import template

__all__ = ["DeviceMap", "Placement", "template"]
