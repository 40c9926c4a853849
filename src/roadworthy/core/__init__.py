"""Words and values that every other layer uses; imports nothing of ours and does no I/O."""
