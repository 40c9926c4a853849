"""Twins and routing in virtual time: hours of traffic in seconds, with the records that `bench` would measure."""
