"""The deployment document: its values, the one description of its keys, and the loader that names every problem."""
