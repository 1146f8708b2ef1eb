"""Which waiting trial starts on which worker.

Workers with their free cores, GPUs and memory on one side, the queue of waiting trials on the
other.

Offers: `cluster.ClusterState`, `queue.TrialQueue`, `step_times.StepTimes`, `stall_reason.notice`.

May import: `core`.
"""
