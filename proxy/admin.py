"""`reliable-pubsub admin`: list and change what a running proxy keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import click
import msgspec
from rich.console import Console

from reliable_pubsub.common.admin_client import Admin, AdminOutcome
from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    CommandGroup,
    accept_endpoint,
    from_option,
    key_options,
    readable_errors,
    report_silence,
    settings_from,
)
from reliable_pubsub.common.core import action_words
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.limits import PAUSE_REASON_CHARS_MAX
from reliable_pubsub.common.core.start import parse_start
from reliable_pubsub.common.core.visible import visible
from reliable_pubsub.common.key_files import client_keys
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.surroundings import retry_policy

from .admin_tables import list_view

_OPTIONS = (
    click.option("--endpoint", help="The proxy's subscriber endpoint."),
    click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs."),
    click.option("--ack-timeout", help="Seconds to wait for an answer."),
    click.option("--send-retries", help="How often to ask again."),
    click.option("--allow-plaintext", is_flag=True, help="Accept an endpoint on another machine."),
    key_options(server=False, client=True),
)
_YES = click.option("-y", "--yes", is_flag=True, help="Do not ask before it is done; for scripts.")
_LOOK = click.option("--dry-run", "look", is_flag=True, help="Show what it would do, and stop.")
_TOPIC = click.argument("topic")
_SUBSCRIBER = click.argument("subscriber")
_REASON = click.option(
    "--reason",
    default="",
    help=f"Shown to publishers; at most {PAUSE_REASON_CHARS_MAX} characters.",
)


@click.group("admin", cls=CommandGroup, context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
def main() -> None:
    """List and change what a running proxy keeps: subscriptions, clients, topics, and pauses.

    Each change is done once, durably, or not at all; it is asked for after it was looked at, and
    written to the proxy's audit log. Where keys have rights, it needs the right `admin`.

    \b
    Who lags, and what a lease has left:
      reliable-pubsub admin list
    A subscriber that dies of one message:
      reliable-pubsub admin skip news display-1
    Give the last hour again:
      reliable-pubsub admin set-cursor news display-1 'age 1h'
    Before maintenance, and after it:
      reliable-pubsub admin drain --reason 'new disk, back at 14:00' --timeout 120
      reliable-pubsub admin resume
    """


@contextmanager
def _client(said: dict[str, Any]) -> Iterator[Admin]:
    """The client of a command, and readable errors."""
    with readable_errors(), stop_on_signals("stopped: look with `admin list` at what was done"):
        allow_plaintext = said.pop("allow_plaintext")
        where = from_option("--endpoint", said.pop("endpoint"))
        settings = settings_from("admin", {"subscriber_endpoint": where, **said})
        endpoint = accept_endpoint(
            settings.subscriber_endpoint,
            allow_plaintext=allow_plaintext,
            keys=client_keys(settings),
        )
        with Admin(
            endpoint=endpoint,
            retry=retry_policy(settings),
            allow_plaintext=True,
            on_silence=report_silence(),
        ) as client:
            yield client


def _command(
    name: str, *options: Callable[[Any], Any]
) -> Callable[[Callable[..., None]], click.Command]:
    """A command with the options of all of them."""

    def decorate(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def call(as_json: bool, **said: Any) -> None:
            own = {one: said.pop(one) for one in list(said) if one not in _SHARED}
            with _client(said) as client:
                function(client, as_json, **own)

        command: Any = call
        for option in reversed((*options, *_OPTIONS)):
            command = option(command)
        made = main.command(name, epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)(command)
        assert isinstance(made, click.Command)
        return made

    return decorate


_SHARED = frozenset(
    {"endpoint", "ack_timeout", "send_retries", "allow_plaintext", "secret_key", "server_key"}
)


def _act(
    act: Callable[[bool], AdminOutcome],
    in_words: Callable[[AdminOutcome], str],
    *,
    as_json: bool,
    yes: bool,
    look: bool,
) -> None:
    """Look at the effect, ask for confirmation, do it.

    Args:
        act: with True it only looks.
        in_words: what it does, beginning with a verb: `ends ...`.
    """
    seen = act(True)
    if seen.already or look:
        _print(seen, "nothing to do" if seen.already else f"would: {in_words(seen)}", as_json)
        return
    if not yes:
        _confirm(f"This {in_words(seen)}. Do it?")
    done = act(False)
    _print(done, f"done (action {done.number}): {in_words(done)}", as_json)


def _confirm(question: str) -> None:
    try:
        if click.confirm(visible(question), err=True):
            return
    except click.Abort:
        click.echo(err=True)
    raise UsageError("it was not confirmed, so nothing was done; in scripts, use --yes")


def _print(outcome: AdminOutcome, text: str, as_json: bool) -> None:
    click.echo(msgspec.json.encode(outcome).decode() if as_json else visible(text))


# Looking.


@_command("list")
def list_all(client: Admin, as_json: bool) -> None:
    """List clients, topics and subscriptions, with lag and what is left of their leases."""
    topics, clients = client.topics(), client.clients()
    if as_json:
        click.echo(msgspec.json.encode({"topics": topics, "clients": clients}).decode())
    else:
        Console().print(list_view(topics, clients))


# Changing.


@_command("end-subscription", _TOPIC, _SUBSCRIBER, _YES, _LOOK)
def end_subscription(
    client: Admin, as_json: bool, topic: str, subscriber: str, yes: bool, look: bool
) -> None:
    """End the subscription of SUBSCRIBER to TOPIC; it no longer keeps messages stored.

    If the subscriber still runs, a persistent one subscribes again at its own position. A group
    is named as `admin list` shows it, and ends for all its members.

    \b
      reliable-pubsub admin end-subscription news display-1
      reliable-pubsub admin end-subscription jobs group:workers
    """
    _act(
        lambda look: client.end_subscription(topic, subscriber, look=look),
        partial(action_words.ends_subscription, topic, subscriber),
        as_json=as_json,
        yes=yes,
        look=look,
    )


@_command(
    "forget-client",
    click.argument("client_id"),
    click.option(
        "--role",
        type=click.Choice(("subscriber", "publisher")),
        default="subscriber",
        show_default=True,
        help="As what it is to be forgotten.",
    ),
    _YES,
    _LOOK,
)
def forget_client(
    client: Admin, as_json: bool, client_id: str, role: Any, yes: bool, look: bool
) -> None:
    """Forget CLIENT_ID, which is gone for good: its subscriptions end, nothing of it is kept.

    A publisher is forgotten when none of its messages is stored any more; until then its numbers
    keep a repeated put from being stored twice.

    \b
      reliable-pubsub admin forget-client display-1
      reliable-pubsub admin forget-client sensor-1 --role publisher --yes
    """
    _act(
        lambda look: client.forget_client(client_id, role=role, look=look),
        partial(action_words.forgets, role, client_id),
        as_json=as_json,
        yes=yes,
        look=look,
    )


@_command("truncate", _TOPIC, click.argument("start"), _YES, _LOOK)
def truncate(client: Admin, as_json: bool, topic: str, start: str, yes: bool, look: bool) -> None:
    """Remove the messages of TOPIC before START, in whole batches, acknowledged or not.

    START is the first message to keep: now (all go), 'offset N', 'newest N', 'time ...' or 'age
    ...'. Subscribers that have not read the removed messages get LOST.

    \b
      reliable-pubsub admin truncate news 'offset 1000'
      reliable-pubsub admin truncate news 'age 30d' --yes
    """
    place = parse_start(start)
    _act(
        lambda look: client.truncate(topic, place, look=look),
        partial(action_words.removes, topic),
        as_json=as_json,
        yes=yes,
        look=look,
    )


@_command("delete-topic", _TOPIC, _YES, _LOOK)
def delete_topic(client: Admin, as_json: bool, topic: str, yes: bool, look: bool) -> None:
    """Remove TOPIC with all of its messages; end its subscriptions and groups.

    The numbers of its publishers stay, so that a repeated put is never stored twice. A put or a
    subscribe makes the topic again: stop its clients first.

    \b
      reliable-pubsub admin delete-topic news
    """
    _act(
        lambda look: client.delete_topic(topic, look=look),
        partial(action_words.deletes, topic),
        as_json=as_json,
        yes=yes,
        look=look,
    )


@_command(
    "skip",
    _TOPIC,
    _SUBSCRIBER,
    click.option("--to", "end", type=click.IntRange(min=0), help="The first offset not to skip."),
    _YES,
    _LOOK,
)
def skip(
    client: Admin,
    as_json: bool,
    topic: str,
    subscriber: str,
    end: int | None,
    yes: bool,
    look: bool,
) -> None:
    """Move SUBSCRIBER past the batch of TOPIC at its cursor, which it cannot process.

    It gets LOST for these messages; for others they stay. If no answer comes, repeat with
    --to, so that nothing more is skipped than was meant.

    \b
      reliable-pubsub admin skip news display-1
      reliable-pubsub admin skip news display-1 --to 1042
    """
    seen = client.skip(topic, subscriber, end=end, look=True)
    to = None if seen.already else seen.end
    _act(
        lambda look: client.skip(topic, subscriber, end=end if to is None else to, look=look),
        partial(action_words.skips, topic, subscriber),
        as_json=as_json,
        yes=yes,
        look=look,
    )


@_command("set-cursor", _TOPIC, _SUBSCRIBER, click.argument("start"), _YES, _LOOK)
def set_cursor(
    client: Admin,
    as_json: bool,
    topic: str,
    subscriber: str,
    start: str,
    yes: bool,
    look: bool,
) -> None:
    """Move SUBSCRIBER to START of TOPIC: earliest, now, 'offset N', 'time ...', 'age ...'.

    Back: messages come again, marked as redelivered. Forward: it gets LOST for what lies between.

    \b
      reliable-pubsub admin set-cursor news display-1 earliest
      reliable-pubsub admin set-cursor news display-1 'time 2026-11-01T12:00Z'
    """
    place = parse_start(start)
    _act(
        lambda look: client.set_cursor(topic, subscriber, place, look=look),
        partial(action_words.moves, topic, subscriber),
        as_json=as_json,
        yes=yes,
        look=look,
    )


# Maintenance.


@_command("pause", _REASON)
def pause(client: Admin, as_json: bool, reason: str) -> None:
    """Refuse puts until `admin resume`, also across restarts of the proxy; gets continue.

    Publishers get BUSY with the reason, and try again. QoS 0 continues: it is never stored.

    \b
      reliable-pubsub admin pause --reason 'new disk, back at 14:00'
    """
    _print(client.pause(reason), "puts are paused", as_json)


@_command("resume")
def resume(client: Admin, as_json: bool) -> None:
    """Accept puts again."""
    _print(client.resume(), "puts continue", as_json)


@_command(
    "drain",
    _REASON,
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0),
        default=60.0,
        show_default=True,
        help="Seconds to wait for the subscribers.",
    ),
)
def drain(client: Admin, as_json: bool, reason: str, timeout_s: float) -> None:
    """Pause, and wait until every live subscription has acknowledged everything (else exit 3).

    \b
      reliable-pubsub admin drain --timeout 120 && systemctl stop reliable-pubsub-proxy
    """
    client.drain(reason, timeout_s=timeout_s)
    click.echo('{"drained":true}' if as_json else "drained: puts are paused, all is acknowledged")


if __name__ == "__main__":
    main(prog_name="reliable-pubsub admin")
