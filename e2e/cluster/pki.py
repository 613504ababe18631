"""The cluster's own certificate authority, made with openssl. Its keys live in the cluster's folder and end with it."""

from __future__ import annotations

import base64
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path

import yaml

from e2e.cluster.spec import ClusterError

DAYS = "30"


class Authority:
    """Issues keys and certificates in `folder`; asked twice for the same name it answers with the first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.crt"
        self._key = folder / "ca.key"

    def create(self) -> None:
        """Makes the authority, and the pair of keys with which service account tokens are signed and checked."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.certificate.exists():
            return
        self._new_key(self._key)
        self._openssl("genrsa", "-out", str(self.token_key), "2048")
        self._openssl("rsa", "-in", str(self.token_key), "-pubout", "-out", str(self.token_public_key))
        self._openssl(
            *("req", "-x509", "-new", "-key", str(self._key), "-subj", "/CN=blockhouse-test-ca"),
            *("-days", DAYS, "-out", str(self.certificate)),
        )

    @property
    def token_key(self) -> Path:
        return self.folder / "tokens.key"

    @property
    def token_public_key(self) -> Path:
        return self.folder / "tokens.pub"

    def issue(self, name: str, subject: str, hosts: Sequence[str] = ()) -> tuple[Path, Path]:
        """Certificate and key for `subject`, e.g. "/O=system:masters/CN=admin"; `hosts` like "IP:127.0.0.1"."""
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        if certificate.exists():
            return certificate, key
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        names = [f"subjectAltName={','.join(hosts)}"] if hosts else []
        extensions.write_text("\n".join(["extendedKeyUsage=serverAuth,clientAuth", *names]) + "\n")
        self._new_key(key)
        self._openssl("req", "-new", "-key", str(key), "-subj", subject, "-out", str(request))
        self._openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key)),
            # Not a serial number from a file: programs that start at the same time would tear it.
            *(
                "-set_serial",
                f"0x{secrets.token_hex(8)}",
                "-days",
                DAYS,
                "-extfile",
                str(extensions),
                "-out",
                str(certificate),
            ),
        )
        return certificate, key

    def kubeconfig(
        self, path: Path, server: str, *, identity: tuple[Path, Path] | None = None, token: str = ""
    ) -> Path:
        """Writes a kubeconfig for the API server at the URL `server`, with a certificate or with a bearer token."""
        user: dict[str, str] = {"token": token} if token else {}
        if identity is not None:
            certificate, key = identity
            user = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {"server": server, "certificate-authority-data": _base64(self.certificate)},
                        }
                    ],
                    "users": [{"name": "user", "user": user}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
                    "current-context": "test",
                }
            )
        )
        return path

    def _new_key(self, path: Path) -> None:
        self._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ClusterError(f"openssl {arguments[0]} in {self.folder} failed: {done.stderr.strip()}")


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
