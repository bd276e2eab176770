"""However an event's id is written, it is known again."""

from tests.simulation.writing import id_meant

EVENT_ID = "019d4358-a868-7001-b730-303030303037"


def test_an_id_is_known_in_capitals_and_without_dashes():
    for written in (EVENT_ID, EVENT_ID.upper(), EVENT_ID.replace("-", "")):
        assert id_meant(written) == EVENT_ID


def test_what_is_no_id_stays_what_it_is():
    assert id_meant("not an id") == "not an id"
