"""`check --fabric`: who measures whom, with which tool, what its output means, and which link is the odd one out."""
