"""TLS files, looked at before anything listens."""

import ssl

from logitd.errors import CannotServe
from logitd.settings import Settings


def tls_files(settings: Settings) -> tuple[str, str | None] | None:
    """Return the paths of certificate and key, None without TLS.

    Raises:
        CannotServe: they cannot be read, do not belong together, or need a password.
    """
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None:
        if key is not None:
            raise CannotServe("LOGITD_TLS_KEY / --tls-key: goes with a certificate, and there is none")
        return None
    for path in (certificate, key or certificate):
        try:
            path.open("rb").close()
        except OSError as error:
            raise CannotServe(f"TLS: cannot read {path}: {error.strerror}") from None
    try:
        # A password, though empty: without one OpenSSL would ask the terminal for it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except OSError as error:
        what = f"{certificate} and {key}" if key else str(certificate)
        raise CannotServe(f"TLS: {what}: {_reason(error)}") from None
    return str(certificate), None if key is None else str(key)


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else "no certificate and key in PEM form, without a password"
