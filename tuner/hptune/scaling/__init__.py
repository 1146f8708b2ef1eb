"""How a model scales over devices: measures training steps, and says what follows from them.

One measurer serves `hptune scaling` and `--gpus-per-trial auto`. The orders of its attempts are
those of trials, with a `core.step_request.StepRequest` instead of a training.

Offers: `measurer.measure_curve` (times the steps), `step_runner.StepRunner` (runs its attempts),
`curve.ScalingCurve` (what was measured, and the file that keeps it), `rows` (speed-up, efficiency
and communication, with their noise, and the batch from which on more devices are efficient),
`split.Splitter` (devices for each trial of a study), `texts` and `page` (what the user reads).

May import: `text`, `core`, `files`, `executors`, `reporting`, `worker`.
"""
