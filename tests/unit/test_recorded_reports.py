"""Every recorded report of another loader has a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.integration.test_bug_reports import CASES

ROOT = Path(__file__).parents[1]
TESTS = {
    "01": "integration/test_bug_reports.py::test_a_header_name_of_another_client_is_one_dead_letter",
    "02": "integration/test_bug_reports.py::test_a_bad_value_that_compresses_well_is_one_dead_letter",
    "04": "integration/test_runtime_poison.py::"
    "test_an_aggregator_whose_spark_lost_its_scratch_folder_ends_and_the_next_start_loads",
    "06": "integration/test_bug_reports.py::test_a_table_that_merges_rows_is_loaded_and_a_hazard",
    "08": "unit/runtime/test_hazards.py::"
    "test_a_materialized_column_that_looks_something_up_is_reported_where_content_is_recognised",
    "09": "unit/schema/test_schema_defaults.py::test_everything_else_is_refused_with_table_column_and_expression",
    "11": "integration/test_bug_report_names.py::test_a_name_that_is_no_table_of_rows_waits_and_the_others_flow",
    "12": "unit/config/test_config_load.py::test_what_would_harm_later_is_refused_at_once",
    "13": "integration/test_bug_report_names.py::test_quoted_and_odd_names_of_a_table_wait_as_tables_of_their_own",
    "15": "integration/test_bug_report_values.py::test_times_and_days_out_of_range_are_dead_letters_and_never_wrap",
    "16": "integration/test_bug_report_values.py::test_decimals_as_java_prints_them_are_the_same_number_in_each_format",
    "17": "integration/test_bug_reports.py::test_a_tombstone_is_a_dead_letter_and_an_empty_value_is_nothing",
    "19": "integration/test_bug_report_values.py::"
    "test_an_enum_that_gets_another_name_takes_it_from_the_round_that_knows_it",
    "20": "integration/test_runtime_clusters.py::"
    "test_partitions_that_are_added_to_a_topic_are_loaded_from_their_first_message",
    "22": "integration/test_bug_reports.py::test_a_block_of_many_partitions_is_stored_once",
    "24": "integration/test_bug_reports.py::test_values_of_other_serializers_are_dead_letters_of_their_own",
    "25": "integration/test_bug_reports.py::test_a_view_that_is_created_later_is_a_hazard_as_one_that_was_there",
}


@pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not at hand")
def test_every_recorded_case_has_a_test() -> None:
    assert {folder.name[:2] for folder in CASES.iterdir() if folder.is_dir() and folder.name[:2].isdigit()} == {*TESTS}


@pytest.mark.parametrize("case", TESTS)
def test_the_test_of_a_case_is_there(case: str) -> None:
    path, _, name = TESTS[case].partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
