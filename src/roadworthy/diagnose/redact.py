"""Takes hosts, addresses, keys, identifiers and prompt text out of what is to be shared; the same name stays the same.

Ports, process ids, ranks, devices and numbers stay: without them a report says nothing. A name that is known from one
place (a line, a path, an option) is replaced in every other, and so are names that differ from it by a number alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from roadworthy.diagnose import private_patterns as private

if TYPE_CHECKING:
    from collections.abc import Iterable

Value = TypeVar("Value")

OURS = frozenset({"remedy", "capture_next", "code", "severity", "status", "clock", "what"})
"""Fields that hold our own words."""

LOCAL = re.compile(r"^(?:127\.|0\.0\.0\.0|255\.)")
PLACES = re.compile(
    r"(?:^|/)(?:hosts|nodes|pods|engines|gateways|prometheus|namespaces)/(?P<first>[^/]+)(?:/(?P<second>[^/]+)/)?"
)
SOSREPORT = re.compile(r"(?:^|/)sosreport-(?P<first>[A-Za-z0-9][\w.-]*?)(?:-\d{4}-\d\d-\d\d|/|$)")
COMMON_NAMES = frozenset(
    {"default", "localhost", "engine", "pods", "host", "node", "kernel", "none", "unknown", "null"}
)
SHORTEST = 2
LINE_MOST_CHARACTERS = 2_000
"""Of a line; evidence is shorter."""


@dataclass(slots=True)
class Redactor:
    """One for a whole report, so that ``node-3`` is ``host-2`` everywhere.

    Args:
        hosts: names that the evidence gave; replaced wherever they stand as a word, in whatever case.
        files: paths whose folders tell hosts, pods and namespaces.
    """

    hosts: Iterable[str] = ()
    files: Iterable[str] = ()
    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _host: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        names = {name for name in (*self.hosts, *_of_paths(self.files)) if _is_name(name)}
        names |= {name.split(".", 1)[0] for name in names if _is_fully_qualified(name)}
        for name in sorted(names):
            self._stand_in("host", name.lower())
        families = {re.sub(r"\d+", "\0", re.escape(name)).replace("\0", r"\d+") for name in names if _is_name(name)}
        if families:
            patterns = sorted(families, key=lambda one: (-len(one), one))
            self._host = re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(patterns) + r")(?![A-Za-z0-9])", re.IGNORECASE)

    def __call__(self, text: str) -> str:
        return "\n".join(map(self._line, text.split("\n")))

    def _line(self, text: str) -> str:
        if len(text) > LINE_MOST_CHARACTERS:  # patterns that look far ahead take quadratic time
            cut = max(text.rfind(" ", 0, LINE_MOST_CHARACTERS), 0)  # half a name is no name that we know
            return f"{self._line(text[:cut])}<{len(text) - cut} characters left out>"
        for pattern in (private.TOKEN_IDS, private.PROMPT, private.BARE_PROMPT):
            text = pattern.sub(_text_left_out, text)
        text = private.PEM.sub(lambda found: self._stand_in("key", found.group()), text)
        for pattern in (private.USERINFO, private.SECRET, private.BEARER):
            text = pattern.sub(self._secret, text)
        text = private.KEYS.sub(lambda found: self._stand_in("key", found.group()), text)
        text = private.MAIL.sub(lambda found: self._stand_in("mail", found.group().lower()), text)
        text = private.UUID.sub(lambda found: self._stand_in("id", found.group().lower()), text)
        text = private.SERIAL.sub(lambda found: found["name"] + self._stand_in("id", found["value"]), text)
        text = private.TENANT.sub(lambda found: found["name"] + self._stand_in("tenant", found["value"]), text)
        text = private.USER.sub(self._user, text)
        text = private.DASHED_IPV4.sub(lambda found: self._stand_in("host", found.group().lower()), text)
        if self._host is not None:
            text = self._host.sub(lambda found: self._stand_in("host", found.group().lower()), text)
        text = private.NAMED_HOST.sub(self._named_host, text)
        text = private.DOMAIN.sub(self._domain, text)
        text = private.MAC.sub(lambda found: self._stand_in("mac", found.group().lower()), text)
        text = private.GUID.sub(lambda found: self._stand_in("id", found.group().lower()), text)
        text = private.IPV6.sub(self._ipv6, text)
        text = private.IPV4.sub(self._ipv4, text)
        return private.LONG.sub(self._long, text)

    def value(self, whole: Value) -> Value:
        """``whole``, a value of dataclasses, tuples, lists and mappings, with every text in it redacted but our own."""
        redacted: Any = self._value(whole)
        return redacted  # type: ignore[no-any-return]

    def _value(self, whole: Any) -> Any:
        if isinstance(whole, str):
            return self(whole)
        if isinstance(whole, tuple | list):
            return type(whole)(self._value(one) for one in whole)
        if isinstance(whole, Mapping):
            return {key: one if key in OURS else self._value(one) for key, one in whole.items()}
        if is_dataclass(whole) and not isinstance(whole, type):
            changed = {
                one.name: self._value(getattr(whole, one.name))
                for one in fields(whole)
                if one.init and one.name not in OURS
            }
            return replace(whole, **changed)
        return whole

    def _secret(self, found: re.Match[str]) -> str:
        if private.is_plain_value(found["value"]):
            return found.group()
        opened = found.groupdict().get("open") or ""
        return found["name"] + opened + self._stand_in("key", found["value"].removeprefix(opened))

    def _user(self, found: re.Match[str]) -> str:
        if found["value"].lower() in private.COMMON_USERS:
            return found.group()
        return found["name"] + self._stand_in("user", found["value"])

    def _named_host(self, found: re.Match[str]) -> str:
        known = found["value"].startswith("host-") and found["value"] in self._names.values()
        return found.group() if known else found["name"] + self._stand_in("host", found["value"].lower())

    def _ipv4(self, found: re.Match[str]) -> str:
        return found.group() if LOCAL.match(found.group()) else self._stand_in("address", found.group())

    def _ipv6(self, found: re.Match[str]) -> str:
        address = private.ipv6_in(found.group())
        if address is None:
            return found.group()
        return self._stand_in("address", address.lower()) + found.group()[len(address) :]

    def _domain(self, found: re.Match[str]) -> str:
        if not private.is_domain(found["top"]) or private.is_public(found.group()):
            return found.group()
        return self._stand_in("host", found.group().lower())

    def _long(self, found: re.Match[str]) -> str:
        return self._stand_in("key", found.group()) if private.is_random(found.group()) else found.group()

    def _stand_in(self, kind: str, value: str) -> str:
        key = (kind, value)
        if key not in self._names:
            number = sum(1 for known, _ in self._names if known == kind) + 1
            self._names[key] = f"{kind}-{number}" if kind == "host" else f"<{kind}-{number}>"
        return self._names[key]


def _text_left_out(found: re.Match[str]) -> str:
    if found["text"].startswith("<text of "):
        return found.group()
    return f"{found['head']}<text of {len(found['text'])} characters>"


def _of_paths(files: Iterable[str]) -> set[str]:
    """Names of places in paths, as fetching, must-gather and sosreport lay them down."""
    found: set[str] = set()
    for path in files:
        for pattern in (PLACES, SOSREPORT):
            for match in pattern.finditer(path):
                found |= {one for one in match.groupdict().values() if one}
    return {re.sub(r"_\d+$", "", name) for name in found} | found


def _is_name(name: str) -> bool:
    return len(name) >= SHORTEST and name.lower() not in COMMON_NAMES and not re.fullmatch(r"[\d._:-]+", name)


def _is_fully_qualified(name: str) -> bool:
    return "." in name and private.is_domain(name.rsplit(".", 1)[1])
