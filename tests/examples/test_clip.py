"""examples/clip: the tokenizer, the data it reads or refuses, the losses, and a small training."""

from __future__ import annotations

import importlib
import io
import json
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from child import answer_of
from rank_processes import run_ranks
from requirements import require

CLIP = Path(__file__).parents[2] / "examples" / "clip"


@pytest.fixture(autouse=True)
def _folder_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(CLIP)
    for name in ("CLIP_DATA", "CLIP_VOCABULARY", "CLIP_EPOCHS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clip(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module("clip")
    monkeypatch.setattr(module, "SHAPES_TO_TRAIN", 600)
    monkeypatch.setattr(module, "SHAPES_TO_VALIDATE", 40)
    module.source.cache_clear()
    module.largest_tokenizer.cache_clear()
    return module


def tiny(**values: Any) -> Any:
    import keras_tuner

    hp = keras_tuner.HyperParameters()
    hp.values.update(width=8, text_width=32, text_layers=1, vocabulary=380, **values)
    return hp


class TestTokenizer:
    def test_the_most_frequent_pair_is_merged_first(self) -> None:
        bpe = importlib.import_module("bpe")
        tokenizer = bpe.Tokenizer.train(["aaab aaab", "aab"], 260)
        # " a" and "aa" occur 3 and 5 times in " aaab", " aaab" and " aab"; a byte is itself plus 1.
        assert tokenizer.merges[0] == (ord("a") + 1, ord("a") + 1)
        assert tokenizer.decode(tokenizer.encode("aaab")) == "aaab"
        smaller = bpe.Tokenizer.train(["aaab aaab", "aab"], 258)
        assert tokenizer.with_vocabulary(258).merges == smaller.merges

    def test_any_text_is_encoded_and_decoded(self) -> None:
        bpe = importlib.import_module("bpe")
        tokenizer = bpe.Tokenizer.train(["ein schöner, großer hund"] * 2, 270)
        for text in ("große hunde!", "日本語 🐶", ""):
            assert tokenizer.decode(tokenizer.encode(text)) == text
        rows = tokenizer.encode_all(["hund", "ein großer hund"], 8)
        assert rows.shape == (2, 8)
        assert rows[0, -1] == 0

    def test_a_vocabulary_that_the_text_cannot_fill(self) -> None:
        bpe = importlib.import_module("bpe")
        with pytest.raises(ValueError, match=r"vocabulary of 500 tokens is larger .* 2 different"):
            bpe.Tokenizer.train(["red ring", "red ring"], 500)


def write_images(folder: Path, number: int) -> list[str]:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{index:03}.png" for index in range(number)]
    for index, name in enumerate(names):
        Image.new("RGBA", (20, 30), (index, 0, 0, 255 if index else 0)).save(folder / name)
    return names


class TestReading:
    def test_each_layout(self, tmp_path: Path) -> None:
        read = importlib.import_module("captioned_images").read_captions
        names = write_images(tmp_path / "a" / "Images", 40)
        rows = "".join(f"{name},one {name}\n{name},two {name}\n" for name in names)
        (tmp_path / "a" / "captions.txt").write_text(f"image,caption\n{rows}")
        train, validation = read(tmp_path / "a")
        assert (len(train), len(validation)) == (36, 4)
        assert sorted(image.path.name for image in [*train, *validation]) == names
        assert train[0].captions == (f"one {train[0].path.name}", f"two {train[0].path.name}")

        names = write_images(tmp_path / "b", 4)
        listed = [{"image": n, "caption": "x", "label": "l", "split": "train"} for n in names[:2]]
        listed += [{"image": n, "caption": "y", "split": "test"} for n in names[2:]]
        (tmp_path / "b" / "captions.json").write_text(json.dumps(listed))
        train, validation = read(tmp_path / "b")
        assert [image.path.name for image in train] == names[:2]
        assert [image.label for image in [*train, *validation]] == ["l", "l", "", ""]

        (tmp_path / "c" / "annotations").mkdir(parents=True)
        for split in ("train2017", "val2017"):
            names = write_images(tmp_path / "c" / split, 3)
            images = [{"id": index, "file_name": name} for index, name in enumerate(names)]
            notes = [{"image_id": index, "caption": f"{split} {index}"} for index in range(3)]
            path = tmp_path / "c" / "annotations" / f"captions_{split}.json"
            path.write_text(json.dumps({"images": images, "annotations": notes}))
        train, validation = read(tmp_path / "c")
        assert train[2].captions == ("train2017 2",)
        assert validation[2].path == tmp_path / "c" / "val2017" / "002.png"

        names = write_images(tmp_path / "d" / "Flicker8k_Dataset", 20)
        lines = "".join(f"{name}#{index}\ta dog\n" for name in names for index in range(5))
        (tmp_path / "d" / "Flickr8k.token.txt").write_text(lines)
        assert len(read(tmp_path / "d")[0][0].captions) == 5

    def test_pixels_and_what_is_skipped(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        reader = importlib.import_module("captioned_images")
        names = write_images(tmp_path, 120)
        (tmp_path / names[5]).write_bytes(b"no image")
        listed = [reader.CaptionedImage(tmp_path / name, ("x",)) for name in names]
        pixels, images = reader.read_images(listed, 16)
        assert pixels.shape == (119, 16, 16, 3)
        assert pixels[0].min() == 255  # transparent
        assert (pixels[5] == [6, 0, 0]).all()
        assert names[5] not in {image.path.name for image in images}
        assert (
            "1 of 120 images cannot be read: 005.png (UnidentifiedImageE" in capsys.readouterr()[0]
        )
        (tmp_path / names[7]).write_bytes((tmp_path / names[7]).read_bytes()[:40])
        with pytest.raises(ValueError, match=r"2 of 120 images cannot be read: 005.png .*007.png"):
            reader.read_images(listed, 16)

    def test_what_is_refused(self, tmp_path: Path) -> None:
        read = importlib.import_module("captioned_images").read_captions
        with pytest.raises(FileNotFoundError, match="does not exist; it must be a folder or a cap"):
            read(tmp_path / "nowhere")
        with pytest.raises(FileNotFoundError, match=r"has no captions file; it may be called capt"):
            read(tmp_path)
        names = write_images(tmp_path, 30)
        file = tmp_path / "captions.csv"
        cases = [
            (
                "image,caption\n" + "".join(f"{n},x\n" for n in [*names, "gone.png"]),
                r"1 of 31 images do not exist: gone.png",
            ),
            ("image,caption\n", "has no captions"),
            ("path,words\n1,2\n", "has path, words; needed are `image` and `caption`"),
            (
                "image,caption\n" + "".join(f"{n},\n" for n in names[1:]) + f"{names[0]},x\n",
                r"29 of 30 rows lack a caption or an image, .*: 001.png, 002.png, 003.png and 26",
            ),
            (
                "image,caption\n" + "".join(f"{n},a ring, red\n" for n in names),
                "30 of 30 rows .* or have more columns than the header .captions with commas need",
            ),
            (f"image,caption,split\n{names[0]},x,training\n", "has the split 'training'; allowed"),
            (f"image,caption\n{names[0]},x\n", "leaves 0 images to train on; at least 2"),
        ]
        for text, message in cases:
            file.write_text(text)
            with pytest.raises((ValueError, FileNotFoundError), match=message):
                read(tmp_path)
        with pytest.raises(
            ValueError, match=r"000.png is no text in UTF-8 .* needed is a captions f"
        ):
            read(tmp_path / names[0])
        for content, message in [("[", "is no JSON file"), ('{"images": []}', "is neither a list")]:
            path = tmp_path / "other.json"
            path.write_text(content)
            with pytest.raises(ValueError, match=message):
                read(path)

    def test_emoji_of_two_styles(self, tmp_path: Path) -> None:
        emoji = importlib.import_module("emoji_data")
        write_images(tmp_path, 1)
        about = [{"image": "1f600.png", "name": "GRINNING FACE", "subcategory": "face-smiling"}]
        packages = []
        for style in ("google", "twitter"):
            packages.append(tmp_path / f"{style}.tgz")
            name = {"name": f"emoji-datasource-{style}"}
            contents = {
                "package.json": json.dumps(name).encode(),
                "emoji.json": json.dumps(about).encode(),
                f"img/{style}/64/1f600.png": (tmp_path / "000.png").read_bytes(),
                f"img/{style}/64/other.png": b"",
            }
            with tarfile.open(packages[-1], "w:gz") as archive:
                for path, content in contents.items():
                    member = tarfile.TarInfo(f"package/{path}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
        assert emoji.arrange(packages, tmp_path / "emoji") == 2
        lines = (tmp_path / "emoji" / "captions.csv").read_text().splitlines()
        assert lines[1:] == [
            "google/1f600.png,grinning face,face smiling,train",
            "twitter/1f600.png,grinning face,face smiling,val",
        ]
        with pytest.raises(
            ValueError, match="needed are the package of twitter and one of another"
        ):
            emoji.arrange(packages[:1], tmp_path / "one")
        with pytest.raises(ValueError, match="is not a package emoji-datasource-google or"):
            emoji.arrange([tmp_path / "000.png"], tmp_path / "none")


def test_the_shapes_hold_out_pairs_of_shape_and_colour() -> None:
    shapes = importlib.import_module("shapes")
    images, pictures = shapes.draw_pictures(300, validation=False)
    assert not any(picture.is_held_out for picture in pictures)
    again, _ = shapes.draw_pictures(300, validation=False)
    assert (again == images).all()
    _, validation = shapes.draw_pictures(200, validation=True)
    assert len(set(validation)) == 200
    assert sum(picture.is_held_out for picture in validation) == 50


class TestLosses:
    def test_they_are_those_of_their_papers(self) -> None:
        network = importlib.import_module("clip_network")
        logits = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")

        def cross_entropy(rows: Any) -> float:
            return float(
                -np.mean([np.log(np.exp(row)[i] / np.exp(row).sum()) for i, row in enumerate(rows)])
            )

        softmax = (cross_entropy(logits) + cross_entropy(logits.T)) / 2
        assert float(network.softmax_loss(logits)) == pytest.approx(softmax, rel=1e-5)
        signs = 2 * np.eye(4) - 1
        sigmoid = np.log1p(np.exp(-signs * logits)).sum() / 4
        assert float(network.sigmoid_loss(logits)) == pytest.approx(sigmoid, rel=1e-5)

    def test_recall_at_1_and_5_with_several_texts_of_an_image(self, clip: ModuleType) -> None:
        texts = np.eye(7)[[0, 1, 1, 2, 3, 4, 5, 0]]
        owner = np.array([0, 0, 1, 2, 3, 4, 5, 6])
        found = clip.recalls(np.eye(7), texts, owner)
        # Image 0 has two texts, of which one is nearest to it, but so is that of image 6.
        assert found["recall_1_text"] == pytest.approx(4 / 7)
        assert found["recall_1_image"] == pytest.approx(6 / 8)
        assert found["recall_5_image"] == pytest.approx(6 / 8)


class TestTraining:
    # TensorFlow's arrays do not know NumPy 2's `copy`.
    @pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
    @pytest.mark.parametrize(
        ("loss", "encoder"),
        [("softmax", "resnet"), pytest.param("sigmoid", "vit", marks=pytest.mark.slow)],
    )
    def test_it_learns_and_is_saved_whole(
        self, clip: ModuleType, tmp_path: Path, loss: str, encoder: str
    ) -> None:
        keras = importlib.import_module("keras")
        keras.utils.set_random_seed(0)
        hp = tiny(loss=loss, image_encoder=encoder, batch_size=64, learning_rate=3e-3)
        train, validation = clip.load_data(hp)
        model = clip.build_model(hp)
        undecayed = [
            v.name for v in model.trainable_variables if not model.optimizer._use_weight_decay(v)
        ]
        assert undecayed.count("log_scale") == 1
        assert {"gamma", "beta", "bias"} <= set(undecayed)
        assert "kernel" not in undecayed
        assert hp.get("data") == "shapes"
        history = clip.fit(hp, model, (train, validation), [], 2).history
        assert history["loss"][1] < history["loss"][0]
        names = {"recall_1", "recall_5", "recall_1_text", "recall_5_image", "zero_shot"}
        assert {f"val_{name}" for name in names} <= set(history)
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        found = clip.evaluate(again, validation)
        assert found["recall_5"] == pytest.approx(history["val_recall_5"][-1])

    def test_the_last_batch_is_filled(self, clip: ModuleType) -> None:
        train = {"image": np.arange(10), "text": np.arange(10) * 2}
        found = clip.filled(train, 4)
        assert found["image"][:10].tolist() == list(range(10))
        assert len(set(found["image"][10:])) == 2
        assert (found["text"] == 2 * found["image"]).all()
        assert clip.filled(train, 5)["image"].tolist() == list(range(10))

    def test_what_the_variables_ask_for_is_refused(
        self, clip: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = write_images(tmp_path, 20)
        rows = "".join(f"{name},a red thing\n" for name in names)
        (tmp_path / "captions.csv").write_text(f"image,caption\n{rows}")
        monkeypatch.setenv("CLIP_DATA", str(tmp_path))
        for given, message in [
            ("many", "CLIP_VOCABULARY is 'many'; needed are numbers such as 512,1024"),
            ("100", "CLIP_VOCABULARY has 100; the least is 257"),
            ("260,400", "CLIP_VOCABULARY: a vocabulary of 400 tokens .* that number or fewer"),
        ]:
            monkeypatch.setenv("CLIP_VOCABULARY", given)
            clip.source.cache_clear()
            with pytest.raises(ValueError, match=message):
                clip.load_data(tiny(image_size=32))


def test_the_picture_of_what_was_found(clip: ModuleType, tmp_path: Path) -> None:
    require("matplotlib")
    images, described = clip.read_part(32, validation=True)
    importlib.import_module("show").draw(
        curves={"recall_1": {0: [(1, 0.1), (2, 0.4)], 1: [(1, 0.2)]}, "zero_shot": {}},
        best=0,
        chance=None,
        images=images,
        described=described,
        products=np.eye(len(images)),
        owner=np.arange(len(images)),
        output=tmp_path / "picture.png",
    )
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


TWO_DEVICES = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, keras, keras_tuner
import numpy as np
import clip

clip.SHAPES_TO_TRAIN, clip.SHAPES_TO_VALIDATE = 600, 8
hp = keras_tuner.HyperParameters()
hp.values.update(width=8, text_width=32, text_layers=1, vocabulary=380, augmentation=0.0,
                 loss=sys.argv[1], batch_size=32, learning_rate=1e-3)
train, _ = clip.load_data(hp)
train = {"image": train["image"][:32], "text": train["text"][:32, :1]}


def trained(devices):
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    keras.utils.set_random_seed(0)
    model = clip.build_model(hp)
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(1.0))  # the step is the gradient
    model.fit(train, batch_size=32, shuffle=False, verbose=0)
    return [each - start for each, start in zip(model.get_weights(), before)]


one, two = (trained(jax.devices()[:n]) for n in (1, 2))
largest = max(np.abs(each).max() for each in one)
print([float(largest), float(max(np.abs(a - b).max() for a, b in zip(one, two)))])
"""


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_two_devices_learn_what_one_does(loss: str) -> None:
    require("jax")
    largest, difference = answer_of(TWO_DEVICES, loss, KERAS_BACKEND="jax", PYTHONPATH=str(CLIP))
    assert largest > 0.01
    assert difference < 1e-5


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", ["torch", "tensorflow", "jax"])
def test_two_processes_learn_what_one_does(backend: str) -> None:
    require(backend)
    environment = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"}
    one, *two = (
        gradients
        for size in (1, 2)
        for gradients in run_ranks(
            size,
            "clip_ranks:gradients",
            ["softmax", "sigmoid"],
            environment=environment,
            timeout_seconds=400,
        )
    )
    for found in two:
        for loss, expected in one.items():
            assert max(np.abs(each).max() for each in expected) > 0.01
            for own, other in zip(found[loss], expected, strict=True):
                np.testing.assert_allclose(own, other, atol=1e-5)
