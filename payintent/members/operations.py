"""Invite, list and remove the members of a merchant."""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from payintent.core.addresses import is_mail_address
from payintent.core.errors import BadRequestError, ConflictError, NotFoundError
from payintent.db.database import Tx
from payintent.db.encryption_keys import ensure_writing_key
from payintent.mail.message import Mail, MailKind
from payintent.mail.store import add_mail
from payintent.members import store as member_store
from payintent.members.model import EMAIL_CHARS_MAX, LINK_HOURS, MemberRole, is_email, member_name
from payintent.members.store import MemberRecord
from payintent.merchants.store import require_merchant
from payintent.operators.fields import (
    LIST_LIMIT_MAX,
    MerchantId,
    argument,
    check_list_limit,
    option,
    quote_input,
)
from payintent.operators.operation import Actor, ChangeOperation, OperationContext, ReadOperation

_LINK_BYTES = 32
_INVITATION = """\
You have been invited to the merchant portal of {merchant}.

Open this link to sign in. It works only once and expires after {hours} hours:

{link}

If you did not expect this invitation, do not open the link. It was probably sent by mistake.
"""
_Email = Annotated[str, argument("The member's email address.")]


@dataclass(frozen=True, slots=True)
class InvitedMember:
    """An invited member. If the link is not emailed, it is shown only in this result."""

    merchant_id: int
    email: str
    role: MemberRole
    expires_at: datetime
    link: str | None  # None if the link was emailed


@dataclass(frozen=True, slots=True)
class RemovedMember:
    merchant_id: int
    email: str
    removed: bool


class InviteMember(ChangeOperation[InvitedMember], frozen=True, kw_only=True):
    """Invite a person to the merchant portal with a sign-in link.

    If a mail server is configured, the link is emailed. Otherwise, it is printed once. The link
    works only once and expires after 72 hours. Inviting a member again replaces the previous link.
    """

    action: ClassVar[str] = "merchant.invite"
    merchant_id: MerchantId
    email: _Email
    role: Annotated[
        MemberRole, option("`developer` (events, keys, calls) or `finance` (refunds, events).")
    ]

    async def needs_approval(self, context: OperationContext) -> bool:
        """Require approval over HTTP, because the link grants access to the portal."""
        return context.actor.uses_http

    async def changes(self, context: OperationContext) -> list[str]:
        merchant = await require_merchant(context.database, self.merchant_id)
        return [
            (
                f"{quote_input(self.email)} may sign in for merchant {merchant.id} "
                f"({quote_input(merchant.name)}) as {self.role}"
            ),
            "the link is emailed to this address"
            if context.settings.sends_mail
            else "the link is shown to the approver, who must pass it on",
        ]

    async def check(self, context: OperationContext) -> None:
        await require_merchant(context.database, self.merchant_id)
        _check_email(self.email)
        if context.settings.sends_mail and not is_mail_address(self.email):
            raise BadRequestError("email must be an address that can receive mail")
        member = await member_store.find_by_email(context.database, self.merchant_id, self.email)
        if member is not None:
            self._check_role(member)

    async def apply(self, context: OperationContext, tx: Tx) -> InvitedMember:
        if context.settings.sends_mail:
            await ensure_writing_key(tx, context.encryption)
        await member_store.add(tx, self.merchant_id, self.email, self.role, context.actor_name)
        member = await member_store.find_by_email(tx, self.merchant_id, self.email)
        if member is None:
            raise ConflictError("the member has just been removed; try again")
        self._check_role(member)
        token = secrets.token_urlsafe(_LINK_BYTES)
        expires_at = await member_store.set_link(tx, member.id, digest_link(context, token))
        return await _deliver_link(context, tx, member, token, expires_at)

    def _check_role(self, member: MemberRecord) -> None:
        if member.role is not self.role:
            raise ConflictError(
                f"{quote_input(member.email)} is already a member with the {member.role} role; "
                "remove the member first"
            )


class ListMembers(ReadOperation[list[MemberRecord]], frozen=True, kw_only=True):
    """List a merchant's members."""

    action: ClassVar[str] = "merchant.members"
    columns = ("email", "role", "passkeys", "invited_by", "created_at", "last_signed_in_at")
    merchant_id: MerchantId
    limit: int = LIST_LIMIT_MAX

    async def read(self, context: OperationContext) -> list[MemberRecord]:
        check_list_limit(self.limit)
        await require_merchant(context.database, self.merchant_id)
        return await member_store.list_members(context.database, self.merchant_id, self.limit)


class RemoveMember(ChangeOperation[RemovedMember], frozen=True, kw_only=True):
    """Remove a member and their passkeys, and end their sessions immediately."""

    action: ClassVar[str] = "merchant.remove-member"
    is_destructive: ClassVar[bool] = True
    merchant_id: MerchantId
    email: _Email

    async def changes(self, context: OperationContext) -> list[str]:
        return [f"{quote_input(self.email)} can no longer sign in for merchant {self.merchant_id}"]

    async def check(self, context: OperationContext) -> None:
        await require_merchant(context.database, self.merchant_id)
        _check_email(self.email)

    async def apply(self, context: OperationContext, tx: Tx) -> RemovedMember:
        if not await member_store.remove(tx, self.merchant_id, self.email):
            raise NotFoundError(
                f"merchant {self.merchant_id} has no member {quote_input(self.email)}"
            )
        return RemovedMember(self.merchant_id, self.email, removed=True)


def _check_email(email: str) -> None:
    if not is_email(email):
        raise BadRequestError(
            f"email must be an email address with at most {EMAIL_CHARS_MAX} characters"
        )


def digest_link(context: OperationContext, token: str) -> bytes:
    return context.encryption.digest(f"member link:{token}")


async def _deliver_link(
    context: OperationContext, tx: Tx, member: MemberRecord, token: str, expires_at: datetime
) -> InvitedMember:
    """Email the sign-in link, or return it if no mail server is configured."""
    link: str | None = f"{context.settings.portal_address}/link/{token}"
    if context.settings.sends_mail:
        merchant = await require_merchant(tx, member.merchant_id)
        mail = Mail(
            recipient=member.email,
            subject=f"Your access to the merchant portal of {merchant.name}",
            text=_INVITATION.format(
                merchant=" ".join(merchant.name.split()), link=link, hours=LINK_HOURS
            ),
        )
        mail_id = tx.id_generator.new_id()
        await add_mail(tx, context.encryption, mail_id, MailKind.INVITATION, mail)
        link = None
    return InvitedMember(member.merchant_id, member.email, member.role, expires_at, link)


def member_actor(merchant_id: int, email: str) -> Actor:
    return Actor(member_name(merchant_id, email), "in the merchant portal")
