"""Pictures of coloured shapes with captions, drawn here: data for CLIP that needs no download.

Each picture has one of 8 shapes in one of 8 colours, small or large, at one of 9 positions, on one
of 3 backgrounds. One pair of shape and colour in eight never occurs in the training pictures: there
the model has to put together what it learned of the shape and of the colour.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

SIZE = 32
"""Height and width of a picture in pixels."""

COLOURS = {
    "red": (214, 39, 40),
    "green": (44, 160, 44),
    "blue": (31, 80, 200),
    "yellow": (245, 215, 20),
    "orange": (255, 127, 14),
    "purple": (128, 50, 160),
    "pink": (245, 140, 190),
    "brown": (120, 72, 40),
}
BACKGROUNDS = {"white": (255, 255, 255), "gray": (150, 150, 150), "black": (0, 0, 0)}
POSITIONS = {
    f"{row} {column}".replace("middle center", "center"): (i, j)
    for i, row in zip((-1, 0, 1), ("top", "middle", "bottom"), strict=True)
    for j, column in zip((-1, 0, 1), ("left", "center", "right"), strict=True)
}
SIZES = {"small": 0.22, "large": 0.34}

# Of coordinates in units of the shape's radius: whether a point is inside.
SHAPES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "circle": lambda x, y: np.hypot(x, y) < 1,
    "square": lambda x, y: np.maximum(abs(x), abs(y)) < 0.85,
    "triangle": lambda x, y: (y < 0.75) & (y > 1.7 * abs(x) - 0.95),
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) < 0.3) & (np.maximum(abs(x), abs(y)) < 1),
    "ring": lambda x, y: (np.hypot(x, y) < 1) & (np.hypot(x, y) > 0.55),
    "diamond": lambda x, y: abs(x) * 1.4 + abs(y) < 1.05,
    "bar": lambda x, y: (abs(x) < 1.05) & (abs(y) < 0.32),
    "star": lambda x, y: np.hypot(x, y) < 0.7 + 0.3 * np.cos(5 * np.arctan2(x, -y)),
}

TEMPLATES = [
    "a {size} {colour} {shape} at the {position} on {background}",
    "{colour} {shape}",
    "{colour} {shape} on a {background} background",
    "the {shape} at the {position} is {colour}",
    "a picture of a {size} {shape} in {colour}",
]

LABELS = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn."""

    shape: str
    colour: str
    size: str
    position: str
    background: str

    @property
    def label(self) -> str:
        return f"{self.colour} {self.shape}"

    @property
    def is_held_out(self) -> bool:
        """Whether no training picture has this shape in this colour."""
        return (list(SHAPES).index(self.shape) + list(COLOURS).index(self.colour)) % 8 == 3

    def captions(self) -> list[str]:
        """Return what can be said about it, the whole description first."""
        words = {name: getattr(self, name) for name in self.__slots__}
        return [template.format(**words) for template in TEMPLATES]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Return an image of shape (SIZE, SIZE, 3), uint8, with a little noise."""
        fine = 2 * SIZE  # drawn twice as fine, so that edges are smooth
        radius = SIZES[self.size] * rng.uniform(0.9, 1.1)
        row, column = (0.27 * each + rng.uniform(-0.03, 0.03) for each in POSITIONS[self.position])
        y, x = np.mgrid[:fine, :fine] / (fine - 1) - 0.5
        inside = SHAPES[self.shape]((x - column) / radius, (y - row) / radius)
        share = inside.reshape(SIZE, 2, SIZE, 2).mean((1, 3))[..., None]
        ink, paper = np.array(COLOURS[self.colour]), np.array(BACKGROUNDS[self.background])
        image = share * ink + (1 - share) * paper + rng.normal(0, 12, (SIZE, SIZE, 3))
        return np.asarray(image.clip(0, 255), np.uint8)


def draw_pictures(number: int, *, validation: bool) -> tuple[np.ndarray, list[Picture]]:
    """Return images, and what is on them; the same on every call.

    No two validation pictures are alike in all five words, and a quarter of them have a shape in a
    colour that the training pictures lack.
    """
    rng = np.random.default_rng(1 if validation else 0)
    choices = [list(each) for each in (SHAPES, COLOURS, SIZES, POSITIONS, BACKGROUNDS)]
    pictures: dict[Picture, None] | list[Picture] = {} if validation else []
    held_out = 0
    while len(pictures) < number:
        picture = Picture(*(each[rng.integers(len(each))] for each in choices))
        if isinstance(pictures, list):
            if not picture.is_held_out:
                pictures.append(picture)
        elif picture not in pictures and (not picture.is_held_out or held_out < number // 4):
            if not picture.is_held_out and len(pictures) - held_out >= number - number // 4:
                continue
            held_out += picture.is_held_out
            pictures[picture] = None
    found = list(pictures)
    return np.stack([picture.draw(rng) for picture in found]), found
