"""The placement of waiting trials on workers.

Keeps the free cores, GPUs and memory of the workers, and the queue of waiting trials.

Offers: `cluster.ClusterState`, `queue.TrialQueue`, `step_times.StepTimes`,
`stall_reason.stall_reason`.

May import: `core`.
"""
