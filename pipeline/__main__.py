"""`reliable-pubsub pipeline`: the jobs."""

from __future__ import annotations

import click

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, LazyGroup

_JOBS = {
    "load": "reliable_pubsub.pipeline.loading",
    "archive": "reliable_pubsub.pipeline.archiving",
    "audit": "reliable_pubsub.pipeline.auditing",
    "replay": "reliable_pubsub.pipeline.replaying",
}


@click.group(cls=LazyGroup, modules=_JOBS, context_settings=CONTEXT_SETTINGS)
def main() -> None:
    """Jobs on Spark over whole topics. They need `pip install 'reliable-pubsub[spark]'`."""


if __name__ == "__main__":
    main(prog_name="reliable-pubsub pipeline")
