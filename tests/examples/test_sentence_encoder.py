"""The demo: the model on opgraft's ops gives the untouched model's vectors, ranking and gradients."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from sentence_encoder import SENTENCES, Batch, SentenceEncoder, batches, encode, load, main, on_opgraft, training_loss
from typer import Typer
from typer.testing import CliRunner

QUERY = "How do animals find their way at night?"


@pytest.fixture(scope="module")
def untouched() -> SentenceEncoder:
    return load()


@pytest.fixture(scope="module")
def one_layer(untouched: SentenceEncoder) -> SentenceEncoder:
    """The pretrained model cut off after its first layer, which compiles in seconds."""
    cut = copy.deepcopy(untouched)
    cut.bert.encoder.layer = cut.bert.encoder.layer[:1]
    return cut


@pytest.fixture(scope="module")
def work() -> list[Batch]:
    return batches([QUERY, *SENTENCES.read_text("utf-8").splitlines()], "cpu")


@pytest.fixture(autouse=True)
def _no_graphs_of_other_tests() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(encoder: SentenceEncoder) -> SentenceEncoder:
    return torch.compile(encoder, fullgraph=True, dynamic=True, backend="opgraft")


def assert_same_answers(run: SentenceEncoder, untouched: SentenceEncoder, work: list[Batch]) -> None:
    with torch.no_grad():
        vectors, expected = encode(run, work), encode(untouched, work)
    assert (vectors - expected).abs().max() < 1e-4
    assert torch.equal((vectors[1:] @ vectors[0]).argsort(), (expected[1:] @ expected[0]).argsort())


def assert_same_gradients(
    ours: SentenceEncoder, run: SentenceEncoder, untouched: SentenceEncoder, work: list[Batch]
) -> None:
    for encoder, model in ((run, ours), (untouched, untouched)):
        model.zero_grad()
        training_loss(encoder, work, best=3).backward()
    expected = {name: weight.grad for name, weight in untouched.named_parameters()}
    largest = max(gradient.abs().max() for gradient in expected.values())
    seen = {name: weight.grad for name, weight in ours.named_parameters()}
    assert seen.keys() == expected.keys()
    for name, gradient in expected.items():
        # softmax does not change when all scores of a row grow alike: the key biases' true gradient is zero.
        size = largest if name.endswith("key.bias") else gradient.abs().max()
        assert (seen[name] - gradient).abs().max() < 1e-3 * size, name


def test_eager_answers(untouched: SentenceEncoder, work: list[Batch]) -> None:
    assert_same_answers(on_opgraft(untouched), untouched, work)


def test_eager_gradients(untouched: SentenceEncoder, work: list[Batch]) -> None:
    ours = on_opgraft(untouched)
    assert_same_gradients(ours, ours, untouched, work[:2])


def test_compiled_answers_of_one_layer_from_one_graph(one_layer: SentenceEncoder, work: list[Batch]) -> None:
    run = compiled(on_opgraft(one_layer))
    assert len({ids.shape[1] for _, ids, _ in work}) > 2
    with torch.no_grad():
        run(*work[0][1:])
    with torch.compiler.set_stance("fail_on_recompile"):
        assert_same_answers(run, one_layer, work)


def test_compiled_gradients_of_one_layer(one_layer: SentenceEncoder, work: list[Batch]) -> None:
    ours = on_opgraft(one_layer)
    assert_same_gradients(ours, compiled(ours), one_layer, work[:2])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_compiled_answers_and_gradients_of_the_whole_model(untouched: SentenceEncoder, work: list[Batch]) -> None:
    ours = on_opgraft(untouched)
    run = compiled(ours)
    assert_same_answers(run, untouched, work)
    assert_same_gradients(ours, run, untouched, work[:2])


def run_program(*options: str) -> str:
    app = Typer()
    app.command()(main)
    done = CliRunner().invoke(app, options, env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    return done.output


def test_program_finds_the_sentence_and_trains(tmp_path: Path) -> None:
    file = tmp_path / "few.txt"
    file.write_text("Interest rates rose again.\n\nBats hear where insects are.\nThe soup is hot.\n", "utf-8")
    output = run_program("--eager", "--train", "--rounds", "1", "--file", str(file), "--query", "animals in the dark")
    best = next(line for line in output.splitlines() if "│ 0." in line)
    assert "Bats hear where insects are." in best
    assert "its ranking is the same" in output
    assert "One step of fine-tuning" in output


def test_program_refuses_a_file_without_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "empty.txt"
    file.write_text("\n\n", "utf-8")
    app = Typer()
    app.command()(main)
    done = CliRunner().invoke(app, ["--file", str(file)])
    assert done.exit_code == 2
    assert "holds no sentence" in done.output
