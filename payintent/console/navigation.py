"""The navigation of the console; every role may open its pages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    label: str
    path: str


NAVIGATION = (
    NavigationEntry("Today", "/"),
    NavigationEntry("Payments", "/payments"),
    NavigationEntry("Cases", "/cases"),
    NavigationEntry("Refunds", "/refunds"),
    NavigationEntry("Disputes", "/disputes"),
    NavigationEntry("Webhooks", "/webhooks"),
    NavigationEntry("Merchants", "/merchants"),
    NavigationEntry("Approvals", "/approvals"),
    NavigationEntry("Gateways", "/gateways"),
    NavigationEntry("Chains", "/chains"),
    NavigationEntry("Audit", "/audit"),
    NavigationEntry("Operations", "/operations"),
)


def is_current(entry: NavigationEntry, path: str) -> bool:
    return path == entry.path or (entry.path != "/" and path.startswith(entry.path + "/"))
