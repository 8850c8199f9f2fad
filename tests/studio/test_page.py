"""A saved page in a real browser: it runs the model as Python does, moves when inputs are dragged, loads nothing."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.models.gallery import MODELS
from helpers.pages.browser import Browser

import headsmith as hs
from headsmith.cli import commands
from headsmith.core.functions import FUNCTIONS
from headsmith.core.rounding import held
from headsmith.kernel.core.functions import FUNCTIONS as KNOWN
from headsmith.language.evaluation import evaluate
from headsmith.studio.extras import random_rows
from headsmith.studio.page import page_html
from headsmith.studio.view import summary, view

INPUTS = 10_000 // len(MODELS) + 1
"""For each of the models: 10,000 in all."""


@pytest.fixture(scope="module")
def pages(gallery: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pages")

    def page(name: str) -> str:
        path = folder / f"{name}.html"
        if not path.exists():
            path.write_text(page_html(view(gallery[name])), encoding="utf-8")
        return path.as_uri()

    return page


def opened(browser: Browser, address: str) -> None:
    browser.open(address)
    browser.wait("return document.querySelector('#model').dataset.settled")


def in_python(model: Any, given: list[Any]) -> list[Any]:
    """Python's outputs for every table of rows, those of the same length at once."""
    found: dict[int, Any] = {}
    for length in {len(rows) for rows in given}:
        places = [place for place, rows in enumerate(given) if len(rows) == length]
        outputs = np.asarray(model(np.stack([given[place] for place in places])), dtype=np.float64)
        found |= dict(zip(places, outputs, strict=True))
    return [found[place] for place in range(len(given))]


def number(browser: Browser, selector: str = ".results dd.big") -> float:
    return float(browser.text(selector))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", MODELS)
def test_the_browser_agrees_with_python_within_the_rounding_part(
    name: str, gallery: Any, pages: Any, browser: Browser
) -> None:
    model, random = gallery[name], np.random.default_rng(1)
    given = [random_rows(model, random) for _ in range(INPUTS)]
    opened(browser, pages(name))
    script = (
        "const view = JSON.parse(document.getElementById('view').textContent), model = headsmith.prepare(view);"
        "const all = new Set(view.layers.flatMap((heads, l) => heads.map((_, h) => `${l}.${h}`)));"
        "return arguments[0].map(rows => [headsmith.outputs(model, headsmith.run(model, rows)),"
        " headsmith.outputs(model, headsmith.run(model, rows, {references: true})),"
        " headsmith.evaluate(view.target, rows),"
        " view.target && headsmith.outputs(model, headsmith.run(model, rows, {exact: all}))])"
    )
    rounding, approximation = (model.certificate.parts[part] for part in ("rounding", "approximation"))
    worst = int(np.argmax(model.certificate.outputs))  # the parts are those of this output
    found = browser.run(script, [rows.tolist() for rows in given])
    for rows, python, (outputs, all_rows, target, exact) in zip(given, in_python(model, given), found, strict=True):
        off, off_by_all_rows = np.abs(outputs - python), np.abs(all_rows - python)
        assert off[..., worst].max() <= rounding
        # With the rows of reference tokens computed too, as a textbook would.
        assert off_by_all_rows[..., worst].max() <= rounding + model.certificate.parts["leak"]
        assert max(off.max(), off_by_all_rows.max()) <= model.certificate.error
        if target is not None:
            wanted = evaluate(model.graph, rows)
            assert np.abs(target - wanted).max() <= 1e-13 * max(1.0, np.abs(wanted).max())
            # Heads that return what they stand for leave the circuits' approximation alone.
            left = approximation if name in ("gates", "relu attention") else 0.0
            left += rounding if model.certificate.dtype != "float64" else 0.0
            left += model.certificate.parts["softmax"] if name == "neurons" else 0.0  # these gates are no heads
            assert np.abs(exact - wanted).max() <= left + 1e-12 * max(1.0, np.abs(wanted).max())
        # Outputs are numbers of the model's own format.
        assert np.array_equal(held(outputs, model.certificate.dtype), outputs)
    assert browser.run("return document.getElementById('agreement').dataset.agrees") == "true"


def test_the_target_is_evaluated_as_in_python(pages: Any, browser: Browser) -> None:
    opened(browser, pages("product"))
    points = np.linspace(0.01, 0.99, 60)
    script = "return arguments[1].map(x => headsmith.functions[arguments[0]](x, 2.5))"
    # Other tests define functions of their own, which a page does not know.
    for name, function in ((name, FUNCTIONS[name]) for name in {*KNOWN, "power"} & FUNCTIONS.keys()):
        for factor in (1.0, -1.0, 6.0, -6.0):
            inside = function.domain(2.5).covers(factor * points, factor * points)
            given = factor * points[inside]
            wanted = function.value(given, 2.5)
            found = np.array(browser.run(script, name, given.tolist()), dtype=np.float64)
            assert np.all(np.abs(found - wanted) <= 2e-14 * np.maximum(1.0, np.abs(wanted))), name


def test_dragging_an_input_moves_everything(pages: Any, browser: Browser) -> None:
    opened(browser, pages("product"))
    before, weights = number(browser), browser.text("tbody tr:nth-child(2) td:nth-child(4)")
    browser.drag("#input-0", (0.7, 0.5), (0.25, 0.5))
    browser.wait("return Number(document.getElementById('input-0').value) < 0")
    x, y = (float(browser.run(f"return document.getElementById('input-{i}').value")) for i in (0, 1))
    browser.wait(f"return Math.abs(document.querySelector('.results dd.big').textContent - {x * y}) < 1e-5")
    assert number(browser) != before
    assert browser.text("section[aria-label='One head at work'] table") != weights
    assert browser.run("return document.getElementById('outside').hidden")


def test_leaving_the_domain_is_told(pages: Any, browser: Browser) -> None:
    opened(browser, pages("product"))
    browser.drag("#input-0", (0.7, 0.5), (1.0, 0.5))
    browser.wait("return !document.getElementById('outside').hidden")
    assert "lies outside its domain [-1, 1]: nothing is promised" in browser.text("#outside")


def test_the_keyboard_moves_sliders_and_bars(pages: Any, browser: Browser) -> None:
    opened(browser, pages("product"))
    browser.run("document.getElementById('input-0').focus()")
    value = float(browser.run("return document.getElementById('input-0').value"))
    browser.press("\ue014", "\ue014")  # the right arrow, twice
    browser.wait("return Math.abs(document.getElementById('input-0').value - arguments[0]) < 1e-9", value + 0.04)
    opened(browser, pages("causal"))
    browser.run("document.querySelector('.bars [role=slider]').focus()")
    browser.press("\ue014", "\ue013")  # to the next token, and up
    focused = "return document.activeElement.getAttribute('aria-label')"
    assert browser.run(focused) == "x[:, 0] of token t1"


def test_a_head_is_told_measured_and_switched_off(pages: Any, browser: Browser) -> None:
    opened(browser, pages("network"))
    browser.click(".head:nth-child(2)")
    browser.wait("return document.querySelector('.head:nth-child(2)').getAttribute('aria-pressed') === 'true'")
    card = browser.text("section[aria-label='One head at work']")
    assert "Layer 1, sink head 1: relu(" in card
    assert "looks at itself with weight" in card
    before = number(browser)
    browser.click("#undecided")
    browser.wait("return document.getElementById('share').textContent.includes('soft')")
    browser.click("#off")
    browser.wait("return !document.getElementById('outside').hidden")
    assert "switched off" in browser.text("#outside")
    browser.click("#off")
    browser.wait("return document.getElementById('outside').hidden")
    assert number(browser) != before
    labels = browser.run("return [...document.querySelectorAll('.matrix')].map(m => m.textContent)")
    assert len(labels) == 4
    assert "feature 0" in labels[0]


def test_the_share_of_a_head_is_most_of_the_error_of_a_model_of_one(pages: Any, browser: Browser) -> None:
    opened(browser, pages("product"))
    browser.run("[...document.querySelectorAll('button')].find(b => b.textContent.includes('Measure')).click()")
    text = browser.text("#share")
    percent = float(re.findall(r"([\d.e-]+) % of the certified", text)[0])
    assert 50.0 < percent <= 100.0
    assert "an estimate" in text


def test_a_link_holds_the_whole_state(pages: Any, browser: Browser) -> None:
    opened(browser, pages("network"))
    browser.drag("#input-1", (0.3, 0.5), (0.8, 0.5))
    browser.click(".head:nth-child(3)")
    browser.wait("return document.querySelector('.head:nth-child(3)').getAttribute('aria-pressed') === 'true'")
    browser.click("#off")
    browser.wait('return decodeURIComponent(location.hash).includes(\'"off":["0.2"]\')')
    address, shown = browser.run("return location.href"), number(browser)
    browser.open("about:blank")
    opened(browser, address)
    assert number(browser) == shown
    assert "switched off" in browser.text("#outside")


@pytest.mark.parametrize("nonsense", ["%", "null", "[1]", '{"rows":[["a"]],"head":"9.9","off":[1],"token":-1}'])
def test_a_broken_link_shows_the_model_all_the_same(nonsense: str, pages: Any, browser: Browser) -> None:
    browser.open("about:blank")
    opened(browser, f"{pages('product')}#{nonsense}")
    assert np.isfinite(number(browser))


def test_sequences_have_bars_to_drag_and_patterns(pages: Any, browser: Browser) -> None:
    opened(browser, pages("centred"))
    before = browser.run("return document.querySelector('.bars.result').innerHTML")
    browser.drag(".bars", (0.1, 0.2), (0.8, 0.9))
    browser.wait("return document.querySelector('.bars.result').innerHTML !== arguments[0]", before)
    assert browser.run(
        "return [document.querySelector('.pattern').width, document.querySelector('.pattern').height]"
    ) == [64, 64]


def test_64_tokens_are_dragged_with_one_layout_a_frame(pages: Any, browser: Browser) -> None:
    """For each frame the page is laid out once, its styles are computed twice at most, and what is drawn takes the
    place of what was. How many milliseconds that takes depends on the machine."""
    opened(browser, pages("centred"))
    browser.emulate("Performance.enable")

    def counted() -> list[float]:
        found = {each["name"]: each["value"] for each in browser.emulate("Performance.getMetrics")["metrics"]}
        return [found[name] for name in ("LayoutCount", "RecalcStyleCount")]

    def drawn() -> int:
        return int(browser.run("return document.querySelectorAll('*').length"))

    before, elements, frames = counted(), drawn(), 90
    browser.run(
        """
        const bars = document.querySelector(".bars"), box = bars.getBoundingClientRect(), frames = arguments[0];
        const move = (type, share) => bars.dispatchEvent(new PointerEvent(type, {pointerId: 1, buttons: 1,
          bubbles: true, clientX: box.left + share * box.width,
          clientY: box.top + (0.5 + 0.4 * Math.sin(20 * share)) * box.height}));
        bars.setPointerCapture = () => {};
        return (async () => {
          for (let i = 0; i < frames; i++) {
            move(i ? "pointermove" : "pointerdown", i / frames);
            await new Promise(requestAnimationFrame);
          }
        })();
        """,
        frames,
    )
    layouts, styles = (after - start for after, start in zip(counted(), before, strict=True))
    browser.emulate("Performance.disable")
    assert 0 < layouts <= 1.2 * frames
    assert 0 < styles <= 2.2 * frames
    assert drawn() == elements


def test_a_learner_shows_what_it_learned_beside_scikit_learn(pages: Any, browser: Browser) -> None:
    opened(browser, pages("ridge"))
    card = "section[aria-label='What it learned']"
    assert "scikit-learn's Ridge(alpha=4, fit_intercept=False) finds: " in browser.text(card)
    opened(browser, pages("classes"))
    assert "scikit-learn's LogisticRegression(C=" in browser.text(card)
    browser.click(f"{card} summary")
    browser.run("const s = document.getElementById('along'); s.value = 1; s.dispatchEvent(new Event('change'))")
    browser.wait("return document.querySelectorAll(arguments[0] + ' tbody tr').length === 6", card)
    for row in browser.run(
        "return [...document.querySelectorAll(arguments[0] + ' tbody tr')]"
        ".map(r => [...r.querySelectorAll('td')].slice(1).map(d => Number(d.textContent)))",
        card,
    ):
        assert row[0] == pytest.approx(row[1], abs=1e-2)


def test_what_scikit_learn_finds_is_found_in_the_browser(pages: Any, browser: Browser) -> None:
    """Every rule that learners have, on three features; labels of classes are anything from 0 to 1."""
    linear_model, neighbors = (pytest.importorskip(f"sklearn.{name}") for name in ("linear_model", "neighbors"))
    opened(browser, pages("ridge"))
    rows = np.random.default_rng(0).uniform(-1, 1, (8, 7))
    X, y, queries = rows[:, :3], rows[:, 3], rows[:, 4:]
    chance = (1.0 + y) / 2.0
    plain, twice = {"features": 3, "rate": 0.5, "kept": 0.9}, {"sample_weight": np.concatenate([chance, 1.0 - chance])}
    Logistic = linear_model.LogisticRegression
    cases = [
        (plain, linear_model.Ridge(alpha=8 * 0.2, fit_intercept=False).fit(X, y)),
        ({**plain, "kept": 1.0}, linear_model.LinearRegression(fit_intercept=False).fit(X, y)),
        ({**plain, "kept": 1.0, "cut": 0.05}, linear_model.Lasso(alpha=0.1, fit_intercept=False, tol=1e-12).fit(X, y)),
        (
            {**plain, "loss": "logistic"},
            Logistic(C=1 / (8 * 0.2), fit_intercept=False, tol=1e-12, max_iter=10_000).fit(
                np.concatenate([X, X]), np.repeat([1, 0], 8), **twice
            ),
        ),
        (
            {"features": 3, "scale": 2.0},
            neighbors.KNeighborsRegressor(8, weights=lambda distance: np.exp(-2.0 * distance**2)).fit(X, y),
        ),
    ]
    script = (
        "const best = headsmith.reference(arguments[0], arguments[1]);"
        "return [best.name, arguments[2].map(best.predict)]"
    )
    for rule, theirs in cases:
        given = rows.copy()
        given[:, 3] = chance if "loss" in rule else y
        name, found = browser.run(script, rule, given.tolist(), queries.tolist())
        assert name.startswith(type(theirs).__name__)
        score = getattr(theirs, "decision_function", theirs.predict)
        assert found == pytest.approx(score(queries), abs=1e-6)
    undetermined = browser.run("return headsmith.reference(arguments[0], arguments[1])", cases[1][0], rows[:2].tolist())
    assert undetermined is None


def test_regions_are_drawn_level_by_level(gallery: Any, pages: Any, browser: Browser) -> None:
    opened(browser, pages("network"))
    regions = hs.regions(gallery["network"].graph, gallery["network"].box)
    card = "section[aria-label='Linear regions']"
    assert browser.run(f'return document.querySelectorAll("{card} polygon").length') == len(regions)
    assert f"{len(regions)} cells; {regions.count('linear')} linear regions" in browser.text(card)
    browser.run("const s = document.getElementById('levels'); s.value = 0; s.dispatchEvent(new Event('input'))")
    assert "0 of 1 level: 1 cell." in browser.text(card)


@pytest.mark.parametrize("name", ["product", "centred", "network", "ridge", "classes"])
def test_pages_fit_on_a_phone_and_name_their_controls(name: str, pages: Any, browser: Browser) -> None:
    browser.emulate("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    try:
        opened(browser, pages(name))
        assert browser.run("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.emulate("Emulation.clearDeviceMetricsOverride")
    nameless = browser.run(
        "return [...document.querySelectorAll('button, input, select, [role=slider], [role=img]')]"
        ".filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || (e.labels && e.labels.length)))"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert nameless == []


def test_texts_have_enough_contrast_in_light_and_dark(pages: Any, browser: Browser) -> None:
    opened(browser, pages("product"))
    script = (
        "const lum = c => { const v = [1, 3, 5].map(i => parseInt(c.slice(i, i + 2), 16) / 255)"
        ".map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);"
        " return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };"
        "return [['--ink', '--card'], ['--quiet', '--card'], ['--quiet', '--fill'], ['--blue', '--card'],"
        " ['--on', '--blue'], ['--bad', '--bad-ground'], ['--ink', '--sky'], ['--ink', '--ground']].map(([a, b]) => {"
        " const [x, y] = [lum(headsmith.css(a)), lum(headsmith.css(b))].sort((p, q) => q - p);"
        " return [a, b, (x + 0.05) / (y + 0.05)]; })"
    )
    for theme in ("light", "dark"):
        browser.run("document.documentElement.dataset.theme = arguments[0]", theme)
        for ink, ground, contrast in browser.run(script):
            assert contrast >= 4.5, (theme, ink, ground, contrast)


def test_the_command_writes_a_small_page_that_loads_nothing(gallery: Any, tmp_path: Path, browser: Browser) -> None:
    gallery["product"].save(tmp_path / "product.safetensors")
    page = tmp_path / "page.html"
    arguments = ["page", str(tmp_path / "product.safetensors"), "-o", str(page), "--json"]
    done = CliRunner().invoke(commands, arguments, catch_exceptions=False)
    assert json.loads(done.output) == {"file": str(page), "bytes": page.stat().st_size}
    assert page.stat().st_size <= 300_000
    opened(browser, page.as_uri())
    loaded = browser.run("return performance.getEntriesByType('resource').map(e => e.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    assert "the proof was checked again" in browser.text("section[aria-label='The promise']")
    head = browser.text("section[aria-label='One head at work']")
    assert "holds x" in head
    assert re.search(r"Its share of the proven error is [0-9.]+e-7, 100 % of the whole", head)
    assert str(tmp_path) not in page.read_text()


def test_a_page_says_what_it_cannot_run(gallery: Any, tmp_path: Path, browser: Browser) -> None:
    """A model that is too large, or has what pages do not run: its certificate and bill are there, and the reason."""
    (tmp_path / "told.html").write_text(
        page_html(summary(gallery["product"]) | {"cannot": "the model has other units"}), encoding="utf-8"
    )
    opened(browser, (tmp_path / "told.html").as_uri())
    assert "This page does not run the model: the model has other units." in browser.text("#model .warn")
    assert "reference tokens" in browser.text("section[aria-label='The bill']")


def test_a_format_that_pages_do_not_know_is_run_in_float64_and_told(
    gallery: Any, tmp_path: Path, browser: Browser
) -> None:
    shown = view(gallery["float32"])
    shown["certificate"]["dtype"] = "float8"
    (tmp_path / "narrow.html").write_text(page_html(shown), encoding="utf-8")
    opened(browser, (tmp_path / "narrow.html").as_uri())
    assert "this page does not know that format and runs the model in float64" in browser.text("#agreement")
    assert browser.run("return document.getElementById('agreement').dataset.agrees") == "true"


def test_a_title_is_text_and_never_markup(gallery: Any, tmp_path: Path, browser: Browser) -> None:
    shown = view(gallery["product"]) | {"title": "</script><script>document.title='broken'</script><b>"}
    path = tmp_path / "hostile.html"
    path.write_text(page_html(shown), encoding="utf-8")
    opened(browser, path.as_uri())
    assert browser.run("return document.title") != "broken"
    assert browser.text(".title") == shown["title"]


def test_a_page_is_refused_in_words(gallery: Any, tmp_path: Path) -> None:
    gallery["product"].save(tmp_path / "product.safetensors")
    with pytest.raises(hs.HeadsmithError, match=r"a page is an \.html file"):
        CliRunner().invoke(
            commands, ["page", str(tmp_path / "product.safetensors"), "-o", "page.png"], catch_exceptions=False
        )
