"""Arrange emoji as images with captions: drawings by Google to train on, by Twitter to validate.

    npm pack emoji-datasource-google@16.0.0 emoji-datasource-twitter@16.0.0
    python examples/clip/emoji_data.py emoji-datasource-*.tgz --to emoji
    CLIP_DATA=emoji hptune run examples/clip/clip.py

Both packages have some 1,900 emoji as images of 64x64 pixels, with names, and 99 subcategories that
serve as classes. The licences are Apache 2.0 (Google's Noto) and CC BY 4.0 (Twitter's Twemoji).
"""

import argparse
import csv
import json
import sys
import tarfile
from pathlib import Path

VALIDATION = "twitter"
"""The style to validate with; every other one is trained on."""


def arrange(packages: list[Path], folder: Path) -> int:
    """Write the images and `captions.csv`; return the number of images.

    Raises:
        ValueError: A file is none of the packages, or both styles are not there.
    """
    rows = []
    for package in packages:
        try:
            rows += _unpack(package, folder)
        except (OSError, tarfile.TarError, KeyError) as err:
            raise ValueError(
                f"{package} is not a package emoji-datasource-google or -twitter: {err}"
            ) from err
    if len({row[3] for row in rows}) < 2:
        raise ValueError(f"needed are the package of {VALIDATION} and one of another style")
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "caption", "label", "split"), *rows])
    return len({row[0] for row in rows})


def _unpack(package: Path, folder: Path) -> list[tuple[str, str, str, str]]:
    with tarfile.open(package) as archive:
        about = archive.extractfile("package/package.json")
        listed = archive.extractfile("package/emoji.json")
        assert about is not None
        assert listed is not None
        style = json.load(about)["name"].rpartition("-")[2]
        emoji = {each["image"]: each for each in json.load(listed)}
        rows = []
        (folder / style).mkdir(parents=True, exist_ok=True)
        prefix = f"package/img/{style}/64/"
        for member in archive:
            name = member.name.removeprefix(prefix)
            content = archive.extractfile(member) if name in emoji else None
            if content is None:
                continue
            (folder / style / name).write_bytes(content.read())
            split = "val" if style == VALIDATION else "train"
            label = emoji[name]["subcategory"].replace("-", " ").replace("&", "and")
            text = str(emoji[name]["name"]).replace("-", " ").lower()
            rows.append((f"{style}/{name}", text, label, split))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="+", type=Path, metavar="PACKAGE.tgz")
    parser.add_argument("--to", type=Path, default=Path("emoji"), metavar="DIR")
    arguments = parser.parse_args()
    try:
        number = arrange(arguments.packages, arguments.to)
    except ValueError as err:
        print(f"Error: {err}", file=sys.stderr)
        return 1
    print(f"{number} images in {arguments.to}; now: CLIP_DATA={arguments.to} hptune run …")
    return 0


if __name__ == "__main__":
    sys.exit(main())
