from isthmus.runtime import event_state
from isthmus.runtime.event_state import BURST, LIMIT, REFILL_S, SERIES_S, SeriesBook, SpamFilter


def test_object_must_be_allowed_a_burst_and_then_one_event_per_refill() -> None:
    spam = SpamFilter()
    assert [spam.allow("a", 0) for _ in range(BURST + 2)] == [True] * BURST + [False, False]
    assert spam.allow("b", 0)
    assert not spam.allow("a", REFILL_S - 1)
    assert spam.allow("a", REFILL_S)
    assert not spam.allow("a", REFILL_S)


def test_object_that_was_quiet_must_be_forgotten() -> None:
    spam = SpamFilter()
    spam.allow("a", 0)
    spam.allow("a", 0)
    spam.allow("b", 0)
    spam.purge(REFILL_S)
    assert len(spam) == 1
    spam.purge(2 * REFILL_S)
    assert len(spam) == 0


def test_spam_filter_must_be_bounded() -> None:
    spam = SpamFilter()
    for number in range(LIMIT + 10):
        spam.allow(number, 0)
    assert len(spam) == LIMIT


def test_repeat_must_be_counted_in_the_series_it_belongs_to() -> None:
    book: SeriesBook[str] = SeriesBook()
    assert book.repeat("k", 0, 100) is None
    series = book.begin("k", "what", 0, 100)
    assert (series.count, series.waiting, series.sent_at) == (1, True, None)
    assert book.repeat("k", SERIES_S, 500) is series
    assert (series.count, series.first_wall, series.last_wall) == (2, 100, 500)


def test_repeat_that_comes_late_must_begin_a_new_series() -> None:
    book: SeriesBook[str] = SeriesBook()
    first = book.begin("k", "what", 0, 0)
    assert book.repeat("k", SERIES_S + 1, 0) is None
    assert book.begin("k", "what", SERIES_S + 1, 0) is not first
    assert len(book) == 1


def test_series_that_ended_must_be_forgotten_and_their_number_bounded() -> None:
    book: SeriesBook[int] = SeriesBook()
    for number in range(LIMIT + 10):
        book.begin(number, number, number / LIMIT, 0)
    assert len(book) == LIMIT
    assert book.repeat(20, 300, 0) is not None
    book.purge(SERIES_S + 10)
    assert len(book) == 1
    book.purge(SERIES_S + 301)
    assert len(book) == 0
    book.purge(1000)


def test_figures_must_be_those_of_client_go() -> None:
    assert (event_state.BURST, event_state.REFILL_S, event_state.SERIES_S) == (25, 300, 360)
