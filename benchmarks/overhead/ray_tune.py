"""Ray Tune: one actor of one core for each trial, or two actors that are used again."""

from __future__ import annotations

import sys
from typing import Any

import ray
from ray import tune

from .cases import config
from .protocol import hand_back, scratch, trials


def trainable(params: dict[str, Any]) -> None:
    import keras

    from .digits_trial import train

    report = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda _epoch, logs: tune.report({"val_accuracy": float(logs["val_accuracy"])})
    )
    best = train(config(params["case"]), [report])
    tune.report({"val_accuracy": best})


def main(*, reuse_actors: bool) -> None:
    if (address := ray.util.get_node_ip_address()) != "127.0.0.1":
        sys.exit(
            f"Ray would listen on {address}; only loopback is allowed. This release seems to "
            f"ignore RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0: use the one in requirements-peers.txt"
        )
    ray.init(
        num_cpus=2,
        num_gpus=0,
        include_dashboard=False,
        configure_logging=False,
        log_to_driver=False,
        _temp_dir=str(scratch() / "r"),
    )
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space={"case": tune.grid_search(list(range(trials())))},
        tune_config=tune.TuneConfig(
            metric="val_accuracy", mode="max", reuse_actors=reuse_actors, max_concurrent_trials=2
        ),
        run_config=tune.RunConfig(storage_path=str(scratch() / "results"), verbose=0),
    )
    results = tuner.fit()
    if results.errors:
        raise results.errors[0]
    hand_back({r.config["case"]: r.metrics["val_accuracy"] for r in results})
    ray.shutdown()


if __name__ == "__main__":
    main(reuse_actors=sys.argv[1:] == ["reuse"])
