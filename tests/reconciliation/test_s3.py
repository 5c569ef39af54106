"""Gateway files in an S3-compatible store, tested with a real server."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from pydantic import SecretStr

from payintent.reconciliation.file import HEADER
from payintent.reconciliation.operations import ListReconciliationRuns
from payintent.reconciliation.runs import SOURCE_FAILURES, compare_new_files
from payintent.reconciliation.sources import (
    S3Credentials,
    S3Source,
    SourceUnavailableError,
    encode_canonical_query,
    sign_get,
)
from payintent.runtime.settings import Settings
from payintent.worker import reconcile
from tests.support.fakes import captured
from tests.support.ports import free_port
from tests.support.timeouts import wait_until
from tests.support.world import World

pytestmark = pytest.mark.full

#: From the examples that AWS publishes.
EXAMPLE = S3Credentials(
    region="us-east-1",
    key_id="AKIAIOSFODNN7EXAMPLE",
    secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
)
EXAMPLE_HOST = "examplebucket.s3.amazonaws.com"
EXAMPLE_AT = datetime(2013, 5, 24, tzinfo=UTC)
BUCKET = "settlements"
PAGE = 2  # keys
LINE = "payment,cap-1,,1590.00,THB,2026-11-21T08:00:00Z"


@dataclass
class Store:
    """A bucket on a running server, and an AWS client."""

    client: Any
    url: str

    async def put(self, key: str, *lines: str) -> None:
        body = "\n".join([",".join(HEADER), *lines, ""]).encode()
        put = partial(self.client.put_object, Bucket=BUCKET, Key=key, Body=body)
        await asyncio.to_thread(put)

    def source(self, prefix: str = "") -> S3Source:
        return S3Source(f"{self.url}{prefix}", EXAMPLE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    folder: Path = tmp_path_factory.mktemp("moto")
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "moto.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=os.environ | {"MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE)},
            stdout=log,
            stderr=log,
        )
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()


@pytest.fixture
async def store(server: str) -> AsyncIterator[Store]:
    async with aiohttp.ClientSession() as http:

        async def is_running() -> bool:
            try:
                async with http.post(f"{server}/moto-api/reset") as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await wait_until(is_running, "the store runs")
    import boto3  # slow import: only the process that runs these tests needs it

    client = boto3.client(
        "s3",
        endpoint_url=server,
        region_name=EXAMPLE.region,
        aws_access_key_id=EXAMPLE.key_id,
        aws_secret_access_key=EXAMPLE.secret_key,
    )
    await asyncio.to_thread(partial(client.create_bucket, Bucket=BUCKET))
    yield Store(client, f"{server}/{BUCKET}")
    client.close()


@pytest.mark.parametrize(
    ("path", "query", "headers", "signature"),
    [
        (
            "/test.txt",
            {},
            {"Range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "/",
            {"lifecycle": ""},
            {},
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "/",
            {"max-keys": "2", "prefix": "J"},
            {},
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_signatures_match_the_examples_published_by_aws(
    path: str, query: dict[str, str], headers: dict[str, str], signature: str
) -> None:
    signed = sign_get(
        EXAMPLE, host=EXAMPLE_HOST, path=path, query=query, headers=headers, at=EXAMPLE_AT
    )
    assert signed["Authorization"].endswith(f"Signature={signature}")


@pytest.mark.parametrize("key", ["1/a file.csv", "1/結算+50%.csv", "1/~a=b&c.csv"])
def test_signatures_of_special_characters_match_the_aws_library(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: EXAMPLE_AT)
    path = "/settlements/" + quote(key, safe="/-_.~")
    query = {"prefix": key, "list-type": "2"}
    url = f"https://store.example.com:9000{path}?{encode_canonical_query(query)}"
    aws_request = AWSRequest("GET", url, headers={"If-Match": '"tag"'})
    credentials = Credentials(EXAMPLE.key_id, EXAMPLE.secret_key)
    S3SigV4Auth(credentials, "s3", EXAMPLE.region).add_auth(aws_request)
    signed = sign_get(
        EXAMPLE,
        host="store.example.com:9000",
        path=path,
        query=query,
        headers={"If-Match": '"tag"'},
        at=EXAMPLE_AT,
    )
    expected = str(aws_request.headers["Authorization"]).replace(", ", ",")
    assert signed["Authorization"] == expected


async def test_files_in_a_bucket_are_compared_once(world: World, store: Store) -> None:
    payment = await world.create()
    session = (await world.select(payment)).session
    await world.report(payment, session.id, captured(159_000, reference="cap-1"))
    await store.put(f"{world.account_id}/2026-11-21.csv", LINE)
    settings = {
        "settlement_s3_url": store.url,
        "settlement_s3_key_id": EXAMPLE.key_id,
        "settlement_s3_secret_key": SecretStr(EXAMPLE.secret_key),
    }
    service = replace(world.service, settings=world.service.settings.model_copy(update=settings))
    await reconcile(service)
    await reconcile(service)
    [run] = await world.perform(ListReconciliationRuns())
    assert (run.status, run.source, run.name, run.lines, run.attempts) == (
        *("matched", "s3", "2026-11-21.csv"),
        *(1, 1),
    )


async def test_all_pages_of_files_under_a_prefix_are_read(store: Store) -> None:
    names = ["a.csv", "b c.csv", "結算+50%.csv", "d.csv", "e.csv"]
    for name in names:
        await store.put(f"gate+ways/1/{name}", LINE)
    for ignored_name in ("1/f.csv.part", "one/a.csv", "1/x/a.csv"):
        await store.put(f"gate+ways/{ignored_name}", LINE)
    await store.put("1/above.csv", LINE)
    source = store.source("/gate+ways")
    files = [file async for page in source.walk_files() for file in page]
    assert sorted(file.name for file in files) == sorted(names)
    for file in files:
        async with source.open(file) as path:
            assert LINE in path.read_text()
        assert not path.exists(), "the local copy is deleted"
    await source.close()


async def test_a_key_that_xml_cannot_contain_does_not_hide_other_files(store: Store) -> None:
    for name in ("a+b c%20.csv", "odd\x01name.csv"):
        await store.put(f"1/{name}", LINE)
    source = store.source()
    files = [file async for page in source.walk_files() for file in page]
    assert [file.name for file in files] == ["a+b c%20.csv"]
    async with source.open(files[0]) as path:
        assert LINE in path.read_text()
    await source.close()


async def test_a_file_overwritten_since_it_was_listed_is_read_at_the_next_listing(
    store: Store,
) -> None:
    await store.put("1/a.csv", LINE)
    source = store.source()
    [[before]] = [page async for page in source.walk_files()]
    await store.put("1/a.csv", LINE, LINE)
    with pytest.raises(SourceUnavailableError, match="412"):
        async with source.open(before):
            pytest.fail("the changed file was opened")
    [[after]] = [page async for page in source.walk_files()]
    assert after.version != before.version
    await source.close()


async def test_a_store_that_is_unreachable_or_rejects_requests_is_counted_as_failed(
    world: World, store: Store
) -> None:
    counter = SOURCE_FAILURES.labels("s3")
    before = counter._value.get()
    unreachable_url = f"http://127.0.0.1:{free_port()}/settlements"
    for url in (unreachable_url, store.url.replace("settlements", "no-such-bucket")):
        source = S3Source(url, EXAMPLE)
        await compare_new_files(world.service.reconciliation_context, source)
        await source.close()
    assert counter._value.get() == before + 2
    assert await world.perform(ListReconciliationRuns()) == []


def test_a_store_url_requires_a_secret_key(settings: Settings) -> None:
    values = {
        "database_url": settings.database_url,
        "pepper": settings.pepper,
        "keyring": settings.keyring,
        "settlement_s3_url": "https://s3.example.com/settlements",
        "settlement_s3_key_id": EXAMPLE.key_id,
    }
    with pytest.raises(ValueError, match="PAYINTENT_SETTLEMENT_S3_URL needs"):
        Settings.model_validate(values)
    Settings.model_validate(values | {"settlement_s3_secret_key": EXAMPLE.secret_key})
