"""Engines as processes of this host: started, health-gated, watched, restarted with back-off, stopped as a group."""
