"""Who may run now, who waits, and who goes first: quotas, fair queueing and business rules.

Pure and synchronous like the rest of ``route``: every function that needs the time is told it. ``values`` holds what
passes between the pieces, ``meter`` counts what tenants hold, ``governor`` queues and decides. The gateway, the
simulator and the property tests drive the same objects.
"""
