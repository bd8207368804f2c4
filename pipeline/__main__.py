"""`reliable-pubsub pipeline`: the jobs."""

from __future__ import annotations

import click

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, LazyGroup, readable_errors
from reliable_pubsub.common.core.errors import ConfigurationError

_JOBS = {
    "run": "reliable_pubsub.pipeline.running",
    "load": "reliable_pubsub.pipeline.loading",
    "archive": "reliable_pubsub.pipeline.archiving",
    "audit": "reliable_pubsub.pipeline.auditing",
    "replay": "reliable_pubsub.pipeline.replaying",
}
_OF_THE_EXTRA = ("pyspark", "pyarrow", "py4j", "deltalake")


class Jobs(LazyGroup):
    """The jobs, if Spark is there."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load it; without the extra `spark` say how to get that."""
        with readable_errors():
            try:
                return super().get_command(ctx, cmd_name)
            except ModuleNotFoundError as error:
                missing = (error.name or "").split(".")[0]
                if missing not in _OF_THE_EXTRA:
                    raise
                if ctx.resilient_parsing:  # the shell completes; it shows no errors
                    return None
                raise ConfigurationError(
                    f"{missing} is not installed, and the pipeline needs it: "
                    "pip install 'reliable-pubsub[spark]', or in a clone scripts/setup --spark"
                ) from error


@click.group(cls=Jobs, modules=_JOBS, context_settings=CONTEXT_SETTINGS)
def main() -> None:
    """Jobs on Spark over whole topics. They need `pip install 'reliable-pubsub[spark]'`."""


if __name__ == "__main__":
    main(prog_name="reliable-pubsub pipeline")
