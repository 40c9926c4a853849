"""The tiny model is a complete checkpoint, the same every time, and the catalog's `tiny`."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from roadworthy.adapters.tiny_model import ensure_tiny_model
from roadworthy.core.errors import ProbeError


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    one, two = ensure_tiny_model(tmp_path / "one"), ensure_tiny_model(tmp_path / "two")
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


def test_the_header_covers_the_data_exactly(tmp_path: Path) -> None:
    data = (ensure_tiny_model(tmp_path / "tiny") / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    end = max(entry["data_offsets"][1] for entry in header.values())
    assert 8 + length + end == len(data)


def test_an_existing_model_is_left_alone(tmp_path: Path) -> None:
    folder = ensure_tiny_model(tmp_path / "tiny")
    (folder / "config.json").write_text("{}")
    ensure_tiny_model(folder)
    assert (folder / "config.json").read_text() == "{}"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ProbeError, match="cannot build the tiny model"):
        ensure_tiny_model(blocked / "tiny")


def test_an_interrupted_build_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"half")
    ensure_tiny_model(folder)
    assert (folder / "config.json").is_file()
