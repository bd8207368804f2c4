"""`reliable-pubsub`: one command for all of it. Rooms are loaded when they are asked for."""

from __future__ import annotations

import click

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, LazyGroup

_COMMANDS = {
    "proxy": "reliable_pubsub.proxy.__main__",
    "publisher": "reliable_pubsub.publisher.__main__",
    "subscriber": "reliable_pubsub.subscriber.__main__",
    "put": "reliable_pubsub.publisher.put_command",
    "get": "reliable_pubsub.subscriber.get_command:get",
    "tail": "reliable_pubsub.subscriber.get_command:tail",
    "subscribe": "reliable_pubsub.subscriber.get_command:subscribe",
    "unsubscribe": "reliable_pubsub.subscriber.get_command:unsubscribe",
    "topics": "reliable_pubsub.common.topics_command",
    "dead": "reliable_pubsub.console.dead_command",
    "relay": "reliable_pubsub.relay.__main__",
    "topology": "reliable_pubsub.relay.topology",
    "status": "reliable_pubsub.proxy.status_command",
    "admin": "reliable_pubsub.proxy.admin",
    "console": "reliable_pubsub.console.__main__",
    "backup": "reliable_pubsub.proxy.backup_command",
    "restore": "reliable_pubsub.proxy.restore",
    "check": "reliable_pubsub.proxy.check_command",
    "compact": "reliable_pubsub.proxy.compact",
    "explain": "reliable_pubsub.lab.explain",
    "keys": "reliable_pubsub.common.keys_command",
    "config": "reliable_pubsub.common.config_show",
    "examples": "reliable_pubsub.common.examples",
    "lab": "reliable_pubsub.lab.__main__",
    "conformance": "reliable_pubsub.lab.conformance",
    "grade": "reliable_pubsub.lab.grade.command",
    "schema": "reliable_pubsub.lab.keys",
    "pipeline": "reliable_pubsub.pipeline.__main__",
}


@click.group(
    cls=LazyGroup,
    modules=_COMMANDS,
    former={"history": "get"},
    context_settings=CONTEXT_SETTINGS,
)
@click.version_option(package_name="reliable-pubsub")
def main() -> None:
    """Publish/subscribe whose messages arrive exactly once, across kill -9 of any process.

    \b
    Try it, each in a terminal of its own:
      reliable-pubsub examples          # the files that are named here
      reliable-pubsub proxy
      reliable-pubsub subscriber -f configs/figure4_subscriber.yaml -i subscriber-1
      reliable-pubsub publisher  -f configs/figure2_publisher.yaml  -i publisher-1
      reliable-pubsub status
      reliable-pubsub console           # the same and more, in the browser

    \b
    Tab completion (bash):
      eval "$(_RELIABLE_PUBSUB_COMPLETE=bash_source reliable-pubsub)"
    """


if __name__ == "__main__":
    main(prog_name="reliable-pubsub")
