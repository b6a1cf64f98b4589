"""A machine as a picture: shapes with named colours, as SVG and PNG, light and dark."""

from workbench.topology.drawing.machine import draw

__all__ = ["draw"]
