"""`reliable-pubsub`: one command for all of it. Rooms are loaded when they are asked for."""

from __future__ import annotations

import importlib

import click

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS

_COMMANDS = {
    "proxy": "reliable_pubsub.proxy.__main__",
    "publisher": "reliable_pubsub.publisher.__main__",
    "subscriber": "reliable_pubsub.subscriber.__main__",
    "status": "reliable_pubsub.proxy.status",
    "config": "reliable_pubsub.common.config_show",
}


class _Rooms(click.Group):
    """A group whose commands are the rooms."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(_COMMANDS[cmd_name]).main
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Rooms,
    context_settings=CONTEXT_SETTINGS,
)
@click.version_option(package_name="reliable-pubsub")
def main() -> None:
    """Publish/subscribe whose messages arrive exactly once, across kill -9 of any process.

    \b
    Try it, each in a terminal of its own:
      reliable-pubsub proxy
      reliable-pubsub subscriber -f configs/figure4_subscriber.yaml -i subscriber-1
      reliable-pubsub publisher  -f configs/figure2_publisher.yaml  -i publisher-1
      reliable-pubsub status

    \b
    Tab completion (bash):
      eval "$(_RELIABLE_PUBSUB_COMPLETE=bash_source reliable-pubsub)"
    """


if __name__ == "__main__":
    main(prog_name="reliable-pubsub")
