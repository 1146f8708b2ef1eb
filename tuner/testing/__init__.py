"""Conformance suites: the contracts as tests, for our own implementations and for yours.

Subclass a suite in a test file, say how to make the thing under test, and inherit the tests:

- `tuner.testing.samplers.SamplerSuite` for samplers,
- `tuner.testing.executors.ExecutorSuite` for executors.

The suites need pytest, which `pip install hptune[test]` brings.
"""
