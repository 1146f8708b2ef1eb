"""The slurm.toml made from Slurm's partitions can be read, and asks for what exists."""

from __future__ import annotations

from commands import Commands
from hptune_jobqueue.commands import Slurm
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.nodes import parse_sinfo
from hptune_jobqueue.sizing import Need, choose_worker
from hptune_jobqueue.template import refused_partitions, template_text

SINFO = """\
main*|up|infinite|4|8000|(null)|1|idle
gpu|up|02:00:00|64|512000|gpu:a100:4|3|idle
tiny|up|00:05:00|4|8000|gpu:2|1|mix
closed|down|1-00:00:00|16|64000|gpu:8|7|drain
"""


def test_it_asks_for_a_partition_with_gpus_and_shows_the_others() -> None:
    partitions = parse_sinfo(SINFO)
    text = template_text(partitions, account="project")
    config = parse_config(text)
    (shape,) = config.shapes
    assert (shape.name, shape.partition, shape.account) == ("gpu", "gpu", "project")
    assert shape.walltime_seconds == 7200
    assert choose_worker(partitions, shape, Need(gpus=1)).trials == 4
    assert "# gpu: at most 02:00:00\n#   3 x 64 cores, 537 GB, 4 GPUs (a100)\n#   A trial" in text
    assert "`hptune run … --gpus-per-trial 0`; then no GPU is requested.\n[[shape]]\n" in text
    assert "# main: no time limit, Slurm's default\n" in text
    assert "# closed: at most 1-00:00:00, down now" in text


def test_a_partition_that_refuses_the_user_is_marked_and_not_chosen(commands: Commands) -> None:
    """As by AllowAccounts=others. One that takes no jobs for now is open to the user."""
    commands.make(
        "sbatch",
        'case "$(cat)" in\n'
        "*-p\\ gpu*) echo 'sbatch: error: Invalid account' >&2; exit 1 ;;\n"
        "*-p\\ closed*) echo 'partition not available (inactive or drain)' >&2; exit 1 ;;\n"
        "esac",
    )
    partitions = parse_sinfo(SINFO)
    refused = refused_partitions(Slurm(), partitions, account="mine")
    assert refused == {"gpu": "Invalid account"}
    text = template_text(partitions, refused=refused)
    assert parse_config(text).shapes[0].partition == "tiny", "the other one with GPUs"
    assert "4 GPUs (a100)\n#   Slurm refuses your jobs there: Invalid account\n# [[sh" in text
    everywhere = dict.fromkeys(("main", "gpu", "tiny", "closed"), "no")
    assert parse_config(template_text(partitions, refused=everywhere)).shapes[0].partition == "gpu"


def test_every_comment_of_a_shape_can_be_brought_to_life() -> None:
    partitions = parse_sinfo(SINFO)
    lines = template_text(partitions).splitlines()
    alive = [
        line.removeprefix("# ")
        if line.startswith(("# [[shape]]", "# name =", "# partition ="))
        else line
        for line in lines
    ]
    names = [shape.name for shape in parse_config("\n".join(alive)).shapes]
    assert names == ["main", "gpu", "tiny", "closed"]


def test_the_default_partition_is_taken_where_nothing_has_gpus() -> None:
    text = template_text(
        parse_sinfo("a|up|infinite|4|8000|(null)|1|idle\n" + SINFO.splitlines()[0])
    )
    assert parse_config(text).shapes[0].partition == "main"
    assert parse_config(text).shapes[0].account is None
