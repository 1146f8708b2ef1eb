"""The depth at which the user's code calls a function does not change the cost of the call."""

from __future__ import annotations

from attempts import Attempts

_CALLS = 300


def test_no_call_maps_memory_at_any_depth(attempts: Attempts) -> None:
    result = attempts.run(
        f"""
        import resource

        def faults():
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

        def called(a=0, b=0, c=0, d=0):
            return a

        def faults_of_calls(depth):
            if depth:
                return faults_of_calls(depth - 1)
            before = faults()
            for _ in range({_CALLS}):
                called()
            return faults() - before

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            return max(faults_of_calls(depth) for depth in range(400))
        """
    )
    (most,) = result.ending.metrics.values()
    assert most < _CALLS / 2
