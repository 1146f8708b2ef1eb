"""Names of settings and methods in other tuners, and what they are called here."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..core.spelling import did_you_mean, nearest_name

_NAMES = {
    "factor": "reduction_factor",
    "func": "model_fn",
    "hyperband_iterations": "brackets",
    "hypermodel": "model_fn",
    "max_consecutive_failed_trials": "same_failures",
    "max_epochs": "epochs",
    "max_trials": "trials",
    "metric": "objective",
    "n_jobs": "workers",
    "n_trials": "trials",
    "num_samples": "trials",
    "project_name": "directory",
    "sampler": "search",
    "study": "directory",
    "study_name": "directory",
}
_ANSWERS = {
    "direction": "the objective says it, such as --objective val_loss:min",
    "dry_run": "`hptune slurm script SLURM_TOML` prints the jobs, `hptune space` the search space",
    "executions_per_trial": "--confirm trains the best configurations again with other seeds",
    "load_if_exists": "resume continues a study",
    "repeats": "--confirm N trains the best N again, and --confirm-repeats says how often",
    "overwrite": "a study is never overwritten; name another directory, or none for a new one",
}

_METHODS = {
    "get_best_hyperparameters": "fit returns a Study: study.best_hyperparameters",
    "get_best_models": "fit returns a Study: study.best_models(k)",
    "optimize": "fit runs the study",
    "results_summary": "fit returns a Study: study.trials_dataframe()",
    "search": "fit runs the study, and takes the same arguments",
    "search_space_summary": "`hptune space MODEL_FILE` shows the search space",
}


def our_name(name: str) -> str:
    """Return the argument of `Tuner` that means the same; empty if there is none.

    >>> our_name("max_trials"), our_name("trials")
    ('trials', '')
    """
    return _NAMES.get(name, "")


def answer(name: str) -> str:
    """Return what to use for an argument that has no equal here; empty if unknown."""
    return _ANSWERS.get(name, "")


def argument_meant(name: str, known: Collection[str]) -> str:
    """Return what to use for an unknown argument; empty if nothing is like it.

    >>> argument_meant("max_trials", ["trials", "epochs"]), argument_meant("epoch", ["epochs"])
    ('did you mean trials?', 'did you mean epochs?')
    """
    ours = our_name(name)
    meant = ours if ours in known else nearest_name(name, known)
    return answer(name) or (f"did you mean {meant}?" if meant else "")


def our_method(name: str) -> str:
    """Return what to use for a method of another tuner; empty if unknown."""
    return _METHODS.get(name, "")


_RESULTS = {
    "best_config": "best_hyperparameters",
    "best_params": "best_hyperparameters",
    "best_value": "best_trial.value",
    "get_trials": "trials",
    "path": "directory",
    "results_df": "trials_dataframe()",
    "stop": "directory as the DIR of `hptune stop DIR`",
}


def result_meant(name: str, known: Iterable[str]) -> str:
    """Return a sentence on what a study calls a result of other tuners; empty if unknown.

    >>> result_meant("best_params", []), result_meant("best_modle", ["best_model"])
    (' Use study.best_hyperparameters.', ' Did you mean study.best_model?')
    """
    if name in _RESULTS:
        return f" Use study.{_RESULTS[name]}."
    return did_you_mean(name, known, "study.{}")
