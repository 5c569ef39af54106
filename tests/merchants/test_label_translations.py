"""Operators enter, change and remove translations of payment method labels."""

from typing import Any

import pytest

from payintent.core.errors import ErrorCode, RefusedError
from payintent.core.languages import LOCALES
from payintent.merchants.methods_operations import (
    AddPaymentMethod,
    ChangePaymentMethod,
    ListPaymentMethods,
    format_translations,
    parse_translations,
)
from tests.support.world import World

_THAI, _ARABIC = "th:บัตรเครดิต", "ar:بطاقة"


def test_a_label_may_contain_colons_and_commas() -> None:
    assert parse_translations(["id:Kartu: debit, kredit"]) == {"id": "Kartu: debit, kredit"}


def test_every_checkout_language_can_have_a_label_of_100_characters() -> None:
    labels = dict.fromkeys(LOCALES, "カ" * 100)
    entries = format_translations(labels)
    assert entries == sorted(entries)
    assert parse_translations(entries) == labels


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (["Karte"], "must be LANGUAGE:LABEL with one of the languages en, ja, .*, not 'Karte'"),
        (["de:Karte"], ".*not 'de:Karte'$"),
        (["TH:a"], ".*not 'TH:a'$"),
        ([" th:a"], ".*not ' th:a'$"),
        ([":a"], ".*not ':a'$"),
        (["th:a", "ja:b", "th:c"], "must have at most one entry for th"),
        (["th:"], "for th must have 1 to 100 printable characters"),
        (["th:" + "a" * 101], "for th must have 1 to 100 printable characters"),
        (["th:a\nb"], "for th must have 1 to 100 printable characters"),
    ],
)
async def test_an_invalid_translation_is_rejected_and_changes_nothing(
    world: World, entries: list[str], problem: str
) -> None:
    add = AddPaymentMethod(
        merchant_id=world.merchant_id,
        account_id=world.account_id,
        kind="card",
        label="Card",
        currencies=["THB"],
        label_translations=entries,
    )
    change = ChangePaymentMethod(method_id=world.card, label="New", label_translations=entries)
    before = await world.perform(ListPaymentMethods(merchant_id=world.merchant_id))
    for operation in (add, change):
        with pytest.raises(RefusedError, match=f"label_translations {problem}") as error:
            await world.perform(operation)
        assert error.value.code is ErrorCode.BAD_REQUEST
    assert await world.perform(ListPaymentMethods(merchant_id=world.merchant_id)) == before


async def test_a_change_replaces_removes_or_preserves_all_translations(world: World) -> None:
    async def change(**fields: Any) -> dict[str, str]:
        operation = ChangePaymentMethod(method_id=world.card, **fields)
        return dict((await world.perform(operation)).label_translations)

    assert await change(label_translations=[_THAI, "ja:カード"]) == {
        "th": "บัตรเครดิต",
        "ja": "カード",
    }
    assert await change(label_translations=[_ARABIC]) == {"ar": "بطاقة"}
    assert await change(label="Cards") == {"ar": "بطاقة"}
    assert await change(label_translations=[]) == {}


async def test_a_second_operator_sees_the_old_and_the_new_translations(world: World) -> None:
    await world.perform(ChangePaymentMethod(method_id=world.card, label_translations=[_THAI]))
    change = ChangePaymentMethod(method_id=world.card, label_translations=[_ARABIC])
    [line] = await change.changes(world.service.operation_context)
    assert line.endswith(f"changes from ['{_THAI}'] to ['{_ARABIC}']")
