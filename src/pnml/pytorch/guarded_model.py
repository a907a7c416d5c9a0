"""A classifier whose last layer and earlier layers are found, and read in every forward pass."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from pnml.core.scaling import check_embedding_scale
from pnml.pytorch.arguments import check_head, check_layers, check_model, check_task
from pnml.pytorch.company import UnstableModelWarning, company_of
from pnml.pytorch.compiled import CompiledPass, EagerPass, lock_of
from pnml.pytorch.finding import find_head
from pnml.pytorch.given import GivenHead
from pnml.pytorch.head import HeadWarning, is_compiled, linear_layers, logits_of, unwrapped
from pnml.pytorch.last_layer import LastLayer, check_same_head, has_made_weights, has_own_weights, matching_layers
from pnml.pytorch.layers import LayersNotFoundError, choose_layers, warn_of_fallback
from pnml.pytorch.mask_search import find_mask_source
from pnml.pytorch.masks import mask_of_length
from pnml.pytorch.module_tree import ModuleTree
from pnml.pytorch.pooling import join
from pnml.pytorch.recording import LayerPlaces
from pnml.pytorch.token_mask import token_mask

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from pnml.core.detector import Detector, Task
    from pnml.core.scaling import EmbeddingScale
    from pnml.pytorch.affine import Affine
    from pnml.pytorch.layers import Layer
    from pnml.pytorch.pooling import Parts
    from pnml.pytorch.token_mask import MaskSource

_LOG = logging.getLogger(__name__)


class Outputs(NamedTuple):
    """What a forward pass of a guarded model gave.

    Attributes:
        logits: shape (n, C).
        embeddings: what entered the head, shape (n, M).
        parts: the features of earlier layers, each in parts that stand side by side.
        places: the shape of the answers where every token or pixel has one, (samples, T) or (samples, H, W), whose
            product is n; None where every sample has one.
        counts: which of these n count, (n,), where a mask of tokens says so; None where all do.
    """

    logits: Tensor
    embeddings: Tensor
    parts: list[Parts]
    places: tuple[int, ...] | None = None
    counts: Tensor | None = None

    @property
    def features(self) -> list[Tensor]:
        """The features of earlier layers, shape (n, features of that layer) each."""
        return [join(parts) for parts in self.parts]

    @property
    def rows(self) -> Tensor:
        """The embeddings, followed by the features of earlier layers, joined by one call."""
        return torch.cat([self.embeddings, *chain.from_iterable(self.parts)], dim=1) if self.parts else self.embeddings

    def counting(self) -> Outputs:
        """Return what is to be learnt from: padding is left out."""
        if self.counts is None:
            return self
        return Outputs(self.logits[self.counts], self.embeddings[self.counts], [])


class GuardedModel(nn.Module):
    """A classifier, its head and its layers; :class:`~pnml.Guard` adds the detector, and explains the arguments."""

    def __init__(
        self,
        model: nn.Module,
        *,
        head: str | tuple[Tensor, Tensor | None] | None = None,
        layers: str | Sequence[str] = "auto",
        embedding_scale: EmbeddingScale = "auto",
        task: Task = "multiclass",
        embed: Callable[..., Tensor] | None = None,
        logits: Callable[[Any], Tensor] = logits_of,
    ) -> None:
        super().__init__()
        check_model(model)
        check_embedding_scale(embedding_scale)
        check_task(task)
        self.model = model
        self.embedding_scale: EmbeddingScale = embedding_scale
        self.task: Task = task
        check_head(self.plain_model, head)
        is_given = embed is not None or isinstance(head, tuple)
        self._given = GivenHead(self.plain_model, head, embed, task) if is_given else None
        layers = layers if isinstance(layers, str) else tuple(layers)
        check_layers(self.plain_model, layers, embedding_scale, has_embed=is_given)
        self.head_name = head if isinstance(head, str) else None
        self.found_head: LastLayer | None = None
        self.found_layers: tuple[Layer, ...] | None = None
        self.mask_source: MaskSource | None = None
        self._wanted: str | tuple[str, ...] = layers or "last"
        self._logits, self._told, self._tree = logits, "", ModuleTree()
        self._found_places: tuple[list[nn.Module], tuple[Layer, ...], LayerPlaces] | None = None
        self._compile_options: dict[str, Any] | None = None
        self._compiled: CompiledPass | None = None

    @property
    def known_widths(self) -> tuple[int, ...]:
        """How many features the layers have, where a detector was loaded."""
        return ()

    @property
    def plain_model(self) -> nn.Module:
        """The model itself, out of its wrappers."""
        return unwrapped(self.model)

    @property
    def head(self) -> Affine:
        """The model's last layer: from embeddings to logits, by its weight and its bias."""
        if self._given is not None:
            return self._given.affine
        if self.found_head is not None:
            return self.found_head.affine
        raise ValueError("the head is not known yet: call fit(train_loader) first")

    @property
    def described_head(self) -> str:
        """The head in words: its name, and what is particular about it."""
        if self._given is not None:
            return "head given by embed"
        notes = () if self.found_head is None else self.found_head.notes
        return f"head {self.head_name or 'auto'}" + (f" ({', '.join(notes)})" if notes else "")

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the earlier layers that are watched; before the first batch only those that you named."""
        if self.found_layers is None:
            return self._wanted if isinstance(self._wanted, tuple) else ()
        return tuple(str(layer) for layer in self.found_layers)

    @property
    def may_fall_back(self) -> bool:
        """Whether layers that cannot be watched are left out with a warning: nobody named them."""
        return isinstance(self._wanted, str)

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find the head, or check it if it is named, and the layers unless they are known, by running the model."""
        self._known_head(args, kwargs, anew=True)
        is_new = self.found_layers is None
        self._known_layers(args, kwargs)
        if is_new:
            self._check_company(args, kwargs)

    def find_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LastLayer:
        """Find the head, or check it if it is named or given, by running the model."""
        if self._given is not None:
            return self._given.check(args, kwargs, self._logits)
        model, logits = self.plain_model, self._logits
        if self.found_layers is None:  # else it is known, and another batch may have no padding to tell by
            self.mask_source = find_mask_source(model, args, kwargs, logits)
        return find_head(
            model, args, kwargs, named=self.head_name, task=self.task, logits=logits, source=self.mask_source
        )

    def _known_head(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, anew: bool = False) -> LastLayer:
        if self.found_head is None or anew:
            if self._compile_options is None and any(map(is_compiled, (self.model, self.plain_model))):
                _LOG.info("the compiled model runs uncompiled in the guard: guard.compile() compiles it along with it")
            self.found_head = self.find_head(args, kwargs)
            self.head_name, told = self.found_head.name, self.found_head.warning
            if told is not None and told != self._told:
                warnings.warn(told, HeadWarning, stacklevel=6)
                self._told = told
        return self.found_head

    def _known_layers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Layer, ...]:
        if self.found_layers is None:
            head, wanted = self._known_head(args, kwargs), self._wanted
            if head.obstacle_to_layers is not None and self._given is None:
                if not self.may_fall_back:
                    raise LayersNotFoundError(f"layers={list(wanted)}: {head.obstacle_to_layers}. Take layers='last'")
                if wanted == "auto":
                    warn_of_fallback(head.obstacle_to_layers)
                wanted = "last"
            if self._given is not None or self.embedding_scale != "auto":
                wanted = "last"
            self.found_layers = choose_layers(
                self.plain_model,
                args,
                kwargs,
                head=head.names,
                wanted=wanted,
                widths=self.known_widths,
                source=self.mask_source,
            )
        return self.found_layers

    def _check_company(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Warn of answers that are not a sample's own, and leave out layers whose rows are not."""
        company = company_of(partial(self.run, compiled=False), args, kwargs)
        if company is None:
            return
        if company.warning is not None:
            warnings.warn(company.warning, UnstableModelWarning, stacklevel=5)
        layers = self._known_layers(args, kwargs)
        left = tuple(layer for layer, is_others in zip(layers, company.layers, strict=True) if not is_others)
        if len(left) == len(layers):
            return
        reason = (
            f"what layers {[str(layer) for layer in layers if layer not in left]} put out for a sample depends on the "
            "others, as where a model sorts its samples by length"
        )
        if not self.may_fall_back:
            raise LayersNotFoundError(f"{reason}: name others, pnml.guard(model, layers=[...]), or take layers='last'")
        self.found_layers = left
        if left:
            _LOG.info("%s: they are left out", reason)
        else:
            warn_of_fallback(reason)

    def _places(self, model: nn.Module, layers: tuple[Layer, ...], modules: list[nn.Module] | None) -> LayerPlaces:
        """Return where the layers are in the model, as found before if its modules are known to be the same."""
        known = self._found_places
        if known is None or known[0] is not modules or known[1] is not layers:
            known = modules or [], layers, LayerPlaces(model, layers)
            self._found_places = known
        return known[2]

    def run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        modules: list[nn.Module] | None = None,
        *,
        compiled: bool = True,
    ) -> Outputs:
        """Run the model; return its logits, the embeddings that entered its head, and the features of its layers.

        Args:
            args: the positional arguments of the model.
            kwargs: its keyword arguments.
            modules: what :meth:`eval_no_grad` has just yielded; without it the layers are looked for anew.
            compiled: whether to run compiled code after :meth:`compile`, which cannot become part of another graph.
        """
        head = self._known_head(args, kwargs)
        if self._given is not None:
            embeddings, logits, places = self._given.run(args, kwargs)
            return Outputs(logits, embeddings, [], places)
        model, layers = self.plain_model, self._known_layers(args, kwargs)
        mask = token_mask(model, args, kwargs, self.mask_source) if layers or head.reads_mask else None
        options = self._compile_options if compiled else None
        answer, calls, pooled = self._pass(model, head, layers, modules, options)(args, kwargs, mask)
        answer = self._logits(answer)
        mask = mask if head.reads_mask else None
        embeddings, logits, places = head.read(model, calls, answer, mask)
        if places is not None and len(places) == 2:
            mask = mask_of_length(model, mask, places[1])
        counts = None if mask is None or mask.shape != places else mask.flatten().bool()
        return Outputs(logits, embeddings, _checked(layers, pooled, embeddings.shape[0]), places, counts)

    def _pass(
        self,
        model: nn.Module,
        head: LastLayer,
        layers: tuple[Layer, ...],
        modules: list[nn.Module] | None,
        options: dict[str, Any] | None,
    ) -> EagerPass | CompiledPass:
        """Return what runs the model and sees its head and its layers."""
        heads = head.modules(model)
        if options is None:
            return EagerPass(model, heads, self._places(model, layers, modules))
        modules = self.all_modules() if modules is None else modules
        with lock_of(model):  # several threads may ask for the first one
            places, known = self._places(model, layers, modules), self._compiled
            if known is None or known.places is not places or known.heads != heads:
                self._compiled = known = CompiledPass(model, heads, places, options)
            return known

    def name_of_head(self, detector: Detector, path: str | os.PathLike[str]) -> str | None:
        """Return the name of the head that a detector was fitted for, where its weights alone tell."""
        if self._given is not None:
            check_same_head(detector, self._given.affine)
            return None
        every = [name for name, _ in self.plain_model.named_modules()]
        names = [self.head_name] if self.head_name in every and self.head_name else every
        with self.eval_no_grad():  # or some parametrisations would change their buffers
            matches = matching_layers(self.plain_model, names, detector.head_digest)
        if not matches and has_own_weights(detector.head_notes) and not has_made_weights(self.plain_model):
            raise ValueError(
                f"{path} was fitted for another last layer: one of {detector.n_features} features and "
                f"{detector.n_classes} classes with digest {detector.head_digest[:12]}, which none of this model's "
                f"linear layers {[self.head_name] if self.head_name else list(linear_layers(self.plain_model))} is: "
                "load the weights that it was fitted with into the model (--weights on the command line)"
            )
        known = None if detector.reading is None else detector.reading["head"]
        if known in matches:  # of equal layers, as of a copy that was trained and its original, the one that was found
            return str(known)
        if len(matches) > 1:
            raise ValueError(
                f"{path} fits more than one layer of this model: say which, pnml.guard(model, head=...), of {matches}"
            )
        return matches[0] if matches else self.head_name

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Run the model from now on as ``torch.compile`` compiles it, along with what the guard reads of it.

        The model itself is left as it is. The first batch takes a while, and so does the first of another size. With
        CUDA graphs (``mode="reduce-overhead"``) PyTorch keeps what a pass gave until the next: read a result before.

        Args:
            args: none; the signature is that of ``nn.Module.compile``.
            kwargs: the options of ``torch.compile``, for instance ``dynamic=True``.
        """
        if args:
            raise TypeError(f"the options of torch.compile go by their names, as in mode='max-autotune', got {args}")
        if self._given is not None:
            raise ValueError("embed= runs the model by itself: compile what it calls, or leave head= and embed= out")
        torch.compile(**kwargs)  # which refuses what is none of its options
        self._compile_options, self._compiled = kwargs, None

    def all_modules(self) -> list[nn.Module]:
        """Return all modules of the model, itself first: the same list as long as none was added or replaced."""
        return self._tree.modules(self.model)

    @contextmanager
    def eval_no_grad(self) -> Iterator[list[nn.Module]]:
        """Put every module into eval mode and record no gradients; restore every module's mode on leaving.

        Yields:
            All modules, as :meth:`all_modules` returns them.
        """
        modules = self.all_modules()
        training = [module for module in modules if module.training]
        try:
            for module in training:
                module.training = False
            with torch.no_grad():
                yield modules
        finally:
            for module in training:
                module.training = True


def _checked(layers: Sequence[Layer], pooled: Sequence[Parts | None], count: int) -> list[Parts]:
    """Return the pooled outputs of layers; raise :class:`LayersNotFoundError` where one has no row per sample."""
    found = [parts for parts in pooled if parts is not None and parts[0].shape[0] == count]
    if len(found) < len(layers):
        bad = [str(name) for name, x in zip(layers, pooled, strict=True) if x is None or x[0].shape[0] != count]
        raise LayersNotFoundError(
            f"layers {bad} did not put out one entry per sample in a forward pass, as they did in the first one: "
            "name others, pnml.guard(model, layers=[...]), or take layers='last'"
        )
    return found
