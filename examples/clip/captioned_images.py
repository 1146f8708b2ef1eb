"""Read a folder of images with a captions file.

The layouts are told apart by the captions file:

- a CSV file with a header and the columns `image` and `caption`, and, where wanted, `label` (its
  class, for zero-shot classification) and `split` (train or val); a row for each caption. Columns
  may be separated by commas, semicolons, tabs or bars. Flickr8k and Flickr30k come like this.
- a JSON file with a list of objects with the same names, or in COCO's layout: `images` with `id`
  and `file_name`, `annotations` with `image_id` and `caption`.
- `Flickr8k.token.txt`, with `NAME.jpg#0`, a tab and the caption in each line.

Images lie next to the captions file or in a folder next to it, such as `Images`, or for COCO
`train2017` and `val2017` next to `annotations`.
"""

import csv
import json
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CAPTION_FILES = [
    *("captions.csv", "captions.txt", "captions.json", "results.csv", "Flickr8k.token.txt"),
    "annotations/captions_train2017.json",
    "annotations/captions_train2014.json",
]
FOLDERS = ["", "Images", "images", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k_images"]
IMAGE_COLUMNS = ["image", "image_name", "file_name", "filename", "file"]
CAPTION_COLUMNS = ["caption", "comment", "text", "title", "name"]

MAX_UNUSABLE_SHARE = 0.01
"""Missing or unreadable images that are skipped, as a share of all. Published data have a few."""
VALIDATION_SHARE = 0.1
MAX_VALIDATION = 5000
"""Images to validate if the captions file has no `split`: a tenth of them, at most this number."""


@dataclass(frozen=True, slots=True)
class CaptionedImage:
    """An image and what is said about it.

    Attributes:
        path: Its file.
        captions: Its captions, at least one.
        label: Its class; empty if it has none.
    """

    path: Path
    captions: tuple[str, ...]
    label: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    image: str
    caption: str
    label: str = ""
    split: str = ""


def read_captions(place: Path) -> tuple[list[CaptionedImage], list[CaptionedImage]]:
    """Return the images to train on and those to validate, without opening them.

    Args:
        place: The captions file, or its folder.

    Raises:
        FileNotFoundError: There is no captions file, or more than one in a hundred of the images
            that it names are missing.
        ValueError: The file cannot be understood.
    """
    file = _captions_file(place)
    rows = _rows(file)
    validation_file = file.with_name(file.name.replace("train", "val"))
    if validation_file != file and validation_file.is_file():
        train = _images(rows, file)
        return train, _images(_rows(validation_file), validation_file)
    splits = {row.split for row in rows}
    if unknown := splits - {"train", "val", "validation", "test", ""}:
        raise ValueError(
            f"{file} has the split {min(unknown)!r}; allowed are train and val (or test)"
        )
    if "train" in splits:
        train = _images([row for row in rows if row.split == "train"], file)
        validation = _images([row for row in rows if row.split != "train"], file)
    else:
        images = _images(rows, file)
        random.Random(0).shuffle(images)
        cut = min(MAX_VALIDATION, max(1, int(len(images) * VALIDATION_SHARE)))
        train, validation = images[cut:], images[:cut]
    for name, part in (("to train on", train), ("to validate", validation)):
        if len(part) < 2:
            raise ValueError(f"{file} leaves {len(part)} images {name}; at least 2 are needed")
    return train, validation


def read_images(images: list[CaptionedImage], size: int) -> tuple[np.ndarray, list[CaptionedImage]]:
    """Return the images as an array of shape (n, size, size, 3), uint8, and which these are.

    The middle square is cut out and scaled; transparent parts become white. Images that cannot be
    read are left out and named.

    Raises:
        ValueError: More than one in a hundred cannot be read.
    """
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda image: _read_image(image.path, size), images))
    broken = [
        f"{image.path.name} ({why})"
        for image, why in zip(images, found, strict=True)
        if isinstance(why, str)
    ]
    folder = images[0].path.parent
    _skip(broken, of=len(images), kind=ValueError, what="cannot be read", where=folder)
    pairs = [
        (image, pixels)
        for image, pixels in zip(images, found, strict=True)
        if not isinstance(pixels, str)
    ]
    return np.stack([pixels for _, pixels in pairs]), [image for image, _ in pairs]


def _read_image(path: Path, size: int) -> np.ndarray | str:
    """Return the pixels, or why there are none."""
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as opened:
            opened.draft("RGB", (2 * size, 2 * size))  # JPEG: decodes fewer pixels, if it can
            image = opened.convert("RGBA")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as err:
        return type(err).__name__
    white = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(white, image).convert("RGB")
    return np.asarray(ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC))


def _captions_file(place: Path) -> Path:
    if place.is_file():
        return place
    if not place.is_dir():
        raise FileNotFoundError(f"{place} does not exist; it must be a folder or a captions file")
    for name in CAPTION_FILES:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(
        f"{place} has no captions file; it may be called {', '.join(CAPTION_FILES)}. "
        "Or give the path of the file itself."
    )


def _rows(file: Path) -> list[_Row]:
    try:
        text = file.read_text("utf-8-sig")
    except UnicodeDecodeError as err:
        raise ValueError(
            f"{file} is no text in UTF-8 ({err.reason} at byte {err.start}); needed is a captions "
            "file, or the folder of one"
        ) from None
    if file.suffix == ".json":
        found = _json_rows(text, file)
    elif file.name.endswith("token.txt"):
        found = _token_rows(text)
    else:
        found = _table_rows(text, file)
    rows = list(found)
    complete = [row for row in rows if row.image and row.caption]
    if not rows:
        raise ValueError(f"{file} has no captions")
    incomplete = [row.image or row.caption for row in rows if not (row.image and row.caption)]
    _skip(
        incomplete,
        of=len(rows),
        kind=ValueError,
        what="lack a caption or an image, or have more columns than the header (captions with "
        "commas need quotes)",
        where=file,
        things="rows",
    )
    return complete


def _json_rows(text: str, file: Path) -> Iterator[_Row]:
    try:
        content = json.loads(text)
    except ValueError as err:
        raise ValueError(f"{file} is no JSON file: {err}") from err
    try:
        if isinstance(content, dict):
            names = {image["id"]: image["file_name"] for image in content["images"]}
            for each in content["annotations"]:
                yield _Row(names[each["image_id"]], each["caption"].strip())
            return
        for each in content:
            yield _row(each, file)
    except (KeyError, TypeError, AttributeError) as err:
        raise ValueError(
            f"{file} is neither a list of objects with `image` and `caption`, nor COCO's `images` "
            f"and `annotations` ({type(err).__name__}: {err})"
        ) from err


def _token_rows(text: str) -> Iterator[_Row]:
    for line in text.splitlines():
        name, _, caption = line.partition("\t")
        yield _Row(name.partition("#")[0], caption.strip())


def _table_rows(text: str, file: Path) -> Iterator[_Row]:
    header = text.partition("\n")[0]
    separator = max(",;\t|", key=header.count)
    for row in csv.DictReader(text.splitlines(), delimiter=separator, skipinitialspace=True):
        yield _row(row, file)


def _row(fields: dict[str | None, str], file: Path) -> _Row:
    known = {str(name).strip().lower(): value for name, value in fields.items() if name}
    image = next((name for name in IMAGE_COLUMNS if name in known), None)
    caption = next((name for name in CAPTION_COLUMNS if name in known), None)
    if image is None or caption is None:
        raise ValueError(
            f"{file} has {', '.join(known)}; needed are `image` and `caption` "
            f"(or {', '.join(IMAGE_COLUMNS[1:] + CAPTION_COLUMNS[1:])})"
        )
    if None in fields:  # a caption with a comma and without quotes
        return _Row((known[image] or "").strip(), "")
    values = (known[image], known[caption], known.get("label"), known.get("split"))
    return _Row(*((value or "").strip() for value in values))


def _images(rows: list[_Row], file: Path) -> list[CaptionedImage]:
    """Return the images with all their captions, in the order of the file."""
    captions: dict[str, list[str]] = {}
    labels: dict[str, str] = {}
    for row in rows:
        captions.setdefault(row.image, []).append(row.caption)
        labels[row.image] = row.label
    folders = _folders(file)
    places = {
        name: next((path for folder in folders if (path := folder / name).is_file()), None)
        for name in captions
    }
    missing = [name for name, path in places.items() if path is None]
    _skip(missing, of=len(captions), kind=FileNotFoundError, what="do not exist", where=file)
    return [
        CaptionedImage(path, tuple(captions[name]), labels[name])
        for name, path in places.items()
        if path is not None
    ]


def _folders(file: Path) -> list[Path]:
    """Return where the images of a captions file may be."""
    of_split = file.stem.removeprefix("captions_")  # COCO's captions_train2017: train2017
    places = [file.parent / name for name in FOLDERS] + [file.parent.parent / of_split]
    return [place for place in places if place.is_dir()]


def _skip(
    unusable: Iterable[str],
    *,
    of: int,
    kind: type[Exception],
    what: str,
    where: Path,
    things: str = "images",
) -> None:
    """Name what is left out; an error if it is much."""
    names = list(unusable)
    if not names:
        return
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    text = f"{where}: {len(names)} of {of} {things} {what}: {shown}"
    if len(names) > of * MAX_UNUSABLE_SHARE:
        raise kind(f"{text}. Up to one in a hundred would be skipped; repair or remove them.")
    print(f"{text}; skipped")
