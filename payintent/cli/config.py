"""`payintent config`: export, compare and apply the configuration as a file."""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from payintent.cli.common import (
    EXIT_PROPOSED,
    Json,
    Why,
    Yes,
    confirm,
    fail,
    is_at_terminal,
    print_json,
    run_as_operator,
    submit_as_operator,
)
from payintent.configuration.plan import (
    ExportConfig,
    PlanConfig,
    PlanStep,
    apply_plan,
    format_config,
    parse_config,
)
from payintent.core.errors import RefusedError

#: Exit statuses as in diff(1): 1 for differences, 2 for a failed comparison.
_EXIT_DIFFERENT, _EXIT_FAILED = 1, 2
_File = typer.Argument(..., help="A file written by `payintent config export`.")


def add_to(group: typer.Typer) -> None:
    group.command("export")(_export)
    group.command("diff")(_diff)
    group.command("apply")(_apply)


def _export(
    merchants: bool = typer.Option(
        False, "--merchants", help="Include merchants' limits, rules and methods."
    ),
    as_json: bool = Json,
) -> None:
    """Print the configuration as YAML, without secrets."""
    entries = run_as_operator(ExportConfig(with_merchants=merchants))
    if as_json:
        print_json(dict(entries))
    else:
        print(format_config(entries), end="")


def _diff(file: Path = _File, as_json: bool = Json) -> None:
    """Print the changes that `apply` would make; exit with status 1 if there are any."""
    _, steps = _load_plan(file)
    _print_plan(steps, as_json=as_json)
    raise typer.Exit(_EXIT_DIFFERENT if steps else 0)


def _apply(
    file: Path = _File,
    check: bool = typer.Option(
        False,
        "--check",
        help="Change nothing, and exit with status 1 if the installation differs.",
    ),
    why: str = Why,
    yes: bool = Yes,
    as_json: bool = Json,
) -> None:
    """Print the differences, then change the installation to match the file."""
    if check:
        _diff(file, as_json)
    plan, steps = _load_plan(file)
    _print_plan(steps, as_json=as_json)
    instructions = [step for step in steps if step.instructions]
    if any(step.operations for step in steps):
        if not yes and is_at_terminal():
            confirm("config.apply", [_summarize(steps)])
        proposed_steps = submit_as_operator(
            lambda service, submit: apply_plan(service.settings.direct_url, plan, steps, submit),
            why,
        )
        for step in proposed_steps:
            print(
                f"needs approval by a second operator: {step.approval_id} ({step.subject})",
                file=sys.stderr if as_json else sys.stdout,
            )
        if proposed_steps:
            raise typer.Exit(EXIT_PROPOSED)
    if instructions:
        fail(f"changes to make manually: {len(instructions)}")


def _load_plan(file: Path) -> tuple[PlanConfig, list[PlanStep]]:
    try:
        plan = PlanConfig(file=parse_config(file.read_bytes(), file.name))
        return plan, run_as_operator(plan)
    except OSError as error:
        print(f"payintent: {file}: {error.strerror}", file=sys.stderr)
    except RefusedError as refused:
        print(f"payintent: {refused.message}", file=sys.stderr)
    except typer.Exit:  # already reported
        pass
    raise typer.Exit(_EXIT_FAILED)


def _print_plan(steps: Sequence[PlanStep], *, as_json: bool) -> None:
    if as_json:
        print_json([_to_record(step) for step in steps])
        return
    for step in steps:
        print(step)
    print(_summarize(steps) if steps else "no differences")


def _summarize(steps: Sequence[PlanStep]) -> str:
    signs = [step.sign for step in steps]
    return f"{signs.count('+')} to add, {signs.count('~')} to change, {signs.count('-')} to remove"


def _to_record(step: PlanStep) -> dict[str, object]:
    return {
        "sign": step.sign,
        "subject": step.subject,
        "changes": step.changes,
        "needs_approval": step.needs_approval,
        "approval_id": step.approval_id,
        "by_hand": step.instructions or None,
    }
