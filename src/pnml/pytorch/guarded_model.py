"""A classifier whose last layer and earlier layers are found, and read in every forward pass."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from pnml.core.scaling import check_embedding_scale
from pnml.pytorch.arguments import as_layers, check_head, check_layers, check_model, check_task
from pnml.pytorch.compiled import KeptPasses
from pnml.pytorch.dependence import UnstableModelWarning, dependence_of
from pnml.pytorch.finding import find_head
from pnml.pytorch.given import GivenHead
from pnml.pytorch.head import HeadWarning, is_compiled, logits_of, unwrapped
from pnml.pytorch.layers import LayersNotFoundError, choose_layers, warn_of_fallback
from pnml.pytorch.mask_search import find_mask_source
from pnml.pytorch.masks import mask_of_length
from pnml.pytorch.module_tree import ModuleTree, in_eval_mode
from pnml.pytorch.outputs import Outputs, checked_parts
from pnml.pytorch.token_mask import token_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pnml.core.detector import Task
    from pnml.core.scaling import EmbeddingScale
    from pnml.pytorch.affine import Affine
    from pnml.pytorch.last_layer import LastLayer
    from pnml.pytorch.layers import Layer
    from pnml.pytorch.token_mask import MaskSource

_LOG = logging.getLogger(__name__)


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
        layers = as_layers(layers)
        check_layers(self.plain_model, layers, embedding_scale, has_embed=is_given)
        self.head_name = head if isinstance(head, str) else None
        self.found_head: LastLayer | None = None
        self.found_layers: tuple[Layer, ...] | None = None
        self.mask_source: MaskSource | None = None
        self._wanted: str | tuple[str, ...] = layers or "last"
        self._logits, self._told, self._tree = logits, "", ModuleTree()
        self._passes = KeptPasses()

    @property
    def known_widths(self) -> tuple[int, ...]:
        """How many features the layers have, where a detector was loaded."""
        return ()

    @property
    def known_reading(self) -> str | None:
        """What the model makes of its head's output, where a detector was loaded."""
        return None

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
        """Find the head, or check it if it is named, and the layers by running the model, unless they are known."""
        is_new = self.found_layers is None
        self._known_head(args, kwargs, anew=is_new)
        self._known_layers(args, kwargs)
        if is_new:
            self._check_dependence(args, kwargs)

    def find_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LastLayer:
        """Find the head, or check it if it is named or given, by running the model."""
        if self._given is not None:
            return self._given.check(args, kwargs, self._logits)
        model, logits = self.plain_model, self._logits
        if self.found_layers is None:  # else it is known, and another batch may have no padding to tell by
            self.mask_source = find_mask_source(model, args, kwargs, logits)
        return find_head(
            model,
            args,
            kwargs,
            named=self.head_name,
            task=self.task,
            logits=logits,
            source=self.mask_source,
            reading=self.known_reading,
        )

    def _known_head(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, anew: bool = False) -> LastLayer:
        if self.found_head is None or anew:
            if not self._passes.is_compiled and any(map(is_compiled, (self.model, self.plain_model))):
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

    def _check_dependence(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Warn of answers that are not a sample's own, and leave out layers whose rows are not.

        Experts that see some samples only may have seen all of the few by which layers were found: they are left out.
        """
        missing: list[str] = []

        def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outputs:
            try:
                return self.run(args, kwargs, compiled=False)
            except LayersNotFoundError as error:
                missing.extend(error.names)
                raise

        found = dependence_of(run, args, kwargs)
        left = tuple(layer for layer in self._known_layers(args, kwargs) if str(layer) not in missing)
        if missing and left and self.may_fall_back:  # or else the fit says so
            self.found_layers = left
            _LOG.info("layers %s see some of the samples only: they are left out", missing)
            self._check_dependence(args, kwargs)
            return
        if found is None:
            return
        if found.warning is not None:
            warnings.warn(found.warning, UnstableModelWarning, stacklevel=5)
        layers = self._known_layers(args, kwargs)
        left = tuple(layer for layer, is_others in zip(layers, found.layers, strict=True) if not is_others)
        if len(left) == len(layers):
            return
        reason = (
            f"the outputs of layers {[str(layer) for layer in layers if layer not in left]} for a sample depend on the "
            "other samples of its batch, as where a model sorts them by length"
        )
        if not self.may_fall_back:
            raise LayersNotFoundError(f"{reason}: name others, pnml.guard(model, layers=[...]), or take layers='last'")
        self.found_layers = left
        if left:
            _LOG.info("%s: they are left out", reason)
        else:
            warn_of_fallback(reason)

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
            modules: what :meth:`eval_no_grad` has just yielded.
            compiled: whether to run compiled code after :meth:`compile`, which cannot become part of another graph;
                without it, and without ``modules``, the layers are looked for anew.
        """
        head = self._known_head(args, kwargs)
        if self._given is not None:
            embeddings, logits, places = self._given.run(args, kwargs)
            return Outputs(logits, embeddings, [], places)
        model, layers = self.plain_model, self._known_layers(args, kwargs)
        mask = token_mask(model, args, kwargs, self.mask_source) if layers or head.reads_mask else None
        modules = self.all_modules() if compiled and modules is None else modules
        run = self._passes.pass_of(model, head.modules(model), layers, modules, compiled=compiled)
        answer, calls, pooled = run(args, kwargs, mask)
        answer = self._logits(answer)
        mask = mask if head.reads_mask else None
        embeddings, logits, places = head.read(model, calls, answer, mask)
        if places is not None and len(places) == 2:
            mask = mask_of_length(model, mask, places[1])
        counts = None if mask is None or mask.shape != places else mask.flatten().bool()
        return Outputs(logits, embeddings, checked_parts(layers, pooled, embeddings.shape[0]), places, counts)

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
        self._passes.compile(kwargs)

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
        with in_eval_mode(modules):
            yield modules
