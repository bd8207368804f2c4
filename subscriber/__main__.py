"""`reliable-pubsub subscriber`: parse, wire up, run, exit code."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

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
from reliable_pubsub.common.core.plan_mark import FINISHED, PlanMark, begin_plan, mark_of
from reliable_pubsub.common.core.step_file import parse_subscriber_steps
from reliable_pubsub.common.core.step_keys import GetKeys, SeekKeys, SubscribeKeys, UnsubscribeKeys
from reliable_pubsub.common.core.steps import (
    SubscriberStep,
    describe,
    plan_digest,
)
from reliable_pubsub.common.journal_file import open_journal
from reliable_pubsub.common.progress import print_plan, progress_bar
from reliable_pubsub.common.signals import RESUME, stop_on_signals
from reliable_pubsub.common.surroundings import retry_policy
from reliable_pubsub.common.terminal import say
from reliable_pubsub.common.world import World
from reliable_pubsub.common.yaml_file import load_yaml

from .client import Subscriber
from .core.fetching import lower_qos_in_words
from .core.subscribing import OnLogChanged
from .output import OutputFile, Shown, begin_output, check_repeats
from .runner import SubscriberRun


@click.command(
    cls=StepFileCommand,
    step_keys={
        "Keys of a step with action: subscribe": SubscribeKeys,
        "Keys of a step with action: get": GetKeys,
        "Keys of a step with action: seek": SeekKeys,
        "Keys of a step with action: unsubscribe": UnsubscribeKeys,
    },
    epilog=EXIT_CODES,
    context_settings=CONTEXT_SETTINGS,
)
@client_options("subscriber")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append each message as one JSON line; each once, also across crashes. Without "
    "it messages are shown on stdout.",
)
@click.option("--push-via", help="Push endpoint, if not the announced one: through a tunnel.")
@click.option(
    "--on-log-changed",
    type=click.Choice(["stop", "rewind", "adopt"]),
    default="stop",
    show_default=True,
    help="When the proxy's log is another one: stop, rewind to its start (may repeat), or adopt "
    "its end (may miss).",
)
def main(
    config_file: Path,
    client: str,
    allow_plaintext: bool,
    again: bool,
    dry_run: bool,
    quiet: bool,
    journal: Path | None,
    output: Path | None,
    on_log_changed: str,
    **said: str | None,
) -> None:
    """Subscribe, get and unsubscribe as a step file says; each message arrives once, in order.

    \b
    steps:
      - action: subscribe            # messages put from now on will come
        topic: topic1
      - action: get
        topic: topic1
        number_of_times: 3           # messages, not attempts
      - action: unsubscribe
        topic: topic1

    Kill it at any moment and run the same command again: it goes on where it was. A finished
    plan stays finished; --again runs it once more.
    """
    with readable_errors(), stop_on_signals(RESUME):
        client_id(client)
        steps = parse_subscriber_steps(load_yaml(config_file))
        if dry_run:
            print_plan(describe(steps))
            return
        settings, where = client_settings(
            "subscriber", client, said, allow_plaintext=allow_plaintext
        )
        with Subscriber(
            client,
            endpoint=where,
            state_dir=settings.state_dir,
            retry=retry_policy(settings),
            allow_plaintext=True,  # or it was refused above
            on_silence=report_silence(),
            on_lower_qos=_tell_lower_qos,
            on_log_changed=cast(OnLogChanged, on_log_changed),
            push_via=settings.push_via,
            _world=World(
                recorder=open_journal(journal, client, output=output.name if output else "")
            ),
        ) as subscriber:
            mark = begin_plan(
                mark_of(subscriber.note),
                plan_digest(steps, {}),
                steps=len(steps),
                again=again,
                file=str(config_file),
            )
            mark = begin_output(mark, output, again=again)
            check_repeats(steps, mark)
            _run(subscriber, steps, mark, output, quiet=quiet, where=where)


def _tell_lower_qos(topic: str, publisher: str, qos: int) -> None:
    complain(f"warning [QOS]: {lower_qos_in_words(topic, publisher, qos)}")


def _tell_pushes(subscriber: Subscriber, steps: Sequence[SubscriberStep]) -> None:
    """Report the counts of pushes, for each topic or pattern that was pushed to the end."""
    for step in {step.topics: step for step in steps}.values():
        if subscriber.is_pushed(step.topics):
            counts = subscriber.push_counts(step.topics)
            left_out = counts.repeats + counts.jumps + counts.places + counts.foreign
            left_out += counts.overflows + counts.beginnings
            say(
                f"pushes of {step.topic!r}: {counts.taken} taken, {left_out} not; "
                f"{counts.pulls} pulls, {counts.misses} found what no push had brought"
            )


def _run(
    subscriber: Subscriber,
    steps: Sequence[SubscriberStep],
    mark: PlanMark,
    output: Path | None,
    *,
    quiet: bool,
    where: str,
) -> None:
    """Do what is left of a plan, and report it."""
    name = subscriber.client
    file = (
        Shown(say, mark.output_bytes) if output is None else OutputFile(output, mark.output_bytes)
    )
    subscriber.write_note(mark.note)
    subscriber.connect()
    at = "finished" if mark.finished else f"step={mark.step + 1} of {len(steps)}"
    say(f"ready: subscriber {name} endpoint={where} {at}")
    total = sum(step.number_of_times for step in steps)
    done = sum(step.number_of_times for step in steps[: mark.step]) + mark.message
    try:
        with progress_bar(total, done, quiet=quiet or output is None) as advance:
            received = SubscriberRun(
                subscriber,
                steps,
                file,
                sleep=time.sleep,
                advance=advance,
                warn=lambda error: complain(f"warning [{error.code}]: {error}"),
                tell=complain,
            ).run(mark)
    finally:
        file.close()
        _tell_pushes(subscriber, steps)
    by_topic = ", ".join(f"{topic}: {count}" for topic, count in received.items()) or "none"
    if mark.finished:
        by_topic = FINISHED
    say(f"done: subscriber {name} received {sum(received.values())} messages ({by_topic})")


if __name__ == "__main__":
    main(prog_name="reliable-pubsub subscriber")
