//! The facts the contract states about the seven tools.

use std::collections::BTreeMap;

use countersign::{DataClass, Effect, Pause, ToolSpec};

use super::Bench;
use crate::file_tools;

#[test]
fn the_contract_lists_exactly_these_tools() {
    let bench = Bench::new();
    let specs: Vec<ToolSpec> = file_tools(&bench.workspace).unwrap().iter().map(|tool| tool.spec()).collect();
    let facts: BTreeMap<&str, (&str, Effect)> =
        specs.iter().map(|spec| (spec.name.as_str(), (spec.group.as_str(), spec.effect))).collect();
    let read = ("files", Effect::Read);
    let write = ("editing", Effect::IdempotentWrite);
    assert_eq!(
        facts,
        BTreeMap::from([
            ("list_files", read),
            ("read_file", read),
            ("search_files", read),
            ("write_file", write),
            ("edit_file", write),
            ("move_file", write),
            ("delete_file", write),
        ])
    );
    for spec in specs {
        assert_eq!((spec.data_class, spec.enabled_by_default), (DataClass::EditorContent, true));
        assert_eq!((spec.requires_admin, spec.pause), (false, Pause::Runs));
        assert_eq!(spec.parameters["additionalProperties"], false);
        for required in spec.parameters["required"].as_array().unwrap() {
            assert!(spec.parameters["properties"].get(required.as_str().unwrap()).is_some());
        }
        for (name, schema) in spec.parameters["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{}.{name}", spec.name);
        }
    }
}
