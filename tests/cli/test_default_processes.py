"""The default of `--processes`: the number of cores, minus one for PostgreSQL."""

import os

import pytest

from payintent.cli.processes import get_default_process_count
from payintent.runtime.settings import Settings

_LOCAL_URLS = (
    "postgresql://payintent@localhost/payintent",
    "postgresql://payintent:secret@127.0.0.1:5433/payintent",
    "postgresql://payintent@127.8.9.10/payintent",
    "postgresql://payintent@[::1]:5432/payintent",
    "postgresql://payintent@%2Frun%2Fpostgresql/payintent",
    "postgresql://payintent@/payintent?host=/run/postgresql",
    "postgresql:///payintent",
    "postgresql://payintent@db.localhost/payintent",
    "postgresql://payintent@10.0.0.2,127.0.0.1:5433/payintent",  # a node is on this host
)
_REMOTE_URLS = (
    "postgresql://payintent@db.example.com/payintent",
    "postgresql://payintent@10.0.0.2:5432/payintent",
    "postgresql://payintent@[2001:db8::1]/payintent",
    "postgresql://payintent@10.0.0.2,10.0.0.3/payintent",
    "postgresql://payintent@localhost.example.com/payintent",
    "postgresql://payintent@db/127.0.0.1",
)


@pytest.mark.parametrize(
    ("url", "spare"), [*((url, 1) for url in _LOCAL_URLS), *((url, 0) for url in _REMOTE_URLS)]
)
@pytest.mark.parametrize("cores", [1, 2, 8])
def test_a_core_is_reserved_for_postgresql_on_the_same_host(
    any_settings: Settings, monkeypatch: pytest.MonkeyPatch, url: str, spare: int, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    update = {"database_url": url, "database_direct_url": None}
    settings = any_settings.model_copy(update=update)
    assert get_default_process_count(settings) == max(1, cores - spare)


def test_with_a_pooler_the_direct_url_determines_the_database_host(
    any_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    local, remote = _LOCAL_URLS[0], _REMOTE_URLS[0]
    for url, direct_url, processes in ((local, remote, 4), (remote, local, 3)):
        update = {"database_url": url, "database_direct_url": direct_url}
        assert get_default_process_count(any_settings.model_copy(update=update)) == processes
