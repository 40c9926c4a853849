"""Plan -> what an operator runs. Pure: builds plain data, serialises last, reads no clock, host or environment."""
