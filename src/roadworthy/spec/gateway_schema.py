"""Keys of the document's ``gateway`` section for TLS, logs and waiting."""

from __future__ import annotations

from roadworthy.spec import kinds
from roadworthy.spec.fields import Field, Section
from roadworthy.spec.gateway_values import TlsSpec

_PATH = kinds.text("a path", r"[^\0\n]+", example="/etc/roadworthy/tls/cert.pem", most=1000)

TLS = Section(
    cls=TlsSpec,
    doc="TLS on the data port; left out, plain HTTP.",
    fields=(
        Field(key="cert", attribute="cert", value=_PATH, doc="Certificate with its chain, PEM."),
        Field(key="key", attribute="key", value=_PATH, doc="Private key of the certificate, PEM."),
        Field(
            key="client_ca",
            attribute="client_ca",
            value=_PATH,
            doc="Authorities of client certificates, PEM; given, a client without one is refused (mTLS).",
        ),
    ),
)

SERVING_FIELDS = (
    Field(key="tls", attribute="tls", value=TLS, doc=TLS.doc),
    Field(
        key="access_log",
        attribute="access_log",
        value=kinds.text("a path, or - for stdout", r"[^\0\n]+", example="/var/log/roadworthy/access.log", most=1000),
        doc="A line of JSON for each request; `-` writes to stdout. Prompts and answers are never in it.",
    ),
    Field(
        key="otlp_endpoint",
        attribute="otlp_endpoint",
        value=kinds.text("an http or https URL", r"https?://[!-~]+", example="http://collector:4318", most=1000),
        doc="Collector that gets a span for each request, by OTLP over HTTP.",
    ),
    Field(
        key="first_byte_timeout",
        attribute="first_byte_timeout_s",
        value=kinds.duration(least_s=0.1, example="120s"),
        doc="Longest wait for an engine's first byte; an answer that is no stream comes only when it is complete.",
    ),
    Field(
        key="remote_media",
        attribute="remote_media",
        value=kinds.choice("refuse", "allow"),
        doc="Whether content may name media by URL, which the engine then fetches from its own network.",
    ),
)
