"""Drive load at a service in real time, and report what it proves."""
