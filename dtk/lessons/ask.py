"""`ask`: a prediction that is made before a run, kept, and compared with what the learner's own run shows."""

from __future__ import annotations

import html
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from dtk.environment import live_mode
from dtk.errors import DtkError
from dtk.lessons.kept import keep, kept
from dtk.view.controls import STYLE, beside, styled

__all__ = ["Prediction", "ask"]

_CLOSE = 0.1  # a number within a tenth counts as right


def ask(
    name: str,
    question: str,
    options: Sequence[str] | Mapping[str, float] | None = None,
    *,
    between: tuple[float, float] | None = None,
    unit: str = "",
    answer: float | None = None,
) -> Prediction:
    """Asks for a prediction, keeps it, and later says how it compares with what your own run shows.

        speed = dtk.ask("00.speed", "How many times as fast are two workers?", between=(0.5, 2), unit="times")
        ...
        speed.came_out(1.16)    # you said 2 times; here it is 1.16 times: off by a factor of 1.7

    In a notebook it shows itself as a widget; elsewhere as text, to be answered by `answer=`. Without an answer
    everything goes on as well. The first answer counts: `dtk.answers(forget=name)` removes it.

    Args:
        name: the question's own, "LESSON.WORD".
        question: one sentence.
        options: what can be chosen, at least two. As a mapping: each option and the number that it stands for.
        between: instead of options, the least and the greatest number that can be given.
        unit: of the number, such as "times" or "s".
        answer: the number of the option, counted from 1, or the number itself.

    Returns:
        The prediction.

    Raises:
        DtkError: neither options nor between, or both; an answer that is none of the options or out of bounds.
    """
    prediction = Prediction(name, question, options, between, unit)
    if answer is not None:
        prediction.keep(answer)
    return prediction


class Prediction:
    """A question and, once it is given, the learner's answer. Made by `ask`.

    Attributes:
        name, question, unit: as given to `ask`.
        options: the texts of the options; () where a number is asked for.
    """

    def __init__(
        self,
        name: str,
        question: str,
        options: Sequence[str] | Mapping[str, float] | None,
        between: tuple[float, float] | None,
        unit: str,
    ):
        if (options is None) == (between is None) or (options is not None and len(options) < 2):
            raise DtkError(f"the question {name} has no bounds", remedy="pass options=[...] or between=(least, most)")
        lesson, _, word = name.partition(".")
        if not lesson or not word:
            raise DtkError(f"{name!r} is no name of a question", remedy='name it "LESSON.WORD", such as "00.speed"')
        self.name, self.question, self.unit = name, question, unit
        self.options = tuple(options or ())
        self._values = tuple(options.values()) if isinstance(options, Mapping) else ()
        self._between = between or (1, len(self.options))

    @property
    def given(self) -> float | None:
        """The answer: an option's number, counted from 1, or the number itself; None before one is kept."""
        entries = kept().get(self.name, {}).get("predicted")
        return entries[0]["value"] if entries else None

    def keep(self, answer: float) -> None:
        """Keeps this answer, unless there is one already.

        Raises:
            DtkError: the answer is none of the options, or out of bounds.
        """
        least, most = self._between
        whole = not self.options or answer in range(1, len(self.options) + 1)
        if isinstance(answer, bool) or not isinstance(answer, int | float) or not (least <= answer <= most and whole):
            kind = "the number of an option," if self.options else "a number"
            raise DtkError(f"answer={answer!r} is not {kind} from {least:g} to {most:g}")
        if self.given is None:
            keep("predicted", self.name, value=answer, words=self._words(answer), question=self.question)

    def came_out(self, value: float) -> None:
        """Prints what was predicted beside what came out, and keeps both.

        Args:
            value: what your own run shows: the number; with options, the number of the option that holds, counted
                from 1; with options that stand for numbers, the measured number, of which the nearest option holds.
        """
        said, true = self.given, value
        if self._values:
            true = min(range(len(self._values)), key=lambda at: abs(self._values[at] - value)) + 1
        keep("came out", self.name, value=value, words=self._words(true))
        if said is None:
            print(f"{self.name}: no prediction; here it is {self._words(true)}")
        else:
            print(f"{self.name}: you said {self._words(said)}; here it is {self._words(true)}: {self._off(said, true)}")

    def _words(self, answer: float) -> str:
        if self.options:
            return self.options[int(answer) - 1]
        return f"{answer:,.3g} {self.unit}".strip() if abs(answer) < 1e6 else f"{answer:,.0f} {self.unit}".strip()

    def _off(self, said: float, true: float) -> str:
        if self.options:
            return "right" if said == true else "not what you expected"
        if abs(said - true) <= _CLOSE * abs(true):
            return "right, to a tenth"
        if said * true > 0:
            return f"off by a factor of {max(said / true, true / said):.2g}"
        return f"off by {abs(said - true):.3g} {self.unit}".strip()

    def __repr__(self) -> str:
        lines = [f"Predict ({self.name}): {self.question}"]
        lines += [f"  {number}. {option}" for number, option in enumerate(self.options, 1)]
        if not self.options:
            lines += [f"  a number from {self._between[0]:g} to {self._between[1]:g} {self.unit}".rstrip()]
        said = self.given
        none = "no answer yet (as text: dtk.ask(..., answer=NUMBER))"
        return "\n".join([*lines, none if said is None else f"you said {self._words(said)}"])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if live_mode() == "widgets" and importlib.util.find_spec("ipywidgets") is not None:
            display(beside(self._box(), repr(self)), raw=True)
        else:
            display({"text/plain": repr(self)}, raw=True)

    def _box(self) -> Any:
        import ipywidgets

        words = ipywidgets.HTML(f"{STYLE}<b>Predict.</b> {html.escape(self.question)}")
        line = ipywidgets.HTML()
        if self.options:
            control = ipywidgets.RadioButtons(
                options=[(text, number) for number, text in enumerate(self.options, 1)],
                value=None,
                layout=ipywidgets.Layout(width="auto"),
            )
        else:
            least, most = self._between
            control = ipywidgets.BoundedFloatText(value=least, min=least, max=most, step=None, description=self.unit)
        button = ipywidgets.Button(description="Keep my answer")

        def show() -> None:
            said = self.given
            control.disabled = button.disabled = said is not None
            if said is not None:
                line.value = html.escape(f"You said: {self._words(said)}. A later cell compares it with your run.")

        def on_click(_: Any) -> None:
            if control.value is None:
                line.value = "Choose one first."
                return
            self.keep(control.value)
            show()

        button.on_click(on_click)
        show()
        return styled(ipywidgets.VBox([words, control, button, line]))
