"""`check`: what to ask a host, what its answers mean, and which host is the odd one out."""
