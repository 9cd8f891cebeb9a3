"""Random names of nodes: folding and unfolding gives the same names."""

from __future__ import annotations

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st

from unhang.core.nodeset import fold_hosts

# A host whose name is a word of the sentence cannot be distinguished from it: its findings are not
# folded.
HOSTS = st.from_regex(r"[a-z]{1,3}-?[0-9]{0,3}(-[a-z][0-9]{1,2})?", fullmatch=True).filter(
    lambda host: host not in ("of", "x4", "x8")
)


@given(st.sets(HOSTS, max_size=60))
def test_unfolding_gives_back_the_hosts(hosts):
    folded = fold_hosts(hosts)
    assert set(NodeSet(folded, resolver=RESOLVER_NOGROUP)) == hosts
