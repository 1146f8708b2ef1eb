"""Tuner: the Keras-like face."""


class Tuner:
    """A tuner."""
