"""A pure model of one vLLM engine core: scheduler, block pool, prefix cache, timing. No clock and no I/O.

`simulate` drives it in virtual time, the twin server in real time; both hand in every moment. What it says is a
simulation, and every surface that shows it says so.
"""
