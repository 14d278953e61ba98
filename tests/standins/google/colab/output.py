"""What lessons may call of google.colab.output."""

from __future__ import annotations


def enable_custom_widget_manager() -> None:
    """On Colab it loads ipywidgets' own renderer; here nothing renders."""
