"""`payintent config`: its output, plans, exit statuses and approvals."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

_TAX = "version: 1\ntax_rates:\n- country: TH\n  rate: '0.07'\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(_TAX)
    return path


def test_a_file_is_compared_applied_and_exported(run: Run, file: Path) -> None:
    plan = "+ tax_rates TH: rate 0.07\n1 to add, 0 to change, 0 to remove\n"
    for compared in (run("config", "diff", file), run("config", "apply", file, "--check")):
        assert (compared.status, compared.out, compared.err) == (1, plan, "")
    applied = run("config", "apply", file)
    assert (applied.status, applied.out, applied.err) == (0, plan, "")
    for command in (("diff", file), ("apply", file, "--check"), ("apply", file)):
        again = run("config", *command)
        assert (again.status, again.out, again.err) == (0, "no differences\n", "")
    exported = run("config", "export")
    assert exported.status == 0
    assert _TAX.partition("\n")[2] in exported.out
    file.write_text(exported.out)
    assert run("config", "apply", file, "--check").status == 0
    assert run("config", "export", "--json").json["tax_rates"] == [
        {"country": "TH", "rate": "0.07"}
    ]
    file.write_text("version: 1\ntax_rates: []\n")
    assert json.loads(run("config", "diff", file, "--json").out) == [
        {
            "sign": "-",
            "subject": "tax_rates TH",
            "changes": "removed (rate 0.07)",
            "needs_approval": False,
            "approval_id": None,
            "by_hand": None,
        }
    ]


def test_an_invalid_file_results_in_exit_status_2(run: Run, file: Path) -> None:
    file.write_text(_TAX + "taxes: []\n")
    for command in (("diff", file), ("apply", file, "--check"), ("apply", file)):
        refused = run("config", *command)
        assert (refused.status, refused.out) == (2, "")
        assert refused.err.startswith("payintent: shop.yaml:5: unknown section `taxes`; ")
        assert len(refused.err.splitlines()) == 1
    missing = run("config", "apply", file.with_name("none.yaml"))
    assert (missing.status, missing.out) == (2, "")
    assert missing.err.endswith("none.yaml: No such file or directory\n")
    file.write_text(_TAX.replace("0.07", "7"))
    refused = run("config", "diff", file)
    assert (refused.status, refused.out) == (2, "")
    assert refused.err.startswith("payintent: shop.yaml:3: tax_rates[0]: rate must be between 0")


def test_settings_of_the_environment_are_listed_as_manual_changes(run: Run, file: Path) -> None:
    file.write_text("version: 1\nretention:\n- rule: attempts\n  days: 30\n")
    result = run("config", "apply", file)
    assert result.status == 1
    assert "[set PAYINTENT_ATTEMPTS_DAYS=30]\n" in result.out
    assert result.err == "payintent: changes to make manually: 1\n"
    assert run("config", "apply", file, PAYINTENT_ATTEMPTS_DAYS="30").status == 0


def test_an_operator_applies_a_file_with_a_token_and_an_approval(run: Run, file: Path) -> None:
    tokens = [
        run("operator", "issue", name, "--role", "admin", "--json").json["token"]
        for name in ("Ada", "Alan")
    ]
    ada, alan = ({"PAYINTENT_OPERATOR_TOKEN": token} for token in tokens)
    file.write_text(
        "version: 1\ntokens:\n- chain: ethereum\n  symbol: USDT\n  decimals: 7\n"
        "restrictions:\n- {type: ONRAMP, country: KR}\n- {type: CRYPTO, country: CU}\n"
    )
    applied = run("config", "apply", file, "--why", "ticket 7", **ada)
    assert applied.status == 3, applied.err
    again = run("config", "apply", file, "--json", "--why", "ticket 7", **ada)
    assert (again.status, len(json.loads(again.out))) == (3, 1)
    head, *rest = applied.out.splitlines()
    assert head == "~ tokens ethereum USDT: decimals 6 → 7 [needs approval]"
    approval_id = rest[-1].split()[-4]
    assert rest[-1] == (
        f"needs approval by a second operator: {approval_id} (tokens ethereum USDT)"
    )
    [left] = run("config", "diff", file, **ada).out.splitlines()[:-1]
    assert left == f"~ tokens ethereum USDT: decimals 6 → 7 [pending approval: {approval_id}]"
    assert run("approval", "approve", approval_id, "--why", "agreed", **alan).status == 0
    assert run("config", "apply", file, "--check", **ada).status == 0
