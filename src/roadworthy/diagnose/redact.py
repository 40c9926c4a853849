"""Takes hosts, addresses, keys, identifiers and prompt text out of what is to be shared; the same name stays the same.

Ports, process ids, ranks, devices and numbers stay: without them a report says nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SECRET = re.compile(
    r"(?P<name>(?:api[-_]?key|token|secret|password|passwd|authorization|bearer|hf_token|x-api-key)[\"']?\s*[:=]?\s*(?:bearer\s+)?[\"']?)"
    r"(?P<value>[A-Za-z0-9+/_.\-]{8,}=*)",
    re.IGNORECASE,
)
KEYS = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{6,}|hf_[A-Za-z0-9]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|AKIA[A-Z0-9]{12,}|eyJ[A-Za-z0-9_-]{16,}[\w.-]*)"
)
IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)")
IPV6 = re.compile(
    r"(?<![\w:.])(?:(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|"
    r"(?:[0-9a-fA-F]{1,4}:){1,6}:(?:[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){0,5})?|"
    r"::(?:[0-9a-fA-F]{1,4}:){0,5}[0-9a-fA-F]{1,4})(?![\w:.])"
)
MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
UUID = re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")
MAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
HOME = re.compile(r"(?<=/home/)[\w.-]+")
DOMAIN = re.compile(r"\b(?:[a-z0-9-]+\.)+(?:internal|local|corp|lan|intra|example|com|net|org|io|cn|de)\b(?!/)")
PROMPT = re.compile(
    r"(?P<head>(?:[\"']?(?:prompt|content|messages|input|text)[\"']?\s*[:=]\s*))(?P<text>[\"'\[].{12,})"
)
LOCAL = re.compile(r"^(?:127\.|0\.0\.0\.0|255\.)")
PUBLIC_DOMAINS = frozenset(
    {"huggingface.co", "pytorch.org", "github.com", "nvidia.com", "docs.nvidia.com", "developer.nvidia.com"}
)


@dataclass(slots=True)
class Redactor:
    """One for a whole report, so that ``node-3`` is ``host-2`` everywhere.

    Args:
        hosts: names that the evidence gave; replaced wherever they stand as a word.
    """

    hosts: Iterable[str] = ()
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _host: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        names = sorted({name for name in self.hosts if len(name) > 1}, key=lambda name: (-len(name), name))
        for name in sorted(names):
            self._stand_in("host", name)
        if names:
            self._host = re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, names)) + r")(?![\w-])")

    def __call__(self, text: str) -> str:
        text = PROMPT.sub(lambda found: f"{found['head']}<text of {len(found['text'])} characters>", text)
        text = KEYS.sub(lambda found: self._stand_in("key", found.group()), text)
        text = SECRET.sub(lambda found: found["name"] + self._stand_in("key", found["value"]), text)
        text = MAIL.sub(lambda found: self._stand_in("mail", found.group()), text)
        if self._host is not None:
            text = self._host.sub(lambda found: self._stand_in("host", found.group()), text)
        text = UUID.sub(lambda found: self._stand_in("id", found.group()), text)
        text = MAC.sub(lambda found: self._stand_in("mac", found.group()), text)
        text = IPV4.sub(self._address, text)
        text = IPV6.sub(lambda found: self._stand_in("address", found.group()), text)
        text = DOMAIN.sub(self._domain, text)
        return HOME.sub(lambda found: self._stand_in("user", found.group()), text)

    def _address(self, found: re.Match[str]) -> str:
        return found.group() if LOCAL.match(found.group()) else self._stand_in("address", found.group())

    def _domain(self, found: re.Match[str]) -> str:
        return found.group() if found.group() in PUBLIC_DOMAINS else self._stand_in("host", found.group())

    def _stand_in(self, kind: str, value: str) -> str:
        key = (kind, value)
        if key not in self._names:
            number = sum(1 for known, _ in self._names if known == kind) + 1
            self._names[key] = f"{kind}-{number}" if kind == "host" else f"<{kind}-{number}>"
        return self._names[key]
