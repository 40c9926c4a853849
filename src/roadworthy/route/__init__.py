"""What the gateway decides: who a key belongs to, whether a request may run, which engine gets it.

Pure and synchronous: no socket, no clock. The gateway, the simulator and the property tests drive the same code, each
with its own time. Nothing here awaits, and nothing outside here decides.
"""
