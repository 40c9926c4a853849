"""Keys of the document's ``gateway`` section for TLS, logs, waiting and documents."""

from __future__ import annotations

from roadworthy.spec import kinds
from roadworthy.spec.fields import Field, Section
from roadworthy.spec.gateway_values import DocumentsSpec, TlsSpec

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

DOCUMENTS = Section(
    cls=DocumentsSpec,
    doc="Documents that tenants store and ask about, under `/v1/documents` of the data port; off without `home`.",
    fields=(
        Field(
            key="home",
            attribute="home",
            value=kinds.text("a path", r"[^\0\n]+", example="/var/lib/roadworthy/documents", most=1000),
            doc="Folder under which each tenant has its own; left out, no documents are served.",
        ),
        Field(
            key="max_upload", attribute="max_upload_bytes", value=kinds.size(example="256MiB"), doc="Largest document."
        ),
        Field(
            key="max_documents",
            attribute="max_documents",
            value=kinds.whole_number(most=10**6, example="10000"),
            doc="Documents of one tenant.",
        ),
        Field(
            key="max_stored",
            attribute="max_stored_bytes",
            value=kinds.size(example="10GiB"),
            doc="All documents of one tenant together, as they were uploaded.",
        ),
        Field(
            key="readers",
            attribute="readers",
            value=kinds.whole_number(most=64, example="1"),
            doc="Documents that are read at once, over all tenants, in turn; OCR and embedding of one use every core.",
        ),
        Field(
            key="reader_memory",
            attribute="reader_memory_bytes",
            value=kinds.size(example="8GiB"),
            doc="Memory that a process which reads a document may ask for; one that needs more fails, and nothing else "
            "does.",
        ),
        Field(
            key="gateway_url",
            attribute="gateway_url",
            value=kinds.text("an http or https URL", r"https?://[!-~]+", example="https://llm.example.com", most=1000),
            doc="Where questions find the data port. Left out, its own address; with `tls` it has to be a name that "
            "the certificate is for.",
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
    Field(key="documents", attribute="documents", value=DOCUMENTS, doc=DOCUMENTS.doc),
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
