"""Behind ``workbench topo`` and ``workbench check``: what they read, what they say, and how a map's file is mended."""
