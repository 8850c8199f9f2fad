"""Pictures of partitions: the regions of a network in one or two dimensions, and how they soften at finite scale.

The colour of a region is the slope of the network on it: the hue its direction, the depth its steepness. So regions
with the same slope look the same, and a border shows as a change of colour. matplotlib is imported only when something
is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headsmith.core.arrays import Array
from headsmith.core.errors import HeadsmithError
from headsmith.core.intervals import Box
from headsmith.core.pictures import figure_class, save_figure
from headsmith.lab.regions.bounds import bounds_of
from headsmith.lab.regions.levels import Levels
from headsmith.lab.regions.result import Regions
from headsmith.lab.regions.soften import Softening, soft_bound, soften, softened

INK, LINE = "#1b2a3a", "#ffffff"
SIDE = 320
"""Pixels of a map along each side."""


def draw_regions(regions: Regions, path: str | os.PathLike[str], *, title: str = "") -> None:
    """Draw a partition with its counts into `path` (.png, .svg or .pdf), completely or not at all."""
    if regions.box.size > 2:
        raise HeadsmithError(
            f"regions in {regions.box.size} dimensions are not drawn; give a slice (origin, u, v) to draw a plane"
        )
    save_figure(figure_of(regions, title), Path(path))


def figure_of(regions: Regions, title: str = "") -> Any:
    """The partition as a matplotlib figure."""
    plane = regions.box.size == 2
    figure = _figure((7.6, 7.4) if plane else (9.5, 4.6))
    axes = figure.subplots()
    _draw_plane(axes, regions) if plane else _draw_line(axes, regions)
    figure.suptitle((f"{title}\n" if title else "") + counts_text(regions), fontsize=11, color=INK)
    return figure


def counts_text(regions: Regions) -> str:
    """The counts by all definitions, and the smallest upper bound."""
    if not regions.complete:
        return f"at least {regions.cells:,} cells (partial: {regions.stopped})"
    bound = bounds_of(regions.oracle.levels, regions.box.size)[-1]
    linear, pieces = regions.count("linear"), regions.count("pieces")
    limit = f"{bound.value:,}" if bound.value < 10**9 else f"{float(bound.value):.2e}"
    counted = f"{regions.cells:,} cells   {linear:,} linear regions   {pieces:,} pieces"
    return f"{counted}\n(no network of this shape has more than {limit}: {bound.source})"


def slope_colours(slopes: Array, reference: Array | None = None) -> Array:
    """Colours (n, 3) for slopes (n, d): hue by direction (sign, in one dimension), depth by steepness.

    Depth is the place among the steepnesses of `reference` (these slopes themselves, if none is given): a few steep
    regions must not make all others pale.
    """
    from matplotlib.colors import hsv_to_rgb

    steep = np.linalg.norm(slopes, axis=1)
    known = np.unique(np.round(np.linalg.norm(slopes if reference is None else reference, axis=1), 9))
    depth = np.interp(steep, known, np.linspace(0.0, 1.0, len(known)))
    if slopes.shape[1] == 1:
        hue = np.where(slopes[:, 0] >= 0.0, 0.58, 0.06)
    else:
        hue = (np.arctan2(slopes[:, 1], slopes[:, 0]) / (2.0 * np.pi)) % 1.0
    saturation = np.where(steep > 0.0, 0.28 + 0.42 * depth, 0.0)
    return np.asarray(hsv_to_rgb(np.stack([hue, saturation, 0.97 - 0.22 * depth], axis=1)))


def _draw_plane(axes: Any, regions: Regions) -> None:
    from matplotlib.collections import PolyCollection

    polygons = np.split(regions.points, regions.starts[1:-1])
    colours = slope_colours(regions.maps[:, 0, :-1])
    width = float(np.clip(30.0 / np.sqrt(max(1, regions.cells)), 0.15, 1.2))
    axes.add_collection(PolyCollection(polygons, facecolors=colours, edgecolors=LINE, linewidths=width))
    (left, bottom), (right, top) = regions.box.low, regions.box.high
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal" if 1 / 3 <= (right - left) / (top - bottom) <= 3 else "auto")
    axes.set_xlabel(regions.box.names[0])
    axes.set_ylabel(regions.box.names[1])
    _plain(axes)


def _draw_line(axes: Any, regions: Regions) -> None:
    """The function, its pieces in the colours of their slopes, its kinks marked below."""
    ends = regions.points[:, 0].reshape(-1, 2)
    colours = slope_colours(regions.maps[:, 0, :-1])
    values = regions.maps[:, 0, 0, None] * ends + regions.maps[:, 0, 1, None]
    from matplotlib.collections import LineCollection

    axes.add_collection(LineCollection(list(np.stack([ends, values], axis=2)), colors=colours * 0.8, linewidths=2.2))
    low, high = float(values.min()), float(values.max())
    pad = 0.08 * (high - low) or 0.5
    strip = low - 2.2 * pad
    axes.bar(
        ends[:, 0], pad, ends[:, 1] - ends[:, 0], strip, align="edge", color=colours, edgecolor=LINE, linewidth=0.5
    )
    axes.set_xlim(regions.box.low[0], regions.box.high[0])
    axes.set_ylim(strip - 0.4 * pad, high + pad)
    axes.set_xlabel(regions.box.names[0])
    axes.set_ylabel("output" if len(regions.maps[0]) == 1 else "output 0")
    _plain(axes)


def draw_softening(
    levels: Levels, box: Box, path: str | os.PathLike[str], scales: Sequence[float] = (2.0, 8.0, 32.0)
) -> None:
    """The same weights at growing scale b, and as hardmax: the function above, below it its error over the bound."""
    save_figure(softening_figure(levels, box, scales), Path(path))


def softening_figure(levels: Levels, box: Box, scales: Sequence[float]) -> Any:
    """One column for each scale; then the exact partition, and the largest error against the scale."""
    from headsmith.lab.regions.enumeration import regions

    figure = _figure((3.5 * (len(scales) + 1), 7.2))
    axes = figure.subplots(2, len(scales) + 1)
    points = _grid(box)
    exact, found = levels(points)[..., 0], regions(levels, box)
    extent = (box.low[0], box.high[0], box.low[1], box.high[1])
    heights = np.linspace(float(exact.min()), float(exact.max()), 13)
    for (above, below), scale in zip(axes.T, scales, strict=False):
        soft, bound = softened(levels, points, scale)[..., 0], float(soft_bound(levels, scale)[0])
        colours = _shaded(soft, points, found.maps[:, 0, :-1])
        above.imshow(colours, origin="lower", extent=extent, interpolation="bilinear", aspect="auto")
        above.contour(points[..., 0], points[..., 1], soft, heights, colors=INK, linewidths=0.5)
        share = np.abs(soft - exact) / bound
        shown = below.imshow(
            share,
            origin="lower",
            extent=extent,
            cmap="magma",
            vmin=0.0,
            vmax=1.0,
            aspect="auto",
            interpolation="bilinear",
        )
        above.set_title(f"softmax, b = {scale:g}", color=INK)
        below.set_title(f"|error| / bound, bound {bound:.3g}", color=INK)
    figure.colorbar(shown, ax=axes[1, -2], fraction=0.08)
    _draw_plane(axes[0, -1], found)
    axes[0, -1].contour(points[..., 0], points[..., 1], exact, heights, colors=INK, linewidths=0.5)
    axes[0, -1].set_title(f"hardmax: {len(found)} regions", color=INK)
    axes[0, -1].set_aspect("auto")
    _draw_errors(
        axes[1, -1], soften(levels, points.reshape(-1, 2), np.geomspace(min(scales), 8.0 * max(scales), 12).tolist())
    )
    return figure


def _draw_errors(axes: Any, rows: Sequence[Softening]) -> None:
    """The largest error found and its bound, against the scale."""
    scales = [row.scale for row in rows]
    axes.loglog(scales, [row.bound for row in rows], "--", color=INK, linewidth=1.0, label="bound")
    axes.loglog(scales, [row.found for row in rows], "o-", color="#d94801", markersize=3.5, label="largest error")
    axes.set_xlabel("scale b")
    axes.set_title("error against scale", color=INK)
    axes.legend(frameon=False)
    axes.grid(alpha=0.25, linewidth=0.5)
    _plain(axes)


def _grid(box: Box) -> Array:
    """Points of a rectangle, (SIDE, SIDE, 2)."""
    xs, ys = (np.linspace(box.low[axis], box.high[axis], SIDE) for axis in (0, 1))
    return np.stack(np.meshgrid(xs, ys), axis=-1)


def _shaded(values: Array, points: Array, reference: Array) -> Array:
    """The colours of the slopes of a function on a grid."""
    step = points[1, 1] - points[0, 0]
    down, across = np.gradient(values, step[1], step[0])
    return slope_colours(np.stack([across.ravel(), down.ravel()], axis=1), reference).reshape(*values.shape, 3)


def _figure(size: tuple[float, float]) -> Any:
    return figure_class()(figsize=size, layout="constrained", dpi=130)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=9)
