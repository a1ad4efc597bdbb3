"""Every code block of the documentation runs as it stands, or says why not, and then it parses at least."""

import json
import subprocess
import tomllib

import pytest
import yaml
from docs_answers import fits, shown
from docs_blocks import EVERY, PAGES, PARSED, REASONS, RUN, SHOWN, blocks, markers
from docs_reader import Reader
from running import running

RUNNING = {block.page for block in EVERY if block.language in RUN and not block.reason}


def ids(things):
    return [getattr(thing, "place", None) or thing.name for thing in things]


@pytest.fixture(scope="module")
def service():
    with running("--shared-memory", "true") as service:
        yield service


@pytest.fixture
def reader(service, tmp_path):
    reader = Reader(tmp_path, service.url, service.admin)
    yield reader
    reader.close()


@pytest.mark.parametrize("page", sorted(RUNNING), ids=ids(sorted(RUNNING)))
def test_a_page_can_be_followed(reader, page):
    every = blocks(page)
    ran = None
    for block, following in zip(every, [*every[1:], None], strict=True):
        if block.language in RUN:
            ran = not block.reason
            if ran:
                reader.run(block, refused=_tells_of_a_refusal(following))
        elif block.answers and ran:
            _compare(block, reader.printed)


def _tells_of_a_refusal(block):
    if block is None or not block.answers or block.language != "json":
        return False
    told = json.loads(block.code)
    return isinstance(told, dict) and isinstance(told.get("status"), int) and told["status"] >= 400


def _compare(block, printed):
    if block.language == "json":
        fit = fits(shown(block.code), json.loads(printed))
        assert fit, f"{block.place}: the answer is\n{printed}"
    elif block.language == "text":
        assert printed == block.code, f"{block.place}: it prints\n{printed}"


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_a_page_marks_its_blocks_rightly(page):
    every = blocks(page)
    assert {block.language for block in every} <= RUN | PARSED | SHOWN
    assert {block.reason for block in every if block.reason} <= REASONS
    assert markers(page) == sum(block.reason is not None for block in every if block.language in RUN)
    assert not any(line.lstrip().startswith("```") and line.startswith(" ") for line in page.read_text().splitlines())


MARKED = [block for block in EVERY if block.reason]


@pytest.mark.parametrize("block", MARKED, ids=ids(MARKED))
def test_a_marked_block_parses(block):
    if block.language == "python":
        compile(block.code, block.place, "exec")
    else:
        ran = subprocess.run(["bash", "-n"], input=block.code, text=True, capture_output=True)
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr == ""


_PARSERS = {"json": json.loads, "yaml": lambda text: list(yaml.safe_load_all(text)), "toml": tomllib.loads}
DATA = [block for block in EVERY if block.language in PARSED]


@pytest.mark.parametrize("block", DATA, ids=ids(DATA))
def test_a_block_of_data_parses(block):
    assert _PARSERS[block.language](block.code)


@pytest.mark.parametrize(
    ("told", "given", "fit"),
    [
        ('{"a": 1.25}', {"a": 1.2541}, True),
        ('{"a": 1.25}', {"a": 1.2561}, False),
        ('{"a": 1}', {"a": 1, "b": 2}, False),
        ('{"a": 1, "…": "…"}', {"a": 1, "b": 2}, True),
        ('{"a": 1, "…": "…"}', {"b": 2}, False),
        ('[1, "…"]', [1, 2, 3], True),
        ("[1, 2]", [1, 2, 3], False),
        ('{"a": "…"}', {"a": [None]}, True),
        ("null", 0, False),
    ],
)
def test_what_a_page_shows_is_compared(told, given, fit):
    assert fits(shown(told), given) is fit
