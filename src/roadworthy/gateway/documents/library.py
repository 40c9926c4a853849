"""What the HTTP side asks of the collections; ``cli`` brings them. Calls block, and raise Refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


class Library(Protocol):
    """Each call is one tenant's, and reaches nothing of another's."""

    def upload(self, tenant: str) -> Any: ...

    def stored(self, tenant: str, upload: Any, name: str, *, vectors: bool) -> Mapping[str, Any]: ...

    def documents(self, tenant: str, *, limit: int, after: str | None) -> Mapping[str, Any]: ...

    def document(self, tenant: str, document: str) -> Mapping[str, Any]: ...

    def source(self, tenant: str, document: str) -> tuple[Path, str]: ...

    def delete(self, tenant: str, document: str) -> Mapping[str, Any]: ...

    def jobs(self, tenant: str) -> Mapping[str, Any]: ...

    def job(self, tenant: str, job: str) -> Mapping[str, Any]: ...

    def cancel(self, tenant: str, job: str) -> Mapping[str, Any]: ...

    def resume(self, tenant: str, job: str, key: str | None) -> Mapping[str, Any]: ...

    def result(self, tenant: str, job: str) -> Mapping[str, Any]: ...

    def search(self, tenant: str, queries: Sequence[str], *, limit: int, documents: Sequence[str]) -> list[Any]: ...

    def ask(
        self,
        tenant: str,
        asked: Mapping[str, Any],
        *,
        key: str | None,
        stop: threading.Event,
        tell: Callable[[str, Mapping[str, Any]], None],
    ) -> Mapping[str, Any]: ...

    def compare(self, tenant: str, asked: Mapping[str, Any], *, key: str | None) -> Mapping[str, Any]: ...
