"""`headsmith selftest`: attack everything that this machine's copy certifies."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click


@click.command("selftest", short_help="Attack the certificates of random and tampered models.")
@click.option("--minutes", type=click.FloatRange(min=0.0), default=5.0, show_default=True, help="How long to try.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Other seeds try other models.")
@click.option("--keep", type=click.Path(dir_okay=False), help="Write the smallest failing file here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def selftest_command(minutes: float, seed: int, keep: str | None, as_json: bool) -> None:
    """Generate targets, networks, programs over sequences, domains and formats; compile them; attack their bounds with
    an oracle of many digits and the worst rounding; tamper with their files, and attack whatever is still certified.

    Prints what was tried, by class, and the smallest failing case if there is one. Exit code 1 if anything failed.
    """
    from headsmith.lab.attack.selftest import run_selftest

    result = run_selftest(minutes, seed, lambda line: click.echo(line, err=as_json))
    smallest = result.smallest
    if smallest is not None and keep is not None:
        from headsmith.export.file import write_tensors

        write_tensors(keep, {**smallest.header}, dict(smallest.tensors))
    if as_json:
        found: dict[str, Any] = {"seed": seed, "minutes": minutes}
        found["classes"] = {name: asdict(tally) for name, tally in result.tallies.items()}
        found["failures"] = [str(failure) for failure in result.failures]
        found["smallest"] = None if smallest is None else str(smallest)
        click.echo(json.dumps(found))
    if result.failures:
        raise SystemExit(1)
