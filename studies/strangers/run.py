"""Networks that others trained and published, for README.md.

``python -m studies.strangers.run CHECKPOINTS --out networks``

CHECKPOINTS has a clone of each repository, at its commit: ``CHECKPOINTS/akamaster/pytorch_resnet_cifar10``, and so on;
what is missing is said. Files that differ from those of the study are refused, the others are written as safetensors,
which ``studies/layers/run.py`` scores. Keras files are read with h5py, which is no dependency of pnml.
"""

from __future__ import annotations

import argparse
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pnml.backend.files import atomic_path
from pnml_bench.zoo import Normalise
from pnml_bench.zoo.network import IMAGENET, Channels
from studies.strangers.networks import dense, files, mobile, plain, quantised, resnets, sequence, tokens

if TYPE_CHECKING:
    from collections.abc import Callable

Scale = tuple[Channels, Channels]

CIFAR10: Scale = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CIFAR10_PIXELS: Scale = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))  # the deviation of all pixels
CIFAR100: Scale = ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
HALF: Scale = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
UNIT: Scale = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
TO_255: Scale = ((0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255))


class Published(NamedTuple):
    """A published network.

    Attributes:
        ind: the set that it was trained on.
        architecture: in words.
        create: returns it without its weights.
        layers: reads its weights.
        scale: mean and standard deviation of the channels that it was trained with, for images from 0 to 1.
        repository: on GitHub.
        commit: of the repository.
        file: in the repository.
        digest: SHA-256 of the file.
    """

    ind: str
    architecture: str
    create: Callable[[], nn.Module]
    layers: Callable[[Path], files.Layers]
    scale: Scale
    repository: str
    commit: str
    file: str
    digest: str


# fmt: off
NETWORKS = {
    "akamaster_resnet56": Published("cifar10", "ResNet", resnets.akamaster, files.pytorch, IMAGENET,
        "akamaster/pytorch_resnet_cifar10", "d5489e8995e81e91ce6b1d69dcc98ad579b0b153",
        "pretrained_models/resnet56-4bfd9763.th",
        "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367"),
    "alibaba_nas": Published("cifar10", "searched mobile network", mobile.alibaba, files.onnx, IMAGENET,  # not stated
        "hls4ml-finn-mlperftiny/tiny_results_v0.7", "691f8b26aa9dffa09b1761645d4a35ad35a4f095",
        "open/Alibaba/code/ic/sinian/ic_model/model_ic.onnx",
        "0522783e96e6858e527120a94559094a5213f4cb732c324cb26d1c533b6184a6"),
    "apot_resnet20_2bit": Published("cifar10", "quantised ResNet", quantised.apot, files.apot,
        ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
        "yhhhli/APoT_Quantization", "13204f12ef84d98f3b24188201f2538c62c2eec8",
        "CIFAR10/result/res20_2bit/model_best.pth.tar",
        "d2dc978da7dc93cb6e90edc59035ac181921aef9d93598f884d325986a3e7cd2"),
    "cct-c10-nik212": Published("cifar10", "CCT", tokens.CCT, files.pytorch, CIFAR10_PIXELS,
        "Nik212/Compact-Convolutional-Transformer", "0c9b30d9bf536b3a132754092231bcef8e4fec99",
        "model_checkpoint84_59.pt",
        "f37e370fffe823a4a3f7d817fe06467f8cf4837875a1a89babb8276965cf524c"),
    "chenhang_shufflenet": Published("cifar10", "ShuffleNet", mobile.chenhang, files.pytorch,
        ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
        "chenhang98/shuffleNet-cifar10", "8fa8f8286836c8bb0063274e7e55eb6e51fc671d",
        "bak/weights_05g3.pkl",
        "6fa8e5dbb3813364795de489c05fbaabfc36389ebf7867553e5ae190d2be547d"),
    "cleffa_vgg_gap": Published("cifar10", "VGG", plain.cleffa, files.pytorch, HALF,
        "Cleffa-00/pytorch-cnn-mnist-cifar10", "2c1342754291cff967f6fe49be9b60a64b980d2a",
        "checkpoints/cifar10_best.pth",
        "0b6971f23515a94e1a3ea1921d10c9b5d33cb4eedb1abb97782226cb4f09eafc"),
    "cnn-svhn-agrima-de": Published("svhn", "plain CNN", partial(plain.agrima, 32, 64), files.pytorch, HALF,
        "AgrimaKhanna/uncertainty_SVHN", "be57825a9bc0bd9036eec9a36ae39c2c40354e41",
        "src_deep_ensemble/models/svhn_model_4000_samples_de_1.pth",
        "e8806e5918fe6ce6c9ba541e326056071634c0180b7f234918555b6e1f9ed309"),
    "cnn-svhn-agrima-mcdo": Published("svhn", "plain CNN", partial(plain.agrima, 16, 256), files.pytorch, HALF,
        "AgrimaKhanna/uncertainty_SVHN", "be57825a9bc0bd9036eec9a36ae39c2c40354e41",
        "src_MCDO/models/svhn_model_4000_samples_mcdo.pth",
        "c9cfa68a1ed37c8963bb140847101a50cc5284b49a92861d5e66711cf7d20188"),
    "eric_densenet_bc": Published("cifar10", "DenseNet", dense.eric, files.pytorch, CIFAR10,
        "Ericsciencer/DenseNet", "b741c7ad4ac15b59ea659b9764ac6bbd39a70940",
        "densenet_cifar10.pth",
        "070c7c48544561409a2d764fca7200a7834389740f47c5d40d7483436b59bbb6"),
    "faiz_squeezenet10": Published("cifar10", "SqueezeNet", mobile.faiz, files.pytorch, CIFAR10,
        "faizaladin/511finalproject", "0062daeb182fc1f8c5c9380c23647d1fe44f74d8",
        "squeezenet_cifar10.pth",
        "44a4f4e1e8f591bd0dd60855966eb60eb13ae31f7423a558b1b9f3d7b69eb101"),
    "gasoonjia_sepresnet110": Published("cifar10", "separable ResNet", resnets.gasoonjia, files.pytorch, CIFAR10,
        "Gasoonjia/pytorch-cifar", "6236391a6d15f6dcd89df6013df7efdd84fdcfb3",
        "ckpts/0704_190615/best.pth",
        "73a8ef5a5fd8bd9c0da6905384506518cc69682a33fc9ad862a55a8c00b41d46"),
    "hls4ml_rn07_quant": Published("cifar10", "quantised CNN", quantised.hls4ml, files.hls4ml,
        ((0.0, 0.0, 0.0), (256 / 255, 256 / 255, 256 / 255)),  # pixels through 256
        "hls4ml-finn-mlperftiny/tiny_results_v0.7", "691f8b26aa9dffa09b1761645d4a35ad35a4f095",
        "open/hls4ml-finn/code/ic/RN07/training/trained_model/model_best.h5",
        "98851d129a00c710ca281ba87186714a88887d27688080c9b716b313e537d758"),
    "ian_dwsep": Published("cifar10", "depthwise separable", plain.ian, files.pytorch, HALF,
        "ianwolf99/CIFAR10-model-contest", "1d983a931a4a9af3c8f574bc62ca9528705dff65",
        "cifar10_light_model.pth",
        "cc66316dc514574b0e1ddb6de38c2477ff5f098ebe9772b8d15572473cd9053c"),
    "kgrabias_vgg": Published("cifar10", "VGG", plain.kgrabias, files.pytorch, UNIT,
        "kgrabias/CIFAR", "4d38e7a1a08d0b9d73d01e603b4f4783548c2ca6",
        "models10/best10.pth",
        "23fb2a1ce626be89e6d10ee0964d0c4e44445023cfaee311da5e2ad539788732"),
    "kuan_stridedcnn": Published("cifar10", "strided CNN", plain.kuan, files.pytorch, UNIT,
        "kuanhenglin/ai-security-workshop", "f08ced8a4afb7de1120bfdbf468888c7be10fdd8",
        "cifar10_model.pth",
        "1ce08b62f04b56b52247b2ceebb9d564f3b8dfe86927bd11bb13159a0478af93"),
    "lenet-svhn-dasomeom": Published("svhn", "LeNet", plain.dasomeom, files.pytorch, HALF,
        "dasomeom/Computer-Vision-Project", "d411e935a910700ef9633666d9aed041efdc441d",
        "svhn_nn/svhn_net_2.pth",
        "b514f65f78b38ce975adb05151d1b16c05b65efd796c07f06060c6a4b213bdcc"),
    "lmfrnet": Published("cifar10", "LMFRNet", dense.lmfrnet, files.lmfrnet, CIFAR10,
        "santosantonio1/lmfrnet-utils", "4e0241cd82cc67ebabbe5d31060768553c366034",
        "checkpoint/ckpt.pth",
        "6ae138396dcfb77153f45248e3907b674b56d3af66043b3fb4e8447c47376bee"),
    "mbconv-c100-osiai": Published("cifar100", "MBConv-SE", mobile.osi_ai, files.osi_ai, CIFAR100,
        "Lee-Gihun/MicroNet_OSI-AI", "fb0163a758a4d760578ecaba21ba3b91caf321f3",
        "results/trained_models/baseline_iterative_sparsity_64.00_early_exit_iterative_sparsity_50.00/"
        "trained_model.pth",
        "02eb0be65eab091b8720a0d362265afedcd7ab73a75456ae9a891e81a8d113ac"),
    "mlperf_resnet8": Published("cifar10", "ResNet", resnets.mlperf, files.keras, TO_255,
        "mlcommons/tiny", "1afd2c9820f795965a6134facd0b4dfae41ef23f",
        "benchmark/training/image_classification/trained_models/pretrainedResnet.h5",
        "5f938a8eea605438cc7360aa13c987bc6d7bd0c8d931b2917361ae7ae4eeda2f"),
    "mobilevit-c10-suyog": Published("cifar10", "MobileViT", tokens.suyog, files.pytorch, HALF,
        "Suyog-16/vit-classifier", "69607e68d0e0fe0d363cabb41bb602994f0012e4",
        "checkpoints/model_vit.pth",
        "f53ae267ec5a6fc3e6a4da50185a7333fbf0580677d7c281acf2ae984ac78dbe"),
    "resnet20-c100-rohan": Published("cifar100", "ResNet", resnets.rohan, files.pytorch, CIFAR100,
        "rohan-imtiaz/AI600-Project", "37be820fe179095c99bc4806706935d6232db648",
        "checkpoints/student_fitnet.pth",
        "62240566f504bddb1a3209bd5ee250c559f3a6276509774b14ad5d5e297081a7"),
    "resnet32-c100-stm": Published("cifar100", "ResNet", resnets.stm, files.keras, UNIT,
        "STMicroelectronics/stm32ai-modelzoo", "1423c78953a830903485135febe1dd98ff31aed8",
        "image_classification/resnet/ST_pretrainedmodel_public_dataset/cifar100/resnet32_32_tfs/resnet32_32_tfs.keras",
        "e3456fcdbd1e022fb7ab402fdd71d4cb9d6f8ca8ca2b91ec269bfd0927ee764e"),
    "resnet56-c100-020118": Published("cifar100", "ResNet", resnets.of_020118, files.pytorch, CIFAR100,
        "020118/resnet_cifar100-", "88e96b4aee3d5ff856b06dd3121f843339691991",
        "resnet56.pth",
        "003ab840c90fed49e71fd1fca6167598a57c3b62d34afa00ceaebe1aba5a535b"),
    "s4d-c10-chord": Published("cifar10", "S4D", sequence.S4D, files.pytorch, CIFAR10,
        "Chord-Chen-30/Efficient-Seq-Modeling", "5894b1c9f37e00950070993feff804856784fca4",
        "checkpoint/ckpt.pth",
        "ba7a00b547e079c08305ba1f7d34db25913d8bfac225a8c0f0fa845af32b6f69"),
    "titu_densenet_fast": Published("cifar10", "DenseNet", dense.titu, files.theano, TO_255,
        "titu1994/DenseNet", "516c2a4c7e8f92e1ea299e966215c2ffe4c5b980",
        "weights/DenseNet-Fast-40-12-CIFAR10.h5",
        "2d90d4c088b856ff91be8f392695a2572f0f45f1620840e36cf63e3a23624d63"),
    "titu_mobilenetv2": Published("cifar10", "MobileNetV2", mobile.titu, files.keras,
        ((0.4913996, 0.4821584, 0.4465309), (0.4913996, 0.4821584, 0.4465309)),  # divided by the mean
        "titu1994/keras-one-cycle", "06c202996d71491e624ddef53a57858152e93564",
        "models/mobilenet/weights/mobilenet_v2 - 9033.h5",
        "ca6f759c151b5aa9ab07bdfc9beb75f55375475de2af467c701bed2c43a5e5c3"),
    "vit-c10-sachin": Published("cifar10", "ViT", tokens.sachin, files.pytorch, CIFAR10_PIXELS,
        "Sachinxmpl/vision_transformer_from_scratch", "5891dbee5a54d915361f7026ddae0ee988a0309d",
        "best_vit_cifar10.pth",
        "c615afc1a0baec0ca0da44824e97f95630b8f411bdbe6eb4422e40e486740720"),
    "vit-c10-smmk47": Published("cifar10", "ViT", tokens.smmk47, files.pytorch, CIFAR10,
        "smmk47/CIFAR10-Classification", "6c007b768182cfef9ab455221b360968c36046bd",
        "vit_cifar10.pth",
        "2d061eb158b8ea126c1b96ee657862bf2217696ed40fff3bdc424007d13f1397"),
}
# fmt: on


class Stranger(nn.Module):
    """A network of others, and how it wants its images normalised."""

    def __init__(self, network: nn.Module, scale: Scale) -> None:
        super().__init__()
        self.network = network
        self.normalise = Normalise(*scale)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits


def is_stranger(path: Path) -> bool:
    """Return whether a file has the name of a network that :func:`write` wrote."""
    return path.suffix == ".safetensors" and path.stem in NETWORKS


def read(path: Path) -> tuple[Stranger, str]:
    """Return the network that :func:`write` wrote into a file, and the name of its training set."""
    published = NETWORKS[path.stem]
    network = published.create()
    network.load_state_dict(load_file(path))
    return Stranger(network, published.scale), published.ind


def write(name: str, source: Path, target: Path) -> None:
    """Write the network of a published file as safetensors; raise ``ValueError`` for another file."""
    published = NETWORKS[name]
    digest = sha256(source.read_bytes()).hexdigest()
    if digest != published.digest:
        raise ValueError(f"expected {source} at commit {published.commit}, SHA-256 {published.digest}, got {digest}")
    network = published.create()
    files.fill(network, published.layers(source))
    with atomic_path(target) as fresh:
        save_file(network.state_dict(), fresh, metadata={"sha256": digest})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoints", type=Path, help="a folder of clones, by owner and name")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    missing = {}
    for name, published in NETWORKS.items():
        clone = args.checkpoints / published.repository
        if (clone / published.file).exists():
            write(name, clone / published.file, args.out / f"{name}.safetensors")
        else:
            url = f"https://github.com/{published.repository}"
            missing[name] = f"git clone {url} {clone}; git -C {clone} checkout {published.commit}"
    if missing:
        raise SystemExit("\n".join(["missing are " + ", ".join(missing), *dict.fromkeys(missing.values())]))


if __name__ == "__main__":
    main()
