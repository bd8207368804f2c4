"""`reliable-pubsub publisher`: parse, wire up, run, exit code."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    StepFileCommand,
    client_options,
    client_settings,
    complain,
    readable_errors,
    report_silence,
)
from reliable_pubsub.common.core.names import client_id
from reliable_pubsub.common.core.plan_mark import FINISHED, begin_plan, mark_of
from reliable_pubsub.common.core.step_file import parse_publisher_steps
from reliable_pubsub.common.core.step_keys import PutKeys
from reliable_pubsub.common.core.steps import PlanPosition, describe
from reliable_pubsub.common.progress import print_plan, progress_bar
from reliable_pubsub.common.signals import RESUME, stop_on_signals
from reliable_pubsub.common.surroundings import retry_policy
from reliable_pubsub.common.terminal import say
from reliable_pubsub.common.yaml_file import load_yaml

from .client import Publisher
from .core.receipt import OfferCounts
from .runner import PublisherPlan, Sent, run_publisher


@click.command(
    cls=StepFileCommand,
    step_keys={"Keys of a step": PutKeys},
    epilog=EXIT_CODES,
    context_settings=CONTEXT_SETTINGS,
)
@client_options("publisher")
@click.option(
    "--on-log-changed",
    type=click.Choice(["stop", "adopt"]),
    default="stop",
    show_default=True,
    help="When the proxy lost what it acknowledged: stop, or adopt its numbering.",
)
def main(
    config_file: Path,
    client: str,
    allow_plaintext: bool,
    again: bool,
    dry_run: bool,
    quiet: bool,
    journal: Path | None,
    on_log_changed: str,
    **said: str | None,
) -> None:
    """Put the messages of a step file, each exactly once.

    \b
    steps:
      - topic: topic1                # where to
        message: hello               # or message_file: lines.txt (one message a line)
        number_of_times: 3           # sent as hello_1, hello_2, hello_3
        sleep_after: 5               # seconds

    Kill it at any moment and run the same command again: it goes on where it was, and no
    message is put twice. A finished plan stays finished; --again runs it once more.
    """
    with readable_errors(), stop_on_signals(RESUME):
        client_id(client)
        plan = PublisherPlan(parse_publisher_steps(load_yaml(config_file)), config_file)
        if dry_run:
            print_plan(describe(plan.steps, plan.line_count))
            return
        settings, where = client_settings(
            "publisher", client, said, allow_plaintext=allow_plaintext
        )
        with Publisher(
            client,
            endpoint=where,
            state_dir=settings.state_dir,
            retry=retry_policy(settings),
            allow_plaintext=True,  # or it was refused above
            on_silence=report_silence(),
            on_log_changed="adopt" if on_log_changed == "adopt" else "stop",
            journal=journal,
        ) as publisher:
            mark = begin_plan(
                mark_of(publisher.note),
                plan.digest,
                steps=len(plan.steps),
                again=again,
                file=str(config_file),
            )
            total = plan.messages_from(PlanPosition())
            left = plan.messages_from(mark.position)
            publisher.connect()
            say(f"ready: publisher {client} endpoint={where} messages={total} left={left}")
            with progress_bar(total, total - left, quiet=quiet) as advance:
                is_shown = quiet or sys.stderr.isatty()
                put = run_publisher(
                    *(publisher, plan, mark),
                    sleep=time.sleep,
                    advance=advance,
                    sent=None if is_shown else Sent(click.echo, total, total - left),
                )
            offers = publisher.offer_counts
        _report(client, put, offers)


def _report(client: str, put: Mapping[str, int], offers: OfferCounts) -> None:
    """Report what was put, and what of it was lost."""
    if offers.unwanted or offers.dropped:
        complain(
            f"warning [QOS]: of what was put at QoS 0, {offers.unwanted:,} messages had no "
            f"listener, {offers.dropped:,} had no link or no room on it; they are lost"
        )
    done = ", ".join(f"{topic}: {count}" for topic, count in put.items()) or FINISHED
    say(f"done: publisher {client} put {sum(put.values())} messages ({done})")


if __name__ == "__main__":
    main(prog_name="reliable-pubsub publisher")
