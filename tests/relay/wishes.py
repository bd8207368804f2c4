"""What tests of interest draw their patterns from."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from reliable_pubsub.common.core.patterns.matching import Kinds, Pattern

KINDS = Kinds()

topics = st.text("ab/", min_size=1, max_size=5)
patterns = st.one_of(
    st.builds(Pattern, st.just("exact"), topics),
    st.builds(Pattern, st.just("prefix"), st.text("ab/", max_size=3)),
    st.builds(
        Pattern, st.just("glob"), st.sampled_from(["a*", "*b", "?b*", "a/*b", "[ab]", "a", "*"])
    ),
    st.builds(
        Pattern, st.just("regex"), st.sampled_from(["a+", "(a|b)*", "a.*b", "[^/]*", "b?a", "ab"])
    ),
    st.builds(Pattern, st.just("sql"), st.just("topic = 'a'")),  # an unknown kind
).map(KINDS.check)
ALL_TOPICS = [a + b + c for a in "ab/" for b in ("", *"ab/") for c in ("", *"ab/")]


def wanted_topics(some: frozenset[Pattern] | set[Pattern] | list[Pattern]) -> set[str]:
    """The topics of three characters that any of these matches."""
    return set().union(*map(_topics_of, some))


@cache
def _topics_of(pattern: Pattern) -> frozenset[str]:
    test = KINDS.test(pattern)
    return frozenset(topic for topic in ALL_TOPICS if test(topic))
