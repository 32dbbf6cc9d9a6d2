"""Is each forward pass of the outermost module reported, and does the program notice nothing?"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from gpuperf import marks
from gpuperf.model.program import PROMPT, PassResult
from gpuperf.profile.inside.courses import Limits
from gpuperf.profile.inside.forwards import ROUNDS, Forwards
from gpuperf.profile.inside.session import FORWARD, IMPLICIT, MOST_LENGTHS, Session


class Watched:
    """The calls of modules that were reported."""

    def __init__(self) -> None:
        self.usual: list[bool] = []
        self.prompts: list[tuple[int, int] | None] = []
        self.forwards = Forwards(self.heard)

    def heard(self, usual: bool, prompt: tuple[int, int] | None) -> None:
        self.usual.append(usual)
        self.prompts.append(prompt)


@pytest.fixture
def watched() -> Iterator[Watched]:
    own = nn.Module.__call__
    found = Watched()
    yield found
    found.forwards.remove()
    left = nn.Module.__call__
    nn.Module.__call__ = own  # type: ignore[method-assign]
    if "__call__" in vars(nn.Sequential):  # stays where Dynamo compiled anything in this process
        del nn.Sequential.__call__
    assert left is own or "torch._dynamo" in sys.modules


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))


def test_each_call_of_the_outermost_module_is_one_and_those_within_are_none(
    watched: Watched,
) -> None:
    own, x = model(), torch.ones(2, 4)
    expected = own(x)
    for _ in range(9):
        assert torch.equal(own(x), expected)
    assert watched.usual == [True] * (10 - ROUNDS + 1)


def test_a_module_without_parameters_leads_no_rounds(watched: Watched) -> None:
    own, activation, x = model(), nn.GELU(), torch.ones(2, 4)
    for _ in range(6):
        activation(own(activation(x)))
    assert len(watched.usual) == 6 - ROUNDS + 1


def test_of_two_modules_in_turn_the_first_leads(watched: Watched) -> None:
    encoder, decoder, x = model(), model(), torch.ones(2, 4)
    for _ in range(6):
        decoder(encoder(x))
    assert len(watched.usual) == 6 - ROUNDS + 1


def test_another_module_that_is_called_again_and_again_leads_where_the_first_is_not(
    watched: Watched,
) -> None:
    text, unet, x = model(), model(), torch.ones(2, 4)
    text(x)
    for _ in range(10):
        unet(x)
    text(x)
    assert len(watched.usual) == 10 - ROUNDS + 1


def test_the_prompt_is_of_another_kind_than_the_tokens_after_it(watched: Watched) -> None:
    own = model()
    for _ in range(2):
        for length in (7, 1, 1, 1, 1):
            own(torch.ones(1, length, 4))
    assert watched.usual == [True, True, True, False, True, True, True, True]


def test_steps_that_all_differ_all_count(watched: Watched) -> None:
    own = model()
    for length in range(1, 9):
        own(torch.ones(1, length, 4))
    assert watched.usual == [True] * (8 - ROUNDS + 1)


def test_the_smallest_tensor_tells_the_kind_and_not_a_mask_that_grows(watched: Watched) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return ids * self.scale

    own = Masked()
    own(mask=torch.ones(1, 9), ids=torch.ones(1, 9))
    for length in range(10, 20):
        own(mask=torch.ones(1, length), ids=torch.ones(1, 1))
    assert all(watched.usual)


def test_a_failing_forward_ends_its_own_call_alone(watched: Watched) -> None:
    own = model()
    for width in (4, 4, 3, 4, 4):
        if width == 4:
            own(torch.ones(1, width))
        else:
            with pytest.raises(RuntimeError):
                own(torch.ones(1, width))
    assert len(watched.usual) == 3


def test_modules_on_other_threads_are_not_heard(watched: Watched) -> None:
    own, x = model(), torch.ones(1, 4)
    other = threading.Thread(target=lambda: [own(x) for _ in range(9)])
    other.start()
    other.join()
    assert watched.usual == []


def test_what_is_compiled_is_neither_broken_nor_compiled_again(watched: Watched) -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    own, x = model(), torch.ones(2, 4)
    compiled = torch.compile(own, backend=counter)
    for _ in range(8):
        assert torch.allclose(compiled(x), own(x))
    watched.forwards.remove()
    compiled(x)
    assert counter.frame_count == 1
    assert len(watched.usual) == 8 - ROUNDS + 1


class Program:
    """A loop without marks, under a session."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.results: list[PassResult] = []
        names = ("plain", "trace", "accounting")
        self.session = Session(limits, names, folder, self.results.append)
        marks.listen(self.session)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    yield
    marks.listen(None)


def test_forward_passes_are_steps_until_an_optimizer_takes_one(tmp_path: Path) -> None:
    program = Program(tmp_path, Limits(0, 2))
    for _ in range(4):
        program.session.forwarded()
    assert list(program.session.courses) == [FORWARD]
    program.session.optimized()
    program.session.forwarded()
    assert list(program.session.courses) == [IMPLICIT]
    assert [(p.region, p.name, p.steps) for p in program.results] == [(FORWARD, "plain", 2)]


def test_a_call_with_many_tokens_between_calls_with_one_is_a_prompt(watched: Watched) -> None:
    own = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10))
    for tokens in (8, 1, 1, 1, 1, 8, 1, 1, 5, 1):
        own(torch.zeros(2, tokens, dtype=torch.int64))
    # The first calls find the leader, and then the shape of most calls.
    assert watched.prompts[-5:] == [(2, 8), None, None, (2, 5), None]
    assert watched.usual[-5:] == [False, True, True, False, True]


class Placed(nn.Module):
    """A model that gets places beside the tokens, as vectors or as numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.inner(ids)


@pytest.mark.parametrize("number", [False, True])
def test_places_beside_the_tokens_hide_neither_them_nor_the_sequences(
    watched: Watched, number: bool
) -> None:
    own = Placed()
    for tokens in (8, 1, 1, 1, 1, 8, 1):
        places = torch.tensor(5) if number else torch.arange(tokens)
        own(torch.zeros(3, tokens, dtype=torch.int64), places)
    assert watched.prompts[-2:] == [(3, 8), None]


def test_a_smaller_batch_at_the_end_is_no_prompt(watched: Watched) -> None:
    own = model()
    for rows in (8, 8, 8, 8, 8, 3):
        own(torch.ones(rows, 4))
    assert watched.usual[-1] is False
    assert not any(watched.prompts)


def test_prompts_are_timed_by_their_length_beside_the_passes_over_tokens(tmp_path: Path) -> None:
    program = Program(tmp_path, Limits(0, 4))
    for tokens in (16, 16, 32):
        program.session.forwarded(False, (4, tokens))
        time.sleep(0.01)
        for _ in range(8):
            program.session.forwarded()
    program.session.close()
    prompts = {p.region: p for p in program.results if p.region.startswith(PROMPT)}
    assert {region: p.name for region, p in prompts.items()} == {
        "prompt of 4 × 16 tokens": "plain",
        "prompt of 4 × 32 tokens": "plain",
    }
    assert all(0.01 <= s < 1 for p in prompts.values() for s in p.steps_s)
    plain = next(p for p in program.results if p.region == FORWARD and p.name == "plain")
    assert plain.steps == 4
    assert max(plain.steps_s) < 0.01


def test_prompts_are_timed_however_long_the_first_of_them_compiles(tmp_path: Path) -> None:
    program = Program(tmp_path, Limits(0, 4, budget_s=0.01))
    for _ in range(5):
        program.session.forwarded(False, (4, 16))
        time.sleep(0.02)
        for _ in range(2):
            program.session.forwarded()
    program.session.close()
    (timed,) = (p for p in program.results if p.region.startswith(PROMPT))
    assert timed.steps >= 3


def test_a_prompt_in_chunks_and_prompts_in_a_row_are_not_timed(tmp_path: Path) -> None:
    program = Program(tmp_path, Limits(0, 50))
    for prompts in (2, 1, 3):
        for _ in range(prompts):
            program.session.forwarded(False, (1, 16))
        for _ in range(4):
            program.session.forwarded()
    program.session.close()
    (timed,) = (p for p in program.results if p.region.startswith(PROMPT))
    assert timed.steps == 1


def test_prompts_of_too_many_lengths_are_not_timed(tmp_path: Path) -> None:
    program = Program(tmp_path, Limits(0, 50))
    for tokens in range(2, 3 + MOST_LENGTHS):
        program.session.forwarded(False, (1, tokens))
        program.session.forwarded()
    assert len(program.session.courses) == 1 + MOST_LENGTHS
    program.session.optimized()
    assert list(program.session.courses) == [IMPLICIT]


def test_steps_that_another_kind_ends_are_of_no_pass(tmp_path: Path) -> None:
    from gpuperf.profile.trace.kineto import read_trace
    from gpuperf.profile.trace.steps import marked

    program = Program(tmp_path, Limits(0, 3))
    x = torch.ones(3)
    for usual in (True, True, False, True) * 8:
        program.session.forwarded(usual)
        x = x + 1 if usual else x * 2
    program.session.close()
    by = {p.name: p for p in program.results}
    assert {name: p.steps for name, p in by.items()} == {"plain": 3, "trace": 3, "accounting": 3}
    windows = marked(read_trace(Path(by["trace"].trace)), FORWARD)
    assert len(windows) >= 3 + len(by["trace"].dropped) > 3
    assert {one.call.name for one in by["accounting"].calls} == {"aten::add"}
    assert len(by["accounting"].calls) == 3
