"""Which flags one version of `vllm serve` takes, asked as the readers need it: how many words follow one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from roadworthy.catalog.flags import FLAG_VERSIONS, FlagCatalog, FlagMatch, flag_catalog

VERSIONS = FLAG_VERSIONS


@dataclass(frozen=True, slots=True)
class FlagBook:
    """The catalog of one version, with the arity of a spelling."""

    catalog: FlagCatalog

    @property
    def version(self) -> str:
        return self.catalog.version

    def match(self, name: str) -> FlagMatch | None:
        return self.catalog.match(name)

    def arity(self, name: str) -> int | None:
        """How many words follow ``name``: 0, 1, -1 for several; None for a flag that this version does not take."""
        if name in ("-h", "--help"):
            return 0
        found = self.catalog.match(name)
        if found is None:
            return _ARITY_OF_OLD.get(name)
        if found.value is not None or (not found.flag.takes_value and not found.key_path):
            return 0
        return -1 if found.flag.nargs in ("+", "*") and not found.key_path else 1


_ARITY_OF_OLD = {
    "--worker-use-ray": 0,
    "--engine-use-ray": 0,
    "--use-v2-block-manager": 0,
    "--disable-log-requests": 0,
    "--moe-async-all-to-all": 0,
    "--enable-async-output-proc": 0,
    "--disable-async-output-proc": 0,
    "--disable-frontend-multiprocessing": 0,
    "--enable-reasoning": 0,
    "--cuda-graph-sizes": -1,
}
"""Flags that are gone, so that a model's name behind one is not taken for its value."""


@lru_cache(maxsize=4)
def flag_book(version: str) -> FlagBook:
    """The book of ``version``. Raises Unsupported naming the versions known."""
    return FlagBook(flag_catalog(version))
