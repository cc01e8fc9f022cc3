"""What a release kept and what it lost, beside the table it was made of: risk, subsets, accuracy, linkage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.anonymity.attack.link import Linkage, Published, link_tables
from sfumato.anonymity.check import NOT_DP, Tally, check_names, tally_rows
from sfumato.anonymity.release import decode_text
from sfumato.anonymity.risk import Risk, Subset, find_identifying_subsets, measure_risk
from sfumato.core.engine.arrays import to_arrow
from sfumato.core.errors import AnonymityError, AttackError
from sfumato.report.pages.charts import draw_pairs
from sfumato.report.pages.render import render_page, render_text
from sfumato.report.pages.words import short
from sfumato.tables.read import TableLike, read_table, spell_table

if TYPE_CHECKING:
    from sfumato.anonymity.options import Options
    from sfumato.anonymity.release import Released


INTERNAL = "INTERNAL: tells facts of the original table, not private, do not publish"
MATCHING = (
    "a missing value matches only a missing value, and `*` only `*`; "
    "an adversary may take either for anything"
)

_MOST_TARGETS = 200  # values of a column that is predicted
_BATCH = 1 << 16  # rows that are predicted at a time
_SHOWN = 12  # subsets of columns in the summary
_UNREADABLE = (
    "some released records fit nobody in the register, as means and names of groups do: "
    "the journalist's risk and the linkage after are too low"
)
_MOST_COLUMNS = 40  # with more quasi-identifiers only pairs of columns are tried: triples would be too many


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """The share of records whose target is predicted right, before and after.

    `baseline_before` and `baseline_after` are the shares of the most frequent target, which is right
    without looking. A table with fewer records is tested on those it has.
    """

    features: tuple[str, ...]
    target: str
    folds: int
    before: float
    after: float
    baseline_before: float
    baseline_after: float

    @property
    def kept(self) -> float | None:
        """The gain over the baseline that is left after, as a part of that before; None without a gain."""
        gain = self.before - self.baseline_before
        return (self.after - self.baseline_after) / gain if gain > 0 else None

    def to_record(self) -> dict[str, Any]:
        """Returns the accuracies for JSON."""
        return {"model": NOT_DP, **asdict(self), "features": list(self.features), "kept": self.kept}


def measure_accuracy(
    before: TableLike, after: TableLike, *, features: Sequence[str], target: str, folds: int = 5
) -> Accuracy:
    """Measures how well `features` predict `target` `before` and `after` generalization.

    A naive Bayes classifier over categories, add-one smoothed, is trained and tested on the same kind of
    table by cross-validation: every label, generalized or not, is a category. The split is fixed and public:
    it depends on which rows there are, and each value of the target is spread evenly over the `folds`.

    >>> before = {"age": [61, 62, 63, 33, 34, 35] * 5, "ill": (["gout"] * 3 + ["flu"] * 3) * 5}
    >>> found = measure_accuracy(before, {**before, "age": ["*"] * 30}, features=["age"], target="ill")
    >>> found.before, found.after, found.baseline_after
    (1.0, 0.5, 0.5)
    """
    check_names(features, [target])
    if folds < 2:
        raise AnonymityError("cross-validation needs at least 2 folds")
    sides = [
        _cross_validate(tally_rows(table, [*features, target], side=side), folds, side)
        for table, side in ((before, "table before"), (after, "table after"))
    ]
    return Accuracy(
        features=tuple(features),
        target=target,
        folds=folds,
        before=sides[0][0],
        after=sides[1][0],
        baseline_before=sides[0][1],
        baseline_after=sides[1][1],
    )


def _cross_validate(tally: Tally, folds: int, side: str) -> tuple[float, float]:
    """Returns (accuracy, share of the most frequent target) of a tally whose last column is the target."""
    targets, classes = tally.codes[-1], len(tally.values[-1])
    if classes > _MOST_TARGETS:
        raise AnonymityError(
            f"{side}: column {tally.columns[-1]!r} has more than {_MOST_TARGETS} different values; "
            "predict one with fewer, such as a group of them"
        )
    if not tally.records:
        return 0.0, 0.0
    split = _split(tally, folds)
    features = list(zip(tally.codes[:-1], map(len, tally.values[:-1]), strict=True))
    right = 0
    for fold in split:
        rest = tally.counts - fold
        prior = np.bincount(targets, rest, minlength=classes)
        # Add-one smoothing: a value that a target never had in training is unlikely, not impossible.
        scores = []
        for codes, size in features:
            pairs = np.bincount(codes * classes + targets, rest, minlength=size * classes)
            scores.append(np.log((pairs.reshape(size, classes) + 1) / (prior + size)))
        tested = np.flatnonzero(fold)
        for start in range(0, tested.size, _BATCH):
            rows = tested[start : start + _BATCH]
            total = np.tile(np.log(prior + 1), (rows.size, 1))
            for (codes, _), score in zip(features, scores, strict=True):
                total += score[codes[rows]]
            hits = total.argmax(axis=1) == targets[rows]
            right += int(fold[rows[hits]].sum())
    most = int(np.bincount(targets, tally.counts).max())
    return right / tally.records, most / tally.records


def _split(tally: Tally, folds: int) -> NDArray[np.int64]:
    """Returns the records of each row in each fold: in a fixed mixed order, dealt out by target in turn."""
    mixed = _mix(np.arange(tally.counts.size, dtype=np.uint64))
    dealt = np.lexsort((mixed, tally.codes[-1]))
    stop = np.empty(dealt.size, np.int64)
    stop[dealt] = np.cumsum(tally.counts[dealt])
    start = stop - tally.counts
    # Of the places from start to stop, those that leave the remainder of the fold.
    shifts = np.arange(folds)[:, None]
    return np.asarray((stop + folds - 1 - shifts) // folds - (start + folds - 1 - shifts) // folds)


def _mix(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers without any order, one for each of `numbers`: the finaliser of SplitMix64."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """What the release did to risk and use, beside what was asked and found. It prints no value of a record.

    `before` is about the quasi-identifiers of the original table as they are. `subsets` are the columns that
    single out most records, in the original table and in the released; classes below `small` are small there.
    Where the release counts people, risks and subsets are about people.
    """

    release: Released
    before: Risk
    after: Risk
    small: int
    subsets: tuple[tuple[Subset, Subset], ...]
    accuracy: Accuracy | None = None
    linked_before: Linkage | None = None
    linked_after: Linkage | None = None
    notes: tuple[str, ...] = ()

    @property
    def made_by(self) -> str:
        """The method that made the classes, and what the other one would have lost."""
        method, *others = tried = self.release.made.tried
        told = "".join(f", which loses no more than {each} ({tried[each]:.1%})" for each in others)
        return f"{method}{told}"

    @property
    def counted(self) -> str:
        """What k and the risks count: people, each once in a class, or records."""
        return "records" if self.release.people is None else "people"

    def to_record(self) -> dict[str, Any]:
        """Returns all of it for JSON; docs/anonymity.md explains the keys."""
        linkage = None
        if self.linked_before is not None and self.linked_after is not None:
            linkage = {
                "before": _record_linkage(self.linked_before),
                "after": _record_linkage(self.linked_after),
            }
        release, made = self.release, self.release.made
        records = release.original.num_rows
        return {
            "internal": INTERNAL,
            "model": NOT_DP,
            "matching": MATCHING,
            "asked": release.options.to_record(),
            "found": release.measured.to_record(),
            "people": release.people,
            "records": {
                "original": records,
                "released": made.table.num_rows,
                "suppressed": release.suppressed,
                "suppressed_share": release.suppressed / max(1, records),
                "suppressed_cells_share": made.suppressed_cells,
            },
            "risk": {"before": self.before.to_record(), "after": self.after.to_record()},
            "small_class": self.small,
            "subsets": [
                {
                    "columns": list(before.columns),
                    "unique": {"before": before.unique, "after": after.unique},
                    "small": {"before": before.small, "after": after.small},
                }
                for before, after in self.subsets
            ],
            "loss": {**asdict(made.loss), "ncp_by_method": dict(made.tried)},
            "accuracy": None if self.accuracy is None else self.accuracy.to_record(),
            "linkage": linkage,
            "notes": list(self.notes),
        }


def summarise(
    released: Released,
    *,
    register: TableLike | None = None,
    survey_weights: pa.ChunkedArray | str | None = None,
    target: str | None = None,
) -> Summary:
    """Returns what `released` kept and lost, beside its original table.

    The journalist's population is the `register` or the `survey_weights`: a column of the original table by
    its name, or its numbers. With a register, both tables are linked with it, too. `target` is the column
    that is predicted from the quasi-identifiers; the first sensitive one by default.

    >>> from sfumato.anonymity.release import release_table
    >>> from sfumato.anonymity.options import Options
    >>> people = {"age": [61, 72, 40, 35], "ill": ["flu", "gout", "flu", "flu"]}
    >>> options = Options(quasi_identifiers=["age"], k=2, sensitive="ill")
    >>> found = summarise(release_table(people, options))
    >>> found.before.prosecutor.largest, found.after.prosecutor.largest, found.release.measured.k
    (1.0, 0.5, 2)
    """
    options, names = released.options, list(released.options.quasi_identifiers)
    if register is not None and survey_weights is not None:
        raise AnonymityError("give a register or survey weights as the population, not both")
    people = None if register is None else read_register(register, options)
    original, made = released.original, released.made.table
    before, after, weights = original.select(names), made.select(names), None
    if survey_weights is not None:
        before, after, weights = _weigh(released, before, after, survey_weights)
    elif options.individual is not None:
        owners = original.column(options.individual)
        theirs = owners.take(to_arrow(released.made.rows))
        before, after = _list_people(before, owners), _list_people(after, theirs)
    small = max(2, options.k)
    risks = [
        measure_risk(table, quasi_identifiers=names, register=people, weights=weights)
        for table in (before, after)
    ]
    accuracy, notes = _predict(original, made, options, target)
    if (risks[1].unmatched or 0) > (risks[0].unmatched or 0):
        notes = (*notes, _UNREADABLE)
    linked: tuple[Linkage | None, Linkage | None] = (None, None)
    if people is not None:
        linked = (_link(original, people, options), _link(made, people, options))
    return Summary(
        release=released,
        before=risks[0],
        after=risks[1],
        small=small,
        subsets=_find_subsets(before, after, names, small),
        accuracy=accuracy,
        linked_before=linked[0],
        linked_after=linked[1],
        notes=(*released.notes, *notes),
    )


def read_register(register: TableLike, options: Options) -> pa.Table:
    """Returns the quasi-identifiers of the people of a register, as text; names are not read further.

    >>> from sfumato.anonymity.options import Options
    >>> options = Options(quasi_identifiers="age", k=2)
    >>> read_register({"name": ["Ada"], "age": [61]}, options).to_pylist()
    [{'age': '61'}]
    """
    people = read_table(register, side="register", columns=options.quasi_identifiers)
    return spell_table(people, side="register")


def check_target(options: Options, target: str | None) -> None:
    """Raises an error if `target` is not a released column beside the quasi-identifiers."""
    if target is not None and target not in (*options.sensitive, *options.keep):
        raise AnonymityError(f"the target {target!r} must be one of the sensitive or the kept columns")


def _weigh(
    released: Released, before: pa.Table, after: pa.Table, weights: pa.ChunkedArray | str
) -> tuple[pa.Table, pa.Table, str]:
    """Returns both tables with the weights of their records in a further column, and its name."""
    if isinstance(weights, str):
        if weights not in released.original.column_names:
            raise AnonymityError(f"table: no column {weights!r} of survey weights")
        weights = released.original.column(weights)
    if len(weights) != before.num_rows:
        raise AnonymityError("there must be one survey weight for each record of the original table")
    name = "survey weights"
    while name in before.column_names:
        name += "_"
    # Who made the release knows where a row came from; the file does not tell it.
    theirs = weights.take(to_arrow(released.made.rows))
    return before.append_column(name, weights), after.append_column(name, theirs), name


def _list_people(table: pa.Table, owners: pa.ChunkedArray) -> pa.Table:
    """Returns each person once for every class that they have records in."""
    names = table.column_names
    keyed = decode_text(table.append_column("owner of sfumato", owners))
    return keyed.group_by(keyed.column_names).aggregate([]).select(names)


def _find_subsets(
    before: pa.Table, after: pa.Table, names: list[str], small: int
) -> tuple[tuple[Subset, Subset], ...]:
    largest = 3 if len(names) <= _MOST_COLUMNS else 2
    found = find_identifying_subsets(before, quasi_identifiers=names, largest=largest, limit=small)
    later = {
        each.columns: each
        for each in find_identifying_subsets(after, quasi_identifiers=names, largest=largest, limit=small)
    }
    return tuple((each, later[each.columns]) for each in found[:_SHOWN])


def _predict(
    original: pa.Table, made: pa.Table, options: Options, target: str | None
) -> tuple[Accuracy | None, tuple[str, ...]]:
    check_target(options, target)
    chosen = target or next(iter(options.sensitive), None)
    if chosen is None:
        return None, ()
    try:
        return measure_accuracy(original, made, features=options.quasi_identifiers, target=chosen), ()
    except AnonymityError as error:
        if target is not None:
            raise
        # Nobody asked for this one: a column that cannot be predicted is no reason to fail.
        return None, (f"no accuracy was measured: {error}",)


def _link(table: pa.Table, people: pa.Table, options: Options) -> Linkage:
    reveal = next(iter(options.sensitive), None)
    columns = [*options.quasi_identifiers, *([] if reveal is None else [reveal])]
    rows = spell_table(table.select(columns), side="release")
    published = Published(rows, np.ones(rows.num_rows, np.int64))
    try:
        return link_tables(published, people, on=options.quasi_identifiers, reveal=reveal)
    except AttackError as error:
        raise AnonymityError(str(error)) from None


def _record_linkage(linkage: Linkage) -> dict[str, Any]:
    """Returns the counts alone: the values of linked records are facts about people."""
    record, revealed = linkage.to_record(), linkage.revealed
    return {key: record[key] for key in ("records", "people", "matches", "limit", "linked")} | {
        "sensitive": None if revealed is None else revealed.column,
        "certain": None if revealed is None else revealed.certain,
    }


def describe_summary(summary: Summary) -> str:
    """Returns what was asked and found, what was lost, and who can still be found, in about ten lines.

    >>> from sfumato.anonymity import Options, release_table
    >>> people = {"age": [61, 72, 40, 35]}
    >>> found = summarise(release_table(people, Options(quasi_identifiers=["age"], k=2)))
    >>> print(describe_summary(found).splitlines()[0])
    found        k = 2 (asked 2)
    """
    models = [
        f"{name} {value} ({f'asked {asked}' if asked else 'not asked'})"
        for name, value, asked in list_models(summary)
    ]
    linked = _describe_linkages(summary.linked_before, summary.linked_after)
    return render_text(
        "anonymity/summary.txt",
        summary=summary,
        models=models,
        linked=linked,
        matching=MATCHING,
        not_dp=NOT_DP,
    )


def list_models(summary: Summary) -> tuple[tuple[str, str, str], ...]:
    """Name, value found and value asked of every model, and of l and t also where nothing was asked.

    Recursive diversity holds or does not, and a file in which it does not is never handed over.
    """
    found, options = summary.release.measured, summary.release.options
    models: list[tuple[str, str, str]] = []
    if options.k_map:
        models.append(("k-map =", f"{found.k_map}", f"{options.k}"))
        models.append(("k =", f"{found.k}", "1"))
    elif options.individual is not None:
        models.append(
            ("k =", f"{summary.release.people} people", f"{options.k} people, checked before writing")
        )
    else:
        models.append(("k =", f"{found.k}", f"{options.k}"))
    if found.l is not None:
        models.append(("l =", f"{found.l}", "" if options.l is None else f"{options.l}"))
    if options.entropy_l is not None:
        models.append(("entropy l =", short(found.entropy_l), f"{options.entropy_l:g}"))
    if options.recursive is not None:
        c, number = options.recursive
        models.append((f"recursive ({c:g}, {number})", "holds", "yes"))
    if found.t is not None:
        models.append(("t =", short(found.t), "" if options.t is None else f"at most {options.t:g}"))
    if options.delta is not None:
        models.append(("delta =", short(found.delta_disclosure), f"below {options.delta:g}"))
    return tuple(models)


def _describe_linkages(before: Linkage | None, after: Linkage | None) -> str | None:
    if before is None or after is None:
        return None
    words = f"{before.linked:,} -> {after.linked:,} of {after.people:,} people in the register"
    if before.revealed is None or after.revealed is None:
        return words
    certain = f"{before.revealed.certain:,} -> {after.revealed.certain:,}"
    return f"{words}; {after.revealed.column} certain of {certain}"


_SECTIONS = {
    "found": "Asked and found",
    "sizes": "The size of the crowd",
    "attackers": "Three attackers",
    "subsets": "Columns that identify",
    "loss": "What was lost",
    "accuracy": "What can still be learned",
    "linkage": "Linkage with the register",
    "limits": "What this does not protect against",
}


def build_page(summary: Summary, *, name: str) -> bytes:
    """Builds the page about the file called `name`: one HTML file without any request.

    >>> from sfumato.anonymity import Options, release_table
    >>> from sfumato.anonymity.summary import summarise
    >>> options = Options(quasi_identifiers=["age"], k=2)
    >>> found = summarise(release_table({"age": [61, 72, 40, 35]}, options))
    >>> build_page(found, name="coarse.csv")[:15]
    b'<!doctype html>'
    """
    records = {
        "found": {
            "models": [
                (each.removesuffix(" ="), asked, found) for each, found, asked in list_models(summary)
            ],
            "matching": MATCHING.replace("`*`", "*"),
        },
        "sizes": {"drawing": _draw_sizes(summary)},
        "attackers": {},
        "subsets": {} if summary.subsets else None,
        "loss": {
            "ncp": sorted(summary.release.made.loss.ncp_by_column.items(), key=lambda each: -each[1]),
            "entropy": sorted(
                summary.release.made.loss.entropy_loss_by_column.items(), key=lambda each: -each[1]
            ),
        },
        "accuracy": None if summary.accuracy is None else {},
        "linkage": None if summary.linked_before is None or summary.linked_after is None else {},
        "limits": {},
    }
    sections: list[dict[str, Any]] = [
        {"name": key, "heading": heading, "template": f"anonymity/{key}.html", "record": records[key]}
        for key, heading in _SECTIONS.items()
        if records[key] is not None
    ]
    return render_page(
        "anonymity/page.html",
        title=f"how anonymous is {name}?",
        internal=True,
        notice="facts of the original table, do not publish",
        printed="facts of the original table",
        sections=sections,
        summary=summary,
        name=name,
        not_dp=NOT_DP,
    )


def _draw_sizes(summary: Summary) -> str:
    def shares(risk: Risk) -> list[float]:
        return [each.records / max(1, risk.records) for each in risk.class_sizes]

    return draw_pairs(
        [each.size for each in summary.after.class_sizes],
        shares(summary.before),
        shares(summary.after),
        f"share of the {summary.counted} by the size of their class, in the original and the released table",
        unit=summary.counted,
    )
