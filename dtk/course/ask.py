"""`ask`: a prediction that is made before a run, kept, and compared with what the learner's own run shows."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from dtk.course.kept import keep, kept, shown
from dtk.environment import live_mode
from dtk.errors import DtkError
from dtk.language import N_, _
from dtk.view.controls import STYLE, STYLED, beside

_CLOSE = 0.1  # a number within a tenth counts as right
_Options = Sequence[str] | Mapping[str, float] | None
_Between = tuple[float, float] | None


def ask(
    name: str,
    question: str,
    options: _Options = None,
    *,
    between: _Between = None,
    unit: str = "",
    answer: float | None = None,
) -> Prediction:
    """Asks for a prediction, keeps it, and later says how it compares with what your own run shows.

        speed = dtk.ask("00.speed", "How many times as fast are two workers?", between=(0.5, 2), unit="times")
        ...
        speed.came_out(1.16)    # you said 2 times; this run: 1.16 times (off by a factor of 1.7)

    In a notebook it is a widget; elsewhere text, to be answered by `answer=`. Without an answer everything goes on. It
    can be changed until it is compared with what comes out; `dtk.answers(forget=name)` removes it.

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

    def __init__(self, name: str, question: str, options: _Options, between: _Between, unit: str):
        if (options is None) == (between is None) or (options is not None and len(options) < 2):
            raise DtkError(_("{name}: a question takes options=[...] or between=(least, most)", name=name))
        lesson, __, word = name.partition(".")
        if not lesson or not word:
            raise DtkError(_('{name!r}: a question has a name "LESSON.WORD", such as "00.speed"', name=name))
        self.name, self.question, self.unit = name, question, unit
        self.options = tuple(options or ())
        self._values = tuple(options.values()) if isinstance(options, Mapping) else ()
        self._between = between or (1, len(self.options))

    @property
    def given(self) -> float | None:
        """The answer: an option's number, counted from 1, or the number itself; None before one is kept."""
        entries = kept().get(self.name, {}).get("predicted")
        return entries[-1]["value"] if entries else None

    @property
    def is_settled(self) -> bool:  # what came out was compared with the answer, which stays as it is
        return {"predicted", "came out"} <= {*kept().get(self.name, {})}

    def keep(self, answer: float) -> None:
        """Keeps this answer, unless one was compared with what came out.

        Raises:
            DtkError: the answer is none of the options, or out of bounds.
        """
        least, most = self._between
        whole = not self.options or answer in range(1, len(self.options) + 1)
        if isinstance(answer, bool) or not isinstance(answer, int | float) or not (least <= answer <= most and whole):
            what = N_("answer={answer!r}: it takes a number from {least:g} to {most:g}, a whole one for an option")
            raise DtkError(_(what, answer=answer, least=least, most=most))
        if answer != self.given and not self.is_settled:
            keep("predicted", self.name, value=answer, question=self.question, **self._words(answer))

    def came_out(self, value: float) -> None:
        """Prints what was predicted beside what came out, and keeps both.

        Args:
            value: what your own run shows: the number; with options, the number of the option that holds, counted
                from 1; with options that stand for numbers, the measured number, of which the nearest option holds.
        """
        said, true = self.given, value
        if self._values:
            true = min(range(len(self._values)), key=lambda at: abs(self._values[at] - value)) + 1
        keep("came out", self.name, value=value, question=self.question, **self._words(true))
        here = self._shown(true)
        if said is None:
            print(_("{name}: no prediction; this run: {here}", name=self.name, here=here))
        else:
            words = N_("{name}: you said {said}; this run: {here} ({off})")
            print(_(words, name=self.name, said=self._shown(said), here=here, off=self._off(said, true)))

    def _words(self, answer: float) -> dict[str, str]:
        """The answer as it is kept, whatever language is spoken: an option's text, or a number with its unit."""
        if self.options:
            return {"words": self.options[int(answer) - 1]}
        number = f"{answer:,.3g}" if abs(answer) < 1e6 else f"{answer:,.0f}"
        return {"words": f"{number} {self.unit}".strip(), "unit": self.unit}

    def _head(self) -> str:
        return _("Predict ({name}): {question}", name=self.name, question=_(self.question))

    def _shown(self, answer: float) -> str:
        return shown(self._words(answer))

    def _off(self, said: float, true: float) -> str:
        if said == true or (not self.options and abs(said - true) <= _CLOSE * abs(true)):
            return _("right")
        if self.options or said * true <= 0:
            return _("not what you expected")
        return _("off by a factor of {factor:.2g}", factor=max(said / true, true / said))

    def _bounds(self) -> str:
        least, most = self._between
        return _("a number from {least:g} to {most:g} {unit}", least=least, most=most, unit=_(self.unit)).rstrip()

    def __repr__(self) -> str:
        choices = [f"  {number}. {_(option)}" for number, option in enumerate(self.options, 1)]
        said = _("no answer yet (as text: dtk.ask(..., answer=NUMBER))")
        if self.given is not None:
            said = _("you said {answer}", answer=self._shown(self.given))
        return "\n".join([self._head(), *(choices or [f"  {self._bounds()}"]), said])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(beside(self._box(), repr(self)) if live_mode() == "widgets" else {"text/plain": repr(self)}, raw=True)

    def _box(self) -> Any:
        """The question with its choices, or an empty field for a number: an answer is kept at once."""
        import ipywidgets

        words = ipywidgets.HTML(f"{STYLE}<b>{html.escape(self._head())}</b>")
        line = ipywidgets.HTML()
        control: Any
        if self.options:
            choices = [(_(text), number) for number, text in enumerate(self.options, 1)]
            control = ipywidgets.RadioButtons(options=choices, value=None, layout=ipywidgets.Layout(width="auto"))
        else:
            control = ipywidgets.Text(placeholder=self._bounds(), description=_(self.unit), continuous_update=False)

        def show() -> None:
            if (said := self.given) is not None:
                control.disabled, control.value = self.is_settled, int(said) if self.options else f"{said:g}"
                line.value = html.escape(_("you said {answer}", answer=self._shown(said)))

        def on_value(change: Any) -> None:
            try:
                self.keep(change.new if self.options else float(change.new))
            except (ValueError, DtkError):
                line.value = html.escape(self._bounds())
            show()

        show()
        control.observe(on_value, "value")
        return ipywidgets.VBox([words, control, line]).add_class(STYLED)
