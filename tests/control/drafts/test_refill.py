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
    "a version": (
        '<input type="hidden" name="version" value="new">',
        {"version": ["old"]},
        '<input type="hidden" name="version" value="old">',
    ),
    "what a form acts on": (
        '<input type="hidden" name="email" value="b"><input name="n">',
        {"email": ["b"], "n": ["1"]},
        '<input type="hidden" name="email" value="b"><input name="n" value="1">',
    ),
    "another that it acts on": (
        '<input type="hidden" name="email" value="b"><input name="n">',
        {"email": ["c"], "n": ["1"]},
        None,
    ),
    "what is agreed to on another page": (
        '<input type="hidden" name="agreed"><input name="n">',
        {"agreed": ["1"], "n": ["1"]},
        '<input type="hidden" name="agreed"><input name="n" value="1">',
    ),
    "rows": (
        '<input type="hidden" name="r-TOTAL_FORMS" value="1"><input name="r-0-n">',
        {"r-TOTAL_FORMS": ["2"], "r-0-n": ["1"], "r-1-n": ["2"]},
        '<input type="hidden" name="r-TOTAL_FORMS" value="1"><input name="r-0-n" value="1">',
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
    page = refill(PAGE.replace("{inside}", inside), "/page", "/edit", fields).text
    if filled is None:
        assert page == PAGE.replace("{inside}", inside)
        return
    wanted = PAGE.replace("{inside}", filled)
    assert page == wanted.replace('<details class="more">', '<details class="more" open>')


def test_a_page_without_the_form_stays_as_it_is() -> None:
    page = refill(PAGE, "/page", "/elsewhere", {"name": ["new"], "_save": ["Save"]})
    assert (page.text, page.is_filled, page.unfilled) == (PAGE, False, {"name": ["new"]})


def test_a_form_without_an_action_is_sent_to_its_page() -> None:
    page = '<form method="POST"><input name="n"></form>'
    assert 'value="1"' in refill(page, "/page?x=1", "/page", {"n": ["1"]}).text
    assert refill(page.replace("POST", "get"), "/page", "/page", {"n": ["1"]}).text == page.replace(
        "POST", "get"
    )


def test_of_several_forms_the_one_with_the_fields_is_filled() -> None:
    first = '<form method="post"><input name="email"><button name="add"></button></form>'
    second = first.replace("add", "remove")
    page = refill(first + second, "/page", "/page", {"email": ["a@b"], "remove": [""]}).text
    assert page == first + second.replace("<input ", "<input ").replace(
        'name="email"', 'name="email" value="a@b"'
    )


UNFILLED = {
    "rows that the page has not": (
        '<input type="hidden" name="r-TOTAL_FORMS" value="1"><input name="r-0-n">',
        {"r-TOTAL_FORMS": ["2"], "r-0-n": ["1"], "r-1-n": ["2"], "r-1-x": [""]},
        {"r-1-n": ["2"]},
    ),
    "a choice that is gone": (
        '<select name="role"><option value="a">A</option></select><input type="checkbox" name="c"'
        ' value="1">',
        {"role": ["b"], "c": ["1", "2"]},
        {"role": ["b"], "c": ["2"]},
    ),
    "a form of something else": (
        '<input type="hidden" name="email" value="b"><textarea name="n"></textarea>',
        {"email": ["c"], "n": ["1"]},
        {"n": ["1"]},
    ),
    "a password and buttons": (
        '<input type="password" name="n"><button name="add">Add</button><input type="submit"'
        ' name="save">',
        {"n": ["typed"], "add": ["1"], "save": ["Save"]},
        {},
    ),
}


@pytest.mark.parametrize("name", UNFILLED)
def test_what_found_no_place_is_named(name: str) -> None:
    inside, fields, unfilled = UNFILLED[name]
    page = refill(PAGE.replace("{inside}", inside), "/page", "/edit", fields)
    assert page.unfilled == unfilled


def test_secrets_are_named_by_their_labels() -> None:
    inside = (
        '<label for="id_s">The <b>secret</b></label><input id="id_s" name="s" type="password">'
        '<input name="api_secret">'
    )
    page = refill(PAGE.replace("{inside}", inside), "/page", "/edit", {}, ["s", "api_secret", "x"])
    assert page.secrets == ("The secret", "Api secret")
