"""How many trials share a core or a GPU, and how much memory each is given.

Decided from what finished and running trials were measured to use, for every amount (cores, GPUs,
memory) that the user does not set:

- The first trials hold a core or a GPU each. Only attempts that reported a step or ended well
  count.
- Memory is predicted for each trial from its hyperparameters and the peaks of other trials, with a
  margin that follows from the errors of such predictions. A running attempt that holds more than
  predicted counts with what it holds. A part of each worker's memory is never given out, and what
  other programs use is subtracted.
- The number of trials per core or GPU grows in steps, each only after trials were seen to train at
  the step before. It shrinks where more trials on a device do no more work in total.
- For a search that learns, sharing devices lets at most a tenth of the study's trials run at
  once. Larger batches cost such a search more than packing gains
  (benchmarks/README.md).
- Each out-of-memory raises all predictions for a while.

The engine asks for a plan with `DecidePacking` and gets `PackingDecided`, which the ledger
records. A replay reads the plans and computes no predictions, so plans may use floating-point
libraries whose last bits differ between machines.

Offers: `packing.Packing`, `decision.decide`.

May import: `core`, `core.scheduling`.
"""
