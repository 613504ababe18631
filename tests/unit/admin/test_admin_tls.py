"""TLS of an HTTP API: who is known by what, and a certificate that is renewed while it is served."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from blockhouse.admin_client import AdminAccess
from blockhouse.config.pipeline import Admin, AdminTls
from blockhouse.config.secrets import SecretRef
from blockhouse.contract.verifier import VERDICT, Verdict
from blockhouse.errors import Permanent, Retryable
from blockhouse.serving import Answer, HttpServer, respond, route
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.pipeline_http import AdminLogin, PipelineHttp
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api.references import CaSecretRef
from e2e.cluster.pki import Authority

TOKEN = "t0ken"


class Server(HttpServer):
    def health(self) -> Answer:
        return Answer(True, "ok")

    readiness = health

    def routes(self) -> Iterable[web.RouteDef]:
        async def verdict(_: web.Request) -> web.Response:
            found = {"pipeline": "p", "verdict": "clean", "anomalies": 0, "streams": 1, "since": None, "latest": None}
            return respond(Verdict.model_validate({**found, "at": "2026-01-01T00:00:00Z", "coverage": {}}))

        return (route(VERDICT, verdict),)


def authority(folder: Path) -> Authority:
    made = Authority(folder)
    made.create()
    return made


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("known"))


@pytest.fixture
def admin(known: Authority, tmp_path: Path) -> Admin:
    """Of a server whose certificate is for localhost."""
    token, cert, key = tmp_path / "token", tmp_path / "tls.crt", tmp_path / "tls.key"
    token.write_text(TOKEN)
    for made, file in zip(known.issue("first", "/CN=first", ["DNS:localhost"]), (cert, key), strict=True):
        shutil.copy(made, file)
    return Admin(port=0, token=SecretRef(file=token), tls=AdminTls(cert_file=cert, key_file=key))


@asynccontextmanager
async def served(admin: Admin) -> AsyncIterator[Admin]:
    """The same with the port on which it is served."""
    token = admin.token.read if admin.token is not None else None
    server = Server(admin.host, admin.port, CollectorRegistry(), token=token, tls=admin.tls)
    await server.start()
    try:
        yield admin.model_copy(update={"port": server.port})
    finally:
        await server.stop()


async def answer(access: AdminAccess, address: str) -> int:
    url = access.url(address) + VERDICT.path
    async with (
        aiohttp.ClientSession(headers=access.headers) as session,
        session.get(url, **access.trust(address)) as found,
    ):
        return found.status


async def test_a_client_with_the_authority_is_answered_and_without_it_refuses_the_server(
    admin: Admin, known: Authority, tmp_path: Path
) -> None:
    async with served(admin) as here:
        token, address = tmp_path / "token", f"localhost:{here.port}"
        assert await answer(AdminAccess(None, token, known.certificate), address) == 200
        stranger = authority(tmp_path / "stranger").certificate
        for access in (AdminAccess(None, token, stranger), AdminAccess(None, token)):
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await answer(access, f"https://{address}")
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer(AdminAccess(None, token, known.certificate), f"127.0.0.1:{here.port}")


async def test_a_command_beside_the_server_knows_it_by_its_certificate_and_no_other_one(
    admin: Admin, known: Authority, tmp_path: Path
) -> None:
    async with served(admin) as here:
        own = f"{here.host}:{here.port}"
        assert await answer(AdminAccess(here), own) == 200
        cert, key = known.issue("other", "/CN=other", ["DNS:localhost"])
        another = here.model_copy(update={"tls": AdminTls(cert_file=cert, key_file=key)})
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer(AdminAccess(another), own)


async def test_plain_http_is_not_answered(admin: Admin) -> None:
    async with served(admin) as here:
        with pytest.raises(aiohttp.ClientError):
            await answer(AdminAccess(), f"http://localhost:{here.port}")


async def test_a_renewed_certificate_is_served_without_a_restart_and_a_broken_one_never(
    admin: Admin, tmp_path: Path
) -> None:
    assert admin.tls is not None
    renewed = authority(tmp_path / "renewed")
    fresh = dict(zip(("cert", "key"), renewed.issue("second", "/CN=second", ["DNS:localhost"]), strict=True))
    async with served(admin) as here:
        access, address = AdminAccess(None, tmp_path / "token", renewed.certificate), f"localhost:{here.port}"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer(access, address)
        shutil.copy(fresh["cert"], admin.tls.cert_file)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer(access, address)  # the key is that of before: the former pair is served
        shutil.copy(fresh["key"], admin.tls.key_file)
        assert await answer(access, address) == 200


async def test_a_certificate_that_cannot_be_used_is_named_at_the_start(admin: Admin) -> None:
    assert admin.tls is not None
    admin.tls.key_file.write_text("no key")
    with pytest.raises(Permanent, match=r"tls\.crt .*tls\.key.* cannot be used"):
        async with served(admin):
            pass


async def test_the_operator_knows_it_by_the_authorities_of_the_spec(
    admin: Admin, known: Authority, tmp_path: Path
) -> None:
    client = PipelineHttp(OpenFence())
    try:
        async with served(admin) as here:
            base = f"https://localhost:{here.port}"
            tokens = f"wrong\n{TOKEN}"
            found = await client.verdict(base, AdminLogin(tokens, known.certificate.read_text()))
            assert found.verdict == "clean"
            stranger = authority(tmp_path / "stranger").certificate.read_text()
            with pytest.raises(Retryable, match="does not answer: ClientConnectorCertificateError"):
                await client.verdict(base, AdminLogin(TOKEN, stranger))
            missing = Contents(None, "data", tmp_path).authorities(CaSecretRef(name="gone"))  # type: ignore[arg-type]
            with pytest.raises(Retryable, match="is not asked, for what its certificate"):
                await client.verdict(base, AdminLogin(TOKEN, missing))
    finally:
        await client.close()
