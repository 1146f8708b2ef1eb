"""Conformance suites: the contracts as tests, for our own implementations and for yours.

Subclass a suite in a test file, say how to make the thing under test, and inherit the tests:

- `hptune.testing.samplers.SamplerSuite` for samplers,
- `hptune.testing.pruners.PrunerSuite` for pruners,
- `hptune.testing.executors.ExecutorSuite` for executors,
- `hptune.testing.clusters.ClusterSuite` for clusters.

The suites need pytest, which the extra `test` brings.

May import: `core`, `user_code`, `config`, `worker`, `executors`, `clusters`.
Nothing imports this.
"""
