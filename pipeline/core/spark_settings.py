"""The settings of Spark that we choose: those that nothing else has set. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DEFAULT_MASTER: Final = "local[*,4]"  # all cores; a task is tried four times, as on a cluster
OF_SPARK_ITSELF: Final = "local[*]"  # what spark-submit says where nothing was said
# A Python worker has to start on a machine that has other work, too; 15 s are Spark's own.
_EVERYWHERE: Final = {"spark.python.authenticate.socketTimeout": "120s"}
_LOCAL: Final = {
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_OF_OUR_OWN: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
# spark-submit puts these into what it has found, said or not.
_OF_THE_SHELL: Final = {"spark.ui.showConsoleProgress": "true", "spark.app.name": "pyspark-shell"}


def settings_of(
    found: Mapping[str, str], said: Mapping[str, str], *, name: str, submitted: bool
) -> dict[str, str]:
    """What a new session is given.

    Args:
        found: what spark-submit, `spark-defaults.conf` and the environment say.
        said: what the call or the command line says; it wins.
        name: of the application, where none is said.
        submitted: this process was started by spark-submit, or by `pyspark`.
    """
    known = {
        key: value for key, value in found.items() if submitted or _OF_THE_SHELL.get(key) != value
    }
    if not submitted and known.get("spark.master") == OF_SPARK_ITSELF:
        del known["spark.master"]
    chosen_here = "spark.master" not in known
    ours = {"spark.master": DEFAULT_MASTER, "spark.app.name": name} | _EVERYWHERE
    master = {**ours, **known, **said}["spark.master"]
    if master.startswith("local"):
        ours |= _LOCAL
    if chosen_here and not submitted:
        ours |= _OF_OUR_OWN
    return {key: value for key, value in ours.items() if key not in known} | dict(said)


def runs_here(master: str) -> bool:
    """Whether all tasks of a master run on this machine."""
    return master.startswith("local")
