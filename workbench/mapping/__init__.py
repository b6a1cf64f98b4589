"""Which role runs on which devices."""

from workbench.mapping.device_map import DeviceMap

__all__ = ["DeviceMap"]
