"""TLS and mutual TLS of the data port, by the standard library."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from roadworthy.spec.gateway_values import TlsSpec


def server_context(tls: TlsSpec) -> ssl.SSLContext | None:
    """The context for the data port; None for plain HTTP.

    TLS 1.2 at least, HTTP/1.1 by ALPN. With ``client_ca`` a client must show a certificate that it signed.

    Raises:
        SpecError: a file is missing, is no PEM, or certificate and key do not belong together.
    """
    if tls.cert is None or tls.key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load(context, tls)
    return context


def load(context: ssl.SSLContext, tls: TlsSpec) -> None:
    """Take the files into ``context``: new connections use them, those that are open go on. Raises as above."""
    assert tls.cert is not None
    try:
        context.load_cert_chain(tls.cert, tls.key, password=lambda: "")  # never ask a terminal
    except (OSError, ssl.SSLError) as error:
        raise SpecError(
            f"gateway.tls: {tls.cert} and {tls.key} cannot be used: {error.strerror or error}",
            hint="give a PEM certificate with its chain and its own PEM key, both readable and without a passphrase",
        ) from error
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise SpecError(
                f"gateway.tls.client_ca: {tls.client_ca} cannot be used: {error.strerror or error}",
                hint="give the PEM certificates of the authorities that sign your clients' certificates",
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
