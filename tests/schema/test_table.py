

def test_a_private_bound_beside_references_is_refused_with_the_form_that_works():
    tables = {
        "visits": {"source": "v.parquet", "unit": "person", "max_records": 2},
        "items": {
            "source": "i.parquet",
            "references": {"visit": "visits.id"},
            "max_records": "private",
        },
    }
    with pytest.raises(SchemaError, match="without references; write .*, such as max_records = 5"):
        parse_project({"budget": {"epsilon": 1}, "tables": tables}, folder=Path())
