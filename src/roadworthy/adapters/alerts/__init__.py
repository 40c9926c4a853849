"""Word of a quota that is nearly used up, brought to people: by webhook and by mail, off the relay's loop.

Each way has a thread and a queue of its own, so that neither a relay nor the other way waits for a receiver that does
not answer. What could not be delivered after all attempts is said to the operator's log; nothing is kept on disk.
"""

from roadworthy.adapters.alerts.sender import Alerts, alerts_of
from roadworthy.adapters.alerts.webhook import SECRET_VARIABLE, SIGNATURE_HEADER

__all__ = ["SECRET_VARIABLE", "SIGNATURE_HEADER", "Alerts", "alerts_of"]
