"""A form of a finished page is filled with what was typed, and nothing else of the page changes."""

import pytest

from control.drafts.refill import refill

PAGE = """<!DOCTYPE html><html><head><title>A &amp; B</title><script>if (1 < 2) {"<form>"}</script>
<body>é &nbsp;<svg viewBox="0 0 1 1"><rect width="1"/></svg>
<form method="post" action="/other"><input name="name" value="other"></form>
<details class="more"><summary>More</summary>
<form method="post" action="/edit?x=1">
{inside}
</form></details><details><summary>Rest</summary></details></body></html>
"""
CASES = {
    "text": (
        '<input name="name" value="old" required>',
        {"name": ['a"<b>']},
        '<input name="name" value="a&quot;&lt;b&gt;" required>',
    ),
    "text without a value": (
        '<input name="name"/>',
        {"name": ["new"]},
        '<input name="name" value="new">',
    ),
    "not typed": ('<input name="name" value="old">', {}, '<input name="name" value="old">'),
    "textarea": (
        '<textarea name="lines" rows="2">\r\nold &amp; older</textarea>',
        {"lines": ["a\nb & c"]},
        '<textarea name="lines" rows="2">\na\nb &amp; c</textarea>',
    ),
    "select": (
        '<select name="role"><option value="a" selected>A</option><option value="b">B</select>',
        {"role": ["b"]},
        '<select name="role"><option value="a">A</option><option value="b" selected>B</select>',
    ),
    "checkboxes": (
        '<input type="checkbox" name="e" value="1" checked><input type="checkbox" name="e"'
        ' value="2"><input type="checkbox" name="is_on" checked>',
        {"e": ["2"]},
        '<input type="checkbox" name="e" value="1"><input type="checkbox" name="e"'
        ' value="2" checked><input type="checkbox" name="is_on">',
    ),
    "radio": (
        '<input type="radio" name="r" value="1" checked><input type="radio" name="r" value="2">',
        {"r": ["2"]},
        '<input type="radio" name="r" value="1"><input type="radio" name="r" value="2" checked>',
    ),
    "the same name twice": (
        '<input name="n"><input name="n">',
        {"n": ["1", "2"]},
        '<input name="n" value="1"><input name="n" value="2">',
    ),
    "a password": (
        '<input type="password" name="secret">',
        {"secret": ["typed"]},
        '<input type="password" name="secret">',
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_form_is_filled(name: str) -> None:
    inside, fields, filled = CASES[name]
    page = refill(PAGE.replace("{inside}", inside), "/page", "/edit", fields)
    wanted = PAGE.replace("{inside}", filled)
    assert page == wanted.replace('<details class="more">', '<details class="more" open>')


def test_a_page_without_the_form_stays_as_it_is() -> None:
    assert refill(PAGE, "/page", "/elsewhere", {"name": ["new"]}) == PAGE


def test_a_form_without_an_action_is_sent_to_its_page() -> None:
    page = '<form method="POST"><input name="n"></form>'
    assert 'value="1"' in refill(page, "/page?x=1", "/page", {"n": ["1"]})
    assert refill(page.replace("POST", "get"), "/page", "/page", {"n": ["1"]}) == page.replace(
        "POST", "get"
    )


def test_of_several_forms_the_one_with_the_fields_is_filled() -> None:
    first = '<form method="post"><input name="email"><button name="add"></button></form>'
    second = first.replace("add", "remove")
    page = refill(first + second, "/page", "/page", {"email": ["a@b"], "remove": [""]})
    assert page == first + second.replace("<input ", "<input ").replace(
        'name="email"', 'name="email" value="a@b"'
    )
