"""``workbench run``: a notebook executed without a front end, over papermill."""
