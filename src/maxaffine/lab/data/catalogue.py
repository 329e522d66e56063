"""What is known of the published data sets: files, sizes, checksums, addresses.

`content` is the SHA-256 of a file as unpacked, so that plain, .gz, .xz and archived copies are all recognised; a `Download`
carries the checksum that its publisher states for the packed file.
"""

from dataclasses import dataclass

from maxaffine.core.errors import BadInput


@dataclass(frozen=True)
class Download:
    """A file on its publisher's server."""

    name: str
    url: str
    bytes: int
    md5: str


@dataclass(frozen=True)
class DataSet:
    """A data set: what it is called, the files it consists of, in reading order, and where they come from."""

    name: str
    title: str
    kind: str  # "idx" or "cifar"
    shape: tuple[int, int, int]  # height, width, channels
    train: int
    test: int
    content: dict[str, str]  # file as unpacked: SHA-256
    downloads: tuple[Download, ...]
    archive: str | None  # name of the archive that holds all files


TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
CIFAR_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
CIFAR_TEST = "test_batch.bin"


def _idx(base: str, files: dict[str, tuple[int, str]]) -> tuple[Download, ...]:
    return tuple(Download(f"{name}.gz", f"{base}/{name}.gz", size, md5) for name, (size, md5) in files.items())


MNIST = DataSet(
    "mnist",
    "MNIST",
    "idx",
    (28, 28, 1),
    60_000,
    10_000,
    {
        TRAIN_IMAGES: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        TRAIN_LABELS: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        TEST_IMAGES: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        TEST_LABELS: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
    _idx(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        {
            TRAIN_IMAGES: (9_912_422, "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
            TRAIN_LABELS: (28_881, "d53e105ee54ea40749a09fcbcd1e9432"),
            TEST_IMAGES: (1_648_877, "9fb629c4189551a2d022fa330f9573f3"),
            TEST_LABELS: (4_542, "ec29112dd5afa0611ce80d1b7f02629c"),
        },
    ),
    None,
)

FASHION = DataSet(
    "fashion-mnist",
    "Fashion-MNIST",
    "idx",
    (28, 28, 1),
    60_000,
    10_000,
    {
        TRAIN_IMAGES: "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        TRAIN_LABELS: "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        TEST_IMAGES: "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        TEST_LABELS: "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    _idx(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        {
            TRAIN_IMAGES: (26_421_880, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            TRAIN_LABELS: (29_515, "25c81989df183df01b3e8a0aad5dffbe"),
            TEST_IMAGES: (4_422_102, "bef4ecab320f06d8554ea6380940ec79"),
            TEST_LABELS: (5_148, "bb300cfdad3c16e7a12a480ee83cd310"),
        },
    ),
    None,
)

CIFAR10 = DataSet(
    "cifar10",
    "CIFAR-10",
    "cifar",
    (32, 32, 3),
    50_000,
    10_000,
    {
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    (
        Download(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            170_052_171,
            "c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    "cifar-10-binary.tar.gz",
)

DATASETS = {entry.name: entry for entry in (MNIST, FASHION, CIFAR10)}


def dataset(name: str) -> DataSet:
    """The entry of that name."""
    if name not in DATASETS:
        raise BadInput(f"there is no data set {name!r}; there are {', '.join(DATASETS)}.")
    return DATASETS[name]
