"""A short round trip by simulated annealing: an objective without any framework.

    hptune run examples/plain_python.py --trials 60

What is tuned is the annealing: how hot it starts, how cold it ends, how its temperature falls and
which move it tries. A trial takes a tenth of a second.
"""

import math
import random
from typing import Any

OBJECTIVE = "length:min"
EPOCHS = 20  # what is reported is counted in epochs, whatever they are; here, 500 moves each

_places = random.Random(1)
TOWNS = [complex(_places.random(), _places.random()) for _ in range(40)]


def objective(hp: Any, trial: Any) -> float:
    start = hp.Float("start_temperature", 1e-3, 10.0, sampling="log")
    end = hp.Float("end_temperature", 1e-5, 1e-1, sampling="log")
    cooling = hp.Choice("cooling", ["linear", "exponential"])
    move = hp.Choice("move", ["swap", "reverse"])

    draw = random.Random(0)
    trip = TOWNS.copy()
    length = shortest = round_trip(trip)
    for epoch in range(1, EPOCHS + 1):
        progress = (epoch - 1) / (EPOCHS - 1)
        if cooling == "linear":
            temperature = start + (end - start) * progress
        else:
            temperature = start * (end / start) ** progress

        for _ in range(500):
            first, last = sorted(draw.sample(range(len(trip)), 2))
            changed = trip.copy()
            if move == "swap":
                changed[first], changed[last] = trip[last], trip[first]
            else:
                changed[first : last + 1] = reversed(trip[first : last + 1])
            longer_by = round_trip(changed) - length
            if longer_by <= 0 or draw.random() < math.exp(-longer_by / temperature):
                trip, length = changed, length + longer_by
                shortest = min(shortest, length)

        trial.report(epoch, length=shortest)
        if trial.should_stop():
            break
    return shortest


def round_trip(trip: list[complex]) -> float:
    return sum(abs(a - b) for a, b in zip(trip, trip[1:] + trip[:1], strict=True))
