"""Cells of notebooks: a made-up run on made-up machines, whole or going on; the views and the stream are the real ones."""

WHOLE = """\
from tests.views import made
from workbench import views

topology, placement = made.large()
log, end = made.begun(placement), 0.0
for step in (1, 2, 3):
    end = made.whole(log, step, end)
for device in topology.ids:
    log.emit(made.load(device, end, 0.93, 25.0, role_memory_gib={"actor": 14.0}).record)
"""
GOING_ON = """\
import threading, time
from tests.views.conftest import begin, one_step
from workbench import views
from workbench.events import EventLog

log = EventLog()
begin(log, 500)

def go_on():
    for step in range(1, 500):
        one_step(log, step, 500)
        time.sleep(0.1)

thread = threading.Thread(target=go_on, daemon=True)
"""
BOARD = 'views.board(log, topology, badge="replayed")'
NAMES = ("curves", "topology", "load", "timeline", "samples")
