"""Display names of models, image sets, methods and metrics."""

from __future__ import annotations

_LABELS = {
    "densenet-bc-100": "DenseNet-BC-100",
    "resnet-20": "ResNet-20",
    "resnet-34": "ResNet-34",
    "wideresnet-40-2": "WideResNet-40-2",
    "resnet-18": "ResNet-18",
    "resnet-18-small": "ResNet-18 (small images)",
    "resnet-101": "ResNet-101",
    "vit-small": "ViT (small)",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "imagenet30": "ImageNet-30",
    "isun": "iSUN",
    "lsun_resize": "LSUN (R)",
    "lsun_crop": "LSUN (C)",
    "tinyimagenet_resize": "TinyImageNet (R)",
    "tinyimagenet_resize_nearest": "TinyImageNet (R, nearest)",
    "tinyimagenet_crop": "TinyImageNet (C)",
    "tinyimagenet": "TinyImageNet",
    "imagenet-others": "ImageNet's other classes",
    "mnist": "MNIST",
    "textures": "Textures",
    "places365": "Places365",
    "uniform": "Uniform",
    "gaussian": "Gaussian",
    "baseline": "Baseline",
    "odin": "ODIN",
    "gram": "Gram",
    "oecc": "OECC",
    "energy": "Energy",
    "auroc": "AUROC",
    "tnr_at_tpr95": "TNR at TPR 95%",
    "detection_accuracy": "Detection accuracy",
}


def label(name: str) -> str:
    """Return the display name of a model, image set, method or metric; return unknown names unchanged.

    >>> label("tinyimagenet_crop"), label("my_photos")
    ('TinyImageNet (C)', 'my_photos')
    """
    return _LABELS.get(name, name)
