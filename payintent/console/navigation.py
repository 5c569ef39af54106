"""The navigation of the console."""

from dataclasses import dataclass

from payintent.domain.operator import Role


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A link to a page; roles below `least` do not get it."""

    label: str
    path: str
    least: Role


NAVIGATION: tuple[NavigationEntry, ...] = (
    NavigationEntry("Today", "/", Role.VIEWER),
    NavigationEntry("Payments", "/payments", Role.VIEWER),
    NavigationEntry("Cases", "/cases", Role.VIEWER),
    NavigationEntry("Refunds", "/refunds", Role.VIEWER),
    NavigationEntry("Disputes", "/disputes", Role.VIEWER),
    NavigationEntry("Webhooks", "/webhooks", Role.VIEWER),
    NavigationEntry("Merchants", "/merchants", Role.VIEWER),
    NavigationEntry("Approvals", "/approvals", Role.VIEWER),
    NavigationEntry("Gateways", "/gateways", Role.VIEWER),
    NavigationEntry("Chains", "/chains", Role.VIEWER),
    NavigationEntry("Audit", "/audit", Role.VIEWER),
    NavigationEntry("Operations", "/operations", Role.VIEWER),
)


def is_current(entry: NavigationEntry, path: str) -> bool:
    return path == entry.path or (entry.path != "/" and path.startswith(entry.path + "/"))
