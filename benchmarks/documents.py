"""The entries of the five documents on public tables: means of runs, by the contests' own metrics.

    .venv/bin/python benchmarks/documents.py TABLES [--runs 5] [--only stlouis]

TABLES holds stlouis/, baltimore/ and chicago_taxi/. Records of one year are private, those of the year
before public; where all years are pooled nothing is left to be public, and syncity, which needs it, does
not run. Of the taxi trips one day of 2019 is public, two of 2022 are private. No table of the 1940
census can be had: its 98 fields hold simulated people, others in every run. Every run has a ledger and
noise of its own. Scores compare with the records, so none of them is private.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path

import duckdb

from contests import TABLES
from sfumato.metrics.contests import make_pack, read_pack, run_entry, score_pack
from sfumato.metrics.contests.entries import list_entries

EPSILONS = (1.0, 2.0, 10.0)
ROWS = 20_000  # handed in for the simulated people of the census


def write_incidents(tables, name, folder):
    """A pack of the first sprint from a table of incidents; a year has the one before as public records."""
    records, parameters, year = TABLES[name]
    described = json.loads((tables / parameters).read_text())
    described["runs"] = [{**described["runs"][0], "epsilon": epsilon} for epsilon in EPSILONS]
    stated = 0 if year is None else year
    described["schema"]["periods"] = [{"year": stated, "month": month} for month in range(1, 13)]
    years = [each for (each,) in duckdb.sql(f"SELECT DISTINCT year FROM '{tables / records}'").fetchall()]
    earlier = [] if year is None else [each for each in years if each < year]
    for file, chosen in (("incidents.csv", year), ("public.csv", max(earlier, default=None))):
        if file == "public.csv" and chosen is None:
            continue
        where = "" if chosen is None else f"WHERE year = {chosen}"
        duckdb.sql(
            f"COPY (SELECT {stated} AS year, month, neighborhood, incident_type, sim_resident "
            f"FROM '{tables / records}' {where}) TO '{folder / file}' (HEADER)"
        )
    codes = [str(each["code"]) for each in described["schema"]["incident_type"]]
    (folder / "parameters.json").write_text(json.dumps(described))
    (folder / "submission_format.csv").write_text(
        ",".join(["epsilon", "neighborhood", "year", "month", *codes])
    )


def write_trips(tables, folder):
    """A pack of the third sprint: two days of taxis, and one of another year that is public."""
    trips = tables / "chicago_taxi" / "trips.parquet"
    for file, sign in (("ground_truth.csv", ">="), ("public.csv", "<")):
        duckdb.sql(
            f"COPY (SELECT * EXCLUDE (vehicle_id, trip_date) FROM '{trips}' "
            f"WHERE CAST(trip_date AS DATE) {sign} DATE '2022-01-01') TO '{folder / file}' (HEADER)"
        )
    described = json.loads((tables / "chicago_taxi" / "parameters.json").read_text())
    described["schema"] = {
        name: facts for name, facts in described["schema"].items() if not name.endswith("_exact")
    }
    (folder / "parameters.json").write_text(json.dumps(described))
    columns = [name for name in described["schema"] if name not in ("trip_day_of_week", "trip_hour_of_day")]
    (folder / "submission_format.csv").write_text(",".join(["epsilon", *columns]))


def score_once(folder):
    """The scores of one run of every entry on the pack in `folder`, as written too."""
    pack = read_pack(folder)
    for entry in list_entries(pack.contest):
        if entry == "syncity" and pack.public is None:
            continue
        rows = ROWS if pack.contest == "match3" else None
        run_entry(pack, entry, rows=rows)
        if entry in ("syncity", "adaptive-granularity"):
            run_entry(pack, entry, as_written=True)
    return score_pack(pack)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name in (*TABLES, "taxi trips", "census of 1940, simulated"):
        if options.only not in name:
            continue
        found = defaultdict(list)
        for run in range(options.runs):
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place) / "pack"
                if name.startswith("census"):
                    make_pack("match3", folder, seed=1940 + run)
                else:
                    folder.mkdir()
                    if name == "taxi trips":
                        write_trips(options.tables, folder)
                    else:
                        write_incidents(options.tables, name, folder)
                for each in score_once(folder):
                    found[each.entry, each.epsilon].append(each.score)
        print(f"\n{name}, means of {options.runs}")
        epsilons = sorted({float(epsilon) for _, epsilon in found if epsilon is not None})
        print(f"  {'':34s}" + "".join(f"eps {epsilon:<8g}" for epsilon in epsilons))
        for entry in dict.fromkeys(entry for entry, _ in found):
            means = {
                None if epsilon is None else float(epsilon): sum(scores) / len(scores)
                for (one, epsilon), scores in found.items()
                if one == entry
            }
            shown = [means.get(epsilon, means.get(None)) for epsilon in epsilons]
            print(f"  {entry:34s}" + "".join(f"{score:<12.4g}" for score in shown), flush=True)


if __name__ == "__main__":
    main()
