"""The last layer of a classifier: found by what it puts out and what the model answers, or declared; read in a pass."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.backend.arrays import is_traced
from pnml.pytorch.contract import EMBED, READINGS, Head
from pnml.pytorch.models import copied, eager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pnml.core.detector import Task
    from pnml.pytorch.trace import Call, Trace

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_ROUNDING = 1e-4  # of the largest number, in float32 and better
_RULED_OUT = -1e4  # logits of classes that a model does not allow

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "": lambda z: z,
    "softmax": lambda z: z.softmax(dim=-1),
    "log_softmax": lambda z: z.log_softmax(dim=-1),
    "sigmoid": torch.sigmoid,
}
"""What may follow the logits, by name, the plain one first."""


class HeadNotFoundError(ValueError):
    """No linear layer is known to put out what the model answers."""


class HeadWarning(UserWarning):
    """The model's answer is not the logits of its classes: what is taken for them is said."""


class Affine(NamedTuple):
    """A map from embeddings (n, M) to logits (n, C): weight (C, M) and bias (C,)."""

    weight: Tensor
    bias: Tensor


class Rows(NamedTuple):
    """What a head was given and gave."""

    embeddings: Tensor  # (n, M)
    logits: Tensor  # (n, C)
    places: tuple[int, ...] | None = None  # (samples, T) or (samples, H, W) where each has an answer


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return every linear layer by its name in the model."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def own_affine(layer: nn.Module) -> Affine | None:
    """Return the weight (C, M) and the bias (C,) of a linear layer or a convolution, zeros if it has none."""
    if not isinstance(layer, (nn.Linear, *_CONVOLUTIONS)) or not isinstance(layer.weight, Tensor):
        return None
    return _affine(layer.weight.flatten(1), layer.bias)


def _affine(weight: Tensor, bias: Tensor | None) -> Affine:
    """Return a weight and a bias, zeros if there is none, without gradients."""
    return Affine(weight.detach(), weight.new_zeros(len(weight)) if bias is None else bias.detach())


@torch.no_grad()
def probed_affine(layer: nn.Module) -> Affine | None:
    """Return the affine map that agrees with a layer, in eval mode, on all unit vectors; None if it takes no rows."""
    widths = (getattr(part, "in_features", None) for part in layer.modules())
    width = next((width for width in widths if isinstance(width, int)), None)
    like = next((p for p in layer.parameters() if p.is_floating_point()), torch.empty(0))
    if width is None:
        return None
    units = torch.eye(width, dtype=like.dtype, device=like.device)
    try:
        bias = layer(torch.zeros_like(units[:1])).double()
        weight = layer(units).double() - bias
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):  # it takes something else
        return None
    return Affine(weight.T, bias[0]) if weight.ndim == 2 else None


def affine_of(layer: nn.Module, x: Tensor, z: Tensor) -> tuple[Affine, bool] | None:
    """Return the affine map of a layer, and whether it was probed; None if the layer is not affine on these rows."""
    x = x.flatten(0, 1)
    z = z.flatten(0, 1)
    own = own_affine(layer)
    if own is not None and _maps(own, x, z):
        return own, False
    if isinstance(layer, _CONVOLUTIONS):
        return None
    probed = probed_affine(layer)
    return (probed, True) if probed is not None and _maps(probed, x, z) else None


def _maps(affine: Affine, x: Tensor, z: Tensor) -> bool:
    """Return whether an affine map gives z for x, on some rows and but for rounding."""
    weight, bias = (part.to(x.device, torch.float32) for part in affine)
    if weight.shape != (z.shape[1], x.shape[1]):
        return False
    with torch.autocast(x.device.type, enabled=False):
        plain = nn.functional.linear(x[:64].float(), weight, bias)
    finite = z[:64].isfinite() & plain.isfinite()
    apart = torch.where(finite, (plain - z[:64].float()).abs(), 0)
    share = 0.005 if z.dtype in {torch.float32, torch.float64} else 0.03
    tolerance = share * torch.where(finite, plain.abs(), 0).max()
    return bool((apart <= tolerance).all())


def with_zero_class(affine: Affine) -> Affine:
    """Return an affine map with one more class in front, whose logit is always 0.

    >>> with_zero_class(Affine(torch.ones(1, 3), torch.ones(1))).weight
    tensor([[0., 0., 0.],
            [1., 1., 1.]])
    """
    weight, bias = affine
    return Affine(torch.cat([torch.zeros_like(weight[:1]), weight]), torch.cat([torch.zeros_like(bias[:1]), bias]))


def as_places(layer: nn.Module, entered: Tensor, output: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return what entered a layer and what it put out, (n, places, M) and (n, places, C); None where it mixes places.

    Places are tokens or pixels. A convolution with a kernel of one pixel is linear in each, and so is one whose kernel
    is as large as the picture, in the flattened picture.

    >>> x, z = as_places(nn.Conv2d(3, 5, 1), torch.zeros(2, 3, 4, 4), torch.zeros(2, 5, 4, 4))
    >>> x.shape, z.shape
    (torch.Size([2, 16, 3]), torch.Size([2, 16, 5]))
    """
    if entered.ndim < 2 or output.ndim != entered.ndim:
        return None
    if isinstance(layer, _CONVOLUTIONS):
        is_padded = layer.padding not in {"valid", (0,) * len(layer.kernel_size)}
        if layer.groups != 1 or is_padded:
            return None
        if {*layer.kernel_size, *layer.stride} == {1}:
            return entered.flatten(2).transpose(1, 2), output.flatten(2).transpose(1, 2)
        is_whole = layer.kernel_size == tuple(entered.shape[2:]) and set(layer.dilation) == {1}
        return (entered.flatten(1)[:, None], output.flatten(1)[:, None]) if is_whole else None
    if entered.shape[:-1] != output.shape[:-1]:
        return None
    shape = (entered.shape[0], math.prod(entered.shape[1:-1]))  # a -1 would not do for no samples
    return entered.reshape(*shape, entered.shape[-1]), output.reshape(*shape, output.shape[-1])


def find_head(
    trace: Trace,
    answer: Tensor,
    mask: Tensor | None,
    *,
    name: str | None = None,
    reading: str | int | None = None,
    task: Task = "multiclass",
) -> tuple[Head, Affine]:
    """Return the layer whose output is what a model answers, and its weight and bias.

    Of the module ``name`` the output is taken for the logits whatever the model makes of it. ``reading`` is what of it
    is meant, where it has several tokens or pixels; ``mask`` (n, T) says which of them count.
    """
    _check_answer(trace, answer, task)
    if reading is not None and not isinstance(reading, int) and reading not in READINGS:
        raise ValueError(f"reading must be the number of a token or one of {READINGS}, got {reading!r}")
    calls = [call for call in reversed(trace.calls) if _may_be_head(call, name)]
    calls.sort(key=lambda call: len(list(call.module.modules())))  # the layer, not what holds it
    calls.sort(key=lambda call: call.place != _place(answer))  # the very tensor that the model returned comes first
    refusal = None
    for function, call in product(FUNCTIONS, calls):
        for samples_axis, x, z in _by_axis(call, answer):
            match = _reading_of(z, _by_place(answer, call.module), mask, function, reading)
            if match is None:
                continue
            affine = affine_of(call.module, x, z)
            if affine is not None:
                head = Head(call.name, call.number, match, function, samples_axis, is_probed=affine[1])
                return _of_task(head, affine[0], task)
            refusal = _not_affine(trace, call, match)
    if refusal is not None:
        raise refusal
    if name is None:
        raise _not_found(trace, answer)
    return _declared_head(trace, calls, answer, reading, task)


def _check_answer(trace: Trace, answer: Tensor, task: Task) -> None:
    """Raise for an answer that cannot be logits of this task."""
    if not answer.is_floating_point() or not answer.ndim:
        raise TypeError(
            f"the model returned {answer.dtype} of shape {tuple(answer.shape)}: expected logits, one row per sample"
        )
    kind = getattr(getattr(trace.root.module, "config", None), "problem_type", None)
    if kind == "regression":
        raise HeadNotFoundError("the model's config says that it is a regression, which has no regret")
    if kind == "multi_label_classification" and task == "multiclass":
        raise _multilabel_refusal(answer.shape[-1], "its config says so")


def _may_be_head(call: Call, name: str | None) -> bool:
    if call.entered is None or call.output is None or not call.entered.is_floating_point():
        return False
    if name is not None:
        return call.name == name
    if call.name == "":
        return isinstance(call.module, nn.Linear)
    return hasattr(call.module, "in_features") or any(p.ndim > 1 for p in call.module.parameters())


def _by_axis(call: Call, answer: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield what entered and left a layer by sample and place, with samples in the first axis or in the second."""
    assert call.entered is not None  # noqa: S101 - chosen
    assert call.output is not None  # noqa: S101 - chosen
    places = as_places(call.module, call.entered, call.output)
    if places is None:
        return
    x, z = places
    if len(z) == len(answer):
        yield 0, x, z
    if call.output.ndim == 3 and z.shape[1] == len(answer) and answer.ndim < 3:
        yield 1, x.transpose(0, 1), z.transpose(0, 1)


def _reading_of(
    z: Tensor, answer: Tensor, mask: Tensor | None, function: str, declared: str | int | None
) -> str | int | None:
    """Return the reading of z (n, places, C) by which it is the answer, (n, C) or (n, places, C); None if none is."""
    choices: list[str | int]
    if answer.ndim == 3:
        choices = ["every"] if z.shape[1] > 1 and declared in {None, "every"} else []
    elif z.shape[1] == 1:
        choices = ["row"] if declared in {None, 0, -1} else []
    else:
        choices = ["token", "masked mean", "mean"] if declared is None else [declared]
    for reading in choices:
        if (reading == "every") != (answer.ndim == 3) or answer.shape[-1] != z.shape[-1]:
            continue
        if reading == "masked mean" and (mask is None or mask.shape != z.shape[:2]):
            continue
        token = nearest_token(z, answer, function) if reading == "token" else None
        rows = answer.flatten(0, -2)
        logits = take(z, reading, token, mask)
        if logits.shape == rows.shape and _same(FUNCTIONS[function](logits), rows):
            return reading
    return None


def nearest_token(z: Tensor, answer: Tensor, function: str) -> Tensor:
    """Return which token of z (n, T, C) is nearest to the answer (n, C) of its sample, (n,)."""
    target = answer.float()[:, None]
    apart = torch.where(target > _RULED_OUT, (FUNCTIONS[function](z.float()) - target).abs(), 0)
    return apart.amax(dim=-1).nan_to_num(torch.inf).argmin(dim=1)


def take(values: Tensor, reading: str | int, token: Tensor | None, mask: Tensor | None) -> Tensor:
    """Return what a reading takes of values (n, places, M): (n, M), or (n · places, M) of every place."""
    if reading == "row":
        return values[:, 0]
    if isinstance(reading, int):
        return values[:, reading]
    if reading == "every":
        return values.flatten(0, 1)
    if reading == "mean":
        return values.mean(dim=1)
    if reading == "masked mean":
        assert mask is not None  # noqa: S101 - checked by the caller
        share = mask.to(values)[:, :, None]
        return (values * share).sum(dim=1) / share.sum(dim=1)
    assert token is not None  # noqa: S101 - of "token"
    return values.gather(1, token[:, None, None].expand(-1, 1, values.shape[2]))[:, 0]


def _of_task(head: Head, affine: Affine, task: Task) -> tuple[Head, Affine]:
    """Return the head for one logit, for labels, or as it is; raise where its function contradicts the task."""
    labels = len(affine.weight)
    if task == "multiclass":
        if head.function == "sigmoid" and labels > 1:
            raise _multilabel_refusal(labels, f"the sigmoid of {head.name!r} is what it returns")
        if labels > 1:
            return head, affine
        return head._replace(one_logit=True), with_zero_class(affine)
    if "softmax" in head.function:
        raise HeadNotFoundError(
            f"task='multilabel' was given, and the model ends in {head.function}: leave the task out"
        )
    if head.reading == "every":
        raise HeadNotFoundError(
            f"every token or pixel has {labels} labels of its own, for which there is no regret yet: guard each label "
            "by itself, with a model that returns its logit alone"
        )
    return head, with_zero_class(affine)


def _declared_head(
    trace: Trace, calls: Sequence[Call], answer: Tensor, reading: str | int | None, task: Task
) -> tuple[Head, Affine]:
    """Return the head that a user named, of which the model's answer is no plain reading."""
    places = [(call, *rows) for call in calls for rows in _by_axis(call, answer)]
    if not places:
        raise HeadNotFoundError(
            f"the head was not called, or not with one entry per sample. {_candidates(trace, answer)}"
        )
    call, samples_axis, x, z = places[0]
    if reading is None and z.shape[1] > 1:
        raise HeadNotFoundError(
            f"the head {call.name!r} puts out {z.shape[1]} rows a sample, and none of them nor their mean is what the "
            f"model answers: say which is meant, pnml.guard(model, head={call.name!r}, reading=0), reading='mean' or "
            "'every'"
        )
    affine = affine_of(call.module, x, z)
    if affine is None:
        raise _not_affine(trace, call, reading or "row")
    match = "row" if z.shape[1] == 1 else reading or 0
    head = Head(call.name, call.number, match, "declared", samples_axis, is_probed=affine[1])
    return _of_task(head, affine[0], task)


def warning_of(head: Head, logits: Tensor | None, answer: Tensor | None) -> str | None:
    """Return what a user should know who takes the model's answer for logits of its classes, None if it is them."""
    if logits is not None and answer is not None and head.function == "declared":
        if answer.shape == logits.shape and torch.equal(answer.argmax(-1), logits.argmax(-1)):
            return None
        return (
            f"the model's answer is not what its head {head.name!r} puts out, nor a scaling of it: logits, "
            "probabilities and predictions of the guard are those of the head's own output, as declared"
        )
    if head.one_logit:
        return (
            f"the model gives one number a sample: the output z of its head {head.name!r} (before a sigmoid, if there "
            "is one) is taken for the logits (0, z) of two classes. A regression has no regret"
        )
    if head.function:
        return (
            f"the model ends in {head.function}: the output of its head {head.name!r} is taken as the logits instead, "
            "so that softmax is not applied twice"
        )
    return None


def read_head(head: Head, module: nn.Module, call: tuple[Any, Tensor], answer: Tensor, mask: Tensor | None) -> Rows:
    """Return the embeddings and logits of a forward pass."""
    x, z = call
    if head.reading == "row" and not head.function and x.ndim == answer.ndim == 2 and not head.one_logit:
        if answer is not z:
            _check_same(head, z, answer)
        return Rows(x, answer)
    places = as_places(module, x, z)
    if places is None:
        raise ValueError(f"the head {head.name!r} was called with {tuple(x.shape)}, which is new")
    if head.samples_axis:
        places = places[0].transpose(0, 1), places[1].transpose(0, 1)
    _check_places(head, places[1], mask)
    by_place = answer if head.function == "declared" else _by_place(answer, module)
    token = nearest_token(places[1], by_place, head.function) if head.reading == "token" else None
    embeddings, logits = (take(values, head.reading, token, mask) for values in places)
    if token is not None:  # of a sample without an answer there is none to take
        embeddings = torch.where(by_place.isnan().any(dim=1, keepdim=True), torch.nan, embeddings)
    if head.function != "declared":
        rows = by_place.flatten(0, -2)
        _check_same(head, logits, rows)
        logits = logits if head.function else rows
    if head.one_logit:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    if head.reading != "every":
        return Rows(embeddings, logits)
    is_image = isinstance(module, _CONVOLUTIONS)
    return Rows(embeddings, logits, (z.shape[0], *z.shape[2:]) if is_image else tuple(z.shape[:-1]))


def _check_places(head: Head, z: Tensor, mask: Tensor | None) -> None:
    """Raise ``ValueError`` unless z (n, places, C) has the places that a reading needs."""
    if head.reading == "row" and z.shape[1] != 1:
        raise ValueError(
            f"the head {head.name!r} gave {z.shape[1]} rows a sample, where the first batch of the fit had one: begin "
            "with samples of more tokens or pixels, or say reading=0 for the first token, 'mean' or 'every'"
        )
    if head.reading == "masked mean" and (mask is None or mask.shape != z.shape[:2]):
        raise ValueError(f"the head {head.name!r} was fitted with a mask of tokens: pass one again")


def _check_same(head: Head, z: Tensor, answer: Tensor) -> None:
    """Raise unless what is read of the head is what the model answered, but for rounding."""
    if is_traced() or _place(z) == _place(answer):
        return
    if z.shape != answer.shape or not _same(FUNCTIONS[head.function](z), answer, slack=10):
        raise HeadNotFoundError(
            f"what the head {head.name!r} puts out ({', '.join(head.notes) or 'one row a sample'}) is not what the "
            "model answered, as in the first batch. A model that stops early answers by one layer or another: let it "
            "always answer by the same one. One that sorts its samples has to put them back before the head. Where "
            "tokens are averaged, begin the fit with samples of several lengths, or say reading='mean' or 'masked mean'"
        )


def _same(x: Tensor, answer: Tensor, slack: float = 1.0) -> bool:
    """Return whether numbers are an answer but for rounding and for classes that the model ruled out."""
    if not answer.numel():
        return True
    eps = max(torch.finfo(x.dtype).eps, torch.finfo(answer.dtype).eps)
    tolerance = slack * (8 * eps if eps > 1e-6 else _ROUNDING)
    x = x.detach().double()
    answer = answer.detach().double()
    allowed = answer > _RULED_OUT
    size = torch.where(x.isfinite() & allowed, x.abs(), 0).max()
    apart = torch.where(allowed & x.isfinite(), (x - answer).abs(), 0)
    return bool((allowed.any() | ~x.isfinite().any()) & (apart <= tolerance * size).all())


def _place(tensor: Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.numel()


def _by_place(answer: Tensor, module: nn.Module) -> Tensor:
    """Return an answer of a module's kind as (n, C), or as (n, places, C) where every token or pixel has one.

    >>> _by_place(torch.zeros(4, 5, 2, 3), nn.Conv2d(1, 5, 1)).shape, _by_place(torch.zeros(4), nn.Linear(2, 1)).shape
    (torch.Size([4, 6, 5]), torch.Size([4, 1]))
    """
    if answer.ndim == 1:
        return answer[:, None]
    if answer.ndim == 2:
        return answer
    if isinstance(module, _CONVOLUTIONS):
        rows = answer.flatten(2).transpose(1, 2)
    else:
        rows = answer.reshape(answer.shape[0], math.prod(answer.shape[1:-1]), answer.shape[-1])
    return rows[:, 0] if rows.shape[1] == 1 else rows


def _multilabel_refusal(labels: int, reason: str) -> HeadNotFoundError:
    """Return the error for independent labels that would be taken for classes."""
    return HeadNotFoundError(
        f"the model has {labels} independent labels, not classes of which one is right: {reason}. Take one regret per "
        "label:\n  pnml.guard(model, task='multilabel')"
    )


_WAY_OUT = (
    "\nFor any other model, say what its last layer is and what enters it:\n"
    "  pnml.guard(model, head=(weight, bias), embed=lambda model, x: model.features(x))"
)
"""What every refusal ends with: a line to copy."""


def _not_affine(trace: Trace, call: Call, reading: str | int) -> HeadNotFoundError:
    """Return the error for a layer that puts out something else than weight · x + bias, or is overwritten."""
    later = trace.calls[trace.calls.index(call) + 1 :]
    writers = [each.name for each in later if each.place == call.place and getattr(each.module, "inplace", False)]
    if not writers:
        return HeadNotFoundError(
            f"the head {call.name!r}, a {type(call.module).__name__}, does not compute weight · x + bias, which the "
            f"regret needs, or its output is changed in place after it: write z = z / 2, not z /= 2.{_WAY_OUT}"
        )
    declared = f", reading={reading!r}" if isinstance(reading, int) or reading in READINGS else ""
    return HeadNotFoundError(
        f"the output of the head {call.name!r} is changed in place by {writers[0]!r}: keep it, and take it for the "
        f"logits:\n  model.get_submodule({writers[0]!r}).inplace = False\n"
        f"  pnml.guard(model, head={call.name!r}{declared})"
    )


def _not_found(trace: Trace, answer: Tensor) -> HeadNotFoundError:
    """Return the error that says what was seen in a forward pass, and what to declare."""
    if not trace.calls or any(isinstance(m, torch.jit.ScriptModule) for m in trace.root.module.modules()):
        return HeadNotFoundError(
            "the model is scripted, traced or exported, and does not show what passes through its layers: guard the "
            f"module that it was made from, and script that one's graph.{_WAY_OUT}"
        )
    samples = trace.root.children[0].shape if trace.root.children else None
    if answer.ndim == 1 and samples is not None and len(samples) == 1:
        return HeadNotFoundError(
            f"the model answered with shape {tuple(answer.shape)}, as for one sample without an axis of samples: pass "
            "batches, DataLoader(dataset, batch_size=128), or x[None] for one sample"
        )
    return HeadNotFoundError(
        f"no linear layer puts out what the model answers, of shape {tuple(answer.shape)}. "
        f"{_several_heads(trace, answer) or _candidates(trace, answer) + _WAY_OUT}"
    )


def _candidates(trace: Trace, answer: Tensor) -> str:
    """Return the linear layers that were called last, with their shapes, and the lines by which one is declared."""
    shapes = {call.name: call.shape for call in trace.calls if own_affine(call.module) is not None and call.shape}
    if not shapes:
        return "The model called no linear layer that shows its output."
    width = answer.shape[-1] if answer.ndim > 1 else 1
    fitting = {name: shape for name, shape in shapes.items() if width in shape[1:]}
    listed = "".join(f"\n  {name!r} put out {shape}" for name, shape in list((fitting or shapes).items())[-6:])
    if not fitting:
        return f"None of its last linear layers has an output as wide: {listed}"
    advice = (
        f"Its last linear layers:{listed}\nIf the model goes on with the output of one of them, as by a temperature or "
        "in another order of classes, take that output for the logits:\n"
        f"  pnml.guard(model, head={list(fitting)[-1]!r})"
        "\nIf it returns several things, take the logits out:\n  pnml.guard(model, logits=lambda output: output[0])"
    )
    (rows, *_), *others = fitting.values()
    if rows != len(answer) and not others:
        advice += (
            f"\nThe layer was given {rows} rows for {len(answer)} samples: if these are views of a sample, guard "
            "the model of one view, or average in embed= what enters the layer"
        )
    return advice


def _several_heads(trace: Trace, answer: Tensor) -> str:
    """Return the lines that join linear layers whose outputs are added up or averaged; nothing if none are."""
    linear = [call for call in trace.calls if isinstance(call.module, nn.Linear) and call.shape == answer.shape]
    outputs = [call.output for call in linear if call.output is not None]
    count = len(outputs)
    if count < 2 or not any(_same(sum(outputs[1:], outputs[0]) / share, answer) for share in (1, count)):
        return ""
    share = "" if _same(sum(outputs[1:], outputs[0]), answer) else f" / {count}"
    has_bias = isinstance(linear[0].module.bias, Tensor)
    bias = f"sum(head.bias for head in heads){share}" if has_bias else "None"
    return (
        f"It is the {'mean' if share else 'sum'} of several heads: join what enters them and their weights:\n"
        f"  heads = [model.get_submodule(name) for name in {[call.name for call in linear]}]\n"
        "  rows = {}\n"
        "  for head in heads: head.register_forward_hook(lambda head, x, z: rows.update({head: x[0]}))\n"
        f"  head = (torch.cat([head.weight for head in heads], 1){share}, {bias})\n"
        "  embed = lambda model, *x, **names: (model(*x, **names), torch.cat([rows[head] for head in heads], 1))[1]\n"
        "  pnml.guard(model, head=head, embed=embed)"
    )


class OwnHead:
    """A head of the user's: a weight and a bias, and ``embed(model, *args, **kwargs)`` for what enters it."""

    def __init__(self, model: nn.Module, head: Any, embed: Callable[..., Tensor] | None, task: Task) -> None:
        if embed is None or head is None:
            raise ValueError(f"a head of your own and embed= go together:{_WAY_OUT}")
        if isinstance(head, str):
            linear = own_affine(model.get_submodule(head))
            if linear is None:
                raise ValueError(f"head {head!r} is no linear layer of the model: give its weight and bias.{_WAY_OUT}")
        else:
            weight, bias = head
            if not isinstance(weight, Tensor) or weight.ndim != 2:
                raise ValueError(f"the head's weight must be a tensor of shape (classes, features).{_WAY_OUT}")
            linear = _affine(weight, bias)
        self._model = model
        self._embed = embed
        self._linear = linear
        self._one_logit = len(linear.weight) == 1 and task == "multiclass"
        self.affine = with_zero_class(linear) if self._one_logit or task == "multilabel" else linear

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Rows:
        """Return the embeddings and the logits of a batch."""
        embeddings: Any = self._embed(self._model, *args, **kwargs)
        width = self._linear.weight.shape[1]
        if not isinstance(embeddings, Tensor) or embeddings.ndim < 2 or embeddings.shape[-1] != width:
            got = f"of shape {tuple(embeddings.shape)}" if isinstance(embeddings, Tensor) else type(embeddings).__name__
            raise ValueError(f"embed must return embeddings of shape (n, {width}), for the head's weight, got {got}")
        places = tuple(embeddings.shape[:-1]) if embeddings.ndim > 2 else None
        embeddings = embeddings.reshape(-1, width)
        logits = nn.functional.linear(embeddings, *(part.to(embeddings) for part in self._linear))
        if self._one_logit:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return Rows(embeddings, logits, places)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any], logits: Callable[[Any], Tensor]) -> Head:
        """Return the head; raise :class:`HeadNotFoundError` unless it gives what the model gives for a batch."""
        answer = logits(eager(self._model)(*copied(args), **copied(kwargs)))
        rows = self.run(*copied((args, kwargs)))
        z = rows.logits[:, 1:] if self._one_logit else rows.logits
        shape = (*(rows.places or z.shape[:1]), z.shape[1])
        if answer.ndim > 2 and tuple(answer.shape) != shape and answer.shape[1] == z.shape[1]:
            answer = answer.movedim(1, -1)  # pixels: channels come first
        off = ""
        if answer.numel() == z.numel():
            target = answer.reshape(z.shape)
            function = next((name for name, apply in FUNCTIONS.items() if _same(apply(z), target)), None)
            if function == "sigmoid" and z.shape[1] > 1 and self.affine is self._linear:
                raise _multilabel_refusal(z.shape[1], "the sigmoid of these logits is what it returns")
            if function is not None:
                reading = "row" if rows.places is None else "every"
                return Head(EMBED, 0, reading, function, one_logit=self._one_logit)
            off = f", up to {float((z - target).abs().max()):.3g} apart"
        raise HeadNotFoundError(
            f"head · embed(model, ...) + bias gives logits of shape {shape}, and the model gives "
            f"{tuple(answer.shape)}{off}: they must agree, but for a softmax. If the model returns something "
            "else, take its logits out of it, pnml.guard(..., logits=lambda output: output.scores)"
        )
