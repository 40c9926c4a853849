"""Reads one document; the documents' process starts it as ``python -m roadworthy.cli.documents_reader``."""

from __future__ import annotations

from roadworthy.adapters.library.reader import main

if __name__ == "__main__":
    main()
