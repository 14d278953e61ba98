"""Labs, and controls that have a name for a screen reader and that the keyboard reaches, from core ipywidgets (7.7, 8).

Not sliders and toggle buttons, which don't tell their name or what is chosen; nor drop-down lists, whose arrow keys
JupyterLab takes for its own (https://jupyterlab.readthedocs.io/en/stable/user/interface.html#keyboard-shortcuts).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLED, _FOLDED = "dtk-controls", "dtk-folded"
# ipywidgets gives each answer the height of one line, so that in a narrow window they would lie upon one another, and
# sets the button of a long one beside its last line.
STYLE = f"""<style>
.{STYLED} .widget-radio, .{STYLED} .widget-radio-box {{height: auto; width: auto; margin-bottom: 0}}
.{STYLED} .widget-radio-box {{flex-wrap: wrap}}
.{STYLED} .widget-radio-box-vertical label {{display: flex; flex-direction: row-reverse; justify-content: flex-end;
    gap: 6px; align-items: flex-start; width: auto; height: auto; line-height: 1.4; margin: 2px 0; white-space: normal}}
.{STYLED} .widget-radio-box-vertical input {{margin: 1px 0 0}}
.{STYLED} .widget-html-content {{line-height: 1.4}}
.{_FOLDED} .p-Collapse-header, .{_FOLDED} .jupyter-widget-Collapse-header {{display: none}}
.{_FOLDED} .p-Collapse-contents, .{_FOLDED} .jupyter-widget-Collapse-contents {{border: 0; padding: 0}}
</style>"""


class Verbatim(str):
    """A text that shows itself as it is, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


class Displayed:
    """Widgets, in `box`. title: their name. page: what stands for them where no kernel answers, as HTML."""

    title: str
    box: Any
    page: str

    def __repr__(self) -> str:
        # No numbers: this text may stand in a stored output, whatever the learner last set.
        return f"<lab of dtk: {self.title}>"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({**beside(self.box, repr(self)), "text/html": self.page}, raw=True)


class Lab(Displayed):
    """Controls for a learner to set, and `words` and a `picture` of what they stand for.

    controls: widgets with a `value`, by name.
    draw: is called with the controls' values, and returns the words, as HTML, and the axes of a figure for them.
    """

    def __init__(self, title: str, controls: dict[str, Any], draw: Callable[..., tuple[str, Axes]]):
        import ipywidgets

        self.title, self.controls, self._draw = title, controls, draw
        self.words, self.picture = ipywidgets.HTML(), ipywidgets.HTML()
        row = ipywidgets.HBox([*controls.values()], layout={"flex_flow": "row wrap"})  # beside the picture on a screen
        self.box = ipywidgets.VBox([row, self.words, self.picture]).add_class(STYLED)
        for control in controls.values():
            control.observe(self._redraw, "value")
        self._redraw()

    def _redraw(self, change: Any = None) -> None:
        from dtk.view.canvas import image

        words, ax = self._draw(**{name: control.value for name, control in self.controls.items()})
        self.words.value = STYLE + words
        figure: Any = ax.get_figure(root=True)
        # Below 30em its letters would be too small to read; the page then scrolls the picture.
        style = f"width:{figure.get_figwidth():g}in;max-width:100%;min-width:30em"
        self.page = self.picture.value = f'<div style="overflow-x:auto">{image(figure, style)}</div>'


def beside(box: Any, text: str) -> dict[str, Any]:
    """Return what IPython displays: the widgets, and the text that stands for them where none run."""
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    return {"application/vnd.jupyter.widget-view+json": view, "text/plain": text}


def choice(options: Sequence[Any], value: Any, description: str, width: str) -> Any:
    """Create a choice of `options` (names, or pairs of name and value), in a row from ipywidgets 8.1 on.

    width: of the name.
    """
    import ipywidgets

    row: dict[str, Any] = {"orientation": "horizontal"} if hasattr(ipywidgets.RadioButtons, "orientation") else {}
    looks = {"style": {"description_width": width}, "layout": {"width": "auto"}, **row}
    return ipywidgets.RadioButtons(options=list(options), value=value, description=description, **looks)


def one_of(panes: Sequence[Any], names: Sequence[str], description: str) -> Any:
    """Show one of the panes: chosen by mouse or keyboard, and in the page alone, while the kernel works.

    An Accordion without its headers, which the keyboard doesn't reach; not a Stack, which ipywidgets has from 8.1 on.
    """
    import ipywidgets

    chosen = choice(names, names[0], description, "initial")
    stack = ipywidgets.Accordion(children=list(panes), selected_index=0).add_class(_FOLDED)
    ipywidgets.jslink((chosen, "index"), (stack, "selected_index"))
    return ipywidgets.VBox([chosen, stack]).add_class(STYLED)


def number(value: float, least: float, most: int, description: str, width: str) -> Any:
    """Create a field for a number, a whole one if `value` is, for its digits or the arrow keys. width: of the name."""
    import ipywidgets

    kind = ipywidgets.BoundedIntText if isinstance(value, int) else ipywidgets.BoundedFloatText
    looks = {"style": {"description_width": width}, "layout": {"width": f"calc({width} + 6em)"}}
    return kind(value, min=least, max=most, description=description, **looks)
