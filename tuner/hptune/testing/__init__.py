"""Conformance suites: the contracts as tests, for our own implementations and for yours.

Subclass a suite in a test file, say how to make the thing under test, and inherit the tests:

- `hptune.testing.samplers.SamplerSuite` for samplers,
- `hptune.testing.pruners.PrunerSuite` for pruners,
- `hptune.testing.executors.ExecutorSuite` for executors,
- `hptune.testing.clusters.ClusterSuite` for clusters.

The suites need pytest, which the extra `test` brings. `hptune.testing.studies.play` does
not: it runs a whole study on thousands of simulated workers in seconds. They are those of
`simulated.SimulatedExecutor`; `simulated_parts` has its workers, needs and faults.

May import: `core`, `user_code`, `pruners`, `config`, `worker`, `executors`, `clusters`, `master`.
Nothing imports this.
"""
