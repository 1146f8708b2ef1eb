"""Rows for hptune: what each plug-in is called, takes and can. They import nothing heavy."""

from hptune.config.places import ClusterRow
from hptune.core.kinds import whole_number
from hptune.core.table import option
from hptune.pruners.registry import PrunerRow
from hptune.samplers.registry import SamplerRow

EVOLUTION = SamplerRow(
    name="evolution",
    summary="regularised evolution: changes the best of the newest trials",
    factory="hptune_evolution.sampler:EvolutionSampler",
    options=(option("population", whole_number(2), "trials to choose from", default=20),),
)
BETTER_HALF = PrunerRow(
    name="better-half",
    summary="at one epoch, stops the trials of the worse half",
    factory="hptune_evolution.pruner:BetterHalfPruner",
    checks="hptune_evolution.pruner:check",
    options=(
        option("at_epoch", whole_number(1), "the epoch at which trials are judged", default=3),
    ),
)
PROCESSES = ClusterRow(
    name="processes",
    summary="hptune worker processes on this machine, at a scheduler of their own",
    factory="hptune_evolution.workers:WorkerProcesses",
    options=(
        option("count", whole_number(1), "the largest number of workers", default=1),
        option("cores", whole_number(1), "cores of each worker", default=1),
    ),
)
