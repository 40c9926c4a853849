"""Names and addresses that several targets share."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.render.engine_lines import launch

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

GATEWAY_PORT, GATEWAY_ADMIN_PORT = 8080, 8081
"""Where the document leaves the port open (0): a file needs a number."""
OBJECT_NAME_MAX = 40
"""Of the 63 characters of a DNS label; controllers add ordinals and hashes to an object's name."""
EVERY_ADDRESS = frozenset({"0.0.0.0", "::", "*", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens; ``tls`` where it wants HTTPS."""

    host: str
    port: int
    tls: bool = False

    @property
    def text(self) -> str:
        """``host:port``, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def object_name(text: str, *, most: int = OBJECT_NAME_MAX) -> str:
    """``text`` as a DNS-1123 label that also starts with a letter, as Services want it.

    A name that had to be cut, or of which nothing was left, gets eight characters of its digest: two long names stay
    two objects.
    """
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    label = re.sub(r"^[0-9-]+", lambda found: "n" + found.group(), label)
    if label and len(label) <= most:
        return label
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{label[: most - 9].strip('-')}-{digest}" if label else f"n-{digest}"


def gateway_address(inputs: RenderInput) -> Address:
    """Where another program on the gateway's host, or by its name, reaches the data port."""
    gateway = inputs.deployment.gateway
    return Address(host=_gateway_host(inputs), port=gateway.port or GATEWAY_PORT, tls=gateway.tls.cert is not None)


def gateway_admin_address(inputs: RenderInput) -> Address:
    return Address(host=_gateway_host(inputs), port=inputs.deployment.gateway.admin_port or GATEWAY_ADMIN_PORT)


def _gateway_host(inputs: RenderInput) -> str:
    host = inputs.deployment.gateway.host
    return "127.0.0.1" if host in EVERY_ADDRESS else host


def engine_addresses(inputs: RenderInput) -> tuple[Address, ...]:
    """Every engine port that answers HTTP: the document's endpoints, or the hosts that the start files use.

    A host that the document does not name becomes ``NAME-node-RANK``, to be given an address in DNS.
    """
    endpoints = inputs.deployment.engine.endpoints
    if endpoints:
        return tuple(_of_url(one.url) for one in endpoints)
    hosts = inputs.deployment.cluster.hosts
    name = object_name(inputs.deployment.name)
    return tuple(
        Address(host=hosts[line.host].address if hosts else f"{name}-node-{line.host}", port=line.place.port)
        for line in launch(inputs).endpoints
    )


def engines_are_named(inputs: RenderInput) -> bool:
    """Whether the document says where the engines are; otherwise files carry names that an operator must resolve."""
    return bool(inputs.deployment.engine.endpoints or inputs.deployment.cluster.hosts)


ENGINE_URL = re.compile(r"(https?)://(\[[0-9A-Fa-f:.%\w]+\]|[^/:\[\]]+)(?::([0-9]+))?/?")


def _of_url(url: str) -> Address:
    """The document's loader has checked the form: scheme, host and port, no path."""
    found = ENGINE_URL.fullmatch(url)
    if found is None:
        raise ValueError(f"engine endpoint {url!r} is no scheme, host and port")
    scheme, host, port = found.groups()
    tls = scheme == "https"
    return Address(host=host.strip("[]"), port=int(port) if port else (443 if tls else 80), tls=tls)
