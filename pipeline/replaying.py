"""`reliable-pubsub pipeline replay`: put the past of topics, or of an archive, on other topics.

One publisher puts each topic, in order, one topic after another. It needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, Final

import click
from msgspec.structs import replace

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, asking_options
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.common.terminal import say

from .auditing import whereabouts
from .core.planning import MessageRange, refuse_unknown
from .job import (
    Access,
    access_to,
    archive_path,
    config_option,
    running_job,
    subscriber_endpoint_option,
    topics_wanted,
)
from .replay import ReplayTopic, replay_topic

_NAME: Final = "{topic}"  # in a target: the topic that is read


def targets_of(topics: Sequence[str], target: str) -> Mapping[str, str]:
    """The target of each topic.

    Raises:
        UsageError: two have the same, or one is read itself.
    """
    if len(topics) > 1 and _NAME not in target:
        raise UsageError(f"--to {target}: several topics need one each, such as '{_NAME}-again'")
    found = {topic: names.exact(target.replace(_NAME, topic)) for topic in topics}
    for one in found.values():
        if one in topics:
            raise UsageError(f"--to is the topic itself ({one}): it would be read while it grows")
    return found


def _ranges(
    topics: Sequence[str], archive: str, first: int | None, end: int | None, access: Access
) -> list[MessageRange]:
    """What is replayed of each topic.

    Raises:
        UsageError: a topic is not there, or an offset is above the end.
    """
    options = topics_wanted(topics, "", endpoint=access.read_at, retry=access.retry)
    now = whereabouts(replace(options, archive=archive))
    refuse_unknown(options, now)
    found: list[MessageRange] = []
    for topic in topics:
        edge = now[topic]
        begin = edge.start if first is None else first
        stop = edge.end if end is None else end
        if stop > edge.end:
            raise UsageError(
                f"--to-offset: topic {topic!r} ends at offset {edge.end}, {stop} is above; leave "
                "it out to put all that is there"
            )
        if begin > stop:
            raise UsageError(
                f"--from-offset: the range of topic {topic!r} ends at offset {stop}, {begin} is "
                "above"
            )
        found.append(MessageRange(topic, edge.log, begin, stop))
    return found


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@config_option()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    required=True,
    help="Topic to replay; repeatable.",
)
@click.option(
    "--to",
    "target",
    required=True,
    help=f"The topic that gets them; {_NAME} stands for the name of the topic that is read.",
)
@click.option(
    "--archive",
    type=archive_path(),
    default="",
    help="Read them there, a folder or s3://BUCKET/PREFIX.  [default: from the proxy]",
)
@click.option("--from-offset", "first", type=click.IntRange(0), help="The first one.")
@click.option("--to-offset", "end", type=click.IntRange(0), help="The first that is left out.")
@click.option(
    "--replay-id",
    help="Under this id each message is put once.  [default: of log, range and target]",
)
@click.option(
    "--rate", type=click.FloatRange(0.001), help="Messages a second of each topic, at most."
)
@subscriber_endpoint_option()
@asking_options("publisher")
def main(
    topics: tuple[str, ...],
    target: str,
    archive: str,
    first: int | None,
    end: int | None,
    replay_id: str | None,
    rate: float | None,
    subscriber_endpoint: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Put the past of topics on other topics, in order, each message once.

    After a kill, run it again to resume. Run it again when it is done to put only newer messages.

    \b
      reliable-pubsub pipeline replay --topic news --to news-again --archive archive --rate 500
      reliable-pubsub pipeline replay --topic news --topic sport --to '{topic}-again'
    """
    with running_job():
        topics = tuple(dict.fromkeys(topics))
        targets = targets_of(topics, target)
        if len(topics) > 1 and (first is not None or end is not None):
            raise UsageError("--from-offset and --to-offset are of one topic")
        access = access_to(subscriber_endpoint, **asked)
        work = [
            ReplayTopic(
                wanted=one,
                archive=archive,
                target=targets[one.topic],
                client=replay_client(
                    one, targets[one.topic], replay_id, of_many=len(topics) > 1, grows=end is None
                ),
                access=access,
                rate=rate,
            )
            for one in _ranges(topics, archive, first, end, access)
        ]
        total = sum(one.wanted.count for one in work)
        with progress_bar(total, 0, quiet=quiet) as advance:
            outcomes = [replay_topic(one, partial(advance, what=one.target)) for one in work]
        put = sum(one.put for one in outcomes)
        before = sum(one.stored_before for one in outcomes)
        say(f"done: {put} messages put on {', '.join(targets.values())}, {before} were there")


def replay_client(
    wanted: MessageRange,
    target: str,
    replay_id: str | None = None,
    *,
    of_many: bool = False,
    grows: bool = False,
) -> str:
    """The id under which a range is put: one for each topic, or they would fence each other.

    Args:
        grows: it ends where the topic does, which may be further at the next run of the command.
    """
    if replay_id is None:
        # The same for the same messages and target.
        end = "" if grows else wanted.end
        text = f"{wanted.log}\n{wanted.topic}\n{wanted.first}\n{end}\n{target}"
        return names.client_id(f"replay.{sha256(text.encode()).hexdigest()[:24]}")
    suffix = f".{sha256(wanted.topic.encode()).hexdigest()[:12]}" * of_many
    return names.client_id(f"replay.{replay_id}{suffix}")
