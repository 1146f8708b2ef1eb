"""Certificates of all kinds from one authority; hptune itself makes one that signs itself."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hptune.security.certificates import Identity

DAY = datetime.timedelta(days=1)
_USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
    "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


class Authority:
    """Authority that signs what a test asks for.

    Args:
        member: Who signs instead of an authority of its own.
    """

    def __init__(self, member: Identity | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = "authority"
        if member is None:
            self._certificate = self._signed(self._name, self._key, days=99, is_authority=True)
        else:
            key = serialization.load_pem_private_key(member.key.encode(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            self._key, self._name = key, member.name
            self._certificate = x509.load_pem_x509_certificate(member.certificate.encode())

    def write(self, path: Path, *, days: int = 99, since_days: int = 30) -> Path:
        """Write a file as hptune reads them.

        Args:
            path: The file.
            days: Days for which it is still valid; negative if it has expired.
            since_days: Days for which it has been valid; negative if it is not valid yet.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        certificates = (
            self._signed(path.stem, key, days=days, since_days=since_days),
            self._certificate,
        )
        pem = [each.public_bytes(serialization.Encoding.PEM) for each in certificates]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(0o600)
        path.write_bytes(b"".join([private, *pem]))
        return path

    def _signed(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        *,
        days: int,
        since_days: int = 30,
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)

        def named(name: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])

        # Python 3.13 refuses certificates without these extensions.
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        authority = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        usage = dict.fromkeys(_USES, False) | {
            "key_cert_sign" if is_authority else "digital_signature": True
        }
        return (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - since_days * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(own, critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority),
                critical=False,
            )
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .sign(self._key, hashes.SHA256())
        )
