"""Clues that only several others together give."""

from __future__ import annotations

from roadworthy.diagnose.joins import engine, memory, network

JOINS = (*network.JOINS, *memory.JOINS, *engine.JOINS)
