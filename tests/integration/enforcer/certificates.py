"""An authority of the test's own, and what it signs; made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.services import unavailable

_EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Authority:
    """One that signs; `ca` is its own certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            unavailable("openssl is not installed")
        self._folder, self._name = folder, name
        self.ca, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        _openssl("req", "-x509", *_EC, "-days", "2", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.ca)

    def sign(self, name: str, *, holds: str = "IP:127.0.0.1,DNS:localhost", days: int = 2) -> tuple[Path, Path]:
        """Certificate and key for these hosts; below 0 days it has expired already."""
        asked, made, key = (self._folder / f"{self._name}-{name}.{kind}" for kind in ("csr", "pem", "key"))
        hosts = self._folder / f"{self._name}-{name}.ext"
        hosts.write_text(f"subjectAltName={holds}\n")
        _openssl("req", *_EC, "-subj", f"/CN={name}", "-keyout", key, "-out", asked)
        by: list[str | Path] = [
            "-CA",
            self.ca,
            "-CAkey",
            self._key,
            "-CAcreateserial",
            "-extfile",
            hosts,
            "-days",
            str(days),
        ]
        _openssl("x509", "-req", "-in", asked, "-out", made, *by)
        return made, key


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=30)
