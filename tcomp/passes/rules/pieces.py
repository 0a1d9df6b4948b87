"""Rules of concatenations and their parts."""

from tcomp.passes.egraph.rule import IndexRule

PIECES: tuple[IndexRule, ...] = (IndexRule("un_of_part", "un(n, part(i, k, g, a))", "part(i, k, g, un(n, a))", fp="bitwise"),)
